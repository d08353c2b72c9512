"""Pictures of collective communication: what each rank holds before and after, and what moves where."""

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyArrowPatch, Rectangle

from pi2zero.plots.style import INK, new_axes, rank_color

__all__ = ["collective"]


def collective(name: str, before: list, after: list, ax=None, figsize=None):
    """What each rank holds before and after a collective call, and which way the values went.

    before, after: one list a rank, each of short texts: `collective("Bcast", [["N"], [], []], [["N"], ["N"], ["N"]])`.
    A value such as "a+b" is one that came from "a" and "b"; it is drawn grey.
    """
    ranks = len(before)
    widest, after_widest = (max(len(row) for row in rows) for rows in (before, after))
    right = widest + 1.6  # x where the column after the call begins
    ax = new_axes(ax, figsize, (1.4 + 0.75 * (right + after_widest), 0.6 + 0.55 * ranks))
    colors = {}
    for text in (text for row in before for text in row):
        colors.setdefault(text, rank_color(len(colors)))
    for rank in range(ranks):
        ax.add_patch(Rectangle((-1.7, rank + 0.38), 0.24, 0.24, color=rank_color(rank)))
        ax.text(-1.4, rank + 0.5, f"rank {rank}", va="center", color=INK)
        _boxes(ax, before[rank], 0, rank, colors)
        _boxes(ax, after[rank], right, rank, colors)
        for source in range(ranks):
            if _flows(before[source], after[rank], keeps=before[rank], same=source == rank):
                ends = (widest + 0.1, source + 0.5), (right - 0.1, rank + 0.5)
                style = {"arrowstyle": "-|>", "mutation_scale": 12, "shrinkA": 0, "shrinkB": 0}
                ax.add_patch(FancyArrowPatch(*ends, color=rank_color(source), **style))
    ax.set(xlim=(-1.8, right + after_widest + 0.4), ylim=(ranks, 0), title=name)
    ax.axis("off")
    return ax


def _boxes(ax, texts, left, rank, colors):
    for i, text in enumerate(texts):
        color = colors.get(text, "#777777")
        ax.add_patch(Rectangle((left + i, rank + 0.1), 0.92, 0.8, color=color))
        ink = "black" if np.dot(to_rgb(color), (0.3, 0.59, 0.11)) > 0.55 else "white"
        size = "medium" if len(text) < 6 else "x-small"
        ax.text(left + i + 0.46, rank + 0.5, text, ha="center", va="center", color=ink, weight="bold", size=size)


def _flows(source, target, keeps, same):
    """Does a value of `source` end in `target`? What a rank keeps is no news, so others need not send it."""
    arrived = {part for text in target for part in text.split("+")}
    return bool(arrived & set(source) and (same or (arrived - set(keeps)) & set(source)))
