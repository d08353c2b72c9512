"""The checks of the blanks in notebook 01, and of those in 02 that stay in the notebook's kernel."""

import numpy as np

from pi2zero.costs import monte_carlo_pi_error
from pi2zero_course.checks.blanks import blank
from pi2zero_course.checks.blanks.compare import compare, shown, steps_of
from pi2zero_course.checks.framework.base import CheckFailed, answer, hint, number

_ESTIMATES = [  # what a mistake tends to, and what to say
    (2.0, "2 is what x + y < 1 gives, a triangle: the circle is x * x + y * y < 1."),
    (np.pi / 4, "That is π/4, the share that is inside: times 4."),
    (4 - np.pi, "That is 4 - π: you count the darts outside."),
    (
        2 * np.sqrt(2),
        "2.83 is what one coordinate gives, used as x and as y: each dart needs two numbers.",
    ),
    (4.0, "4 means that every dart counts as inside."),
]


@blank
def pi_array(function):
    """pi_array(samples, seed=1) -> an estimate of π, without a loop of Python's."""
    for n in (1_000, 300_000):
        mine = number(value := answer(function, n, 3))
        if mine is None:
            raise CheckFailed(
                f"pi_array({n}, 3) gives {shown(value)}; a number is due."
                + " Is the `return` missing?" * (value is None)
            )
        away = abs(mine - np.pi) / monte_carlo_pi_error(n)
        if away > 5:
            why = hint(mine, _ESTIMATES, same=lambda one, limit: abs(one - limit) < 0.15)
            raise CheckFailed(
                f"pi_array({n:,}, 3) gives {mine:.4f}: {away:,.0f} standard errors away from π; 5 are allowed.\n{why}"
            )
    if answer(function, 1_000, 3) != answer(function, 1_000, 3):
        raise CheckFailed(
            "The same seed gives two different estimates: take the numbers from np.random.default_rng(seed)."
        )
    if len({answer(function, 1_000, seed) for seed in range(20)}) == 1:
        raise CheckFailed("20 seeds give the same estimate: is the seed used?")
    if steps_of(function, 1_000, 3) > steps_of(function, 100, 3) + 100:
        raise CheckFailed(
            "Right, but it goes through a loop of Python's, dart by dart. One NumPy call works on all of them."
        )
    return "Within 5 standard errors of π, and no loop of Python's."


def _bar(inside, n):
    share = inside / n
    return 4 * np.sqrt(share * (1 - share) / n)


@blank
def error_bar(function):
    """error_bar(inside, n) -> the standard error of 4 * inside / n."""
    mistakes = [
        (
            lambda inside, n: _bar(inside, n) / 4,
            "That is the error of the share; π is 4 times the share.",
        ),
        (lambda inside, n: 4 * inside / n * (1 - inside / n) / n, "Is the square root missing?"),
        (
            lambda inside, n: _bar(inside, n) ** 2,
            "That is the variance; the standard error is its square root.",
        ),
        (
            lambda inside, n: _bar(inside, n) * np.sqrt(n),
            "That is the error of one dart: the mean of n has 1/sqrt(n) of it.",
        ),
        (
            lambda inside, n: 4 * np.sqrt(inside / n / n),
            "A dart is inside with probability p and outside with 1 - p: both count.",
        ),
    ]
    compare(function, _bar, [(785, 1_000), (3, 4), (78_540, 100_000)], mistakes)
    return "It is 4 sqrt(p (1 - p) / n), with the measured share for p."


def midpoint(slices, shift=0.5):
    """The area under 4 / (1 + x²) in slices; shift: where in a slice its height is taken, 0 (left edge) to 1 (right edge)."""
    x = (np.arange(slices) + shift) / slices
    return np.sum(4 / (1 + x * x)) / slices


@blank
def pi_midpoint(function):
    """pi_midpoint(slices) -> the area under 4 / (1 + x²), by the midpoint rule."""
    mistakes = [
        (
            lambda n: midpoint(n, 0),
            "These are the heights at the slices' left edges; take their middles, (i + 0.5) / slices.",
        ),
        (
            lambda n: midpoint(n, 1),
            "These are the heights at the slices' right edges; take their middles, (i + 0.5) / slices.",
        ),
        (
            lambda n: midpoint(n) * n,
            "That is the sum of the heights; each slice is 1 / slices wide.",
        ),
        (lambda n: midpoint(n) / 4, "That is the area under 1 / (1 + x²), a quarter of it."),
        (
            lambda n: np.mean(4 / (1 + np.linspace(0, 1, n) ** 2)),
            "np.linspace(0, 1, slices) gives edges; take the middles.",
        ),
    ]
    compare(function, midpoint, [(10,), (7,), (1_000,)], mistakes)
    return "It agrees with the midpoint rule for 7, 10 and 1,000 slices."


@blank
def break_even(function):
    """break_even(start_up, per_slice, ranks) -> from how many slices on spawned ranks are sooner ready than one that is there."""
    mistakes = [
        (
            lambda s, t, p: s / t,
            "That is how many slices one rank computes meanwhile. But the ranks need time for theirs, too: 1/ranks of it.",
        ),
        (
            lambda s, t, p: s / (t / p),
            "At this n the ranks compute as long as they start. Compare with one rank: n per_slice = start_up + ...",
        ),
        (
            lambda s, t, p: s / (t * (p - 1)),
            "With p ranks, the time saved is 1 - 1/p of one rank's.",
        ),
        (lambda s, t, p: s * t * (1 - 1 / p), "Seconds divided by seconds a slice give slices."),
    ]
    compare(
        function, lambda s, t, p: s / (t * (1 - 1 / p)), [(3.0, 2e-9, 8), (2.0, 1e-9, 2)], mistakes
    )
    return "There, n per_slice = start_up + n per_slice / ranks."
