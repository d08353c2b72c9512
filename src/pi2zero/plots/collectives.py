"""Pictures of collective communication: what each rank holds before and after, and what moves where."""

import numpy as np
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.ticker import LogLocator

from pi2zero import costs
from pi2zero.plots.style import INK, RANK_COLORS, legend_outside, new_axes, rank_color

__all__ = [
    "allreduce_seconds",
    "bus_bandwidth",
    "bytes_text",
    "collective",
    "fastest",
    "ring_steps",
    "time_bars",
]


def collective(name: str, before: list, after: list, ax=None, figsize=None):
    """What each rank holds before and after a collective call, and which way the values went.

    before, after: one list a rank, each of short texts: `collective("Bcast", [["N"], [], []], [["N"], ["N"], ["N"]])`.
    A value such as "a+b" is one that came from "a" and "b"; it is drawn grey.
    """
    ranks = len(before)
    widest, after_widest = (max(len(row) for row in rows) for rows in (before, after))
    right = widest + 1.6  # x where the column after the call begins
    ax = new_axes(ax, figsize, (1.4 + 0.75 * (right + after_widest), 0.6 + 0.55 * ranks))
    colors, holders = {}, sum(bool(row) for row in before)
    for rank, text in ((rank, text) for rank, row in enumerate(before) for text in row):
        colors.setdefault(
            text, rank_color(rank if holders > 1 else len(colors))
        )  # where it comes from, else where it goes
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
        ax.text(
            left + i + 0.46,
            rank + 0.5,
            text,
            ha="center",
            va="center",
            color=ink,
            weight="bold",
            size=size,
        )


def _flows(source, target, keeps, same):
    """Does a value of `source` end in `target`? What a rank keeps is no news, so others need not send it."""
    arrived = {part for text in target for part in text.split("+")}
    return bool(arrived & set(source) and (same or (arrived - set(keeps)) & set(source)))


def ring_steps(held, ax=None, figsize=None):
    """A ring all-reduce as it went: what each rank held in each chunk before each step and at the end, and what it sent.

    held: whole numbers (ranks, 2 (ranks - 1) + 1, chunks), ranks = chunks: held[r, s, c] is what rank r held in chunk c before
    step s, as a sum of 2**k, one for each rank k whose numbers are in it. The ring starts with chunk r on rank r and sends to
    the right. The more ranks are in a chunk, the darker it is. ax: is cut into a panel a step, all-gather below.
    """
    held = np.asarray(held).astype(int)
    ranks = len(held)
    if ranks < 2 or held.shape != (ranks, 2 * ranks - 1, ranks):
        raise ValueError(
            f"held: the shape is (ranks, 2 ranks - 1, ranks) for 2 ranks or more, not {held.shape}."
        )
    ax = new_axes(ax, figsize, (1.0 + ranks * (0.75 + 0.55 * ranks), 1.5 + 0.9 * ranks))
    wide, high = ranks + 1.6, ranks + 1.5
    for step in range(2 * ranks - 1):
        phase, place = divmod(step, ranks - 1)
        phase, place = (1, ranks - 1) if phase == 2 else (phase, place)
        _ring_panel(ax, held[:, step], step, left=place * wide, top=phase * high)
    for phase, name in enumerate(("reduce-scatter", "all-gather")):
        ax.text(
            -1.5,
            phase * high + ranks / 2,
            name,
            rotation=90,
            ha="center",
            va="center",
            weight="bold",
            color=INK,
        )
    ax.set(xlim=(-1.9, ranks * wide - 0.5), ylim=(2 * high - 0.8, -0.9))
    ax.axis("off")
    return ax


def _ring_panel(ax, held, step, left, top):
    """One step: a row a rank, a column a chunk; in the frame, what the row's rank sends to the next row."""
    ranks = len(held)
    last = step == 2 * (ranks - 1)
    ax.text(
        left + ranks / 2,
        top - 0.25,
        "at the end" if last else f"step {step + 1}",
        ha="center",
        color=INK,
    )
    for rank in range(ranks):
        if left == 0:
            ax.text(
                left - 0.2,
                top + rank + 0.5,
                f"{rank}",
                ha="right",
                va="center",
                color=rank_color(rank),
                weight="bold",
            )
        for chunk in range(ranks):
            who = [r for r in range(ranks) if held[rank, chunk] >> r & 1]
            shade = 0.12 + 0.88 * (len(who) - 1) / (ranks - 1)
            fill = tuple(1 - shade * (1 - part) for part in to_rgb(INK))
            ax.add_patch(
                Rectangle((left + chunk + 0.04, top + rank + 0.06), 0.92, 0.88, color=fill)
            )
            text = (
                "all"
                if len(who) == ranks
                else "".join(map(str, who))
                if ranks <= 10
                else str(len(who))
            )
            ink = "white" if shade > 0.5 else "black"
            ax.text(
                left + chunk + 0.5,
                top + rank + 0.5,
                text,
                ha="center",
                va="center",
                color=ink,
                size="x-small",
            )
        if not last:
            chunk = (rank - step) % ranks if step < ranks - 1 else (rank - step + ranks) % ranks
            _ring_arrow(ax, left + chunk, top + rank, top + (rank + 1) % ranks, rank_color(rank))


