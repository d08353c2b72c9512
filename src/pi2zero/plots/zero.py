"""Pictures of ZeRO: which rank holds what, bytes predicted beside measured, and the moments of a stage-3 step."""

import numpy as np
from matplotlib.patches import Patch

from pi2zero.plots.style import COMPONENT_COLORS, FAINT, INK, new_axes

__all__ = ["memory_bars", "partitions", "stage3_moments"]

# So that seven entries find room above a picture, in letters that are legible on a slide.
CLOSE = {"handlelength": 1, "handletextpad": 0.4, "columnspacing": 1}


def memory_bars(measured, predicted=None, unit=1e6, ax=None, figsize=None):
    """One stacked bar of bytes for each row, by component; a mark where the prediction of a row lies.

    measured: {label: {component: bytes}}; names that are no component (COMPONENT_COLORS) are left out. predicted: {label:
    bytes}. unit: bytes of one unit of the axis, 1e6 for MB.
    """
    ax = new_axes(ax, figsize, (9, 0.42 * len(measured) + 1.4))
    shown = [
        name for name in COMPONENT_COLORS if any(parts.get(name) for parts in measured.values())
    ]
    for place, (label, parts) in enumerate(measured.items()):
        left = 0.0
        for component in shown:
            size = parts.get(component, 0) / unit
            ax.barh(
                place,
                size,
                left=left,
                color=COMPONENT_COLORS[component],
                height=0.7,
                label=component if place == 0 else None,
            )
            left += size
        if predicted and label in predicted:
            x = predicted[label] / unit
            ax.plot(
                [x, x],
                [place - 0.45, place + 0.45],
                color=INK,
                linewidth=3,
                label="predicted" if place == 0 else None,
            )
    ax.set_yticks(range(len(measured)), list(measured))
    ax.invert_yaxis()
    longest = [sum(parts.get(name, 0) for name in shown) for parts in measured.values()] + list(
        (predicted or {}).values()
    )
    ax.set_xlim(0, 1.04 * max(longest) / unit or 1)  # no bar ends at the axis' edge
    name = {1e3: "kB", 1e6: "MB", 1e9: "GB"}.get(unit, f"units of {unit:g} bytes")
    ax.set(xlabel=f"{name} on one rank")
    ax.grid(axis="x")
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=7, **CLOSE)
    return ax


def partitions(ranks=4, stage=None, ax=None, figsize=None):
    """Who holds what: a row for each rank and stage, in columns parameters, gradients, master and moments; its shard is coloured.

    ranks: how many. stage: 0..3; None draws all four, one below the other.
    """
    stages = range(4) if stage is None else [stage]
    ax = new_axes(ax, figsize, (9, 0.28 * ranks * len(stages) + 0.9))
    columns, divided_from = ("parameters", "gradients", "master", "moments"), (3, 2, 1, 1)
    widths = (2, 2, 4, 8)  # bytes a parameter
    starts = np.concatenate([[0], np.cumsum(np.add(widths, 0.5))])
    for block, number in enumerate(stages):
        for rank in range(ranks):
            y = block * (ranks + 0.8) + rank
            for name, first, width, start in zip(
                columns, divided_from, widths, starts, strict=False
            ):
                ax.barh(
                    y,
                    width,
                    left=start,
                    height=0.8,
                    color="#F2F2F2",
                    edgecolor=FAINT,
                    linewidth=0.5,
                )
                share = width / ranks if number >= first else width
                left = start + rank * share if number >= first else start
                ax.barh(y, share, left=left, height=0.8, color=COMPONENT_COLORS[name])
            ax.text(-0.2, y, f"rank {rank}", ha="right", va="center", fontsize="small")
        ax.text(
            -2.2,
            block * (ranks + 0.8) + (ranks - 1) / 2,
            f"stage {number}",
            ha="right",
            va="center",
            weight="bold",
        )
    for name, width, start in zip(columns, widths, starts, strict=False):
        ax.text(
            start + width / 2,
            -0.8,
            f"{name}\n{width} B",
            ha="center",
            va="bottom",
            fontsize="small",
        )
    ax.set(xlim=(-4.6, starts[-1]), ylim=(len(stages) * (ranks + 0.8) - 0.5, -2.4))
    ax.axis("off")
    return ax


def stage3_moments(layers=3, ranks=4, ax=None, figsize=None):
    """A stage-3 step, moment by moment: each column is a moment, each row a rank, each cell its copies of all layers.

    Full colour: the whole layer is there, gathered. The narrow strip is the shard that always stays. Orange: the gradient of
    a layer, whole while it is computed, a shard of it afterwards.
    """
    moments = [("rest", None, 0)]
    moments += [(f"forward {k + 1}", k, 0) for k in range(layers)]
    moments += [(f"backward {k + 1}", k, layers - k) for k in reversed(range(layers))]
    moments += [("update", None, layers)]
    ax = new_axes(ax, figsize, (1.25 * len(moments), 0.9 * ranks + 0.8))
    for column, (name, gathered, gradients) in enumerate(moments):
        ax.text(
            column + 0.45, -0.12, name, ha="center", va="bottom", fontsize="small", weight="bold"
        )
        for rank in range(ranks):
            for layer in range(layers):
                whole = layer == gathered
                has_gradient = gradients and layer >= layers - gradients
                _layer(
                    ax,
                    column,
                    rank,
                    layer / layers,
                    1 / layers,
                    ranks,
                    whole,
                    has_gradient,
                    name.startswith("backward"),
                )
    for rank in range(ranks):
        ax.text(-0.1, rank + 0.4, f"rank {rank}", ha="right", va="center", fontsize="small")
    ax.set(xlim=(-0.7, len(moments)), ylim=(ranks, -0.45))
    ax.axis("off")
    colors = {
        "parameters": COMPONENT_COLORS["parameters"],
        "gradients": COMPONENT_COLORS["gradients"],
    }
    ax.legend(
        handles=[Patch(color=color, label=name) for name, color in colors.items()],
        title="wide: a whole layer, narrow: a shard",
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        ncols=2,
    )
    return ax


def _layer(ax, column, rank, top, height, ranks, whole, has_gradient, backward):
    """One layer in one cell of stage3_moments: parameters in the left half, gradient in the right."""
    y, h = rank + 0.04 + 0.86 * top, 0.86 * height * 0.86
    ax.add_patch(_box(column, y, 0.42, h, "#F2F2F2", FAINT))
    ax.add_patch(
        _box(column + 0.42 * rank / ranks, y, 0.42 / ranks, h, COMPONENT_COLORS["parameters"])
    )
    if whole:
        ax.add_patch(_box(column, y, 0.42, h, COMPONENT_COLORS["parameters"]))
    ax.add_patch(_box(column + 0.46, y, 0.42, h, "#F2F2F2", FAINT))
    if has_gradient:
        ax.add_patch(
            _box(
                column + 0.46 + 0.42 * rank / ranks,
                y,
                0.42 / ranks,
                h,
                COMPONENT_COLORS["gradients"],
            )
        )
        if whole and backward:
            ax.add_patch(_box(column + 0.46, y, 0.42, h, COMPONENT_COLORS["gradients"]))


def _box(x, y, width, height, color, edge="none"):
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, facecolor=color, edgecolor=edge, linewidth=0.5)
