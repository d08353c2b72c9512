"""Models on paper: what parallel computing can be expected to give. Pure functions.

Every argument may be a number or a NumPy array; the result has the broadcast shape.
"""

from pi2zero.costs.collectives import *  # noqa: F403
from pi2zero.costs.pi import *  # noqa: F403
from pi2zero.costs.pipeline import *  # noqa: F403
from pi2zero.costs.planner import *  # noqa: F403
from pi2zero.costs.published import *  # noqa: F403
from pi2zero.costs.scaling import *  # noqa: F403
from pi2zero.costs.speedup import *  # noqa: F403
from pi2zero.costs.zero import *  # noqa: F403
