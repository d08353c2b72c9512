"""Parts of diagrams that explain an idea and show no data: ranks, messages, time lines.

They are drawn on a canvas in CSS pixels. Figures with data come from pi2zero.plots, as in the
notebooks.
"""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from pi2zero import plots

PX_PER_INCH = 96  # CSS; so a figure's 18 pt text is 24 px high on a 1280 x 720 slide
INK, QUIET, PALE, ACCENT, WARM = "#1c2331", "#4a5468", "#dfe5ee", "#1f5fa8", "#b4511b"
GREY = "#9aa3b2"  # Charts are QUIET and GREY, and WARM is what the headline speaks of.
STYLE = {"font.size": 18, "figure.dpi": PX_PER_INCH}


def canvas(width, height):
    """A figure of `width` x `height` CSS pixels with one empty axes in the same units, origin at
    the lower left.
    """
    figure = Figure(figsize=(width / PX_PER_INCH, height / PX_PER_INCH), layout="none")
    axes = figure.add_axes([0, 0, 1, 1])
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    return figure, axes


def chart(figsize, **settings):
    """Axes of a chart with a grid."""
    axes = plt.subplots(figsize=figsize)[1]
    axes.set(**settings)
    axes.grid(True)
    return axes


def box(axes, x, y, width, height, text="", color=PALE, ink=INK, size=18, edge="none", **options):
    style = {"boxstyle": "round,pad=0,rounding_size=10", "facecolor": color, "edgecolor": edge}
    axes.add_patch(FancyBboxPatch((x, y), width, height, linewidth=2.5, **style))
    label(axes, x + width / 2, y + height / 2, text, size, ink, **options)


def ink_on(rank):
    """The colour of text on the colour of a rank."""
    return INK if rank % 4 in (1, 3) else "white"


def rank_box(axes, x, y, width, height, text, rank, size=18):
    """A box in the colour of its rank."""
    box(axes, x, y, width, height, text, plots.rank_color(rank), ink_on(rank), size)


def rank_bar(axes, x, y, width, height, text, rank, size=17):
    """A stretch of time in the colour of its rank."""
    bar(axes, x, y, width, height, text, plots.rank_color(rank), ink_on(rank), size=size)


def block(axes, x, y, width, height, color, **options):
    """A filled rectangle without text."""
    axes.add_patch(Rectangle((x, y), width, height, facecolor=color, **options))


def arrow(axes, start, end, color=QUIET, width=3.0, bend=0.0, style="-|>"):
    head = f"{style},head_length=9,head_width=5"
    curve = {"connectionstyle": f"arc3,rad={bend}", "shrinkA": 2, "shrinkB": 2}
    axes.add_patch(
        FancyArrowPatch(start, end, arrowstyle=head, color=color, linewidth=width, **curve)
    )


def row_label(axes, x, y, text, size=18):
    """The bold name of a row, left of it."""
    label(axes, x, y, text, size, ha="right", weight="bold")


def label(axes, x, y, text, size=18, color=INK, ha="center", va="center", **options):
    axes.text(x, y, text, fontsize=size, color=color, ha=ha, va=va, **options)


def bar(axes, x, y, width, height, text="", color=PALE, ink=INK, hatch=None, size=17):
    """A stretch of time on a time line."""
    style = {"color": color, "hatch": hatch, "edgecolor": "white", "linewidth": 2}
    axes.bar(x, height, width, bottom=y, align="edge", **style)
    label(axes, x + width / 2, y + height / 2, text, size=size, color=ink)


def stairs(here):
    """The first four parts of the workshop as stairs, part `here` (0..3) in colour."""
    figure, axes = canvas(1150, 430)
    steps = ["π and MPI\n\nranks, Bcast,\nReduce", "Data parallel\n\nall-reduce,\nHorovod, DDP"]
    steps += [
        "ZeRO\n\nshard states,\ngradients, weights",
        "A summarizer\n\ntrained on ranks,\njudged by facts",
    ]
    for i, text in enumerate(steps):
        color, ink = (ACCENT, "white") if i == here else (PALE, INK)
        box(axes, 20 + i * 284, 20 + i * 70, 258, 180, text, color, ink, size=19)
    label(axes, 149 + here * 284, 240 + here * 70, "you are here", color=ACCENT, weight="bold")
    return figure
