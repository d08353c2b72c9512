"""Colours, font sizes and what every picture needs."""

import matplotlib as mpl
import matplotlib.pyplot as plt

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

# Okabe and Ito's palette, told apart by colour-blind readers too; yellow last, because it is weak on white.
RANK_COLORS = [
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#D55E00",
    "#56B4E9",
    "#555555",
    "#F0E442",
]
BLUE, ORANGE, GREEN, PINK, VERMILION, SKY, GREY, YELLOW = RANK_COLORS
INK = "#333333"
FAINT = "#BBBBBB"
IDLE = "#E6E6E6"  # nobody works

# A colour means one thing in all pictures of a kind, in notebooks and decks: a rank, or what a rank does, or what memory holds.
ACTIVITY_COLORS = {"compute": GREEN, "communicate": BLUE, "wait": ORANGE}
# Pipelines: to compute is mostly to go forward; what is idle is grey.
ACTION_COLORS = {"F": GREEN, "B": VERMILION, "I": PINK, "W": SKY}
# The parts of a step that costs.plan names; images are cut in space, texts in sequence, so these two never meet.
STEP_COLORS = {
    "compute": GREEN,
    "recompute": YELLOW,
    "bubble": IDLE,
    "tensor": SKY,
    "sequence": VERMILION,
    "space": VERMILION,
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
    """The colour of an MPI rank, the same in every picture; they repeat after eight."""
    return RANK_COLORS[rank % len(RANK_COLORS)]


def use_style(font_size: float = 12) -> None:
    """Set the workshop's style in matplotlib's rcParams; done once on import of pi2zero.plots. font_size: points."""
    mpl.rcParams.update(
        {
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
    )


def new_axes(ax, figsize, default):
    """`ax` if there is one, else the Axes of a new figure. figsize: inches, or None for the default."""
    return ax if ax is not None else plt.subplots(figsize=figsize or default)[1]


def legend_outside(ax, **options):
    """The legend to the right of the picture."""
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), **options)
