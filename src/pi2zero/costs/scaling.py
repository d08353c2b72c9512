"""Data-parallel training at scale: step time from computing, latency and bandwidth.

A step computes for c seconds on every rank and sums g bytes of gradients over p ranks in a ring (costs.collectives). A part
of the ring's time hides behind computing: backward makes the last layers' gradients first, and they can travel while it goes on.
The slowest rank decides: if the computing times of p ranks scatter normally with standard deviation s, the slowest of them
takes about c + s sqrt(2 ln p) (an upper bound on the expected largest of p normal values; e.g. Boucheron, Lugosi, Massart,
"Concentration Inequalities", 2013, section 2.5).
"""

import numpy as np

from pi2zero.costs import valid
from pi2zero.costs.collectives import ring_allreduce_seconds

__all__ = ["allowed_beta", "rate_efficiency", "scaling_efficiency", "step_seconds", "throughput"]


def step_seconds(ranks, compute, nbytes, alpha, beta, overlap=0.0, scatter=0.0):
    """Time of one data-parallel step in s: compute + scatter sqrt(2 ln p) + the part of the ring that is not hidden.

    compute: s of forward, backward and update on one rank. nbytes: gradients, bytes. alpha: s a message; beta: s per byte.
    overlap: share 0..1 of the *computing* time during which the ring may run (0: it starts after backward; 2/3 is about the
    share of backward). scatter: standard deviation of a rank's computing time, s. All but ranks may be 0 except compute.
    """
    p, c = valid.ranks(ranks), valid.positive("compute", compute)
    share, s = valid.fraction("overlap", overlap), valid.not_negative("scatter", scatter)
    ring = ring_allreduce_seconds(nbytes, p, alpha, beta)
    return c + s * np.sqrt(2 * np.log(p)) + np.maximum(0, ring - share * c)


def throughput(ranks, batch_size, compute, nbytes, alpha, beta, overlap=0.0, scatter=0.0):
    """Samples per s over all ranks. batch_size: samples in a step on each rank (weak scaling). See step_seconds."""
    step = step_seconds(ranks, compute, nbytes, alpha, beta, overlap, scatter)
    return valid.ranks(ranks) * valid.positive("batch_size", batch_size) / step


def scaling_efficiency(ranks, compute, nbytes, alpha, beta, overlap=0.0, scatter=0.0):
    """Weak scaling by the model: computing time / step time, 0..1. See step_seconds."""
    return valid.positive("compute", compute) / step_seconds(
        ranks, compute, nbytes, alpha, beta, overlap, scatter
    )


def rate_efficiency(ranks, rate, base_rate, base_ranks=1):
    """Measured: (rate / base_rate) / (ranks / base_ranks). Rates in samples per s; 1 is perfect, above 1 wants an explanation."""
    grew = valid.positive("rate", rate) / valid.positive("base_rate", base_rate)
    return grew * valid.ranks(base_ranks) / valid.ranks(ranks)


def allowed_beta(ranks, compute, nbytes, alpha, wanted, overlap=0.0):
    """The largest beta (s per byte) at which the model still gives the wanted efficiency; 1/beta is the bandwidth to ask for.

    wanted: above 0, at most 1. Raises ValueError where latency alone already costs more.
    """
    share = valid.fraction("overlap", overlap)
    if not 0 < wanted <= 1:
        raise ValueError(f"wanted: an efficiency above 0 and at most 1; got {wanted!r}.")
    p, c, n = (
        valid.ranks(ranks),
        valid.positive("compute", compute),
        valid.positive("nbytes", nbytes),
    )
    if np.any(p < 2):
        raise ValueError("ranks: 2 or more; one rank sends nothing, any bandwidth will do.")
    room = c * (1 / wanted - 1 + share) - 2 * (p - 1) * valid.not_negative("alpha", alpha)
    if np.any(room <= 0):
        raise ValueError(
            f"wanted: {wanted:.0%} cannot be had: latency alone takes longer. Give smaller alpha, or fewer ranks."
        )
    return room / (2 * (p - 1) / p * n)
