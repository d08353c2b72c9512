"""The models on paper, against values known from elsewhere and against their own limits."""

import math

import numpy as np
import pytest

from pi2zero import costs


def test_speedup_and_efficiency_of_published_times():
    # ALCF, Monte Carlo π with MPI on 1, 2, 4, 8 ranks; the efficiency at 8 is 94.6 %.
    ranks, seconds = np.array([1, 2, 4, 8]), np.array([8.029, 4.213, 2.094, 1.061])
    assert costs.speedup(seconds[0], seconds) == pytest.approx(
        [1, 1.9058, 3.8343, 7.5674], abs=1e-3
    )
    assert costs.efficiency(seconds[0], seconds, ranks)[-1] == pytest.approx(0.946, abs=5e-4)


def test_amdahl_known_values_and_limits():
    assert costs.amdahl(0.05, 20) == pytest.approx(10.256, abs=1e-3)
    assert costs.amdahl(0.0, 64) == 64  # nothing serial: ideal
    assert costs.amdahl(1.0, 64) == 1  # all serial: nothing gained
    assert costs.amdahl(0.1, 1e12) == pytest.approx(10)  # the ceiling 1/s
    assert costs.amdahl([0.0, 0.5], [2, 2]) == pytest.approx([2, 4 / 3])


def test_gustafson_is_amdahl_seen_from_the_parallel_run():
    # A run of p ranks that spends 10 s serial and 90 s parallel took 10 + 90 p on one rank.
    p = 8
    assert costs.gustafson(0.1, p) == pytest.approx((10 + 90 * p) / 100)
    serial_share_on_one_rank = 10 / (10 + 90 * p)
    assert costs.gustafson(0.1, p) == pytest.approx(costs.amdahl(serial_share_on_one_rank, p))


@pytest.mark.parametrize("s", [0.0, 0.03, 0.4, 1.0])
@pytest.mark.parametrize("p", [2, 7, 512])
def test_karp_flatt_inverts_amdahl(s, p):
    assert costs.karp_flatt(costs.amdahl(s, p), p) == pytest.approx(s, abs=1e-12)


def test_weak_efficiency():
    assert costs.weak_efficiency(2.0, [2.0, 4.0]) == pytest.approx([1, 0.5])


def test_monte_carlo_error_is_the_spread_of_real_estimates():
    assert costs.monte_carlo_pi_error(1) == pytest.approx(1.6422, abs=1e-4)
    assert costs.monte_carlo_pi_error(10**8) == pytest.approx(1.642e-4, rel=1e-3)
    samples, repeats = 1_000, 4_000
    inside = np.random.default_rng(3).binomial(samples, math.pi / 4, repeats)
    spread = np.std(4 * inside / samples)
    # The relative error of a standard deviation from n values is 1/sqrt(2n) = 1.1 %; five of them.
    assert spread == pytest.approx(
        costs.monte_carlo_pi_error(samples), rel=5 / math.sqrt(2 * repeats)
    )


def test_samples_for_an_error_is_the_inverse():
    assert costs.monte_carlo_pi_error(costs.monte_carlo_pi_samples(1e-3)) == pytest.approx(1e-3)
    assert costs.monte_carlo_pi_samples(1e-4) == pytest.approx(
        100 * costs.monte_carlo_pi_samples(1e-3)
    )


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: costs.speedup(1.0, 0.0), "seconds: every value has to be above 0; got 0.0"),
        (
            lambda: costs.speedup(float("nan"), 1.0),
            "one_rank_seconds: every value has to be above 0; got nan",
        ),
        (lambda: costs.efficiency(1.0, 1.0, 0), "ranks: the number of ranks is 1 or more; got 0"),
        (lambda: costs.amdahl(5, 2), "a share between 0 and 1, such as 0.05 for 5 %; got 5"),
        (lambda: costs.gustafson(-0.1, 2), "a share between 0 and 1"),
        (lambda: costs.karp_flatt(1.0, 1), "one rank has no parallel part"),
        (lambda: costs.monte_carlo_pi_error([10, -1]), "samples: every value has to be above 0"),
        (lambda: costs.monte_carlo_pi_samples(0), "error: every value has to be above 0"),
    ],
)
def test_bad_input_is_named(call, says):
    with pytest.raises(ValueError, match=says.replace("(", r"\(")):
        call()
