"""The picture of a plan: the parts of a step, layout by layout."""

from pi2zero.plots.style import FAINT, RANK_COLORS, new_axes

__all__ = ["plan_steps"]


def plan_steps(rows, ax=None, figsize=None):
    """One stacked bar of seconds for each row, by part.

    rows: {label: {part: s}}, as from costs.Plan.best; parts that take nothing anywhere are left out.
    """
    ax = new_axes(ax, figsize, (9, 0.42 * len(rows) + 1.4))
    shown = list(dict.fromkeys(part for parts in rows.values() for part, size in parts.items() if size > 0))
    left = dict.fromkeys(rows, 0.0)
    for number, part in enumerate(shown):
        color = {"compute": RANK_COLORS[0], "bubble": FAINT}.get(part, RANK_COLORS[1 + number % (len(RANK_COLORS) - 1)])
        sizes = [parts.get(part, 0.0) for parts in rows.values()]
        ax.barh(range(len(rows)), sizes, left=list(left.values()), color=color, height=0.7, label=part)
        left = {label: left[label] + size for label, size in zip(rows, sizes, strict=True)}
    ax.set_yticks(range(len(rows)), list(rows))
    ax.invert_yaxis()
    ax.set(xlabel="s a step")
    ax.grid(axis="x")
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize="small", handlelength=1)
    return ax
