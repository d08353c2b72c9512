"""The workshop's pictures, in one style: a rank has the same colour everywhere.

Every function draws on `ax` if it is given, else on a new figure, and returns the Axes (`.figure` is the Figure).
Font sizes follow matplotlib's `font.size`; `use_style(18)` makes every later picture fit a slide.
"""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pi2zero import costs

# Okabe and Ito's palette, told apart by colour-blind readers too; yellow last, because it is weak on white.
RANK_COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#555555", "#F0E442"]
INK = "#333333"
FAINT = "#BBBBBB"


def rank_color(rank: int) -> str:
    """The colour of an MPI rank, the same in every picture; they repeat after eight."""
    return RANK_COLORS[rank % len(RANK_COLORS)]


def use_style(font_size: float = 12) -> None:
    """Set the workshop's style in matplotlib's rcParams; done once on import. font_size: points."""
    mpl.rcParams.update(
        {
            "font.size": font_size,
            "axes.titlesize": "medium",
            "axes.titleweight": "bold",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": INK,
            "axes.labelcolor": INK,
            "axes.prop_cycle": mpl.cycler(color=RANK_COLORS),
            "axes.axisbelow": True,
            "grid.color": "#E4E4E4",
            "legend.frameon": False,
            "lines.linewidth": 2,
            "lines.markersize": 7,
            "figure.constrained_layout.use": True,
            "figure.dpi": 110,
        }
    )


use_style()


def _axes(ax, figsize, default):
    return ax if ax is not None else plt.subplots(figsize=figsize or default)[1]


def darts(x, y, ax=None, figsize=None):
    """Darts on the unit square, those inside the quarter circle in blue. x, y: coordinates in 0..1, one shape."""
    x, y = np.ravel(x), np.ravel(y)
    inside = x * x + y * y < 1
    ax = _quarter_circle(_axes(ax, figsize, (4.6, 4.6)))
    size = _dot_size(x.size)
    ax.scatter(x[inside], y[inside], s=size, color=RANK_COLORS[0], linewidths=0)
    ax.scatter(x[~inside], y[~inside], s=size, color=RANK_COLORS[4], linewidths=0)
    ax.set_title(f"{inside.sum():,} of {x.size:,} inside: π ≈ {4 * inside.mean():.3f}")
    return ax


def samples_by_rank(x, y, rank, ax=None, figsize=None):
    """Darts coloured by the rank that threw them.

    x, y: coordinates in 0..1, one shape. rank: MPI ranks, of that shape or such that it broadcasts to it, e.g. x of
    shape (ranks, darts) with rank of shape (ranks, 1).
    """
    x, y, rank = (np.ravel(a) for a in np.broadcast_arrays(x, y, rank))
    ax = _quarter_circle(_axes(ax, figsize, (6.2, 4.6)))
    for one in np.unique(rank):
        mine = rank == one
        ax.scatter(x[mine], y[mine], s=_dot_size(x.size), color=rank_color(one), linewidths=0, label=f"rank {one}")
    _legend_outside(ax, markerscale=2)
    return ax


def _quarter_circle(ax):
    angle = np.linspace(0, np.pi / 2, 200)
    ax.plot(np.cos(angle), np.sin(angle), color=INK, zorder=3)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=[0, 1], yticks=[0, 1], xlabel="x", ylabel="y")
    ax.spines[["top", "right"]].set_visible(True)
    return ax


def _dot_size(count: int) -> float:
    return float(np.clip(30_000 / max(count, 1), 4, 40))


def convergence(ns, errors, sigma: float = 5, ax=None, figsize=None):
    """Measured errors of Monte Carlo π over the number of samples, with the expected 1.642/sqrt(N).

    ns: (k,) numbers of samples. errors: (k,) or (repeats, k), |estimate - π|. sigma: width of the shaded band, in
    standard errors: if the standard error is right, one estimate in 1.7 million lies outside of 5.
    """
    ns, errors = np.asarray(ns, float), np.atleast_2d(errors)
    ax = _axes(ax, figsize, (7.2, 4.4))
    expected = costs.monte_carlo_pi_error(ns)
    lowest = min(errors[errors > 0].min(), expected.min() / 10) / 2
    ax.fill_between(ns, 1e-300, sigma * expected, color=RANK_COLORS[5], alpha=0.2, linewidth=0)
    ax.plot(ns, expected, color=INK, label=r"standard error $1.642/\sqrt{N}$")
    ax.plot(ns, sigma * expected, color=RANK_COLORS[5], linestyle="--", label=f"{sigma:g} standard errors")
    ax.plot(np.broadcast_to(ns, errors.shape).ravel(), errors.ravel(), "o", color=RANK_COLORS[4], label="measured")
    ax.set(
        xscale="log", yscale="log", ylim=(lowest, 2 * sigma * expected.max()), xlabel="samples N", ylabel="error |estimate − π|"
    )
    ax.legend(loc="upper right")
    ax.grid(True)
    return ax


