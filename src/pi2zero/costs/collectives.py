"""Time and bytes of collective communication: the alpha-beta model, bus bandwidth, and the fit.

A message of n bytes takes alpha + n beta seconds: alpha in s is the latency, beta in s per byte is
1 / bandwidth. Adding up two arrays costs gamma s per byte of one of them; it is 0 here unless it is
given, and a fit then finds it inside beta. Every rank sends and receives one message at a time, and
all pairs of ranks have the same link.

In all functions nbytes (n) is the size of one rank's whole buffer, as in nccl-tests: the input of a
reduce-scatter, the output of an all-gather. ranks (p): 1 or more. alpha, beta, gamma: 0 or more.
Functions named ..._seconds return s.

Sources: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
in MPICH", IJHPCA 19(1), 2005, doi:10.1177/1094342005051521 (the model, trees, recursive doubling,
halving and doubling); P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters
of workstations", JPDC 69(2), 2009, doi:10.1016/j.jpdc.2008.09.002 (the ring, and that no algorithm
sends fewer bytes); NVIDIA, nccl-tests, doc/PERFORMANCE.md (algorithm and bus bandwidth).
"""

import numpy as np

from pi2zero.costs import valid

__all__ = [
    "algorithm_bandwidth",
    "bus_bandwidth",
    "fit_alpha_beta",
    "halving_doubling_allreduce_seconds",
    "message_seconds",
    "naive_allreduce_seconds",
    "recursive_doubling_allreduce_seconds",
    "ring_allgather_seconds",
    "ring_allreduce_bytes",
    "ring_allreduce_seconds",
    "ring_reduce_scatter_seconds",
    "tree_allreduce_seconds",
    "tree_bcast_seconds",
    "tree_reduce_seconds",
]

# Share of the buffer that crosses each rank's link, for p ranks.
BUS_FACTORS = {
    "all_reduce": lambda p: 2 * (p - 1) / p,
    "reduce_scatter": lambda p: (p - 1) / p,
    "all_gather": lambda p: (p - 1) / p,
    "all_to_all": lambda p: (p - 1) / p,
    "broadcast": np.ones_like,
    "reduce": np.ones_like,
}


def message_seconds(nbytes, alpha, beta):
    """Time of one message between two ranks: alpha + n beta."""
    transfer = valid.not_negative("nbytes", nbytes) * valid.not_negative("beta", beta)
    return valid.not_negative("alpha", alpha) + transfer


def ring_reduce_scatter_seconds(nbytes, ranks, alpha, beta, gamma=0.0):
    """p - 1 steps of n/p bytes, added up at each step: (p-1) alpha + (p-1)/p n (beta + gamma).

    Each rank gets the sum of its n/p bytes.
    """
    p = valid.ranks(ranks)
    chunk = np.asarray(nbytes) / p
    return (p - 1) * (message_seconds(chunk, alpha, beta) + _adding_seconds(chunk, gamma))


def ring_allgather_seconds(nbytes, ranks, alpha, beta):
    """p - 1 steps of n/p bytes: (p-1) alpha + (p-1)/p n beta."""
    return ring_reduce_scatter_seconds(nbytes, ranks, alpha, beta)


def ring_allreduce_seconds(nbytes, ranks, alpha, beta, gamma=0.0):
    """Reduce-scatter, then all-gather: 2 (p-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma.

    The bytes are the fewest possible, the messages many: best for long arrays (Patarasuk and Yuan
    2009).
    """
    scatter = ring_reduce_scatter_seconds(nbytes, ranks, alpha, beta, gamma)
    return scatter + ring_allgather_seconds(nbytes, ranks, alpha, beta)


def ring_allreduce_bytes(nbytes, ranks):
    """Bytes that each rank sends (and receives) in a ring all-reduce: 2 (p-1)/p n, below 2n."""
    p = valid.ranks(ranks)
    return 2 * (p - 1) / p * valid.not_negative("nbytes", nbytes)


def naive_allreduce_seconds(nbytes, ranks, alpha, beta, gamma=0.0):
    """Rank 0 receives from all, adds up, and sends to all: (p-1) (2 alpha + 2 n beta + n gamma).

    One message after another, because rank 0 has one link: the time grows with the ranks, as that
    of a parameter server on one rank does.
    """
    message, p = message_seconds(nbytes, alpha, beta), valid.ranks(ranks)
    return (p - 1) * (2 * message + _adding_seconds(nbytes, gamma))


def tree_bcast_seconds(nbytes, ranks, alpha, beta):
    """Binomial tree: ceil(log2 p) (alpha + n beta). Each step doubles the ranks with the data."""
    return _tree_steps(ranks) * message_seconds(nbytes, alpha, beta)


def tree_reduce_seconds(nbytes, ranks, alpha, beta, gamma=0.0):
    """The broadcast's tree backwards, adding up: ceil(log2 p) (alpha + n (beta + gamma))."""
    message = message_seconds(nbytes, alpha, beta)
    return _tree_steps(ranks) * (message + _adding_seconds(nbytes, gamma))


