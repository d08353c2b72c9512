"""The workshop's pictures, in one style: a rank has the same colour everywhere.

Every function draws on `ax` if it is given, else on a new figure, and returns the Axes.
Font sizes follow matplotlib's `font.size`; `use_style(18)` makes every later picture fit a slide.
"""

from pi2zero.requirements import require_package

require_package("matplotlib", "plots")

from pi2zero.plots.collectives import *  # noqa: F403
from pi2zero.plots.pi import *  # noqa: F403
from pi2zero.plots.pipeline import *  # noqa: F403
from pi2zero.plots.plan import *  # noqa: F403
from pi2zero.plots.scaling import *  # noqa: F403
from pi2zero.plots.space import *  # noqa: F403
from pi2zero.plots.speedup import *  # noqa: F403
from pi2zero.plots.style import *  # noqa: F403
from pi2zero.plots.summaries import *  # noqa: F403
from pi2zero.plots.training import *  # noqa: F403
from pi2zero.plots.zero import *  # noqa: F403

use_style()  # noqa: F405
