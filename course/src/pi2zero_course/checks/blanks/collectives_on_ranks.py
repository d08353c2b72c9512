"""The checks of the blanks in notebook 03 that run on its ranks."""

import numpy as np

from pi2zero_course.checks.blanks import blank
from pi2zero_course.checks.blanks.compare import shown
from pi2zero_course.checks.framework.base import CheckFailed, listed, named
from pi2zero_course.checks.framework.collective import on_ranks
from pi2zero_course.checks.framework.counted import MessageComm


def part_of(rank, length):
    """What a rank puts in: 2**rank times 1, 2, 3, 1, 2, 3, ..."""
    return 2.0**rank * (np.arange(length) % 3 + 1)


def total_of(size, length):
    """The sum of what `size` ranks put in, (length,)."""
    return sum(part_of(rank, length) for rank in range(size))


@blank
def naive_allreduce(function):
    """naive_allreduce(comm, x): x becomes the sum over the ranks, in place, by way of rank 0."""
    if {"Allreduce", "allreduce"} & set(function.__code__.co_names):
        raise CheckFailed(
            "Allreduce is what you are to replace here: bring all arrays to rank 0, add up there, and send the sum out."
        )

    def run(comm, x):
        returned = function(comm, x)
        return x, returned

    def judge(size, results):
        total = total_of(size, 5)
        for rank, (x, returned) in enumerate(results):
            if np.array_equal(x, total):
                continue
            if isinstance(returned, np.ndarray) and np.array_equal(returned, total):
                raise CheckFailed(
                    f"rank {rank} returned the sum, but its x is as it was. Write into x: x[:] = ..., or out=x."
                )
            if size > 1 and np.array_equal(x, part_of(rank, 5)):
                if not any(np.array_equal(other, total) for other, _ in results):
                    why = "No rank has the sum."
                elif rank:
                    why = "Rank 0 has the sum; does it reach the others?"
                else:
                    why = "Others have the sum: `x = ...` names another array; write into this one, x[:] = ... or out=x."
                raise CheckFailed(f"x of rank {rank} is as it was. {why}")
            raise CheckFailed(
                f"x of rank {rank} is {shown(x)}; the sum over the ranks is {shown(total)}."
            )

    sizes = on_ranks(named(function, run), lambda rank, size: (part_of(rank, 5),), judge)
    return f"All ranks have the sum in their x; tried with {listed(sizes)} ranks."


@blank
def ring_allreduce(function):
    """ring_allreduce(comm, x): x becomes the sum over the ranks, in place; 2 (p - 1) messages of one chunk a rank."""
    for length in (8, 1003, 3):

        def judge(size, reports, length=length):
            total, chunks = total_of(size, length), np.array_split(np.arange(length), size)
            for rank, report in enumerate(reports):
                _judge_chunks(rank, report["args"][0], total, chunks, length)
                if report["messages"] != 2 * (size - 1):
                    raise CheckFailed(
                        f"{length} numbers: rank {rank} sent {report['messages']} messages; "
                        f"p - 1 in each half make {2 * (size - 1)}."
                    )

        sizes = on_ranks(
            function,
            lambda rank, size, length=length: (part_of(rank, length),),
            judge,
            watch=MessageComm,
        )
    return f"The sum is on every rank, in 2 (p - 1) messages; tried with {listed(sizes)} ranks and 8, 1,003 and 3 numbers."


def _judge_chunks(rank, x, total, chunks, length):
    wrong = [i for i, chunk in enumerate(chunks) if not np.array_equal(x[chunk], total[chunk])]
    if not wrong:
        return
    right = len(chunks) - len(wrong)
    chunk, values, due = wrong[0], x[chunks[wrong[0]]], total[chunks[wrong[0]]]
    say = f"{length} numbers: on rank {rank}, {right} of {len(chunks)} chunks are finished. Chunk {chunk} holds {shown(values[:3])}"
    if np.any(values > due):
        raise CheckFailed(
            f"{say}, more than the sum {shown(due[:3])}: in the second half a finished chunk replaces, it is not added."
        )
    raise CheckFailed(
        f"{say}, not {shown(due[:3])}. After the first half, rank r has finished chunk r + 1: that one is sent on first, and "
        "each step sends on what the last one brought."
    )
