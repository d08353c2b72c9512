"""The checks of the blanks in notebook 02 that run on its ranks."""

import numpy as np

from pi2zero_course.checks.blanks import blank
from pi2zero_course.checks.blanks.compare import same, shown
from pi2zero_course.checks.blanks.pi import midpoint
from pi2zero_course.checks.framework.base import CheckFailed, answer, close, hint, listed, number
from pi2zero_course.checks.framework.collective import on_ranks


@blank
def partial_pi(function):
    """partial_pi(n, rank, size) -> the area of a rank's slices; over all ranks they make π."""
    for n, size in ((1_000, 1), (1_000, 4), (1_001, 4), (10, 3)):
        shares = [answer(function, n, rank, size) for rank in range(size)]
        if bad := [share for share in shares if number(share) is None]:
            missing = " Is the `return` missing?" * (bad[0] is None)
            raise CheckFailed(
                f"partial_pi({n}, rank, {size}) gives {shown(bad[0])}; a number is due.{missing}"
            )
        if size > 1 and len(set(map(number, shares))) == 1:
            raise CheckFailed(
                f"Every rank computes all slices: all {size} return {number(shares[0]):.8f}. Rank r's slices are r, r + size, "
                "r + 2 size, ..."
            )
        total, due = sum(map(number, shares)), midpoint(n)
        if close(total, due):
            continue
        whole, x = n // size * size, (np.arange(n) + 0.5) / n
        lost = np.sum((4 / (1 + x * x))[:whole]) / n
        known = [
            (due * n, "Each slice is 1 / n wide: divide by n."),
            (lost, f"{n} slices do not divide by {size} ranks, and the last ones are lost."),
            (
                midpoint(n, 0),
                "These are the heights at the left edges; the middle of slice i is (i + 0.5) / n.",
            ),
            (
                due * size,
                "Is the sum divided by this rank's number of slices? The width is 1 / n for all ranks.",
            ),
        ]
        why = hint(total, known, same=same)
        raise CheckFailed(
            f"{size} ranks, {n:,} slices: the shares add up to {total:.8f}; they have to make {due:.8f}.\n{why}"
        )
    return "The shares of 1, 3 and 4 ranks add up, also where the slices do not divide."


@blank
def deal_out(function):
    """deal_out(comm, everything, each) -> this rank's `each` rows of rank 0's array, in the order of ranks."""

    def arguments(rank, size):
        return (np.arange(6.0 * size).reshape(-1, 2) if rank == 0 else None), 3

    def judge(size, results):
        whole = arguments(0, size)[0]
        for rank, mine in enumerate(results):
            due = whole[3 * rank : 3 * rank + 3]
            if mine is None:
                raise CheckFailed(f"rank {rank} returned None. Is the `return` missing?")
            if same(mine, due):
                continue
            if same(mine, whole):
                raise CheckFailed(
                    f"rank {rank} has the whole array; Scatter gives each rank its {len(due)} rows only."
                )
            if np.shape(mine) != due.shape:
                raise CheckFailed(
                    f"rank {rank} returned an array of shape {np.shape(mine)}; (each, 2) is due, here {due.shape}."
                )
            raise CheckFailed(
                f"rank {rank} returned {shown(mine)}; its rows are {shown(due)}. Has Scatter written to this array?"
            )

    sizes = on_ranks(function, arguments, judge)
    return f"Each rank has its rows; tried with {listed(sizes)} ranks."
