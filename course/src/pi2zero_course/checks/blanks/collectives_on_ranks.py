"""The checks of the blanks in notebook 03 that run on its ranks."""

import numpy as np

from pi2zero_course.checks.framework.answers import CheckError, attribute_names
from pi2zero_course.checks.framework.message_comm import MessageComm
from pi2zero_course.checks.framework.on_ranks import OnRanks
from pi2zero_course.checks.framework.task import Blank, blank
from pi2zero_course.checks.framework.values import join_words, show


def part_of(rank, length):
    """What a rank puts in: 2**rank times 1, 2, 3, 1, 2, 3, ..."""
    return 2.0**rank * (np.arange(length) % 3 + 1)


def total_of(size, length):
    """The sum of what `size` ranks put in, (length,)."""
    return sum(part_of(rank, length) for rank in range(size))


@blank
def naive_allreduce(function):
    """naive_allreduce(comm, x): x becomes the sum over the ranks, in place, by way of rank 0."""
    if {"Allreduce", "allreduce"} & attribute_names(function):
        raise CheckError(
            "Allreduce is what you are to replace here: bring all arrays to rank 0, add up there, "
            "and send the sum out."
        )
    run = OnRanks(
        arguments=lambda rank, size: (part_of(rank, 5),),
        judge=_judge_in_place,
        call=lambda function, comm, x: (x, function(comm, x)),
    )
    return f"All ranks have the sum in their x; tried with {join_words(run(function, []))} ranks."


def _judge_in_place(results):
    total = total_of(len(results), 5)
    for rank, (x, returned) in enumerate(results):
        if np.array_equal(x, total):
            continue
        if isinstance(returned, np.ndarray) and np.array_equal(returned, total):
            raise CheckError(
                f"rank {rank} returned the sum, but its x is as it was. Write into x: x[:] = ..., "
                "or out=x."
            )
        if len(results) > 1 and np.array_equal(x, part_of(rank, 5)):
            if not any(np.array_equal(other, total) for other, _ in results):
                why = "No rank has the sum."
            elif rank:
                why = "Rank 0 has the sum; does it reach the others?"
            else:
                why = (
                    "Others have the sum: `x = ...` names another array; write into this one, "
                    "x[:] = ... or out=x."
                )
            raise CheckError(f"x of rank {rank} is as it was. {why}")
        raise CheckError(f"x of rank {rank} is {show(x)}; the sum over the ranks is {show(total)}.")


def _judge_ring(reports, length):
    size = len(reports)
    total, chunks = total_of(size, length), np.array_split(np.arange(length), size)
    for rank, report in enumerate(reports):
        _judge_chunks(rank, report["args"][0], total, chunks, length)
        if report["messages"] != 2 * (size - 1):
            raise CheckError(
                f"{length} numbers: rank {rank} sent {report['messages']} messages; "
                f"p - 1 in each half make {2 * (size - 1)}."
            )


# ring_allreduce(comm, x): x becomes the sum over the ranks, in place; 2 (p - 1) messages of one
# chunk per rank
ring_allreduce = Blank(
    name="ring_allreduce",
    cases=[(8,), (1003,), (3,)],
    on_ranks=OnRanks(
        arguments=lambda rank, size, length: (part_of(rank, length),),
        judge=_judge_ring,
        comm=MessageComm,
    ),
    verified="The sum is on every rank, in 2 (p - 1) messages; tried with {ranks} ranks and 8, "
    "1,003 and 3 numbers.",
)


def _judge_chunks(rank, x, total, chunks, length):
    wrong = [i for i, chunk in enumerate(chunks) if not np.array_equal(x[chunk], total[chunk])]
    if not wrong:
        return
    right = len(chunks) - len(wrong)
    chunk, values, due = wrong[0], x[chunks[wrong[0]]], total[chunks[wrong[0]]]
    say = (
        f"{length} numbers: on rank {rank}, {right} of {len(chunks)} chunks are finished. Chunk "
        f"{chunk} holds {show(values[:3])}"
    )
    if np.any(values > due):
        raise CheckError(
            f"{say}, more than the sum {show(due[:3])}: in the second half a finished chunk "
            "replaces, it is not added."
        )
    raise CheckError(
        f"{say}, not {show(due[:3])}. After the first half, rank r has finished chunk r + 1: that "
        "one is sent on first, and each step sends on what the last one brought."
    )
