"""The error of Monte Carlo π."""

import numpy as np

from pi2zero.costs import valid

__all__ = ["MONTE_CARLO_PI_SIGMA", "monte_carlo_pi_error", "monte_carlo_pi_samples"]

# Standard deviation of one sample's estimate of π, 1.642. A dart falls inside the quarter circle
# with probability p = π/4; 4 x its indicator has the variance 16 p (1 - p) = π (4 - π).
MONTE_CARLO_PI_SIGMA = float(np.sqrt(np.pi * (4 - np.pi)))


def monte_carlo_pi_error(samples):
    """Standard error of 4 x (share of darts inside): sqrt(π (4 - π) / N) = 1.642 / sqrt(N).

    samples: N, the number of independent darts, 1 or more. No unit.
    """
    return MONTE_CARLO_PI_SIGMA / np.sqrt(valid.positive("samples", samples))


def monte_carlo_pi_samples(error):
    """Independent darts that bring the standard error of π down to `error`: (1.642 / error)^2."""
    return (MONTE_CARLO_PI_SIGMA / valid.positive("error", error)) ** 2
