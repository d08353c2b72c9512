"""Pictures of ZeRO: a rank's part of the states, bytes predicted and measured, a stage-3 step."""

import numpy as np
from matplotlib.patches import Patch

from pi2zero.costs.zero import PARTITIONED_FROM
from pi2zero.plots.style import (
    COMPONENT_COLORS,
    FAINT,
    INK,
    add_box,
    legend_above,
    new_axes,
    stacked_bars,
)

__all__ = ["memory_bars", "partitions", "stage3_moments"]

EMPTY = {"facecolor": "#F2F2F2", "edgecolor": FAINT, "linewidth": 0.5}


def memory_bars(measured, predicted=None, unit=1e6, ax=None, figsize=None):
    """One stacked bar of bytes for each row, by component; a mark at the prediction of a row.

    measured: {label: {component: bytes}}; names that are not in COMPONENT_COLORS are left out.
    predicted: {label: bytes}. unit: bytes of one unit of the axis, 1e6 for MB.
    """
    ax, predicted = new_axes(ax, figsize, (9, 0.42 * len(measured) + 1.4)), predicted or {}
    colors = {
        name: color
        for name, color in COMPONENT_COLORS.items()
        if any(parts.get(name) for parts in measured.values())
    }
    rows = {
        label: {name: parts.get(name, 0) / unit for name in colors}
        for label, parts in measured.items()
    }
    stacked_bars(ax, rows, colors)
    for y, label in enumerate(measured):
        if label in predicted:
            style = {"color": INK, "linewidth": 3, "label": None if y else "predicted"}
            ax.plot([predicted[label] / unit] * 2, [y - 0.45, y + 0.45], **style)
    longest = max([*(sum(parts.values()) for parts in rows.values()), *_scaled(predicted, unit)])
    ax.set_xlim(0, 1.04 * longest or 1)  # no bar ends at the edge of the axis
    name = {1e3: "kB", 1e6: "MB", 1e9: "GB"}.get(unit, f"units of {unit:g} bytes")
    ax.set(xlabel=f"{name} on one rank")
    ax.grid(axis="x")
    legend_above(ax, ncols=7, handletextpad=0.4, columnspacing=1)
    return ax


def _scaled(sizes, unit):
    return [size / unit for size in sizes.values()]


def partitions(ranks=4, stage=None, ax=None, figsize=None):
    """A row for each rank and stage, a column for each component; the rank's shard is coloured.

    ranks: how many. stage: 0..3; None draws all four, one below the other.
    """
    stages = range(4) if stage is None else [stage]
    ax = new_axes(ax, figsize, (9, 0.28 * ranks * len(stages) + 0.9))
    widths = {"parameters": 2, "gradients": 2, "master": 4, "moments": 8}  # bytes per parameter
    starts = np.concatenate([[0], np.cumsum(np.add(list(widths.values()), 0.5))])
    columns = list(zip(widths, widths.values(), starts[:-1], strict=True))
    for block, number in enumerate(stages):
        top = block * (ranks + 0.8)
        for rank in range(ranks):
            for name, width, start in columns:
                ax.barh(top + rank, width, left=start, height=0.8, **EMPTY)
                is_sharded = number >= PARTITIONED_FROM[name]
                shard, left = (width / ranks, start + rank * width / ranks)
                shard, left = (shard, left) if is_sharded else (width, start)
                ax.barh(top + rank, shard, left=left, height=0.8, color=COMPONENT_COLORS[name])
            ax.text(-0.2, top + rank, f"rank {rank}", ha="right", va="center", fontsize="small")
        style = {"ha": "right", "va": "center", "weight": "bold"}
        ax.text(-2.2, top + (ranks - 1) / 2, f"stage {number}", **style)
    for name, width, start in columns:
        style = {"ha": "center", "va": "bottom", "fontsize": "small"}
        ax.text(start + width / 2, -0.8, f"{name}\n{width} B", **style)
    ax.set(xlim=(-4.6, starts[-1]), ylim=(len(stages) * (ranks + 0.8) - 0.5, -2.4))
    ax.axis("off")
    return ax


def stage3_moments(layers=3, ranks=4, ax=None, figsize=None):
    """A stage-3 step: a column per moment, a row per rank; a cell has the rank's copies of layers.

    Full width: the whole layer, gathered. The narrow strip is the shard that always stays. Orange:
    the gradient of a layer, whole while it is computed, a shard of it afterwards.
    """
    moments = [
        ("rest", None, 0),
        *((f"forward {k + 1}", k, 0) for k in range(layers)),
        *((f"backward {k + 1}", k, layers - k) for k in reversed(range(layers))),
        ("update", None, layers),
    ]
    ax = new_axes(ax, figsize, (1.25 * len(moments), 0.9 * ranks + 0.8))
    for column, (name, gathered, gradients) in enumerate(moments):
        style = {"ha": "center", "va": "bottom", "fontsize": "small", "weight": "bold"}
        ax.text(column + 0.45, -0.12, name, **style)
        for rank in range(ranks):
            for layer in range(layers):
                is_whole, height = layer == gathered, 0.86 / layers
                y, size = rank + 0.04 + height * layer, (0.86 * height, rank, ranks)
                _sharded_box(ax, column, y, *size, "parameters", True, is_whole)
                has_gradient = gradients and layer >= layers - gradients
                is_computed = is_whole and name.startswith("backward")
                place = column + 0.46, y, *size
                _sharded_box(ax, *place, "gradients", has_gradient, is_computed)
    for rank in range(ranks):
        ax.text(-0.1, rank + 0.4, f"rank {rank}", ha="right", va="center", fontsize="small")
    ax.set(xlim=(-0.7, len(moments)), ylim=(ranks, -0.45))
    ax.axis("off")
    names = ("parameters", "gradients")
    ax.legend(
        handles=[Patch(color=COMPONENT_COLORS[name], label=name) for name in names],
        title="wide: a whole layer, narrow: a shard",
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        ncols=2,
    )
    return ax


def _sharded_box(ax, x, y, height, rank, ranks, component, has_shard, is_whole):
    """An empty box; in it the rank's shard, or all of it, in the component's colour."""
    color = {"facecolor": COMPONENT_COLORS[component], "edgecolor": "none", "linewidth": 0.5}
    add_box(ax, x, y, 0.42, height, **EMPTY)
    if has_shard:
        add_box(ax, x + 0.42 * rank / ranks, y, 0.42 / ranks, height, **color)
    if is_whole:
        add_box(ax, x, y, 0.42, height, **color)
