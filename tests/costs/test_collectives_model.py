"""The alpha-beta model of collectives: the papers' formulas, counted messages, and the fit."""

import numpy as np
import pytest

from pi2zero import costs

ALPHA, BETA, GAMMA = 1e-6, 1e-9, 2e-10
N = 1_000_000


def test_ring_allreduce_is_patarasuk_and_yuans():
    seconds = costs.ring_allreduce_seconds(N, 4, ALPHA, BETA, GAMMA)
    assert seconds == pytest.approx(6e-6 + 2 * 0.75 * N * BETA + 0.75 * N * GAMMA)
    scatter = costs.ring_reduce_scatter_seconds(N, 4, ALPHA, BETA, GAMMA)
    assert seconds == pytest.approx(scatter + costs.ring_allgather_seconds(N, 4, ALPHA, BETA))
    assert costs.ring_allreduce_seconds(N, 1, ALPHA, BETA) == 0
    assert costs.ring_allreduce_bytes(N, [1, 2, 4]) == pytest.approx([0, N, 1.5 * N])


@pytest.mark.parametrize(("ranks", "steps"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1000, 10)])
def test_trees_take_as_many_steps_as_doubling_the_informed(ranks, steps):
    bcast = costs.tree_bcast_seconds(N, ranks, ALPHA, BETA)
    assert bcast == pytest.approx(steps * (ALPHA + N * BETA))
    assert costs.tree_reduce_seconds(N, ranks, 0, 0, GAMMA) == pytest.approx(steps * N * GAMMA)
    both = bcast + costs.tree_reduce_seconds(N, ranks, ALPHA, BETA)
    assert costs.tree_allreduce_seconds(N, ranks, ALPHA, BETA) == pytest.approx(both)


@pytest.mark.parametrize(
    ("ranks", "steps"), [(1, 0), (2, 1), (4, 2), (8, 3), (3, 1 + 2), (6, 2 + 2), (7, 2 + 2)]
)
def test_recursive_doubling_steps(ranks, steps):
    seconds = costs.recursive_doubling_allreduce_seconds(N, ranks, ALPHA, BETA)
    assert seconds == pytest.approx(steps * (ALPHA + N * BETA))


def test_halving_doubling_has_the_rings_bytes_in_fewer_messages():
    halving, ring = costs.halving_doubling_allreduce_seconds, costs.ring_allreduce_seconds
    assert halving(N, 8, 0, BETA, GAMMA) == pytest.approx(ring(N, 8, 0, BETA, GAMMA))
    assert halving(0, 8, ALPHA, BETA) == pytest.approx(6 * ALPHA)  # the ring: 14
    assert halving(0, 6, ALPHA, BETA) == pytest.approx(6 * ALPHA)


def test_short_arrays_need_few_messages_long_ones_few_bytes():
    naive = costs.naive_allreduce_seconds
    assert naive(N, 4, ALPHA, BETA) == pytest.approx(3 * 2 * (ALPHA + N * BETA))
    ring, doubling = costs.ring_allreduce_seconds, costs.recursive_doubling_allreduce_seconds
    for nbytes, fastest in ((8, doubling), (64 * 2**20, ring)):
        assert fastest is min(
            (ring, doubling, naive), key=lambda model: model(nbytes, 8, ALPHA, BETA)
        )


def test_bus_bandwidth_is_nccl_tests():
    factors = {"all_reduce": 1.75, "broadcast": 1, "reduce": 1}
    factors |= dict.fromkeys(("reduce_scatter", "all_gather", "all_to_all"), 0.875)
    for kind, factor in factors.items():
        assert costs.bus_bandwidth(8e9, 2.0, 8, kind) == pytest.approx(4e9 * factor)
    ranks = np.array([2, 4, 8, 1024])
    ideal = costs.ring_allreduce_seconds(N, ranks, 0, BETA)
    assert costs.bus_bandwidth(N, ideal, ranks) == pytest.approx(np.full(4, 1 / BETA))
    assert costs.bus_bandwidth(N, 1.0, 1) == 0


@pytest.mark.parametrize("name", ["ring", "naive", "recursive_doubling"])
def test_fit_finds_what_made_the_times(name):
    model, n = getattr(costs, f"{name}_allreduce_seconds"), 2.0 ** np.arange(10, 27)
    fit = costs.fit_alpha_beta(n, model(n, 4, 3e-6, 2e-10), model, ranks=4)
    assert fit == pytest.approx((3e-6, 2e-10), rel=1e-6)


def test_fit_counts_short_messages_as_much_as_long_ones_and_is_never_negative():
    n = 2.0 ** np.arange(4, 27)
    noise = np.random.default_rng(0).uniform(0.9, 1.1, n.size)
    fit = costs.fit_alpha_beta(n, costs.message_seconds(n, 3e-6, 2e-10) * noise)
    assert fit == pytest.approx((3e-6, 2e-10), rel=0.05)
    assert costs.fit_alpha_beta([1e3, 1e6], [1e-6, 1.1e-3])[0] == 0
    assert costs.fit_alpha_beta([1e3, 1e6], [2e-6, 1e-6])[1] == 0


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("ring_allreduce_seconds", (-1, 4, ALPHA, BETA), "nbytes: no value may be below 0"),
        ("ring_allreduce_seconds", (1, 0, ALPHA, BETA), "the number of ranks is 1 or more"),
        ("tree_bcast_seconds", (1, 4, -ALPHA, BETA), "alpha: no value may be below 0"),
        ("naive_allreduce_seconds", (1, 4, ALPHA, BETA, -1), "gamma: no value may be below 0"),
        ("bus_bandwidth", (1, 0, 4), "seconds: every value has to be above 0"),
        ("bus_bandwidth", (1, 1, 4, "allreduce"), "no collective 'allreduce'; give one of all_red"),
        ("fit_alpha_beta", ([1, 1], [1, 2]), "measure two different ones"),
        ("fit_alpha_beta", ([1, 2, 3], [1, 2]), "one time for each size"),
    ],
)
def test_bad_input_says_what_is_expected(name, arguments, says):
    with pytest.raises(ValueError, match=says):
        getattr(costs, name)(*arguments)


def test_one_rank_has_nothing_to_fit():
    with pytest.raises(ValueError, match="nothing to fit"):
        costs.fit_alpha_beta([1, 2], [1, 2], costs.ring_allreduce_seconds, ranks=1)
