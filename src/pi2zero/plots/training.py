"""Pictures of training: data, loss curves, the price of a batch size, activities, bytes sent."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch

from pi2zero.plots.style import ACTIVITY_COLORS, FAINT, RANK_COLORS, legend_outside, new_axes

__all__ = ["bytes_by_ranks", "images", "loss_curves", "over_batch_size", "timeline"]

_IN_WORDS = {"compute": "computing", "communicate": "communicating", "wait": "waiting"}


def images(pixels, labels, columns: int = 10, ax=None, figsize=None):
    """Small square images in a grid, each with its label.

    pixels: (n, side * side) or (n, side, side), 0 is white. labels: (n,).
    """
    pixels = np.asarray(pixels)
    side, rows = int(np.sqrt(pixels[0].size)), -(-len(pixels) // columns)
    ax = new_axes(ax, figsize, (0.75 * columns, 1.0 * rows))
    style = {"cmap": "gray_r", "vmin": 0, "vmax": pixels.max()}
    for index, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        x, y = index % columns, -1.3 * (index // columns)
        ax.imshow(image.reshape(side, side), extent=(x, x + 0.84, y - 0.84, y), **style)
        ax.text(x + 0.42, y + 0.02, str(label), ha="center", va="bottom")
    ax.set(xlim=(-0.05, columns), ylim=(-1.3 * (rows - 1) - 0.9, 0.4), aspect="equal")
    ax.axis("off")
    return ax


def loss_curves(
    curves: dict,
    ylabel: str = "loss",
    xlabel: str = "step",
    log: bool = False,
    ax=None,
    figsize=None,
):
    """Curves of training runs. curves: label -> (k,) values of steps 1..k, or (steps, values).

    Values that are not finite (the run has diverged) are left out; a cross marks the last one
    before them.
    """
    ax = new_axes(ax, figsize, (7.2, 4.0))
    for label, values in curves.items():
        if not isinstance(values, tuple):
            values = np.arange(1, len(values) + 1), values
        steps, values = np.asarray(values[0]), np.asarray(values[1], float)
        (line,) = ax.plot(steps, np.where(np.isfinite(values), values, np.nan), label=label)
        diverged = np.flatnonzero(~np.isfinite(values))
        if diverged.size and diverged[0] > 0:
            last = diverged[0] - 1
            ax.plot(steps[last], values[last], "X", color=line.get_color(), markersize=11)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    if log:
        ax.set_yscale("log")
    ax.legend()
    ax.grid(True)
    return ax


def over_batch_size(sizes, panels: dict, figsize=None):
    """A panel per quantity over the batch size. panels: ylabel -> (k,) values. Returns the Axes."""
    size = figsize or (3.9 * len(panels), 3.6)
    _, axes = plt.subplots(1, len(panels), figsize=size, squeeze=False)
    for index, (ax, (ylabel, values)) in enumerate(zip(axes[0], panels.items(), strict=True)):
        ax.plot(sizes, values, "o-", color=RANK_COLORS[index % len(RANK_COLORS)])
        ax.set(xscale="log", xlabel="batch size", ylabel=ylabel)
        ax.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize="small")
        ax.minorticks_off()
        ax.grid(True)
    return list(axes[0])


def timeline(spans_by_rank, ax=None, figsize=None):
    """What each rank did over time: a row per rank, a colour per activity, ms since the first span.

    spans_by_rank: rank -> list of (name, start_s, stop_s) as `meters.Timeline` records them, or a
    list in rank order. A label instead of a rank gives a row of its own, e.g. "rank 0, network".
    Raises ValueError if there are no spans.
    """
    rows = spans_by_rank if isinstance(spans_by_rank, dict) else dict(enumerate(spans_by_rank))
    if not any(rows.values()):
        raise ValueError("no spans to draw: use `with timeline('compute'): ...` on the ranks first")
    ax = new_axes(ax, figsize, (9.5, 1.1 + 0.5 * len(rows)))
    zero = min(start for spans in rows.values() for _, start, _ in spans)
    colors = _activity_colors(name for spans in rows.values() for name, _, _ in spans)
    for y, spans in enumerate(rows.values()):
        for activity, color in colors.items():
            bars = [
                (1e3 * (start - zero), 1e3 * (stop - start))
                for name, start, stop in spans
                if name == activity
            ]
            ax.broken_barh(bars, (y - 0.36, 0.72), color=color, linewidth=0)
    labels = [f"rank {row}" if isinstance(row, int | np.integer) else row for row in rows]
    ax.set(yticks=range(len(rows)), yticklabels=labels, ylim=(len(rows) - 0.5, -0.5))
    ax.set_xlabel("time, ms")
    ax.margins(x=0)  # set_xlim would fix the limits for a picture that shares this axis
    handles = [
        Patch(color=color, label=_IN_WORDS.get(name, name)) for name, color in colors.items()
    ]
    ax.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(colors))
    return ax


def _activity_colors(names) -> dict:
    """Name -> colour: first the known activities in a fixed order, then others as they appear."""
    names = list(dict.fromkeys(names))
    known = {name: color for name, color in ACTIVITY_COLORS.items() if name in names}
    others = [name for name in names if name not in ACTIVITY_COLORS]
    spare = [color for color in RANK_COLORS if color not in ACTIVITY_COLORS.values()]
    return known | {name: spare[index % len(spare)] for index, name in enumerate(others)}


def bytes_by_ranks(formulas: dict, counted: dict, ranks, ax=None, figsize=None):
    """Bytes over one link per step: formulas as lines, counted ones as dots of the same colour.

    formulas: label -> function of the number of ranks, in bytes. counted: label -> {number of
    ranks: bytes}. ranks: (k,) numbers of ranks for which to draw the lines.
    """
    ax, ranks = new_axes(ax, figsize, (7.6, 4.0)), np.asarray(ranks)
    for index, (label, formula) in enumerate(formulas.items()):
        color = RANK_COLORS[[4, 0, 2, 3][index % 4]]
        ax.plot(ranks, [formula(int(n)) / 1e3 for n in ranks], color=color, label=label)
        dots = counted.get(label, {})
        ax.plot(list(dots), [value / 1e3 for value in dots.values()], "o", color=color)
    ax.plot([], [], "o", color=FAINT, label="counted in the run")
    ax.set(xlabel="ranks", ylabel="kB per step, both ways", xticks=ranks)
    ax.set_ylim(bottom=0)
    legend_outside(ax)
    ax.grid(True)
    return ax
