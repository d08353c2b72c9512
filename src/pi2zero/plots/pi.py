"""Pictures of π: darts, their error, the slices of an integral."""

import numpy as np

from pi2zero import costs
from pi2zero.plots.style import INK, RANK_COLORS, legend_outside, new_axes, rank_color

__all__ = ["convergence", "darts", "midpoint_slices", "samples_by_rank", "spread"]


def darts(x, y, ax=None, figsize=None):
    """Darts on the unit square, those inside the quarter circle in blue. x, y: in 0..1."""
    x, y = np.ravel(x), np.ravel(y)
    inside = x * x + y * y < 1
    ax = _quarter_circle(new_axes(ax, figsize, (4.6, 4.6)))
    for where, color in ((inside, RANK_COLORS[0]), (~inside, RANK_COLORS[4])):
        ax.scatter(x[where], y[where], s=_dot_size(x.size), color=color, linewidths=0)
    ax.set_title(f"{inside.sum():,} of {x.size:,} inside: π ≈ {4 * inside.mean():.3f}")
    return ax


def samples_by_rank(x, y, rank, ax=None, figsize=None):
    """Darts coloured by the rank that threw them.

    x, y: coordinates in 0..1, one shape. rank: MPI ranks, broadcast to that shape, e.g. x of shape
    (ranks, darts) with rank of shape (ranks, 1).
    """
    x, y, rank = (np.ravel(a) for a in np.broadcast_arrays(x, y, rank))
    ax = _quarter_circle(new_axes(ax, figsize, (6.2, 4.6)))
    for number in np.unique(rank):
        style = {"s": _dot_size(x.size), "color": rank_color(number), "label": f"rank {number}"}
        ax.scatter(x[rank == number], y[rank == number], linewidths=0, **style)
    legend_outside(ax, markerscale=2)
    return ax


def _quarter_circle(ax):
    angle = np.linspace(0, np.pi / 2, 200)
    ax.plot(np.cos(angle), np.sin(angle), color=INK, zorder=3)
    ax.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 1], yticks=[0, 1])
    ax.set(aspect="equal", xlabel="x", ylabel="y")
    ax.spines[["top", "right"]].set_visible(True)
    return ax


def _dot_size(count: int) -> float:
    return float(np.clip(30_000 / max(count, 1), 4, 40))


def convergence(ns, errors, sigma: float = 5, ax=None, figsize=None):
    """Measured errors of Monte Carlo π over the samples, with the expected 1.642/sqrt(N).

    ns: (k,) numbers of samples. errors: (k,) or (repeats, k), |estimate - π|. sigma: width of the
    shaded band in standard errors; one estimate in 1.7 million is outside of 5.
    """
    ns, errors = np.asarray(ns, float), np.atleast_2d(errors)
    ax = new_axes(ax, figsize, (7.2, 4.4))
    expected, band = costs.monte_carlo_pi_error(ns), RANK_COLORS[5]
    lowest = min(errors[errors > 0].min(), expected.min() / 10) / 2
    ax.fill_between(ns, 1e-300, sigma * expected, color=band, alpha=0.2, linewidth=0)
    ax.plot(ns, expected, color=INK, label=r"standard error $1.642/\sqrt{N}$")
    ax.plot(ns, sigma * expected, "--", color=band, label=f"{sigma:g} standard errors")
    x = np.broadcast_to(ns, errors.shape).ravel()
    ax.plot(x, errors.ravel(), "o", color=RANK_COLORS[4], label="measured")
    ax.set(xscale="log", yscale="log", ylim=(lowest, 2 * sigma * expected.max()))
    ax.set(xlabel="samples N", ylabel="error |estimate − π|")
    ax.legend(loc="upper right")
    ax.grid(True)
    return ax


def spread(groups: dict, claimed: float, truth: float = np.pi, ax=None, figsize=None):
    """Histograms of many estimates with the bell curve that their error bar claims.

    groups: label -> estimates (any number); claimed: the standard error printed with each of them.
    """
    ax = new_axes(ax, figsize, (7.2, 4.0))
    furthest = max(np.abs(np.asarray(values) - truth).max() for values in groups.values())
    edges = _even_bins(groups.values(), truth, 1.05 * max(furthest, 4 * claimed))
    for index, (label, values) in enumerate(groups.items()):
        label = f"{label}: spread {np.std(values) / claimed:.2f} times the claim"
        color = RANK_COLORS[[0, 4, 2][index % 3]]
        ax.hist(values, edges, density=True, alpha=0.55, color=color, label=label)
    grid = np.linspace(edges[0], edges[-1], 400)
    bell = np.exp(-0.5 * ((grid - truth) / claimed) ** 2) / (claimed * np.sqrt(2 * np.pi))
    ax.plot(grid, bell, color=INK, label="what the error bar claims")
    ax.set(xlabel="estimate of π", yticks=[], ylim=(0, 1.55 * bell.max()))
    ax.legend(loc="upper left")
    return ax


def _even_bins(groups, middle, half):
    """About 40 bins, each with as many possible estimates: a share of N darts is k/N."""
    gaps = [np.diff(np.unique(np.round(values, 9))) for values in groups]
    step = max((gap.min() for gap in gaps if gap.size), default=half / 20)
    width = step * max(1, round(half / 20 / step))
    first = step * (np.floor((middle - half) / step) - 0.5)
    return np.arange(first, middle + half + width, width)


def midpoint_slices(n: int, size: int, ax=None, figsize=None):
    """The n slices of the integral of 4/(1+x²) over 0..1; slice i belongs to rank i % size."""
    ax = new_axes(ax, figsize, (7.2, 4.0))
    for rank in range(size):
        middle = (np.arange(rank, n, size) + 0.5) / n
        style = {"color": rank_color(rank), "edgecolor": "white", "label": f"rank {rank}"}
        ax.bar(middle, 4 / (1 + middle**2), 1 / n, **style)
    x = np.linspace(0, 1, 200)
    ax.plot(x, 4 / (1 + x * x), color=INK)
    ax.set(xlim=(0, 1), ylim=(0, 4.3), xlabel="x", ylabel="4 / (1 + x²)")
    legend_outside(ax)
    return ax