def spread(groups: dict, claimed: float, truth: float = np.pi, ax=None, figsize=None):
    """Histograms of many estimates beside the bell curve that their error bar claims.

    groups: label -> estimates (any number); claimed: the standard error that is printed with each of them.
    """
    ax = _axes(ax, figsize, (7.2, 4.0))
    furthest = max(np.abs(np.asarray(values) - truth).max() for values in groups.values())
    edges = truth + np.linspace(-1.05, 1.05, 41) * max(furthest, 4 * claimed)
    for index, (label, values) in enumerate(groups.items()):
        label = f"{label}: spread {np.std(values) / claimed:.2f} times the claim"
        ax.hist(values, edges, density=True, alpha=0.55, color=RANK_COLORS[[0, 4, 2][index % 3]], label=label)
    grid = np.linspace(edges[0], edges[-1], 400)
    bell = np.exp(-0.5 * ((grid - truth) / claimed) ** 2) / (claimed * np.sqrt(2 * np.pi))
    ax.plot(grid, bell, color=INK, label="what the error bar claims")
    ax.set(xlabel="estimate of π", yticks=[], ylim=(0, 1.55 * bell.max()))
    ax.legend(loc="upper left")
    return ax


def midpoint_slices(n: int, size: int, ax=None, figsize=None):
    """The n slices of the integral of 4/(1+x²) over 0..1, dealt out to `size` ranks like cards: slice i to rank i % size."""
    ax = _axes(ax, figsize, (7.2, 4.0))
    for rank in range(size):
        middle = (np.arange(rank, n, size) + 0.5) / n
        ax.bar(middle, 4 / (1 + middle**2), 1 / n, color=rank_color(rank), edgecolor="white", label=f"rank {rank}")
    x = np.linspace(0, 1, 200)
    ax.plot(x, 4 / (1 + x * x), color=INK)
    ax.set(xlim=(0, 1), ylim=(0, 4.3), xlabel="x", ylabel="4 / (1 + x²)")
    _legend_outside(ax)
    return ax


def time_against_n(series: dict, ax=None, figsize=None):
    """Seconds over the number of samples, both logarithmic. series: label -> (numbers of samples, seconds)."""
    ax = _axes(ax, figsize, (7.2, 4.4))
    for index, (label, (ns, seconds)) in enumerate(series.items()):
        ax.plot(ns, seconds, "os^Dv"[index % 5] + "-", label=label)
    ax.set(xscale="log", yscale="log", xlabel="samples N", ylabel="seconds")
    ax.legend()
    ax.grid(True)
    return ax


def speedup(ranks, seconds, serial_fraction=None, cores=None, ax=None, figsize=None):
    """Measured strong speed-up beside the ideal one.

    ranks: (k,), the first one is 1. seconds: (k,), or label -> (k,) for several runs. serial_fraction: draws Amdahl's
    law for it, too. cores: shades the ranks that have to share a core.
    """
    ax = _axes(ax, figsize, (6.4, 4.4))
    ranks = np.asarray(ranks)
    ax.plot(ranks, ranks, "--", color=FAINT, label="ideal")
    if serial_fraction is not None:
        smooth = np.linspace(1, ranks.max(), 200)
        label = f"Amdahl, {100 * serial_fraction:.2g} % serial"
        ax.plot(smooth, costs.amdahl(serial_fraction, smooth), ":", color=INK, label=label)
    gained = {label: costs.speedup(times[0], times) for label, times in _labelled(seconds).items()}
    ax.set(ylabel="speed-up", ylim=(0, ranks.max() * 1.05))
    return _over_ranks(ax, ranks, gained, cores, legend="upper left")


def efficiency(ranks, seconds, weak: bool = False, cores=None, ax=None, figsize=None):
    """Parallel efficiency in per cent beside the ideal 100.

    ranks, seconds, cores: as for `speedup`. weak: the work grew with the ranks, so the ideal is equal times.
    """
    ax = _axes(ax, figsize, (6.4, 4.4))
    ranks = np.asarray(ranks)
    ax.axhline(100, linestyle="--", color=FAINT, label="ideal")
    per_rank = 1 if weak else ranks
    share = {label: 100 * costs.efficiency(times[0], times, per_rank) for label, times in _labelled(seconds).items()}
    ax.set(ylabel=f"{'weak' if weak else 'strong'} efficiency, %", ylim=(0, 115))
    return _over_ranks(ax, ranks, share, cores, legend="lower left")