def tree_allreduce_seconds(nbytes, ranks, alpha, beta, gamma=0.0):
    """Reduce to rank 0, then broadcast: ceil(log2 p) (2 alpha + 2 n beta + n gamma)."""
    reduce = tree_reduce_seconds(nbytes, ranks, alpha, beta, gamma)
    return reduce + tree_bcast_seconds(nbytes, ranks, alpha, beta)


def recursive_doubling_allreduce_seconds(nbytes, ranks, alpha, beta, gamma=0.0):
    """Partners 1, 2, 4, ... apart exchange everything: log2 p (alpha + n (beta + gamma)).

    The fewest messages: best for short arrays. Where p is no power of two, the ranks above the next
    lower one give their array to a partner first and get the sum last: two messages more (Thakur,
    Rabenseifner, Gropp 2005, section 4.5).
    """
    doublings, folded = _doublings(ranks)
    message, adding = message_seconds(nbytes, alpha, beta), _adding_seconds(nbytes, gamma)
    return (doublings + 2 * folded) * message + (doublings + folded) * adding


def halving_doubling_allreduce_seconds(nbytes, ranks, alpha, beta, gamma=0.0):
    """Rabenseifner's algorithm: reduce-scatter by halving, all-gather by doubling.

    2 log2 p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma: the ring's bytes in fewer messages. Where p
    is no power of two, two messages of n more, as for recursive doubling.
    """
    n, (doublings, folded) = valid.not_negative("nbytes", nbytes), _doublings(ranks)
    q = 2.0**doublings
    transfers = message_seconds((2 * (q - 1) / q + 2 * folded) * n, 0, beta)
    adding = ((q - 1) / q + folded) * _adding_seconds(n, gamma)
    return message_seconds(0, alpha, beta) * 2 * (doublings + folded) + transfers + adding


def algorithm_bandwidth(nbytes, seconds):
    """Bytes of one rank's buffer / time, in bytes per s (nccl-tests: algbw). Both above 0."""
    return valid.positive("nbytes", nbytes) / valid.positive("seconds", seconds)


def bus_bandwidth(nbytes, seconds, ranks, kind="all_reduce"):
    """Bytes per s on each rank's link (nccl-tests: busbw): algorithm bandwidth x a factor of p.

    kind: all_reduce (2(p-1)/p), reduce_scatter, all_gather, all_to_all ((p-1)/p), broadcast, reduce
    (1). With the factor, an optimal algorithm reads as the speed of the link whatever the number of
    ranks. One rank has no link: 0.
    """
    if kind not in BUS_FACTORS:
        raise ValueError(f"kind: no collective {kind!r}; give one of {', '.join(BUS_FACTORS)}.")
    return algorithm_bandwidth(nbytes, seconds) * BUS_FACTORS[kind](valid.ranks(ranks))


def fit_alpha_beta(nbytes, seconds, model=message_seconds, **options):
    """Return (alpha in s, beta in s per byte), 0 or more, for which `model` fits the times best.

    nbytes, seconds: (k,) measurements of two different sizes or more. model: one of the functions
    above; options: its other arguments, e.g. `fit_alpha_beta(n, t, ring_allreduce_seconds,
    ranks=4)`. Least squares of the *relative* errors: in absolute ones a 64 MiB message would drown
    all short ones, and alpha with them. Raises ValueError.
    """
    n = np.atleast_1d(valid.not_negative("nbytes", nbytes))
    t = np.atleast_1d(valid.positive("seconds", seconds))
    if n.ndim != 1 or n.shape != t.shape:
        raise ValueError(
            f"nbytes and seconds: one time for each size; got the shapes {n.shape} and {t.shape}."
        )
    if np.unique(n).size < 2:
        raise ValueError(
            "nbytes: one size cannot tell latency from bandwidth; measure two different ones or "
            "more."
        )
    # Every model is linear in alpha and beta: its columns are what it gives for (1, 0) and (0, 1).
    columns = [model(n, alpha=a, beta=b, **options) for a, b in ((1.0, 0.0), (0.0, 1.0))]
    matrix = np.stack(columns, axis=1) / t[:, None]
    if not matrix.any():
        raise ValueError(
            f"ranks: nothing is sent on these ranks, so there is nothing to fit; {options}."
        )
    # alpha is near 1e-6 and beta near 1e-10: scaled columns keep the digits.
    scale = matrix.max(axis=0)
    columns, ones = matrix / scale, np.ones(len(matrix))
    best = np.linalg.lstsq(columns, ones)[0]
    if best.min() < 0:  # the best fit without negative values has one of them at zero
        alone = (columns.T @ ones / (columns**2).sum(axis=0)).clip(0) * np.eye(2)
        best = min(alone, key=lambda pair: np.linalg.norm(columns @ pair - ones))
    alpha, beta = best / scale
    return float(alpha), float(beta)


def _adding_seconds(nbytes, gamma):
    return valid.not_negative("nbytes", nbytes) * valid.not_negative("gamma", gamma)


def _tree_steps(ranks):
    return np.ceil(np.log2(valid.ranks(ranks)))


def _doublings(ranks):
    """log2 of the largest power of two up to `ranks`, and 1 where ranks are left over, else 0."""
    p = valid.ranks(ranks)
    doublings = np.floor(np.log2(p))
    return doublings, (2**doublings < p) * 1.0
