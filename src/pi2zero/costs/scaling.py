"""Data-parallel training at scale: step time from computing, latency and bandwidth.

A step computes for c seconds on every rank and all-reduces g bytes of gradients over p ranks in a
ring (costs.collectives). A part of the ring's time is hidden behind computing: the backward pass
computes the last layers' gradients first, and they can be sent while it goes on. The slowest rank
decides: if the computing times of p ranks scatter normally with standard deviation s, the slowest
of them takes about c + s sqrt(2 ln p) (an upper bound on the expected largest of p normal values;
e.g. Boucheron, Lugosi, Massart, "Concentration Inequalities", 2013, section 2.5).
"""

import numpy as np

from pi2zero.costs import valid
from pi2zero.costs.collectives import ring_allreduce_seconds

__all__ = ["allowed_beta", "rate_efficiency", "scaling_efficiency", "step_seconds", "throughput"]


def step_seconds(ranks, compute, nbytes, alpha, beta, overlap=0.0, scatter=0.0):
    """Time of one data-parallel step in s: compute + scatter sqrt(2 ln p) + the exposed ring.

    compute: s of forward, backward and update on one rank. nbytes: gradients, bytes.
    alpha: s per message; beta: s per byte.
    overlap: share 0..1 of the *computing* time during which the ring can be hidden. 0: it starts
        after the backward pass; 2/3 is about the share of the backward pass.
    scatter: standard deviation of a rank's computing time, s.
    """
    p, c = valid.ranks(ranks), valid.positive("compute", compute)
    share, s = valid.fraction("overlap", overlap), valid.not_negative("scatter", scatter)
    ring = ring_allreduce_seconds(nbytes, p, alpha, beta)
    return c + s * np.sqrt(2 * np.log(p)) + np.maximum(0, ring - share * c)


def throughput(ranks, batch_size, *step, **options):
    """Samples per s over all ranks. batch_size: samples per rank and step (weak scaling).

    step, options: the other arguments of step_seconds.
    """
    samples = valid.ranks(ranks) * valid.positive("batch_size", batch_size)
    return samples / step_seconds(ranks, *step, **options)


def scaling_efficiency(ranks, compute, *step, **options):
    """Weak scaling by the model: computing time / step time, 0..1. Arguments: of step_seconds."""
    return valid.positive("compute", compute) / step_seconds(ranks, compute, *step, **options)


def rate_efficiency(ranks, rate, base_rate, base_ranks=1):
    """Measured efficiency: (rate / base_rate) / (ranks / base_ranks). 1 is ideal.

    rate, base_rate: samples per s.
    """
    growth = valid.positive("rate", rate) / valid.positive("base_rate", base_rate)
    return growth * valid.ranks(base_ranks) / valid.ranks(ranks)


def allowed_beta(ranks, compute, nbytes, alpha, wanted, overlap=0.0):
    """The largest beta (s per byte) at which the model still gives the wanted efficiency.

    1 / beta is the bandwidth to ask for. wanted: above 0, at most 1.
    Raises ValueError where latency alone already costs more.
    """
    share, p = valid.fraction("overlap", overlap), valid.ranks(ranks)
    c, n = valid.positive("compute", compute), valid.positive("nbytes", nbytes)
    if not 0 < wanted <= 1:
        raise ValueError(f"wanted: an efficiency above 0 and at most 1; got {wanted!r}.")
    if np.any(p < 2):
        raise ValueError("ranks: 2 or more; one rank sends nothing, so any bandwidth will do.")
    left = c * (1 / wanted - 1 + share) - 2 * (p - 1) * valid.not_negative("alpha", alpha)
    if np.any(left <= 0):
        raise ValueError(
            f"wanted: {wanted:.0%} is not possible: latency alone takes longer. "
            "Give a smaller alpha, or fewer ranks."
        )
    return left / (2 * (p - 1) / p * n)
