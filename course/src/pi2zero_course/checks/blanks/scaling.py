"""The checks of the blanks in notebook 07."""

import numpy as np
import torch

from pi2zero import costs
from pi2zero_course.checks.blanks import blank
from pi2zero_course.checks.blanks.compare import compare


@blank
def step_seconds(function):
    """step_seconds(p, compute, nbytes, alpha, beta, overlap=0) -> seconds of a step on p ranks."""

    def right(p, compute, nbytes, alpha, beta, overlap=0):
        return float(
            costs.step_seconds(
                p, compute=compute, nbytes=nbytes, alpha=alpha, beta=beta, overlap=overlap
            )
        )

    def ring(p, nbytes, alpha, beta, share=1.0, times=2):
        return times * (p - 1) * alpha + share * times * (p - 1) / p * nbytes * beta

    mistakes = [
        (
            lambda p, c, n, a, b, o=0: c + ring(p, n, a, b) - o * c,
            "What is hidden cannot be more than what there is: max(0, ...).",
        ),
        (
            lambda p, c, n, a, b, o=0: c + (1 - o) * ring(p, n, a, b),
            "overlap is a share of the computing, which hides the ring; not of the ring.",
        ),
        (
            lambda p, c, n, a, b, o=0: c + ring(p, n, a, b, times=1),
            "A ring goes round twice: 2 (p - 1) messages.",
        ),
        (
            lambda p, c, n, a, b, o=0: c + ring(p, n * p, a, b),
            "A message of the ring is one chunk, n / p bytes.",
        ),
        (
            lambda p, c, n, a, b, o=0: c + ring(p, n, a, b),
            "overlap is not used: so much of the computing hides the ring, o times c.",
        ),
        (lambda p, c, n, a, b, o=0: ring(p, n, a, b), "The computing itself takes c."),
    ]
    cases = [
        (4, 0.2, 1e8, 5e-6, 1e-10),
        (2, 0.1, 1e8, 1e-4, 4e-10, 0.6),
        (4, 0.2, 1e8, 5e-6, 1e-10, 0.9),
        (1, 0.2, 1e8, 5e-6, 1e-10),
    ]
    compare(function, right, cases, mistakes)
    return "It agrees with the formula, with and without overlap, on 1, 2 and 4 ranks."


@blank
def lars_gradient(function):
    """lars_gradient(weight, gradient, trust=0.02) -> the gradient, as long as trust times the weights; of no length, as it is."""

    def right(weight, gradient, trust=0.02):
        if not weight.norm() or not gradient.norm():
            return gradient
        return gradient * trust * weight.norm() / gradient.norm()

    mistakes = [
        (
            lambda w, g, t=0.02: g * torch.nan,
            "0 / 0: a weight or a gradient of length 0 leaves the gradient as it is.",
        ),
        (
            lambda w, g, t=0.02: g * t * w.norm(),
            "Its length still depends on the gradient's: divide by gradient.norm().",
        ),
        (
            lambda w, g, t=0.02: g * t / g.norm(),
            "Its length is `trust`; it has to be `trust` times the length of the weights.",
        ),
        (
            lambda w, g, t=0.02: w * t,
            "That has the direction of the weights; it is the gradient that is scaled.",
        ),
        (lambda w, g, t=0.02: g * w.norm() / g.norm(), "`trust` is missing."),
        (
            lambda w, g, t=0.02: g * 0.0,
            "Where the weights are all 0, such a step never leaves 0: leave the gradient as it is.",
        ),
        (lambda w, g, t=0.02: right(w, g), "`trust` is an argument: it need not be 0.02."),
    ]
    weight, gradient = torch.tensor([[3.0, 4.0]]), torch.tensor([[0.3, 0.1]])
    cases = [
        (weight, gradient),
        (10 * weight, 1e6 * gradient),
        (weight, 0 * gradient),
        (0 * weight, gradient),
    ]
    cases += [(weight, gradient, 0.5)]
    compare(function, right, cases, mistakes, tolerance=1e-5)
    return "The step has 2 % of the weights' length, however long the gradient is."


@blank
def efficiency_range(function):
    """efficiency_range(ranks, rate, base) -> (lowest, highest) efficiency, if both rates are rounded to whole images."""

    def right(ranks, rate, base):
        return (rate - 0.5) / (ranks * (base + 0.5)), (rate + 0.5) / (ranks * (base - 0.5))

    mistakes = [
        (
            lambda n, r, b: ((r - 0.5) / (n * (b - 0.5)), (r + 0.5) / (n * (b + 0.5))),
            "The lowest efficiency has the highest base.",
        ),
        (lambda n, r, b: ((r - 0.5) / (n * b), (r + 0.5) / (n * b)), "The base is rounded, too."),
        (lambda n, r, b: (r / (n * (b + 0.5)), r / (n * (b - 0.5))), "The rate is rounded, too."),
        (lambda n, r, b: right(n, r, b)[::-1], "The lowest comes first."),
        (
            lambda n, r, b: tuple(np.multiply(n, right(n, r, b))),
            "That is the speed-up; divide by the ranks.",
        ),
        (
            lambda n, r, b: ((r - 1) / (n * (b + 1)), (r + 1) / (n * (b - 1))),
            "Rounding is off by at most one half.",
        ),
    ]
    compare(function, right, [(4, 569, 142), (8, 1131, 142), (2, 10, 6)], mistakes)
    return "A rate of 142 can be anything from 141.5 to 142.5."
