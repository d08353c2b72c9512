"""The checks of the blanks in notebook 01, and of those in 02 that stay in the notebook's
kernel."""

import numpy as np

from pi2zero.costs import monte_carlo_pi_error
from pi2zero_course.checks.framework.answers import CheckError, call_answer
from pi2zero_course.checks.framework.task import Blank, blank, refuse_loop
from pi2zero_course.checks.framework.values import as_number, pick_hint, show

_ESTIMATES = {
    "2 is what x + y < 1 gives, a triangle: the circle is x * x + y * y < 1.": 2.0,
    "That is π/4: is the factor 4 missing, or are only some coordinates drawn from 0..1?": np.pi
    / 4,
    "0 means that no dart counts as inside.": 0.0,
    "That is 4 - π: you count the darts outside.": 4 - np.pi,
    "2.83 is what one coordinate, used twice, gives: each dart needs two numbers.": 2 * np.sqrt(2),
    "4 means that every dart counts as inside.": 4.0,
}


def explain_estimate(estimate: float) -> str:
    """The mistake that gives about this estimate of π."""
    return pick_hint(estimate, _ESTIMATES, same=lambda value, limit: abs(value - limit) < 0.15)


@blank
def pi_array(function):
    """pi_array(samples, seed=1) -> an estimate of π, without a loop of Python's."""
    for n in (1_000, 300_000):
        estimate = as_number(value := call_answer(function, n, 3))
        if estimate is None:
            why = " Is the `return` missing?" * (value is None)
            raise CheckError(f"pi_array({n}, 3) gives {show(value)}; a number is due.{why}")
        distance = abs(estimate - np.pi) / monte_carlo_pi_error(n)
        if distance > 5:
            raise CheckError(
                f"pi_array({n:,}, 3) gives {estimate:.4f}: {distance:,.0f} standard errors away "
                f"from π; 5 are allowed.\n{explain_estimate(estimate)}"
            )
    if call_answer(function, 1_000, 3) != call_answer(function, 1_000, 3):
        raise CheckError(
            "The same seed gives two different estimates: take the numbers from "
            "np.random.default_rng(seed)."
        )
    if len({call_answer(function, 1_000, seed) for seed in range(20)}) == 1:
        raise CheckError("20 seeds give the same estimate: is the seed used?")
    refuse_loop(function, (100, 3), (1_000, 3))
    return "Within 5 standard errors of π, and no loop of Python's."


def _error_bar(inside, n):
    share = inside / n
    return 4 * np.sqrt(share * (1 - share) / n)


# error_bar(inside, n) -> the standard error of 4 * inside / n
error_bar = Blank(
    name="error_bar",
    reference=_error_bar,
    cases=[(785, 1_000), (3, 4), (78_540, 100_000)],
    mistakes={
        "That is the error of the share; π is 4 times the share.": 1 / 4,
        "Is the square root missing?": lambda inside, n: 4 * inside / n * (1 - inside / n) / n,
        "That is the error of one dart: the mean of n has 1/sqrt(n) of it.": (
            lambda inside, n: _error_bar(inside, n) * np.sqrt(n)
        ),
        "A dart is inside with probability p and outside with 1 - p: both count.": (
            lambda inside, n: 4 * np.sqrt(inside / n / n)
        ),
    },
    verified="It is 4 sqrt(p (1 - p) / n), with the measured share for p.",
)


def midpoint(slices, shift=0.5):
    """The area under 4 / (1 + x²) in slices; shift: where in a slice its height is taken, 0 (left
    edge) to 1 (right edge)."""
    x = (np.arange(slices) + shift) / slices
    return np.sum(4 / (1 + x * x)) / slices


# pi_midpoint(slices) -> the area under 4 / (1 + x²), by the midpoint rule
pi_midpoint = Blank(
    name="pi_midpoint",
    reference=midpoint,
    cases=[(10,), (7,), (1_000,)],
    no_loop=((100,), (1_000,)),
    mistakes={
        "These are the heights at the left edges; take the slices' middles, (i + 0.5) / slices.": (
            lambda n: midpoint(n, 0)
        ),
        "That is the sum of the heights; each slice is 1 / slices wide.": lambda n: midpoint(n) * n,
        "That is the area under 1 / (1 + x²), a quarter of it.": 1 / 4,
        "np.linspace(0, 1, slices) gives edges; take the middles.": (
            lambda n: np.mean(4 / (1 + np.linspace(0, 1, n) ** 2))
        ),
    },
    verified="It agrees with the midpoint rule for 7, 10 and 1,000 slices, without a loop.",
)

# break_even(start_up, per_slice, ranks) -> from how many slices on spawned ranks are ready before
# one that is there
break_even = Blank(
    name="break_even",
    reference=lambda s, t, p: s / (t * (1 - 1 / p)),
    cases=[(3.0, 2e-9, 8), (2.0, 1e-9, 2)],
    mistakes={
        "That is how many slices one rank computes in that time. But the ranks need time, "
        "too, 1/ranks of it.": (lambda s, t, p: s / t),
        "At this n the ranks compute as long as they start. Compare with one rank: n per_slice = "
        "start_up + ...": (lambda s, t, p: s / (t / p)),
        "With p ranks, the time saved is 1 - 1/p of one rank's.": lambda s, t, p: s / (t * (p - 1)),
    },
    verified="There, n per_slice = start_up + n per_slice / ranks.",
)
