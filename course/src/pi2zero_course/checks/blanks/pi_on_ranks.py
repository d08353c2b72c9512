"""The checks of the blanks in notebook 02 that run on its ranks."""

import numpy as np

from pi2zero_course.checks.blanks.pi import midpoint
from pi2zero_course.checks.framework.agree import agree
from pi2zero_course.checks.framework.answers import CheckError, call_answer, global_names
from pi2zero_course.checks.framework.on_ranks import OnRanks
from pi2zero_course.checks.framework.task import Blank, blank
from pi2zero_course.checks.framework.values import (
    as_number,
    close,
    is_same,
    pick_hint,
    plural,
    show,
)


@blank
def partial_pi(function):
    """partial_pi(n, rank, size) -> the area of a rank's slices; over all ranks they make π."""
    try:
        agree(_judge_shares, function)
    except CheckError as wrong:
        if used := sorted({"comm", "MPI"} & global_names(function)):
            raise CheckError(
                f"{str(wrong).rstrip()}\nYour function uses the notebook's {' and '.join(used)}: "
                "take rank and size from its arguments."
            ) from None
        raise
    return "The shares of 1, 3 and 4 ranks add up, also where the slices do not divide."


def _judge_shares(function):
    for n, size in ((1_000, 1), (1_000, 4), (1_001, 4), (10, 3)):
        shares = [call_answer(function, n, rank, size) for rank in range(size)]
        if bad := [share for share in shares if as_number(share) is None]:
            missing = " Is the `return` missing?" * (bad[0] is None)
            raise CheckError(
                f"partial_pi({n}, rank, {size}) gives {show(bad[0])}; a number is due.{missing}"
            )
        if size > 1 and len(set(map(as_number, shares))) == 1:
            raise CheckError(
                f"Every rank computes all slices: all {size} return {as_number(shares[0]):.8f}. "
                "Rank r's slices are r, r + size, r + 2 size, ..."
            )
        total, due = sum(map(as_number, shares)), midpoint(n)
        if close(total, due):
            continue
        whole, x = n // size * size, (np.arange(n) + 0.5) / n
        lost = np.sum((4 / (1 + x * x))[:whole]) / n
        left = midpoint(n, 0)
        known = {
            "Each slice is 1 / n wide: divide by n.": due * n,
            f"{n} slices do not divide by {size} ranks, and the last ones are lost.": lost,
            "These are heights at left edges; the middle of slice i is (i + 0.5) / n.": left,
            "Is the sum divided by this rank's number of slices? The width is 1 / n for all "
            "ranks.": due * size,
        }
        why = pick_hint(total, known, same=is_same)
        raise CheckError(
            f"{plural(size, 'rank')}, {n:,} slices: the shares add up to {total:.8f}; they have to "
            f"make {due:.8f}.\n{why}"
        )


def _rows(rank, size):
    return (np.arange(6.0 * size).reshape(-1, 2) if rank == 0 else None), 3


def _judge_rows(results):
    whole = _rows(0, len(results))[0]
    for rank, rows in enumerate(results):
        due = whole[3 * rank : 3 * rank + 3]
        if rows is None:
            raise CheckError(f"rank {rank} returned None. Is the `return` missing?")
        if is_same(rows, due):
            continue
        if is_same(rows, whole):
            raise CheckError(
                f"rank {rank} has the whole array; Scatter gives each rank its {len(due)} rows "
                "only."
            )
        if np.shape(rows) != due.shape:
            raise CheckError(
                f"rank {rank} returned an array of shape {np.shape(rows)}; (each, 2) is due, here "
                f"{due.shape}."
            )
        raise CheckError(
            f"rank {rank} returned {show(rows)}; its rows are {show(due)}. Has Scatter written to "
            "this array?"
        )


# deal_out(comm, everything, each) -> this rank's `each` rows of rank 0's array, in the order of
# ranks
deal_out = Blank(
    name="deal_out",
    on_ranks=OnRanks(
        arguments=_rows,
        judge=_judge_rows,
        if_misfit="`mine` has to be (each, 2), of rank 0's dtype, float64.",
    ),
    verified="Each rank has its rows; tried with {ranks} ranks.",
)
