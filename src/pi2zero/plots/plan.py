"""Pictures of plans: the parts of a step by layout, and the ranks of one layout."""

import itertools

from pi2zero.plots.style import (
    STEP_COLORS,
    add_box,
    centred_text,
    legend_above,
    new_axes,
    rank_color,
    stacked_bars,
)

__all__ = ["layout_grid", "plan_steps"]


def plan_steps(rows, ax=None, figsize=None):
    """One stacked bar of seconds for each row, by part.

    rows: {label: {part: s}}, as from costs.Plan.best; parts that are 0 everywhere are left out.
    """
    ax = new_axes(ax, figsize, (9, 0.42 * len(rows) + 1.4))
    parts = (part for row in rows.values() for part, seconds in row.items() if seconds > 0)
    stacked_bars(ax, rows, {part: STEP_COLORS[part] for part in dict.fromkeys(parts)})
    ax.set(xlabel="s per step")
    ax.grid(axis="x")
    legend_above(ax, ncols=5, fontsize="small")
    return ax


def layout_grid(layout, ranks_per_node, ax=None, figsize=None):
    """Each rank's part of the model: a block per replica, a row per stage, a column per strip.

    layout: a costs.Layout of data, pipeline and spatial parallelism. A box is a rank, a colour a
    node. In a bidirectional pipeline a box names both stages of its rank.
    """
    replicas, stages, strips = layout.data, layout.pipeline, layout.spatial
    width = strips + 0.6
    ax = new_axes(ax, figsize, (1 + 0.55 * replicas * width, 0.8 + 0.55 * stages))
    size = "small" if replicas * strips <= 8 else "xx-small"
    for replica, stage, strip in itertools.product(range(replicas), range(stages), range(strips)):
        places = {"spatial": strip, "data": replica, "pipeline": stage}
        rank = sum(place * layout.stride(name) for name, place in places.items())
        x, color = replica * width + strip, rank_color(rank // ranks_per_node)
        add_box(ax, x - 0.46, stage - 0.44, 0.92, 0.88, facecolor=color, alpha=0.55, lw=0)
        both = f"\n{stage}, {stages - 1 - stage}" if layout.is_bidirectional else ""
        centred_text(ax, x, stage, f"{rank}{both}", size=size)
    ax.set(xlim=(-0.6, replicas * width - 1), ylim=(stages - 0.4, -0.6))
    ax.set_xlabel("block: replica (data)\ncolumn: strip (space)")
    ax.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)])
    ax.set_xticks([])
    ax.spines[:].set_visible(False)
    return ax
