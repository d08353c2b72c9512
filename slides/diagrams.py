"""Diagrams that explain an idea and show no data: ranks, messages, time lines.

Drawn on a canvas in CSS pixels.

Figures with data come from pi2zero.plots, as in the notebooks.
"""

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

PX_PER_INCH = 96
INK, QUIET, PALE, ACCENT, WARM = "#1c2331", "#4a5468", "#dfe5ee", "#1f5fa8", "#b4511b"
GREY = "#9aa3b2"  # charts are QUIET and GREY, and WARM is what the headline speaks of


def canvas(width, height):
    """A figure of `width` x `height` CSS pixels with one empty axes in the same units, origin at
    the lower left.
    """
    figure = Figure(figsize=(width / PX_PER_INCH, height / PX_PER_INCH), layout="none")
    axes = figure.add_axes([0, 0, 1, 1])
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    return figure, axes


def box(
    axes,
    x,
    y,
    width,
    height,
    text="",
    color=PALE,
    ink=INK,
    size=18,
    edge="none",
    weight="normal",
    **text_options,
):
    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=10",
            facecolor=color,
            edgecolor=edge,
            linewidth=2.5,
        )
    )
    axes.text(
        x + width / 2,
        y + height / 2,
        text,
        ha="center",
        va="center",
        color=ink,
        fontsize=size,
        weight=weight,
        **text_options,
    )


def arrow(axes, start, end, color=QUIET, width=3.0, bend=0.0, style="-|>"):
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle=f"{style},head_length=9,head_width=5" if style != "-" else "-",
            connectionstyle=f"arc3,rad={bend}",
            color=color,
            linewidth=width,
            shrinkA=2,
            shrinkB=2,
        )
    )


def label(axes, x, y, text, size=18, color=INK, ha="center", va="center", **options):
    axes.text(x, y, text, fontsize=size, color=color, ha=ha, va=va, **options)


def bar(axes, x, y, width, height, text="", color=PALE, ink=INK, hatch=None, size=17):
    """A stretch of time on a time line."""
    axes.bar(
        x,
        height,
        width,
        bottom=y,
        align="edge",
        color=color,
        hatch=hatch,
        edgecolor="white",
        linewidth=2,
    )
    label(axes, x + width / 2, y + height / 2, text, size=size, color=ink)


def way(here):
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
