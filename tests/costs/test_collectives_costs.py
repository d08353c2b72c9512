"""The alpha-beta model of collectives: against the formulas of the papers, by counting messages, and its fit."""

import numpy as np
import pytest

from pi2zero import costs

ALPHA, BETA, GAMMA = 1e-6, 1e-9, 2e-10
N = 1_000_000


def test_ring_allreduce_is_patarasuk_and_yuans():
    seconds = costs.ring_allreduce_seconds(N, 4, ALPHA, BETA, GAMMA)
    assert seconds == pytest.approx(6e-6 + 2 * 0.75 * N * BETA + 0.75 * N * GAMMA)
    assert costs.ring_allreduce_seconds(N, 1, ALPHA, BETA) == 0
    assert costs.ring_allreduce_bytes(N, [1, 2, 4]) == pytest.approx([0, N, 1.5 * N])


def test_ring_is_reduce_scatter_and_allgather():
    parts = costs.ring_reduce_scatter_seconds(
        N, 5, ALPHA, BETA, GAMMA
    ) + costs.ring_allgather_seconds(N, 5, ALPHA, BETA)
    assert costs.ring_allreduce_seconds(N, 5, ALPHA, BETA, GAMMA) == pytest.approx(parts)


def steps_of_a_tree(ranks):
    """Count: in each step everybody who has it passes it on."""
    have, steps = 1, 0
    while have < ranks:
        have, steps = 2 * have, steps + 1
    return steps


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8, 9, 1000])
def test_trees_take_as_many_steps_as_doubling_the_informed(ranks):
    steps = steps_of_a_tree(ranks)
    assert costs.tree_bcast_seconds(N, ranks, ALPHA, BETA) == pytest.approx(
        steps * (ALPHA + N * BETA)
    )
    assert costs.tree_reduce_seconds(N, ranks, 0, 0, GAMMA) == pytest.approx(steps * N * GAMMA)
    both = costs.tree_bcast_seconds(N, ranks, ALPHA, BETA) + costs.tree_reduce_seconds(
        N, ranks, ALPHA, BETA
    )
    assert costs.tree_allreduce_seconds(N, ranks, ALPHA, BETA) == pytest.approx(both)


def test_naive_is_two_messages_for_every_other_rank():
    assert costs.naive_allreduce_seconds(N, 4, ALPHA, BETA) == pytest.approx(
        3 * 2 * (ALPHA + N * BETA)
    )


@pytest.mark.parametrize(
    ("ranks", "steps"), [(1, 0), (2, 1), (4, 2), (8, 3), (3, 1 + 2), (6, 2 + 2), (7, 2 + 2)]
)
def test_recursive_doubling_steps(ranks, steps):
    assert costs.recursive_doubling_allreduce_seconds(N, ranks, ALPHA, BETA) == pytest.approx(
        steps * (ALPHA + N * BETA)
    )


def test_halving_doubling_has_the_rings_bytes_in_fewer_messages():
    ring, other = (
        f(N, 8, 0, BETA, GAMMA)
        for f in (costs.ring_allreduce_seconds, costs.halving_doubling_allreduce_seconds)
    )
    assert ring == pytest.approx(other)
    assert costs.halving_doubling_allreduce_seconds(0, 8, ALPHA, BETA) == pytest.approx(
        6 * ALPHA
    )  # the ring: 14
    assert costs.halving_doubling_allreduce_seconds(0, 6, ALPHA, BETA) == pytest.approx(6 * ALPHA)


def test_short_arrays_want_few_messages_long_ones_few_bytes():
    def fastest(nbytes):
        models = [
            costs.ring_allreduce_seconds,
            costs.recursive_doubling_allreduce_seconds,
            costs.naive_allreduce_seconds,
        ]
        return min(models, key=lambda model: model(nbytes, 8, ALPHA, BETA)).__name__

    assert fastest(8) == "recursive_doubling_allreduce_seconds"
    assert fastest(64 * 2**20) == "ring_allreduce_seconds"


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        ("all_reduce", 1.75),
        ("reduce_scatter", 0.875),
        ("all_gather", 0.875),
        ("all_to_all", 0.875),
        ("broadcast", 1),
        ("reduce", 1),
    ],
)
def test_bus_bandwidth_of_nccl_tests(kind, factor):
    assert costs.bus_bandwidth(8e9, 2.0, 8, kind) == pytest.approx(4e9 * factor)


def test_bus_bandwidth_of_an_ideal_ring_is_the_links_whatever_the_ranks():
    ranks = np.array([2, 4, 8, 1024])
    seconds = costs.ring_allreduce_seconds(N, ranks, 0, BETA)
    assert costs.bus_bandwidth(N, seconds, ranks) == pytest.approx(np.full(4, 1 / BETA))
    assert costs.bus_bandwidth(N, 1.0, 1) == 0


@pytest.mark.parametrize(
    "model",
    ["ring_allreduce_seconds", "naive_allreduce_seconds", "recursive_doubling_allreduce_seconds"],
)
def test_fit_finds_what_made_the_times(model):
    model, n = getattr(costs, model), 2.0 ** np.arange(10, 27)
    alpha, beta = costs.fit_alpha_beta(n, model(n, 4, 3e-6, 2e-10), model, ranks=4)
    assert (alpha, beta) == pytest.approx((3e-6, 2e-10), rel=1e-6)


def test_fit_counts_short_messages_as_much_as_long_ones():
    n = 2.0 ** np.arange(4, 27)
    noise = np.random.default_rng(0).uniform(0.9, 1.1, n.size)
    alpha, beta = costs.fit_alpha_beta(n, costs.message_seconds(n, 3e-6, 2e-10) * noise)
    assert alpha == pytest.approx(3e-6, rel=0.05)
    assert beta == pytest.approx(2e-10, rel=0.05)


def test_fit_is_never_negative():
    assert costs.fit_alpha_beta([1e3, 1e6], [1e-6, 1.1e-3])[0] == 0  # steeper than a line through 0
    assert costs.fit_alpha_beta([1e3, 1e6], [2e-6, 1e-6])[1] == 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: costs.ring_allreduce_seconds(-1, 4, ALPHA, BETA),
            "nbytes: no value may be below 0",
        ),
        (
            lambda: costs.ring_allreduce_seconds(1, 0, ALPHA, BETA),
            "the number of ranks is 1 or more",
        ),
        (lambda: costs.tree_bcast_seconds(1, 4, -ALPHA, BETA), "alpha: no value may be below 0"),
        (
            lambda: costs.naive_allreduce_seconds(1, 4, ALPHA, BETA, gamma=-1),
            "gamma: no value may be below 0",
        ),
        (lambda: costs.bus_bandwidth(1, 0, 4), "seconds: every value has to be above 0"),
        (
            lambda: costs.bus_bandwidth(1, 1, 4, "allreduce"),
            "no collective 'allreduce'; give one of all_reduce",
        ),
        (lambda: costs.fit_alpha_beta([1, 1], [1, 2]), "measure two different ones"),
        (lambda: costs.fit_alpha_beta([1, 2, 3], [1, 2]), "one time for each size"),
        (
            lambda: costs.fit_alpha_beta([1, 2], [1, 2], costs.ring_allreduce_seconds, ranks=1),
            "nothing to fit",
        ),
    ],
)
def test_bad_input_says_what_is_expected(call, says):
    with pytest.raises(ValueError, match=says):
        call()
