"""The check of notebook 03's blank that stays in the notebook's kernel."""

from pi2zero_course.checks.blanks import blank
from pi2zero_course.checks.blanks.compare import compare


@blank
def bus_bandwidth(function):
    """bus_bandwidth(nbytes, seconds, ranks) -> bytes/s."""
    mistakes = [
        (lambda n, t, p: n / t, "That is the algorithm's bandwidth; times 2 (p - 1) / p."),
        (
            lambda n, t, p: n / t * (p - 1) / p,
            "Each rank sends (p - 1)/p of the array twice: in the reduce-scatter and in the all-gather.",
        ),
        (lambda n, t, p: 2 * n / t * p / (p - 1), "It is (p - 1) / p, not its inverse."),
        (
            lambda n, t, p: 8e-9 * n / t * 2 * (p - 1) / p,
            "That is in Gbit/s; bytes a second are due.",
        ),
    ]
    cases = [(1e6, 1e-3, 4), (1024.0, 2e-5, 2), (1e9, 0.1, 8)]
    compare(function, lambda n, t, p: n / t * 2 * (p - 1) / p, cases, mistakes)
    return "It agrees with nccl-tests' formula on 2, 4 and 8 ranks."
