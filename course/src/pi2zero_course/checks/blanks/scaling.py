"""The checks of the blanks in notebook 07."""

import torch

from pi2zero import costs
from pi2zero_course.checks.framework.task import Blank


def _step_seconds(p, compute, nbytes, alpha, beta, overlap=0):
    return float(
        costs.step_seconds(
            p, compute=compute, nbytes=nbytes, alpha=alpha, beta=beta, overlap=overlap
        )
    )


def _ring(p, nbytes, alpha, beta, times=2):
    return times * (p - 1) * (alpha + nbytes / p * beta)


# step_seconds(p, compute, nbytes, alpha, beta, overlap=0) -> seconds of a step on p ranks
step_seconds = Blank(
    name="step_seconds",
    reference=_step_seconds,
    cases=[
        (4, 0.2, 1e8, 5e-6, 1e-10),
        (2, 0.1, 1e8, 1e-4, 4e-10, 0.6),
        (4, 0.2, 1e8, 5e-6, 1e-10, 0.9),
        (1, 0.2, 1e8, 5e-6, 1e-10),
    ],
    mistakes={
        "What is hidden cannot be more than what there is: max(0, ...).": (
            lambda p, c, n, a, b, o=0: c + _ring(p, n, a, b) - o * c
        ),
        "overlap is a share of the computing, which hides the ring; not of the ring.": (
            lambda p, c, n, a, b, o=0: c + (1 - o) * _ring(p, n, a, b)
        ),
        "A ring goes round twice: 2 (p - 1) messages.": (
            lambda p, c, n, a, b, o=0: c + _ring(p, n, a, b, times=1)
        ),
        "A message of the ring is one chunk, n / p bytes.": (
            lambda p, c, n, a, b, o=0: c + _ring(p, n * p, a, b)
        ),
        "overlap is not used: so much of the computing hides the ring, o times c.": (
            lambda p, c, n, a, b, o=0: c + _ring(p, n, a, b)
        ),
    },
    verified="It agrees with the formula, with and without overlap, on 1, 2 and 4 ranks.",
)


def _lars_gradient(weight, gradient, trust=0.02):
    if not weight.norm() or not gradient.norm():
        return gradient
    return gradient * trust * weight.norm() / gradient.norm()


_WEIGHT, _GRADIENT = torch.tensor([[3.0, 4.0]]), torch.tensor([[0.3, 0.1]])

# lars_gradient(weight, gradient, trust=0.02) -> the gradient, as long as trust times the weights;
# of no length, as it is
lars_gradient = Blank(
    name="lars_gradient",
    reference=_lars_gradient,
    cases=[
        (_WEIGHT, _GRADIENT),
        (10 * _WEIGHT, 1e6 * _GRADIENT),
        (_WEIGHT, 0 * _GRADIENT),
        (0 * _WEIGHT, _GRADIENT),
        (_WEIGHT, _GRADIENT, 0.5),
    ],
    mistakes={
        "0 / 0: a weight or a gradient of length 0 leaves the gradient as it is.": torch.nan,
        "Its length still depends on the gradient's: divide by gradient.norm().": (
            lambda w, g, t=0.02: g * t * w.norm()
        ),
        "`trust` is missing.": lambda w, g, t=0.02: g * w.norm() / g.norm(),
        "Where all weights are 0, such a step never leaves 0: leave the gradient as it is.": 0.0,
        "`trust` is an argument: it need not be 0.02.": lambda w, g, t=0.02: _lars_gradient(w, g),
    },
    tolerance=1e-5,
    verified="The step has 2 % of the weights' length, however long the gradient is.",
)


def _efficiency_range(ranks, rate, base, of_rate=0.5, of_base=0.5):
    return (
        (rate - of_rate) / (ranks * (base + of_base)),
        (rate + of_rate) / (ranks * (base - of_base)),
    )


# efficiency_range(ranks, rate, base) -> (lowest, highest) efficiency, if both rates are rounded to
# integers
efficiency_range = Blank(
    name="efficiency_range",
    reference=_efficiency_range,
    cases=[(4, 569, 142), (8, 1131, 142), (2, 10, 6)],
    mistakes={
        "The lowest efficiency has the highest base.": (
            lambda n, r, b: _efficiency_range(n, r, b, of_base=-0.5)
        ),
        "The base is rounded, too.": lambda n, r, b: _efficiency_range(n, r, b, of_base=0),
        "The rate is rounded, too.": lambda n, r, b: _efficiency_range(n, r, b, of_rate=0),
        "The lowest comes first.": lambda n, r, b: _efficiency_range(n, r, b)[::-1],
    },
    verified="A rate of 142 can be anything from 141.5 to 142.5.",
)
