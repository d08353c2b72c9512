"""The checks of the ring's tasks: 1 to 3, and 6.

The arrays that are summed tell who is in a sum: rank r puts in 16**r times a pattern, so a sum is a number whose hexadecimal
digits say how often each rank was added. float32 holds such sums exactly for up to 6 ranks, float64 for up to 12.
"""

from functools import partial

import numpy as np

from pi2zero.mpi import name_ranks
from pi2zero_course.checks.framework.base import CheckFailed, as_text, listed, task
from pi2zero_course.checks.framework.collective import on_ranks
from pi2zero_course.checks.framework.counted import MessageComm

LENGTHS = (
    8,
    1003,
    3,
    1,
    0,
)  # divisible by 4, not divisible, shorter than the ranks, one number, none


def part_of(rank, length, dtype=np.float64):
    """What a rank puts in: 16**rank times 1, 2, ... 7, 1, 2, ..."""
    return (16**rank * (np.arange(length) % 7 + 1)).astype(dtype)


def _chunks(length, size):
    """(start, stop) of each chunk: what np.array_split makes of the array."""
    ends = np.cumsum([0, *(len(chunk) for chunk in np.array_split(np.zeros(length), size))])
    return [(int(ends[i]), int(ends[i + 1])) for i in range(size)]


def _who(values, start) -> str:
    """Whose numbers are in a chunk: 'the numbers of ranks 0 and 1'."""
    quotients = values / (np.arange(start, start + len(values)) % 7 + 1)
    first = quotients[0]
    if not np.all(quotients == first) or first != int(first) or not 0 < first < 16**12:
        return f"numbers such as {as_text(values[0])}, which no sum of whole chunks gives"
    digits = [int(first) >> 4 * rank & 15 for rank in range(12)]
    ranks = [rank for rank, count in enumerate(digits) if count]
    often = [f"rank {rank}'s {digits[rank]} times" for rank in ranks if digits[rank] > 1]
    return f"the numbers of {name_ranks(ranks)}" + (f" ({', '.join(often)})" if often else "")


def _case(length, size):
    return f"with {length:,} number{'s' * (length != 1)}"


