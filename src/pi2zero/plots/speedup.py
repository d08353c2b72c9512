"""Pictures of time and speed-up."""

import numpy as np
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pi2zero import costs
from pi2zero.plots.style import ACTIVITY_COLORS, FAINT, INK, RANK_COLORS, new_axes

__all__ = ["amdahl", "efficiency", "spans", "speedup", "time_against_n"]


def time_against_n(series: dict, ax=None, figsize=None):
    """Seconds over the number of samples, both logarithmic. series: label -> (numbers of samples, seconds)."""
    ax = new_axes(ax, figsize, (7.2, 4.4))
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
    """Parallel efficiency in per cent beside the ideal 100.

    ranks, seconds, cores: as for `speedup`. weak: the work grew with the ranks, so the ideal is equal times.
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
    """Where the time went: one bar a row, one colour a part. rows: label -> {part: seconds}, drawn left to right."""
    ax = new_axes(ax, figsize, (7.2, 0.9 + 0.55 * len(rows)))
    parts = list(dict.fromkeys(part for row in rows.values() for part in row))
    others = [part for part in parts if part != "computing"]
    colors = {part: RANK_COLORS[[5, 4, 3, 1][number % 4]] for number, part in enumerate(others)}
    colors["computing"] = ACTIVITY_COLORS["compute"]
    for y, row in enumerate(rows.values()):
        left = 0.0
        for part, seconds in row.items():
            ax.barh(y, seconds, left=left, height=0.6, color=colors[part])
            left += seconds
        ax.text(left, y, f" {left:.3g} s", va="center", color=INK)
    handles = [Rectangle((0, 0), 1, 1, color=colors[part]) for part in parts]
    ax.set(xlabel="seconds", yticks=range(len(rows)), yticklabels=list(rows))
    ax.invert_yaxis()
    ax.margins(x=0.12)
    ax.set_xlim(left=0)
    ax.legend(handles, parts, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(parts))
    ax.xaxis.set_major_locator(MaxNLocator(6))
    return ax


def _labelled(seconds) -> dict:
    series = seconds if isinstance(seconds, dict) else {"measured": seconds}
    return {label: np.asarray(times, float) for label, times in series.items()}


def _over_ranks(ax, ranks, series, cores, legend):
    for index, (label, values) in enumerate(series.items()):
        ax.plot(
            ranks,
            values,
            "os^D"[index % 4] + "-",
            color=RANK_COLORS[[0, 4, 2, 3][index % 4]],
            label=label,
        )
    if cores is not None and cores < ranks.max():
        label = f"more ranks than the {cores} core{'s' * (cores > 1)}"
        ax.axvspan(
            cores, ranks.max() * 1.02, color=RANK_COLORS[1], alpha=0.15, linewidth=0, label=label
        )
    ax.set(xlabel="ranks", xticks=ranks, xlim=(ranks.min() - 0.1, ranks.max() * 1.02))
    ax.legend(loc=legend)
    ax.grid(True)
    return ax
