"""Time and bytes of collective communication: the alpha-beta model, bus bandwidth, and the fit of alpha and beta.

A message of n bytes takes alpha + n beta seconds: alpha in s is what any message costs (latency), beta in s per byte is
1 / bandwidth. Adding up two arrays costs gamma s per byte of one of them; it is 0 here unless it is given, and a fit then
finds it inside beta. Every rank sends and receives one message at a time, and the network is the same between any two.

n is the size of one rank's whole buffer in all functions, also for reduce-scatter (what goes in) and all-gather (what comes
out), as in nccl-tests.

Sources: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1),
2005, doi:10.1177/1094342005051521 (the model, trees, recursive doubling, halving and doubling); P. Patarasuk, X. Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009, doi:10.1016/j.jpdc.2008.09.002 (the
ring, and that no algorithm sends fewer bytes); NVIDIA, nccl-tests, doc/PERFORMANCE.md (algorithm and bus bandwidth).
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

# Share of the buffer that has to cross each rank's link, p ranks: what algorithm bandwidth is multiplied by.
BUS_FACTORS = {
    "all_reduce": lambda p: 2 * (p - 1) / p,
    "reduce_scatter": lambda p: (p - 1) / p,
    "all_gather": lambda p: (p - 1) / p,
    "all_to_all": lambda p: (p - 1) / p,
    "broadcast": lambda p: np.ones_like(p),
    "reduce": lambda p: np.ones_like(p),
}


def message_seconds(nbytes, alpha, beta):
    """One message of nbytes between two ranks: alpha + n beta. alpha: s; beta: s per byte; both 0 or more. Returns s."""
    return valid.not_negative("alpha", alpha) + valid.not_negative(
        "nbytes", nbytes
    ) * valid.not_negative("beta", beta)


def ring_reduce_scatter_seconds(nbytes, ranks, alpha, beta, gamma=0.0):
    """p - 1 steps of n/p bytes, each added to what is there: (p-1) alpha + (p-1)/p n (beta + gamma). Returns s.

    nbytes: n, what each rank puts in. Each rank gets the sum of its n/p bytes.
    """
    p = valid.ranks(ranks)
    return (p - 1) * (
        message_seconds(np.asarray(nbytes) / p, alpha, beta)
        + np.asarray(nbytes) / p * valid.not_negative("gamma", gamma)
    )


def ring_allgather_seconds(nbytes, ranks, alpha, beta):
    """p - 1 steps of n/p bytes: (p-1) alpha + (p-1)/p n beta. nbytes: n, what each rank has in the end. Returns s."""
    return ring_reduce_scatter_seconds(nbytes, ranks, alpha, beta)


def ring_allreduce_seconds(nbytes, ranks, alpha, beta, gamma=0.0):
    """Reduce-scatter, then all-gather, on a ring: 2 (p-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma. Returns s.

    nbytes: n, the array to reduce. alpha: s a message; beta: s per byte; gamma: s per byte added. 0 on one rank.
    The bytes are the fewest possible, the messages many: best for long arrays (Patarasuk and Yuan 2009).
    """
    scatter = ring_reduce_scatter_seconds(nbytes, ranks, alpha, beta, gamma)
    return scatter + ring_allgather_seconds(nbytes, ranks, alpha, beta)


def ring_allreduce_bytes(nbytes, ranks):
    """Bytes that each rank sends (and receives) in a ring all-reduce of nbytes: 2 (p-1)/p n; below 2n however many ranks."""
    p = valid.ranks(ranks)
    return 2 * (p - 1) / p * valid.not_negative("nbytes", nbytes)


def naive_allreduce_seconds(nbytes, ranks, alpha, beta, gamma=0.0):
    """All send to rank 0, which adds up and sends the sum to each: (p-1) (2 alpha + 2 n beta + n gamma). Returns s.

    One after another, because rank 0 has one link. It grows with the ranks; so does a parameter server on one rank.
    """
    n, p = valid.not_negative("nbytes", nbytes), valid.ranks(ranks)
    return (p - 1) * (2 * message_seconds(n, alpha, beta) + n * valid.not_negative("gamma", gamma))


def tree_bcast_seconds(nbytes, ranks, alpha, beta):
    """Binomial tree: who has the n bytes passes them on, twice as many each step: ceil(log2 p) (alpha + n beta). Returns s."""
    return _tree_steps(ranks) * message_seconds(nbytes, alpha, beta)


def tree_reduce_seconds(nbytes, ranks, alpha, beta, gamma=0.0):
    """The tree of the broadcast backwards, adding up: ceil(log2 p) (alpha + n (beta + gamma)). Returns s."""
    return _tree_steps(ranks) * (
        message_seconds(nbytes, alpha, beta)
        + np.asarray(nbytes) * valid.not_negative("gamma", gamma)
    )


def tree_allreduce_seconds(nbytes, ranks, alpha, beta, gamma=0.0):
    """Reduce to rank 0 on a tree, broadcast from it on a tree: ceil(log2 p) (2 alpha + 2 n beta + n gamma). Returns s."""
    return tree_reduce_seconds(nbytes, ranks, alpha, beta, gamma) + tree_bcast_seconds(
        nbytes, ranks, alpha, beta
    )


def recursive_doubling_allreduce_seconds(nbytes, ranks, alpha, beta, gamma=0.0):
    """Partners 1, 2, 4, ... apart exchange everything: log2 p (alpha + n (beta + gamma)). Returns s.

    The fewest messages: best for short arrays. Where p is no power of two, the ranks above the next lower one hand their
    array to a partner first and get the sum last: two messages more (Thakur, Rabenseifner, Gropp 2005, section 4.5).
    """
    n, doublings, folded = valid.not_negative("nbytes", nbytes), *_doublings(ranks)
    added = n * valid.not_negative("gamma", gamma)
    return (doublings + 2 * folded) * message_seconds(n, alpha, beta) + (doublings + folded) * added


def halving_doubling_allreduce_seconds(nbytes, ranks, alpha, beta, gamma=0.0):
    """Rabenseifner's: reduce-scatter by halving, all-gather by doubling. Returns s.

    2 log2 p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma: the ring's bytes in fewer messages. Where p is no power of two, two
    messages of n more, as for recursive doubling.
    """
    n, doublings, folded = valid.not_negative("nbytes", nbytes), *_doublings(ranks)
    q = 2.0**doublings
    added = ((q - 1) / q + folded) * n * valid.not_negative("gamma", gamma)
    moved = message_seconds((2 * (q - 1) / q + 2 * folded) * n, 0, beta)
    return message_seconds(0, alpha, beta) * 2 * (doublings + folded) + moved + added


def algorithm_bandwidth(nbytes, seconds):
    """Bytes of one rank's buffer / time, in bytes per s (nccl-tests: algbw). nbytes, seconds: above 0."""
    return valid.positive("nbytes", nbytes) / valid.positive("seconds", seconds)


def bus_bandwidth(nbytes, seconds, ranks, kind="all_reduce"):
    """What each rank's link carried, in bytes per s (nccl-tests: busbw): algorithm bandwidth x a factor of p ranks.

    kind: all_reduce (2(p-1)/p), reduce_scatter, all_gather, all_to_all ((p-1)/p), broadcast, reduce (1). With the factor,
    an optimal algorithm reads as the speed of the link whatever the number of ranks. One rank has no link: 0.
    """
    if kind not in BUS_FACTORS:
        raise ValueError(f"kind: no collective {kind!r}; give one of {', '.join(BUS_FACTORS)}.")
    return algorithm_bandwidth(nbytes, seconds) * BUS_FACTORS[kind](valid.ranks(ranks))


def fit_alpha_beta(nbytes, seconds, model=message_seconds, **options):
    """alpha (s) and beta (s per byte), 0 or more, for which `model` comes closest to the measured times.

    nbytes, seconds: (k,) with two different sizes at least. model: one of the functions above; options: its other arguments,
    e.g. `fit_alpha_beta(n, t, ring_allreduce_seconds, ranks=4)`. Least squares of the *relative* errors: in absolute ones a
    64 MiB message would drown all short ones, and alpha with them.
    """
    n, t = (
        np.atleast_1d(valid.not_negative("nbytes", nbytes)),
        np.atleast_1d(valid.positive("seconds", seconds)),
    )
    if n.ndim != 1 or n.shape != t.shape:
        raise ValueError(
            f"nbytes and seconds: one time for each size; got the shapes {n.shape} and {t.shape}."
        )
    if np.unique(n).size < 2:
        raise ValueError(
            "nbytes: one size cannot tell latency from bandwidth; measure two different ones at least."
        )
    # Every model is linear in alpha and beta: its two columns are what it gives for (1, 0) and for (0, 1).
    columns = [
        model(n, alpha=unit[0], beta=unit[1], **options) for unit in ((1.0, 0.0), (0.0, 1.0))
    ]
    matrix = np.stack(columns, axis=1) / t[:, None]
    if not matrix.any():
        raise ValueError(
            f"ranks: on these ranks nothing is sent, so there is nothing to fit; options: {options}."
        )
    return _least_squares(matrix)


def _least_squares(matrix):
    """(alpha, beta), not negative, for which matrix @ (alpha, beta) is closest to 1."""
    scale = matrix.max(axis=0)  # alpha is near 1e-6, beta near 1e-10: alike columns keep the digits
    columns, ones = matrix / scale, np.ones(len(matrix))
    best = np.linalg.lstsq(columns, ones)[0]
    if best.min() < 0:  # then the closest is with one of them at zero
        alone = (columns.T @ ones / (columns**2).sum(axis=0)).clip(0) * np.eye(2)
        best = min(alone, key=lambda pair: np.linalg.norm(columns @ pair - ones))
    alpha, beta = best / scale
    return float(alpha), float(beta)


def _tree_steps(ranks):
    return np.ceil(np.log2(valid.ranks(ranks)))


def _doublings(ranks):
    """log2 of the largest power of two up to `ranks`, and 1 where ranks are left over, else 0."""
    p = valid.ranks(ranks)
    doublings = np.floor(np.log2(p))
    return doublings, (2**doublings < p) * 1.0