def _judge_traffic(case, reports, length, itemsize, phases, rows=None):
    """A ring sends phases * (p - 1) messages of one chunk, to one neighbour. rows: of an array that may be cut between them."""
    size = len(reports)
    by_rows = -(-rows // size) * (length // rows) if rows else 0
    largest = max(-(-length // size), by_rows) * itemsize
    most, steps = phases * (size - 1) * largest, phases * (size - 1)
    share = f"{2 * (size - 1)}/{size}" if phases == 2 else f"{size - 1}/{size}"
    for rank, report in enumerate(reports):
        if len(report["targets"]) > 1:
            raise CheckFailed(
                f"{case}, rank {rank} sent to {name_ranks(report['targets'])}; in a ring a rank sends to one neighbour only."
            )
        if report["sent"] > most:
            raise CheckFailed(
                f"{case}, rank {rank} sent {report['sent']:,} bytes; the target is {share} of the array: {most:,} bytes, "
                f"{steps} chunk{'s' * (steps != 1)}.\n"
                "Do you send the whole array where one chunk is due, or go on for too many steps?"
            )
        if report["messages"] > steps:
            raise CheckFailed(
                f"{case}, rank {rank} sent {report['messages']:,} messages; {steps} are enough: one chunk a step."
            )


def _sent_nothing(reports, length) -> bool:
    return length >= len(reports) > 1 and not any(report["messages"] for report in reports)


@task(1)
def task1(reduce_scatter):
    """reduce_scatter(comm, x): changes x in place; chunk (rank + 1) % size of x becomes the sum over the ranks."""
    for length in LENGTHS:

        def arguments(rank, size, length=length):
            return (part_of(rank, length),)

        def judge(size, reports, length=length):
            total, case = sum(part_of(rank, length) for rank in range(size)), _case(length, size)
            if _sent_nothing(reports, length):
                raise CheckFailed(
                    f"{case}, nothing was sent. The sum of a chunk needs all ranks' numbers."
                )
            for rank, report in enumerate(reports):
                chunk = (rank + 1) % size
                _judge_chunk(case, rank, chunk, report["args"][0], total, _chunks(length, size))
            _judge_traffic(case, reports, length, 8, phases=1)

        sizes = on_ranks(reduce_scatter, arguments, judge, watch=MessageComm)
    return (
        f"Chunk (rank + 1) % size is summed up on each rank, and each sent (p-1)/p of its array; tried with {listed(sizes)} "
        f"ranks and {listed(LENGTHS)} numbers."
    )


def _judge_chunk(case, rank, chunk, x, total, chunks):
    start, stop = chunks[chunk]
    values = np.asarray(x)[start:stop]
    if np.array_equal(values, total[start:stop]):
        return
    right = [c for c, (a, b) in enumerate(chunks) if b > a and np.array_equal(x[a:b], total[a:b])]
    where = f"\nChunk {right[0]} is summed up there: at which chunk do you begin?" if right else ""
    if len(chunks) > 1 and np.array_equal(x, part_of(rank, len(x))):
        where = "\nx is as it was before: add to it in place, chunk += received."
    raise CheckFailed(
        f"{case}, chunk {chunk} of rank {rank} holds {_who(values, start)}; it has to be the sum over all "
        f"{len(chunks)} ranks.{where}"
    )


@task(2)
def task2(all_gather):
    """all_gather(comm, x): before, chunk (rank + 1) % size of x is good; after, all of x, on all ranks."""
    for length in LENGTHS:

        def arguments(rank, size, length=length):
            x, (start, stop) = np.full(length, -1.0), _chunks(length, size)[(rank + 1) % size]
            x[start:stop] = part_of(1, length)[start:stop]
            return (x,)

        def judge(size, reports, length=length):
            case, right = _case(length, size), part_of(1, length)
            if _sent_nothing(reports, length):
                raise CheckFailed(
                    f"{case}, nothing was sent. Each rank has one good chunk and needs those of all others."
                )
            for rank, report in enumerate(reports):
                _judge_gathered(case, rank, report["args"][0], right, _chunks(length, size))
            _judge_traffic(case, reports, length, 8, phases=1)

        sizes = on_ranks(all_gather, arguments, judge, watch=MessageComm)
    return (
        f"All ranks hold all chunks, and each sent (p-1)/p of the array; tried with {listed(sizes)} ranks and {listed(LENGTHS)} "
        "numbers."
    )


def _judge_gathered(case, rank, x, right, chunks):
    for chunk, (start, stop) in enumerate(chunks):
        values = x[start:stop]
        if np.array_equal(values, right[start:stop]):
            continue
        own = "its own good chunk, " * (chunk == (rank + 1) % len(chunks))
        if np.all(values == -1):
            raise CheckFailed(
                f"{case}, rank {rank}: {own}chunk {chunk} holds what was there before; nothing good arrived in it."
            )
        if np.array_equal(values, right[start:stop] - 1):
            raise CheckFailed(
                f"{case}, rank {rank}: {own}chunk {chunk} is added to what was there. Copy here; do not add."
            )
        raise CheckFailed(
            f"{case}, rank {rank}: {own}chunk {chunk} holds numbers of another chunk."
        )


# Shape, dtype, and whether the array is handed in transposed (so that its numbers do not lie one after another).
_ARRAYS = [
    ((8,), "float64", False),
    ((1003,), "float32", False),
    ((3,), "int64", False),
    ((0,), "float64", False),
]
_ARRAYS += [((1,), "float64", False), ((7, 5), "float32", False), ((5, 7), "float64", True)]


@task(3)
def task3(ring_allreduce):
    """ring_allreduce(comm, x) -> the sum of all ranks' x, of the same shape and dtype; x stays as it is."""
    for shape, dtype, transposed in _ARRAYS:

        def arguments(rank, size, shape=shape, dtype=dtype, transposed=transposed):
            x = part_of(rank, int(np.prod(shape)), dtype).reshape(shape)
            return (x.T if transposed else x,)

        def judge(size, reports, arguments=arguments):
            _judge_sum([arguments(rank, size)[0] for rank in range(size)], reports)

        sizes = on_ranks(ring_allreduce, arguments, judge, watch=MessageComm)
    return (
        "The sum is exact on every rank, x stays as it was, and each rank sent 2 (p-1)/p of the array; tried with "
        f"{listed(sizes)} ranks and {len(_ARRAYS)} arrays, of shapes (0,), (1003,), (7, 5) and others."
    )


def _judge_sum(parts, reports):
    total = sum(parts)
    case = f"with an array of shape {total.shape} and {total.dtype}"
    if _sent_nothing(reports, total.size):
        raise CheckFailed(
            f"{case}, nothing was sent on the comm that your function was given. Use that one, not MPI.COMM_WORLD."
        )
    for rank, report in enumerate(reports):
        mine, after = report["result"], report["args"][0]
        if mine is None:
            raise CheckFailed(f"{case}, rank {rank} returned None. Is the `return` missing?")
        mine = np.asarray(mine)
        if mine.shape != total.shape:
            raise CheckFailed(f"{case}, rank {rank} returned the shape {mine.shape}.")
        if not np.array_equal(mine, total):
            _explain_sum(case, rank, mine.ravel(), parts, total.ravel())
        if mine.dtype != total.dtype:
            raise CheckFailed(
                f"{case}, rank {rank} returned {mine.dtype}; it has to be {total.dtype}, as x."
            )
        if not np.array_equal(after, parts[rank]):
            raise CheckFailed(
                f"{case}, x of rank {rank} was changed; work on a copy: the caller still needs x."
            )
    rows = total.shape[0] if total.ndim > 1 else None
    _judge_traffic(case, reports, total.size, total.itemsize, phases=2, rows=rows)


def _explain_sum(case, rank, mine, parts, total):
    if np.allclose(mine, total / len(parts)):
        raise CheckFailed(f"{case}, rank {rank} returned the mean; the sum is due.")
    if np.array_equal(mine, parts[rank].ravel()):
        raise CheckFailed(
            f"{case}, rank {rank} returned its own x. Does your ring work on a copy that is then thrown away?"
        )
    wrong = np.flatnonzero(mine != total)
    raise CheckFailed(
        f"{case}, {wrong.size} of {total.size} numbers of rank {rank} are wrong: number {wrong[0]} is {as_text(mine[wrong[0]])}, "
        f"not {as_text(total[wrong[0]])}."
    )


@task(6)
def task6(shift):
    """shift(comm, out, into): `into` becomes the left neighbour's `out`, with Send and Recv only, on any number of ranks."""
    for length in (1, 100_000):

        def arguments(rank, size, length=length):
            return np.full(length, 1.0 + rank), np.full(length, -1.0)

        def judge(size, reports, length=length):
            for rank, report in enumerate(reports):
                out, into = report["args"]
                left = (rank - 1) % size
                if np.any(out != 1.0 + rank):
                    raise CheckFailed(f"rank {rank}'s `out` was changed; only `into` may be.")
                if np.all(into == -1):
                    raise CheckFailed(
                        f"nothing arrived in rank {rank}'s `into`; it has to be what rank {left} had in `out`."
                    )
                if np.any(into != 1.0 + left):
                    raise CheckFailed(
                        f"rank {rank} got rank {int(into[0]) - 1}'s numbers; its left neighbour is rank {left}."
                    )
                if report["messages"] > 1:
                    raise CheckFailed(
                        f"rank {rank} sent {report['messages']} messages; one is enough."
                    )

        sizes = on_ranks(shift, arguments, judge, watch=partial(MessageComm, only=("Send", "Recv")))
    return f"No send waits for a receive that never comes, however long the array; tried with {listed(sizes)} ranks."
