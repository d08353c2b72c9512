"""Pictures of collective communication: the data of each rank before and after, and its way."""

import numpy as np
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.patches import FancyArrowPatch, Patch
from matplotlib.ticker import LogLocator

from pi2zero import costs
from pi2zero.plots.style import (
    INK,
    RANK_COLORS,
    add_box,
    centred_text,
    ink_on,
    legend_outside,
    new_axes,
    rank_color,
)

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
    """The data of each rank before and after a collective call, and which way it went.

    before, after: for each rank a list of short texts, e.g.
    `collective("Bcast", [["N"], [], []], [["N"], ["N"], ["N"]])`. A value such as "a+b" came from
    "a" and "b"; it is drawn grey.
    """
    ranks, columns = len(before), max(map(len, before))
    right = columns + 1.6  # x where the column after the call begins
    end = right + max(map(len, after))
    ax = new_axes(ax, figsize, (1.4 + 0.75 * end, 0.6 + 0.55 * ranks))
    # A value has the colour of the rank it comes from; if all come from one rank, of its target.
    several_sources, colors = sum(map(bool, before)) > 1, {}
    for rank, texts in enumerate(before):
        for text in texts:
            colors.setdefault(text, rank_color(rank if several_sources else len(colors)))
    for rank in range(ranks):
        add_box(ax, -1.7, rank + 0.38, 0.24, 0.24, color=rank_color(rank))
        ax.text(-1.4, rank + 0.5, f"rank {rank}", va="center", color=INK)
        _value_boxes(ax, before[rank], 0, rank, colors)
        _value_boxes(ax, after[rank], right, rank, colors)
        for source in range(ranks):
            if _is_sent(before[source], after[rank], before[rank], source == rank):
                start = columns + 0.1, source + 0.5
                _arrow(ax, start, (right - 0.1, rank + 0.5), rank_color(source), mutation_scale=12)
    ax.set(xlim=(-1.8, end + 0.4), ylim=(ranks, 0), title=name)
    ax.axis("off")
    return ax


def _value_boxes(ax, texts, left, rank, colors):
    for index, text in enumerate(texts):
        x, color = left + index, colors.get(text, "#777777")
        add_box(ax, x, rank + 0.1, 0.92, 0.8, color=color)
        style = {"weight": "bold", "size": "medium" if len(text) < 6 else "x-small"}
        centred_text(ax, x + 0.46, rank + 0.5, text, color=ink_on(color), **style)


def _is_sent(source, target, kept, is_same_rank):
    """Whether a value of `source` ends in `target`. What a rank has already, others do not send."""
    arrived = {part for text in target for part in text.split("+")} & set(source)
    return bool(arrived if is_same_rank else arrived - set(kept))


def _arrow(ax, start, end, color, **style):
    style = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, **style}
    ax.add_patch(FancyArrowPatch(start, end, color=color, **style))


def ring_steps(sums, ax=None, figsize=None):
    """A ring all-reduce as it went, a panel per step, all-gather below.

    A row is a rank, a column a chunk; the frame marks what the row's rank sends to the next rank.
    sums: whole numbers (ranks, 2 (ranks - 1) + 1, chunks), ranks = chunks: sums[r, s, c] is chunk c
    of rank r before step s, as a sum of 2**k, one for each rank k whose numbers are in it. The ring
    starts with chunk r on rank r. The more ranks are in a chunk, the darker it is.
    """
    sums = np.asarray(sums).astype(int)
    ranks = len(sums)
    if ranks < 2 or sums.shape != (ranks, 2 * ranks - 1, ranks):
        raise ValueError(
            f"sums: the shape is (ranks, 2 ranks - 1, ranks) for 2 ranks or more, not {sums.shape}."
        )
    ax = new_axes(ax, figsize, (1.0 + ranks * (0.75 + 0.55 * ranks), 1.5 + 0.9 * ranks))
    width, height = ranks + 1.6, ranks + 1.5
    for step in range(2 * ranks - 1):
        phase, column = divmod(step, ranks - 1)
        phase, column = (1, ranks - 1) if phase == 2 else (phase, column)
        _ring_panel(ax, sums[:, step], step, left=column * width, top=phase * height)
    for phase, name in enumerate(("reduce-scatter", "all-gather")):
        style = {"rotation": 90, "weight": "bold", "color": INK}
        centred_text(ax, -1.5, phase * height + ranks / 2, name, **style)
    ax.set(xlim=(-1.9, ranks * width - 0.5), ylim=(2 * height - 0.8, -0.9))
    ax.axis("off")
    return ax


def _ring_panel(ax, sums, step, left, top):
    ranks = len(sums)
    is_last = step == 2 * (ranks - 1)
    title = "at the end" if is_last else f"step {step + 1}"
    ax.text(left + ranks / 2, top - 0.25, title, ha="center", color=INK)
    for rank in range(ranks):
        y, color = top + rank, rank_color(rank)
        if left == 0:
            style = {"ha": "right", "va": "center", "color": color, "weight": "bold"}
            ax.text(left - 0.2, y + 0.5, f"{rank}", **style)
        for chunk in range(ranks):
            summed = [r for r in range(ranks) if sums[rank, chunk] >> r & 1]
            shade = 0.12 + 0.88 * (len(summed) - 1) / (ranks - 1)
            fill = tuple(1 - shade * (1 - part) for part in to_rgb(INK))
            add_box(ax, left + chunk + 0.04, y + 0.06, 0.92, 0.88, color=fill)
            text = "".join(map(str, summed)) if ranks <= 10 else str(len(summed))
            text = "all" if len(summed) == ranks else text
            ink = "white" if shade > 0.5 else "black"
            centred_text(ax, left + chunk + 0.5, y + 0.5, text, color=ink, size="x-small")
        if not is_last:
            x = left + (rank - step) % ranks
            frame = {"fill": False, "edgecolor": color, "linewidth": 2.5}
            add_box(ax, x + 0.06, y + 0.08, 0.88, 0.84, **frame)
            # The last rank sends to the first one: its arrow leaves the panel below.
            end = y + 1.3 if rank < ranks - 1 else y + 1.35
            style = {"mutation_scale": 11, "linewidth": 1.8, "zorder": 3}
            _arrow(ax, (x + 0.82, y + 0.75), (x + 0.82, end), color, **style)


