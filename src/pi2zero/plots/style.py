"""Colours, font sizes and what every picture needs."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

__all__ = [
    "ACTIVITY_COLORS",
    "COMPONENT_COLORS",
    "FAINT",
    "INK",
    "RANK_COLORS",
    "STEP_COLORS",
    "rank_color",
    "use_style",
]

# Okabe and Ito's palette, which colour-blind readers can tell apart. Yellow is weak on white: last.
RANK_COLORS = [
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7"),
    *("#D55E00", "#56B4E9", "#555555", "#F0E442"),
]
BLUE, ORANGE, GREEN, PINK, VERMILION, SKY, GREY, YELLOW = RANK_COLORS
INK = "#333333"
FAINT = "#BBBBBB"
IDLE = "#E6E6E6"

# A colour means one thing in all pictures of a kind, in notebooks and decks: a rank, what a rank
# does, or what is in its memory.
ACTIVITY_COLORS = {"compute": GREEN, "communicate": BLUE, "wait": ORANGE}
# Actions of a pipeline. Computing is mostly the forward pass; idle time is grey.
ACTION_COLORS = {"F": GREEN, "B": VERMILION, "I": PINK, "W": SKY}
# Parts of a step in costs.plan. No model has both context and spatial parallelism.
STEP_COLORS = {
    "compute": GREEN,
    "recompute": YELLOW,
    "bubble": IDLE,
    "tensor": SKY,
    "context": VERMILION,
    "spatial": VERMILION,
    "pipeline": PINK,
    "gradients": BLUE,
    "update": GREY,
    "offload": ORANGE,
}
COMPONENT_COLORS = {
    "parameters": BLUE,
    "gradients": ORANGE,
    "master": GREEN,
    "moments": PINK,
    "activations": SKY,
    "in flight": GREY,
}


def rank_color(rank: int) -> str:
    """The colour of an MPI rank, the same in every picture. Colours repeat after eight ranks."""
    return RANK_COLORS[rank % len(RANK_COLORS)]


def use_style(font_size: float = 12) -> None:
    """Set the workshop's style in matplotlib's rcParams. font_size: points.

    Importing pi2zero.plots calls it once. A matplotlibrc of the user does not count: it may ask for
    LaTeX, which is not here.
    """
    style = {
        "font.size": font_size,
        "axes.titlesize": "medium",
        "axes.titleweight": "bold",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.prop_cycle": mpl.cycler(color=RANK_COLORS),
        "axes.axisbelow": True,
        "grid.color": "#E4E4E4",
        "legend.frameon": False,
        "lines.linewidth": 2,
        "lines.markersize": 7,
        "figure.constrained_layout.use": True,
        "figure.dpi": 110,
    }
    mpl.rcdefaults()
    mpl.rcParams.update(style)


def new_axes(ax, figsize, default):
    """`ax` if there is one, else the Axes of a new figure. figsize: inches, None: the default."""
    return ax if ax is not None else plt.subplots(figsize=figsize or default)[1]


def legend_outside(ax, **options):
    """The legend to the right of the picture."""
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), **options)


def add_box(ax, x, y, width, height, **style):
    """A rectangle whose corner with the smallest x and y is (x, y)."""
    ax.add_patch(Rectangle((x, y), width, height, **style))


def centred_text(ax, x, y, text, **style):
    """A text around (x, y)."""
    ax.text(x, y, text, ha="center", va="center", **style)


def ink_on(color):
    """Black or white, whichever is legible on a colour."""
    return "black" if np.dot(to_rgb(color), (0.3, 0.59, 0.11)) > 0.55 else "white"


def stacked_bars(ax, rows, colors, height=0.7):
    """A horizontal bar for each row, the first on top, stacked from its parts in the colors' order.

    rows: {label: {part: length}}; colors: {part: colour}. Each part gets one entry in the legend.
    """
    left = np.zeros(len(rows))
    for part, color in colors.items():
        lengths = np.array([parts.get(part, 0.0) for parts in rows.values()])
        # A bar without a length would hold the axis' margin at its place.
        drawn = np.flatnonzero(lengths) if lengths.any() else np.arange(len(rows))
        ax.barh(drawn, lengths[drawn], height, left=left[drawn], color=color, label=part)
        left += lengths
    ax.set_yticks(range(len(rows)), list(rows))
    ax.invert_yaxis()


def legend_above(ax, ncols, **options):
    """The legend above the whole figure; `memory_bars` and `plan_steps` have many entries."""
    handles = ax.get_legend_handles_labels()
    ax.figure.legend(*handles, loc="outside upper center", ncols=ncols, handlelength=1, **options)
