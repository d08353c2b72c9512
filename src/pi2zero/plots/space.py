"""Pictures of an image that lies on several ranks."""

from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch, Rectangle

from pi2zero.plots.style import legend_outside, new_axes, rank_color

__all__ = ["regions", "strips"]


def strips(edges, margins, title=None, ax=None, figsize=None):
    """Who has which rows of an image, and which a layer needs: a box for each rank's own rows, paler ends for its halo.

    edges: where each strip begins, and where the last one ends. margins: for each rank (above, below), the rows that it lacks for
    the layer; negative: rows that it does not need.
    """
    if len(margins) != len(edges) - 1:
        raise ValueError(
            f"margins: {len(margins)} pairs for {len(edges) - 1} strips; give one for each."
        )
    ax = new_axes(ax, figsize, (4, 3.6))
    for rank, (above, below) in enumerate(margins):
        begin, end, color = edges[rank], edges[rank + 1], rank_color(rank)
        ax.add_patch(
            Rectangle(
                (rank - 0.4, begin - above),
                0.8,
                end + below - begin + above,
                facecolor=color,
                alpha=0.35,
                lw=0,
            )
        )
        ax.add_patch(
            Rectangle(
                (rank - 0.4, begin),
                0.8,
                end - begin,
                facecolor="none",
                edgecolor=color,
                hatch="//",
                lw=1.5,
            )
        )
        ax.text(
            rank,
            (begin + end) / 2,
            f"+{above}\n+{below}".replace("+-", "−"),
            ha="center",
            va="center",
            size="small",
        )
    reach = max(max(pair) for pair in margins)
    ax.axhline(edges[0], color="black", lw=1)
    ax.axhline(edges[-1], color="black", lw=1)
    ax.set(
        xlim=(-0.6, len(margins) - 0.4),
        ylim=(edges[-1] + reach + 0.5, edges[0] - reach - 0.5),
        xlabel="rank",
    )
    ax.set_xticks(range(len(margins)))
    if title:
        ax.set_title(title, loc="left")
    return ax


def regions(x, y, chosen, names, ax=None, figsize=None):
    """A map on logarithmic axes: at each place the colour of what is chosen there, with the names in a legend.

    x, y: values along the axes. chosen: for each y a row of indices into `names`, one for each x.
    """
    ax = new_axes(ax, figsize, (8, 4.2))
    colors = [rank_color(index) for index in range(len(names))]
    ax.pcolormesh(
        x,
        y,
        chosen,
        cmap=ListedColormap(colors),
        vmin=-0.5,
        vmax=len(names) - 0.5,
        alpha=0.6,
        shading="nearest",
        lw=0,
    )
    ax.set(xscale="log", yscale="log")
    legend_outside(
        ax,
        handles=[
            Patch(color=color, alpha=0.6, label=name)
            for color, name in zip(colors, names, strict=True)
        ],
    )
    return ax
