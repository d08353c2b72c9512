"""Pictures of an image that is partitioned over several ranks."""

from pi2zero.plots.collectives import draw_map
from pi2zero.plots.style import add_box, centred_text, new_axes, rank_color

__all__ = ["regions", "strips"]


def strips(edges, margins, title=None, ax=None, figsize=None):
    """Each rank's rows of an image, and in a paler colour the halo that a layer needs.

    edges: where each strip begins, and where the last one ends. margins: for each rank (above,
    below), the rows of its halo; negative: rows of its own that it does not need.
    """
    if len(margins) != len(edges) - 1:
        raise ValueError(
            f"margins: {len(margins)} pairs for {len(edges) - 1} strips; give one for each."
        )
    ax = new_axes(ax, figsize, (4, 3.6))
    for rank, (above, below) in enumerate(margins):
        start, height, color = edges[rank], edges[rank + 1] - edges[rank], rank_color(rank)
        box = start - above, 0.8, height + above + below
        add_box(ax, rank - 0.4, *box, facecolor=color, alpha=0.35, lw=0)
        style = {"facecolor": "none", "edgecolor": color, "hatch": "//", "lw": 1.5}
        add_box(ax, rank - 0.4, start, 0.8, height, **style)
        text = f"+{above}\n+{below}".replace("+-", "−")
        centred_text(ax, rank, start + height / 2, text, size="small")
    for edge in (edges[0], edges[-1]):
        ax.axhline(edge, color="black", lw=1)
    reach = max(max(pair) for pair in margins) + 0.5
    ax.set(xlim=(-0.6, len(margins) - 0.4), ylim=(edges[-1] + reach, edges[0] - reach))
    ax.set(xlabel="rank", xticks=range(len(margins)))
    if title:
        ax.set_title(title, loc="left")
    return ax


def regions(x, y, chosen, names, ax=None, figsize=None):
    """A map on logarithmic axes: at each place the colour of what is chosen there, with a legend.

    x, y: values along the axes. chosen: (len(y), len(x)) indices into `names`.
    """
    ax = new_axes(ax, figsize, (8, 4.2))
    colors = {name: rank_color(index) for index, name in enumerate(names)}
    draw_map(ax, x, y, chosen, colors, alpha=0.6, lw=0)
    return ax
