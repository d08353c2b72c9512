"""The planner: for a model and a machine, every layout of a training step, what it holds, how long it takes. Pure functions."""

from pi2zero.costs.planner.files import *  # noqa: F403
from pi2zero.costs.planner.held import *  # noqa: F403
from pi2zero.costs.planner.layouts import *  # noqa: F403
from pi2zero.costs.planner.models import *  # noqa: F403
from pi2zero.costs.planner.search import *  # noqa: F403
from pi2zero.costs.planner.seconds import *  # noqa: F403