def bus_bandwidth(
    nbytes, seconds: dict, ranks: int, fits: dict | None = None, ax=None, figsize=None
):
    """Bus bandwidth of all-reduces over the size of the array, by the conventions of nccl-tests.

    nbytes: (k,) bytes. seconds: label -> (k,) measured; nan where there is none. fits: label ->
    (k,) seconds of a model, drawn as a thin dashed line in the colour of that label.
    """
    ax = new_axes(ax, figsize, (7.2, 4.2))
    ax.set_ylabel("bus bandwidth, GB/s")
    return _over_sizes(
        ax, nbytes, seconds, fits, lambda n, t: costs.bus_bandwidth(n, t, ranks) / 1e9
    )


def allreduce_seconds(nbytes, seconds: dict, fits: dict | None = None, ax=None, figsize=None):
    """Time of all-reduces over the size of the array. Arguments: as for `bus_bandwidth`."""
    ax = new_axes(ax, figsize, (7.2, 4.2))
    ax.set_ylabel("time, µs")
    return _over_sizes(ax, nbytes, seconds, fits, lambda n, t: 1e6 * np.asarray(t))


def _over_sizes(ax, nbytes, seconds, fits, value):
    nbytes, fits = np.asarray(nbytes, float), fits or {}
    # A part of the labels keeps the colours that all of them have.
    names = list(fits) if set(seconds) <= set(fits) else list(seconds)
    for label, times in seconds.items():
        index = names.index(label) % 6
        color, measured = RANK_COLORS[[4, 3, 0, 2, 1, 5][index]], np.isfinite(times)
        values = value(nbytes[measured], np.asarray(times)[measured])
        ax.plot(nbytes[measured], values, "os^Dvp"[index] + "-", color=color, label=label)
        if label in fits:
            style = {"color": color, "linewidth": 1.2, "label": f"{label}: fit"}
            ax.plot(nbytes, value(nbytes, fits[label]), "--", **style)
    ax.set(xscale="log", yscale="log", xlabel="bytes of the array")
    ticks = [n for n in 4.0 ** np.arange(0, 20) if nbytes.min() <= n <= nbytes.max()]
    ax.set_xticks(ticks, [bytes_text(n) for n in ticks], minor=False)
    low, high = ax.get_ylim()
    if high < 100 * low:  # powers of ten alone would be too few ticks
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(lambda value, position: f"{value:g}")
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
    """A map of the fastest algorithm for each size (up) and number of ranks (right), by models.

    nbytes: (k,) and ranks: (m,), ascending. models: label -> function (nbytes, ranks) -> seconds.
    """
    ax = new_axes(ax, figsize, (6.4, 4.2))
    sizes, ranks = np.asarray(nbytes, float), np.asarray(ranks, float)
    times = np.array([model(sizes[:, None], ranks[None, :]) for model in models.values()])
    winner = times.argmin(axis=0)
    colors = [RANK_COLORS[[5, 4, 2, 1, 3][i % 5]] for i in range(len(models))]
    draw_map(ax, ranks, sizes, winner, dict(zip(models, colors, strict=True)), only_used=True)
    ax.set(xlabel="ranks", ylabel="bytes of the array")
    ax.set_xticks(ranks[::2], [f"{p:g}" for p in ranks[::2]])
    ticks = [n for n in 16.0 ** np.arange(0, 10) if sizes.min() <= n <= sizes.max()]
    ax.set_yticks(ticks, [bytes_text(n) for n in ticks])
    ax.minorticks_off()
    return ax


def draw_map(ax, x, y, chosen, colors, only_used=False, **style):
    """A map on logarithmic axes: at each place the colour of what is chosen there, and a legend.

    chosen: (len(y), len(x)) indices into colors, a dict of names and colours.
    only_used: the legend has no names that are chosen nowhere.
    """
    chosen = np.asarray(chosen)
    options = {"vmin": -0.5, "vmax": len(colors) - 0.5, "shading": "nearest", **style}
    ax.pcolormesh(x, y, chosen, cmap=ListedColormap(list(colors.values())), **options)
    ax.set(xscale="log", yscale="log")
    alpha = style.get("alpha")
    handles = [
        Patch(color=color, alpha=alpha, label=name)
        for index, (name, color) in enumerate(colors.items())
        if not only_used or (chosen == index).any()
    ]
    legend_outside(ax, handles=handles)


def time_bars(rows: dict, unit: float = 1e3, xlabel: str = "ms", ax=None, figsize=None):
    """One bar per row. rows: label -> seconds; drawn times `unit`, the number beside the bar."""
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
