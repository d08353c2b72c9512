"""The planner: every layout of a training step, its memory and its step time. Pure functions."""

from pi2zero.costs.planner.layouts import *  # noqa: F403
from pi2zero.costs.planner.memory import *  # noqa: F403
from pi2zero.costs.planner.models import *  # noqa: F403
from pi2zero.costs.planner.plan_file import *  # noqa: F403
from pi2zero.costs.planner.report import *  # noqa: F403
from pi2zero.costs.planner.search import *  # noqa: F403
from pi2zero.costs.planner.timing import *  # noqa: F403