def amdahl(fractions, max_ranks: int = 1024, ax=None, figsize=None):
    """Amdahl's law for several serial fractions (above 0, up to 1) up to max_ranks ranks."""
    ax = _axes(ax, figsize, (7.2, 4.4))
    ranks = np.geomspace(1, max_ranks, 200)
    ax.plot(ranks, ranks, "--", color=FAINT, label="ideal")
    for fraction in fractions:
        label = f"{100 * fraction:g} % serial: at most {1 / fraction:,.0f} times"
        ax.plot(ranks, costs.amdahl(fraction, ranks), label=label)
    ax.set(xlabel="ranks", ylabel="speed-up", ylim=(1, max_ranks))
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    ax.xaxis.set_major_formatter(plain)
    ax.yaxis.set_major_formatter(plain)
    ax.legend(loc="upper left")
    ax.grid(True)
    return ax


def spans(rows: dict, ax=None, figsize=None):
    """Where the time went: one bar a row, one colour a part. rows: label -> {part: seconds}, drawn left to right."""
    ax = _axes(ax, figsize, (7.2, 0.9 + 0.55 * len(rows)))
    parts = list(dict.fromkeys(part for row in rows.values() for part in row))
    for y, row in enumerate(rows.values()):
        left = 0.0
        for part, seconds in row.items():
            ax.barh(y, seconds, left=left, height=0.6, color=RANK_COLORS[[5, 4, 2, 3, 1][parts.index(part) % 5]])
            left += seconds
        ax.text(left, y, f" {left:.3g} s", va="center", color=INK)
    handles = [Rectangle((0, 0), 1, 1, color=RANK_COLORS[[5, 4, 2, 3, 1][i % 5]]) for i in range(len(parts))]
    ax.set(xlabel="seconds", yticks=range(len(rows)), yticklabels=list(rows))
    ax.invert_yaxis()
    ax.margins(x=0.12)
    ax.set_xlim(left=0)
    ax.legend(handles, parts, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(parts))
    ax.xaxis.set_major_locator(MaxNLocator(6))
    return ax


def collective(name: str, before: list, after: list, ax=None, figsize=None):
    """What each rank holds before and after a collective call, and which way the values went.

    before, after: one list a rank, each of short texts: `collective("Bcast", [["N"], [], []], [["N"], ["N"], ["N"]])`.
    A value such as "a+b" is one that came from "a" and "b"; it is drawn grey.
    """
    ranks = len(before)
    widest, after_widest = (max(len(row) for row in rows) for rows in (before, after))
    right = widest + 1.6  # x where the column after the call begins
    ax = _axes(ax, figsize, (1.4 + 0.75 * (right + after_widest), 0.6 + 0.55 * ranks))
    colors = {}
    for text in (text for row in before for text in row):
        colors.setdefault(text, rank_color(len(colors)))
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
        ax.text(left + i + 0.46, rank + 0.5, text, ha="center", va="center", color=ink, weight="bold", size=size)


def _flows(source, target, keeps, same):
    """Does a value of `source` end in `target`? What a rank keeps is no news, so others need not send it."""
    arrived = {part for text in target for part in text.split("+")}
    return bool(arrived & set(source) and (same or (arrived - set(keeps)) & set(source)))


def _labelled(seconds) -> dict:
    series = seconds if isinstance(seconds, dict) else {"measured": seconds}
    return {label: np.asarray(times, float) for label, times in series.items()}


def _over_ranks(ax, ranks, series, cores, legend):
    for index, (label, values) in enumerate(series.items()):
        ax.plot(ranks, values, "os^D"[index % 4] + "-", color=RANK_COLORS[[0, 4, 2, 3][index % 4]], label=label)
    if cores is not None and cores < ranks.max():
        label = f"more ranks than the {cores} core{'s' * (cores > 1)}"
        ax.axvspan(cores, ranks.max() * 1.02, color=RANK_COLORS[1], alpha=0.15, linewidth=0, label=label)
    ax.set(xlabel="ranks", xticks=ranks, xlim=(ranks.min() - 0.1, ranks.max() * 1.02))
    ax.legend(loc=legend)
    ax.grid(True)
    return ax


def _legend_outside(ax, **options):
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), **options)
