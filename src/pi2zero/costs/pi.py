"""The error of Monte Carlo π."""

import numpy as np

from pi2zero.costs import valid

__all__ = ["MONTE_CARLO_PI_SIGMA", "monte_carlo_pi_error", "monte_carlo_pi_samples"]

# One dart falls inside the quarter circle with probability p = π/4; 4 x its indicator has the variance 16 p (1 - p) = π (4 - π).
MONTE_CARLO_PI_SIGMA = float(
    np.sqrt(np.pi * (4 - np.pi))
)  # 1.642, standard deviation of one sample's estimate of π


def monte_carlo_pi_error(samples):
    """Standard error of 4 x (share of darts inside the quarter circle): sqrt(π (4 - π) / N) = 1.642 / sqrt(N).

    samples: N, the number of independent darts, 1 or more. In units of π's own value, no unit.
    """
    return MONTE_CARLO_PI_SIGMA / np.sqrt(valid.positive("samples", samples))


def monte_carlo_pi_samples(error):
    """How many independent darts bring the standard error of π down to `error` (above 0): (1.642 / error)^2."""
    return (MONTE_CARLO_PI_SIGMA / valid.positive("error", error)) ** 2
