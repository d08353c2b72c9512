"""The checks of lab 7's tasks 4 and 5: a halo exchange, and its backward."""

import numpy as np

from pi2zero_course.checks.framework.base import CheckFailed, listed, task
from pi2zero_course.checks.framework.collective import on_ranks
from pi2zero_course.checks.framework.counted import MessageComm
from pi2zero_course.checks.tensor_and_space.judge import TOLERANCE, as_array, judge_array, random

CASES = [
    (7, 5, 1),
    (13, 4, 3),
]  # rows of the image, columns, rows of the halo; a strip may be as thin as its halo


def strips(rows, size):
    """(first row, one behind the last) of each rank's strip, as np.array_split deals them out."""
    return [(int(part[0]), int(part[-1]) + 1) for part in np.array_split(np.arange(rows), size)]


def judge_traffic(reports, k, columns):
    """A message to each neighbour, of k rows."""
    most = 2 * k * columns * 8
    for rank, report in enumerate(reports):
        if report["messages"] > 2:
            raise CheckFailed(
                f"rank {rank} sends {report['messages']} messages; two are the target, one to each neighbour."
            )
        if report["sent"] > most:
            raise CheckFailed(
                f"rank {rank} sends {report['sent']:,} bytes; {most:,} are the target: {k} row{'s' * (k > 1)} to each neighbour."
            )


@task(4)
def task4(halo):
    """halo(comm, x, k) -> the strip x with k rows of the rank above before it and k of the rank below behind it, or zeros."""
    for rows, columns, k in CASES:
        image = random(rows, columns, seed=1)

        def arguments(rank, size, image=image, k=k):
            begin, end = strips(len(image), size)[rank]
            return image[begin:end].copy(), k

        def judge(size, reports, image=image, k=k):
            for rank, (begin, end) in enumerate(strips(len(image), size)):
                _judge_rows(f"rank {rank}", reports[rank]["result"], image, begin - k, end + k)
            judge_traffic(reports, k, image.shape[1])

        sizes = on_ranks(halo, arguments, judge, watch=MessageComm)
    return f"Every row is where it has to be on {listed(sizes)} ranks; at most one message to each neighbour, of k rows."


def _judge_rows(who, mine, image, first, end):
    """An answer's rows are the image's rows first to end - 1; zeros where the image has none."""
    mine = as_array(f"{who}: what halo returned", mine, (end - first, image.shape[1]))
    for place, row in enumerate(range(first, end)):
        inside = 0 <= row < len(image)
        if np.array_equal(mine[place], image[row] if inside else 0 * image[0]):
            continue
        due = (
            f"row {row} of the image is due"
            if inside
            else "zeros are due: there the image has ended"
        )
        raise CheckFailed(
            f"{who}: row {place} of what halo returned {_named(mine[place], image)}; {due}."
        )


def _named(row, image):
    found = [number for number, one in enumerate(image) if np.array_equal(row, one)]
    return (
        f"is row {found[0]} of the image"
        if found
        else "is zeros"
        if not row.any()
        else "is no row of the image"
    )


@task(5)
def task5(halo_backward):
    """halo_backward(comm, g, k) -> the gradient of the strip, from that of what halo returned."""
    for rows, columns, k in CASES:

        def wide(rank, size, rows=rows, columns=columns, k=k):
            begin, end = strips(rows, size)[rank]
            return random(end - begin + 2 * k, columns, seed=rank)

        def arguments(rank, size, k=k, wide=wide):
            return wide(rank, size), k

        def judge(size, reports, rows=rows, columns=columns, k=k, wide=wide):
            edges, whole = strips(rows, size), np.zeros((rows + 2 * k, columns))
            for rank, (begin, end) in enumerate(edges):
                whole[begin : end + 2 * k] += wide(rank, size)
            for rank, (begin, end) in enumerate(edges):
                _judge_home(
                    rank, reports[rank]["result"], whole[begin + k : end + k], wide(rank, size), k
                )
            judge_traffic(reports, k, columns)

        sizes = on_ranks(halo_backward, arguments, judge, watch=MessageComm)
    return f"The halo's gradient comes home on {listed(sizes)} ranks, to {TOLERANCE:g}; one message to each neighbour."


def _judge_home(rank, mine, due, g, k):
    what = f"rank {rank}: what halo_backward returned"
    if np.shape(mine) == g.shape:
        raise CheckFailed(
            f"{what} has the halo's {2 * k} rows still; the strip's own {len(due)} are due."
        )
    own = g[k:-k]
    known = [
        (
            own,
            "That is the gradient of its own rows only: what the neighbours did with them has to come, and be added.",
        ),
        (
            np.where(np.isclose(due, own), own, due - own),
            "What comes is to be added to what is there, not put in its place.",
        ),
    ]
    judge_array(what, mine, due, known)