def _ring_arrow(ax, x, row, to, color):
    ax.add_patch(
        Rectangle((x + 0.06, row + 0.08), 0.88, 0.84, fill=False, edgecolor=color, linewidth=2.5)
    )
    style = {
        "arrowstyle": "-|>",
        "mutation_scale": 11,
        "shrinkA": 0,
        "shrinkB": 0,
        "color": color,
        "linewidth": 1.8,
    }
    if to > row:
        ax.add_patch(
            FancyArrowPatch((x + 0.82, row + 0.75), (x + 0.82, to + 0.3), zorder=3, **style)
        )
    else:  # from the last rank to the first: out below
        ax.add_patch(
            FancyArrowPatch((x + 0.82, row + 0.75), (x + 0.82, row + 1.35), zorder=3, **style)
        )


def bus_bandwidth(
    nbytes, seconds: dict, ranks: int, fits: dict | None = None, ax=None, figsize=None
):
    """Bus bandwidth of all-reduces over the size of the array, both logarithmic, by the conventions of nccl-tests.

    nbytes: (k,) bytes. seconds: label -> (k,) measured; nan where there is none. fits: label -> (k,) seconds of a model, drawn
    as a thin dashed line in the colour of that label.
    """
    return _over_sizes(
        nbytes,
        seconds,
        fits,
        lambda n, t: costs.bus_bandwidth(n, t, ranks) / 1e9,
        "bus bandwidth, GB/s",
        ax,
        figsize,
    )


def allreduce_seconds(nbytes, seconds: dict, fits: dict | None = None, ax=None, figsize=None):
    """Time of all-reduces over the size of the array, both logarithmic. Arguments: as for `bus_bandwidth`."""
    return _over_sizes(
        nbytes, seconds, fits, lambda n, t: 1e6 * np.asarray(t), "time, µs", ax, figsize
    )


def _over_sizes(nbytes, seconds, fits, value, ylabel, ax, figsize):
    ax = new_axes(ax, figsize, (7.2, 4.2))
    nbytes = np.asarray(nbytes, float)
    names = (
        list(fits) if fits and set(seconds) <= set(fits) else list(seconds)
    )  # some of them keep the colours of all
    for label, times in seconds.items():
        index = names.index(label)
        color = RANK_COLORS[[4, 3, 0, 2, 1, 5][index % 6]]
        there = np.isfinite(times)
        ax.plot(
            nbytes[there],
            value(nbytes[there], np.asarray(times)[there]),
            "os^Dvp"[index % 6] + "-",
            color=color,
            label=label,
        )
        if fits and label in fits:
            ax.plot(
                nbytes,
                value(nbytes, fits[label]),
                "--",
                color=color,
                linewidth=1.2,
                label=f"{label}: fit",
            )
    ticks = [n for n in 4.0 ** np.arange(0, 20) if nbytes.min() <= n <= nbytes.max()]
    ax.set(xscale="log", yscale="log", xlabel="bytes of the array", ylabel=ylabel)
    ax.set_xticks(ticks, [bytes_text(n) for n in ticks], minor=False)
    low, high = ax.get_ylim()
    if high < 100 * low:  # too narrow for powers of ten alone
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(lambda value, place: f"{value:g}")
    ax.minorticks_off()
    ax.tick_params(axis="x", labelrotation=45)
    legend_outside(ax)
    ax.grid(True)
    return ax


def bytes_text(nbytes) -> str:
    """1024 as '1 KiB', 1536 as '1.5 KiB'."""
    power = min(int(np.log2(nbytes) // 10), 3) if nbytes >= 1 else 0
    return f"{nbytes / 1024**power:g} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def fastest(nbytes, ranks, models: dict, ax=None, figsize=None):
    """A map: which algorithm a model calls the fastest, for each size (up) and number of ranks (right).

    nbytes: (k,) and ranks: (m,), ascending. models: label -> function (nbytes, ranks) -> seconds.
    """
    ax = new_axes(ax, figsize, (6.4, 4.2))
    sizes, many = np.asarray(nbytes, float), np.asarray(ranks, float)
    times = np.array([model(sizes[:, None], many[None, :]) for model in models.values()])
    winner = times.argmin(axis=0)
    colors = [RANK_COLORS[[5, 4, 2, 1, 3][i % 5]] for i in range(len(models))]
    ax.pcolormesh(
        many,
        sizes,
        winner,
        cmap=ListedColormap(colors),
        vmin=-0.5,
        vmax=len(models) - 0.5,
        shading="nearest",
    )
    ticks = [n for n in 16.0 ** np.arange(0, 10) if sizes.min() <= n <= sizes.max()]
    ax.set(xscale="log", yscale="log", xlabel="ranks", ylabel="bytes of the array")
    ax.set_xticks(many[::2], [f"{p:g}" for p in many[::2]])
    ax.set_yticks(ticks, [bytes_text(n) for n in ticks])
    ax.minorticks_off()
    won = [i for i in range(len(models)) if (winner == i).any()]
    legend_outside(
        ax, handles=[Rectangle((0, 0), 1, 1, color=colors[i], label=list(models)[i]) for i in won]
    )
    return ax


def time_bars(rows: dict, unit: float = 1e3, xlabel: str = "ms", ax=None, figsize=None):
    """One bar a row. rows: label -> seconds; drawn times `unit`, the number beside the bar."""
    ax = new_axes(ax, figsize, (7.2, 0.9 + 0.45 * len(rows)))
    values = [unit * seconds for seconds in rows.values()]
    ax.barh(range(len(rows)), values, height=0.65, color=[rank_color(i) for i in range(len(rows))])
    for y, value in enumerate(values):
        ax.text(value, y, f" {value:.3g}", va="center", color=INK)
    ax.set(yticks=range(len(rows)), yticklabels=list(rows), xlabel=xlabel)
    ax.invert_yaxis()
    ax.margins(x=0.15)
    ax.set_xlim(left=0)
    return ax
