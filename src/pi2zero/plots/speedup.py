"""Pictures of time and speed-up."""

import itertools

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pi2zero import costs
from pi2zero.plots.style import ACTIVITY_COLORS, FAINT, INK, RANK_COLORS, new_axes, stacked_bars

__all__ = ["amdahl", "efficiency", "spans", "speedup", "time_against_n"]


def time_against_n(series: dict, ax=None, figsize=None):
    """Seconds over the samples, both logarithmic. series: label -> (samples, seconds)."""
    ax = new_axes(ax, figsize, (7.2, 4.4))
    for index, (label, (ns, seconds)) in enumerate(series.items()):
        ax.plot(ns, seconds, "os^Dv"[index % 5] + "-", label=label)
    ax.set(xscale="log", yscale="log", xlabel="samples N", ylabel="seconds")
    ax.legend()
    ax.grid(True)
    return ax


def speedup(ranks, seconds, serial_fraction=None, cores=None, ax=None, figsize=None):
    """Measured strong speed-up with the ideal one.

    ranks: (k,), the first one is 1. seconds: (k,), or label -> (k,) for several runs.
    serial_fraction: draws Amdahl's law for it too. cores: shades the ranks that share a core.
    """
    ax = new_axes(ax, figsize, (6.4, 4.4))
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
    """Parallel efficiency in per cent with the ideal 100.

    ranks, seconds, cores: as for `speedup`. weak: the work grew with the ranks, so the ideal is
    equal times.
    """
    ax = new_axes(ax, figsize, (6.4, 4.4))
    ranks = np.asarray(ranks)
    ax.axhline(100, linestyle="--", color=FAINT, label="ideal")
    per_rank = 1 if weak else ranks
    share = {
        label: 100 * costs.efficiency(times[0], times, per_rank)
        for label, times in _labelled(seconds).items()
    }
    ax.set(ylabel=f"{'weak' if weak else 'strong'} efficiency, %", ylim=(0, 115))
    return _over_ranks(ax, ranks, share, cores, legend="lower left")


def amdahl(fractions, max_ranks: int = 1024, ax=None, figsize=None):
    """Amdahl's law for several serial fractions (above 0, up to 1) up to max_ranks ranks."""
    ax = new_axes(ax, figsize, (7.2, 4.4))
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
    """Where the time went: a bar per row, a colour per part, in the order of the parts.

    rows: label -> {part: seconds}.
    """
    ax = new_axes(ax, figsize, (7.2, 0.9 + 0.55 * len(rows)))
    parts = dict.fromkeys(part for row in rows.values() for part in row)
    others = (RANK_COLORS[[5, 4, 3, 1][number % 4]] for number in itertools.count())
    compute = ACTIVITY_COLORS["compute"]
    colors = {part: compute if part == "computing" else next(others) for part in parts}
    stacked_bars(ax, rows, colors, height=0.6)
    for y, row in enumerate(rows.values()):
        total = sum(row.values())
        ax.text(total, y, f" {total:.3g} s", va="center", color=INK)
    ax.set(xlabel="seconds")
    ax.margins(x=0.12)
    ax.set_xlim(left=0)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(parts))
    ax.xaxis.set_major_locator(MaxNLocator(6))
    return ax


def _labelled(seconds) -> dict:
    series = seconds if isinstance(seconds, dict) else {"measured": seconds}
    return {label: np.asarray(times, float) for label, times in series.items()}


def _over_ranks(ax, ranks, series, cores, legend):
    for index, (label, values) in enumerate(series.items()):
        color = RANK_COLORS[[0, 4, 2, 3][index % 4]]
        ax.plot(ranks, values, "os^D"[index % 4] + "-", color=color, label=label)
    if cores is not None and cores < ranks.max():
        label = f"more ranks than the {cores} core{'s' * (cores > 1)}"
        style = {"color": RANK_COLORS[1], "alpha": 0.15, "linewidth": 0, "label": label}
        ax.axvspan(cores, ranks.max() * 1.02, **style)
    ax.set(xlabel="ranks", xticks=ranks, xlim=(ranks.min() - 0.1, ranks.max() * 1.02))
    ax.legend(loc=legend)
    ax.grid(True)
    return ax
