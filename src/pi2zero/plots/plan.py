"""Pictures of plans: the parts of a step, layout by layout; where the ranks of one layout lie."""

import itertools

from matplotlib.patches import Rectangle

from pi2zero.plots.style import RANK_COLORS, STEP_COLORS, new_axes

__all__ = ["layout_grid", "plan_steps"]


def plan_steps(rows, ax=None, figsize=None):
    """One stacked bar of seconds for each row, by part.

    rows: {label: {part: s}}, as from costs.Plan.best; parts that take nothing anywhere are left out.
    """
    ax = new_axes(ax, figsize, (9, 0.42 * len(rows) + 1.4))
    shown = list(
        dict.fromkeys(part for parts in rows.values() for part, size in parts.items() if size > 0)
    )
    left = dict.fromkeys(rows, 0.0)
    for part in shown:
        sizes = [parts.get(part, 0.0) for parts in rows.values()]
        ax.barh(
            range(len(rows)),
            sizes,
            left=list(left.values()),
            color=STEP_COLORS[part],
            height=0.7,
            label=part,
        )
        left = {label: left[label] + size for label, size in zip(rows, sizes, strict=True)}
    ax.set_yticks(range(len(rows)), list(rows))
    ax.invert_yaxis()
    ax.set(xlabel="s a step")
    ax.grid(axis="x")
    ax.figure.legend(
        *ax.get_legend_handles_labels(),
        loc="outside upper center",
        ncols=5,
        fontsize="small",
        handlelength=1,
    )
    return ax


def layout_grid(layout, per_node, ax=None, figsize=None):
    """Who has which part: for each copy of the model (data) a block with a row a stage and a column a strip; a box is a rank.

    layout: a costs.Layout of data, pipeline and space. per_node: ranks on a node; a colour is a node. Two directions: a box
    says both stages of its rank.
    """
    copies, stages, strips = layout.data, layout.pipeline, layout.space
    ax = new_axes(ax, figsize, (1 + 0.55 * copies * (strips + 0.6), 0.8 + 0.55 * stages))
    small = "small" if copies * strips <= 8 else "xx-small"
    for copy, stage, strip in itertools.product(range(copies), range(stages), range(strips)):
        rank = (
            strip * layout.stride("space")
            + copy * layout.stride("data")
            + stage * layout.stride("pipeline")
        )
        x, color = copy * (strips + 0.6) + strip, RANK_COLORS[rank // per_node % len(RANK_COLORS)]
        ax.add_patch(
            Rectangle((x - 0.46, stage - 0.44), 0.92, 0.88, facecolor=color, alpha=0.55, lw=0)
        )
        both = (
            f"\n{stage}, {stages - 1 - stage}" if layout.schedule == "gems" and stages > 1 else ""
        )
        ax.text(x, stage, f"{rank}{both}", ha="center", va="center", size=small)
    ends = copies * (strips + 0.6) - 0.6
    ax.set(
        xlim=(-0.6, ends - 0.4),
        ylim=(stages - 0.4, -0.6),
        xlabel="a block: a copy (data); in it a column: a strip (space)",
    )
    ax.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)])
    ax.set_xticks([])
    for side in ax.spines.values():
        side.set_visible(False)
    return ax
