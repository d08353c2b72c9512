"""The checks of lab 2, the ring all-reduce. Each is called on all ranks:
`check.reduce_scatter(reduce_scatter)`.

The arrays that are summed tell who is in a sum: rank r puts in 16**r times a pattern, so a sum is a
number whose hexadecimal digits say how often each rank was added. float32 holds such sums exactly
for up to 6 ranks, float64 for up to 12.

A real network is busy or quiet as it likes. So the checks of time slow the ranks' own network down,
with an alpha and a beta that they know and that are much larger than any disturbance, and ask
whether the answer finds them.
"""

import time
from functools import partial

import numpy as np
from mpi4py import MPI

from pi2zero import costs
from pi2zero.mpi import name_ranks
from pi2zero_course.checks.framework.answers import CheckError, call_answer
from pi2zero_course.checks.framework.message_comm import MessageComm, judge_traffic
from pi2zero_course.checks.framework.on_ranks import OnRanks
from pi2zero_course.checks.framework.task import LabTask, lab_task
from pi2zero_course.checks.framework.values import (
    as_number,
    as_text,
    close,
    join_words,
    pick_hint,
    plural,
)

Task = partial(LabTask, lab=2)
# Divisible by 4, not divisible, fewer than the ranks, one number, none.
LENGTHS = [(8,), (1003,), (3,), (1,), (0,)]
SLOW_ALPHA, SLOW_BETA = 10e-3, 20e-9  # 10 ms and 50 MB/s: far above what a busy machine adds
SLOW_LATE = 0.15  # s by which two messages are late: the first, and another one


def part_of(rank, length, dtype=np.float64):
    """What a rank puts in: 16**rank times 1, 2, ... 7, 1, 2, ..."""
    return (16**rank * (np.arange(length) % 7 + 1)).astype(dtype)


def _chunks(length, size):
    """The places of each chunk, as np.array_split makes them."""
    return np.array_split(np.arange(length), size)


def _contents(values, places) -> str:
    """Whose numbers are in a chunk: 'the numbers of ranks 0 and 1'."""
    quotients = values / (places % 7 + 1)
    first = quotients[0]
    if not np.all(quotients == first) or first != int(first) or not 0 < first < 16**12:
        return f"numbers such as {as_text(values[0])}, which no sum of whole chunks gives"
    digits = [int(first) >> 4 * rank & 15 for rank in range(12)]
    ranks = [rank for rank, count in enumerate(digits) if count]
    often = [f"rank {rank}'s {digits[rank]} times" for rank in ranks if digits[rank] > 1]
    return f"the numbers of {name_ranks(ranks)}" + (f" ({', '.join(often)})" if often else "")


def _judge_ring(case, reports, itemsize, longest, phases):
    """A ring sends phases * (p - 1) messages of one chunk; longest: values of the longest chunk."""
    size = len(reports)
    steps = phases * (size - 1)
    target = f"{steps}/{size} of the array, one chunk per step, {plural(steps, 'step')}"
    judge_traffic(f"{case}, ", reports, steps, steps * longest * itemsize, target, neighbours=1)


def _judge_reduce_scatter(reports, length):
    size, case = len(reports), f"with {plural(length, 'number')}"
    total = sum(part_of(rank, length) for rank in range(size))
    for rank, report in enumerate(reports):
        _judge_chunk(case, rank, (rank + 1) % size, report["args"][0], total, _chunks(length, size))
    _judge_ring(case, reports, 8, -(-length // size), phases=1)


def _judge_chunk(case, rank, chunk, x, total, chunks):
    places = chunks[chunk]
    if np.array_equal(x[places], total[places]):
        return
    right = [c for c, its in enumerate(chunks) if its.size and np.array_equal(x[its], total[its])]
    where = f"\nChunk {right[0]} is summed up there: at which chunk do you begin?" if right else ""
    if len(chunks) > 1 and np.array_equal(x, part_of(rank, len(x))):
        where = "\nx is as it was before: add to it in place, chunk += received."
    raise CheckError(
        f"{case}, chunk {chunk} of rank {rank} holds {_contents(x[places], places)}; it has to be "
        f"the sum over all {len(chunks)} ranks.{where}"
    )


# reduce_scatter(comm, x): changes x in place; chunk (rank + 1) % size of x becomes the sum over
# the ranks
reduce_scatter = Task(
    number=1,
    name="reduce_scatter",
    cases=LENGTHS,
    on_ranks=OnRanks(
        arguments=lambda rank, size, length: (part_of(rank, length),),
        judge=_judge_reduce_scatter,
        comm=MessageComm,
    ),
    verified="Chunk (rank + 1) % size is summed up on each rank, and each sent (p-1)/p of its "
    "array; tried with {ranks} ranks and 8, 1,003, 3, 1 and 0 numbers.",
)


def _gather_arguments(rank, size, length):
    x, places = np.full(length, -1.0), _chunks(length, size)[(rank + 1) % size]
    x[places] = part_of(1, length)[places]
    return (x,)


def _judge_all_gather(reports, length):
    size, case, right = len(reports), f"with {plural(length, 'number')}", part_of(1, length)
    for rank, report in enumerate(reports):
        for chunk, places in enumerate(_chunks(length, size)):
            values, due = report["args"][0][places], right[places]
            if np.array_equal(values, due):
                continue
            own = "its own good chunk, " * (chunk == (rank + 1) % size)
            what = "holds numbers of another chunk."
            if np.all(values == -1):
                what = "holds what was there before; nothing good arrived in it."
            elif np.array_equal(values, due - 1):
                what = "is added to what was there. Copy here; do not add."
            raise CheckError(f"{case}, rank {rank}: {own}chunk {chunk} {what}")
    _judge_ring(case, reports, 8, -(-length // size), phases=1)


# all_gather(comm, x): before, chunk (rank + 1) % size of x is good; after, all of x, on all ranks
all_gather = Task(
    number=2,
    name="all_gather",
    cases=LENGTHS,
    on_ranks=OnRanks(arguments=_gather_arguments, judge=_judge_all_gather, comm=MessageComm),
    verified="All ranks hold all chunks, and each sent (p-1)/p of the array; tried with {ranks} "
    "ranks and 8, 1,003, 3, 1 and 0 numbers.",
)

# Shape, dtype, and whether the array is handed in transposed, so that its numbers are not
# contiguous.
_ARRAYS = [
    ((8,), "float64", False),
    ((1003,), "float32", False),
    ((3,), "int64", False),
    ((0,), "float64", False),
    ((1,), "float64", False),
    ((7, 5), "float32", False),
    ((5, 7), "float64", True),
]


def _array_of(rank, size, shape, dtype, transposed):
    x = part_of(rank, int(np.prod(shape)), dtype).reshape(shape)
    return (x.T if transposed else x,)


def _judge_sum(reports, *array):
    parts = [_array_of(rank, len(reports), *array)[0] for rank in range(len(reports))]
    total = sum(parts)
    case = f"with an array of shape {total.shape} and {total.dtype}"
    for rank, report in enumerate(reports):
        if report["result"] is None:
            raise CheckError(f"{case}, rank {rank} returned None. Is the `return` missing?")
        result = np.asarray(report["result"])
        if result.shape != total.shape:
            raise CheckError(f"{case}, rank {rank} returned the shape {result.shape}.")
        if not np.array_equal(result, total):
            why = _explain_sum(result.ravel(), parts[rank].ravel(), total.ravel(), len(parts))
            raise CheckError(f"{case}, rank {rank} returned {why}")
        if result.dtype != total.dtype:
            raise CheckError(
                f"{case}, rank {rank} returned {result.dtype}; it has to be {total.dtype}, as x."
            )
        if not np.array_equal(report["args"][0], parts[rank]):
            raise CheckError(
                f"{case}, x of rank {rank} was changed; work on a copy: the caller still needs x."
            )
    # The array may be split between its rows.
    longest = -(-len(total) // len(reports)) * (total.size // max(len(total), 1))
    longest = max(longest, -(-total.size // len(reports)))
    _judge_ring(case, reports, total.itemsize, longest, phases=2)


def _explain_sum(result, own, total, size):
    if np.allclose(result, total / size):
        return "the mean; the sum is due."
    if np.array_equal(result, own):
        return "its own x. Does your ring work on a copy that is then thrown away?"
    at = np.flatnonzero(result != total)[0]
    return f"{as_text(result[at])} as number {at}; {as_text(total[at])} is due."


# ring_allreduce(comm, x) -> the sum of all ranks' x, of the same shape and dtype; x stays as it is
ring_allreduce = Task(
    number=3,
    name="ring_allreduce",
    cases=_ARRAYS,
    on_ranks=OnRanks(arguments=_array_of, judge=_judge_sum, comm=MessageComm),
    verified="The sum is exact on every rank, x stays as it was, and each rank sent 2 (p-1)/p of "
    "the array; tried with {ranks} ranks and 7 arrays, of shapes (0,), (1003,), (7, 5) and others.",
)


@lab_task(2, 4)
def step_seconds(function):
    """step_seconds(comm, nbytes) -> s that a ring step of nbytes takes, undisturbed, measured on
    this rank."""
    late, messages = 4, []

    def judge(reports, nbytes):
        _judge_step(reports, nbytes)
        messages.append(reports[0]["messages"])

    for nbytes in (1, 1_000_000):
        slow = partial(
            MessageComm, alpha=SLOW_ALPHA, beta=SLOW_BETA, late={1: SLOW_LATE, late: SLOW_LATE}
        )
        run = OnRanks(
            arguments=lambda rank, size, nbytes: (nbytes,), judge=judge, fewest=2, comm=slow
        )
        sizes = run(function, [(nbytes,)])
        late = messages[0]  # then the last one, so that the last step's time is wrong, too
    return (
        f"On a network with alpha = {1e3 * SLOW_ALPHA:g} ms and beta = {1e9 * SLOW_BETA:g} ns a "
        "byte you find the time of a "
        f"step, though two messages are late; tried with {join_words(sizes)} ranks."
    )


def _judge_step(reports, nbytes):
    case, right = f"a step of {plural(nbytes, 'byte')}", SLOW_ALPHA + SLOW_BETA * nbytes
    judge_traffic(f"{case}: ", reports, np.inf, np.inf, "", neighbours=1)
    for rank, report in enumerate(reports):
        seconds, messages = as_number(report["result"]), report["messages"]
        if report["bytes"] != nbytes * messages:
            each = report["bytes"] / messages
            numbers = (
                " np.empty(nbytes) holds numbers of 8 bytes; np.empty(nbytes, np.uint8) bytes."
            )
            raise CheckError(
                f"{case}: rank {rank}'s messages have {each:,.0f} bytes "
                f"each.{numbers * (each == 8 * nbytes)}"
            )
        if messages < 5:
            raise CheckError(
                f"{case}: rank {rank} measured {messages}; measure 5 or more, a single one may be "
                "disturbed."
            )
        if seconds is None:
            raise CheckError(
                f"{case}: rank {rank} returned {report['result']!r}; it has to be a number of "
                "seconds."
            )
        # A busy machine is slower than its network.
        if not 0.8 * right <= seconds <= 1.7 * max(right, report["fastest"]):
            raise CheckError(
                f"{case} takes {right:.4f} s here; rank {rank} says "
                f"{as_text(seconds)}.\n{_explain_step(seconds, right, messages)}"
            )
        if report["barriers"] < 5:
            raise CheckError(
                f"{case}: rank {rank} called Barrier {report['barriers']} times before {messages} "
                "steps. "
                "Let all ranks begin each step together,\nor you measure how late the others are."
            )


def _explain_step(seconds, right, messages):
    if seconds < 0.8 * right:
        return (
            "That is less than any step took: is the message waited for before the clock stops? "
            "Divided once too often?"
        )
    if seconds >= right + 0.9 * 2 * SLOW_LATE:
        return "That is all steps together: the time of one is due."
    # A barrier takes two messages; the mean of 11 to 20 steps looks the same.
    if 1.5 * SLOW_ALPHA < seconds - right < 2.9 * SLOW_ALPHA:
        mean = " Or is that the mean of all steps? Take the smallest: two messages came late."
        return (
            f"Is Barrier timed, too? Let the clock start after it.{mean * (11 <= messages <= 20)}"
        )
    return (
        "The first message and one more came late, as happens. A disturbance only adds: take the "
        "smallest time, not the mean."
    )


_FORMULA_CASES = [
    (n, p, a, b)
    for n in (0, 1, 4096, 1e6, 1e8)
    for p in (1, 4, 3, 2, 2048)
    for a, b in ((1e-5, 1e-9), (2e-6, 4e-11))
]


@lab_task(2, 5)
def ring_seconds(function):
    """ring_seconds(nbytes, ranks, alpha, beta) -> s of a ring all-reduce; within a factor of two
    of the measured time."""
    for n, p, a, b in _FORMULA_CASES:
        seconds = call_answer(function, n, p, a, b)
        right = float(costs.ring_allreduce_seconds(n, p, a, b))
        # By the longest chunk, it is right as well.
        longest = float(costs.ring_allreduce_seconds(-(-n // p) * p, p, a, b))
        if not any(close(seconds, time, relative=1e-6) for time in (right, longest)):
            case = (
                f"{n:,.0f} byte{'s' * (n != 1)} on {plural(p, 'rank')}, alpha = {a:g} s and beta "
                f"= {b:g} s a byte"
            )
            raise CheckError(
                f"{case}: you say {as_text(seconds)} s; the ring takes {right:.6g} "
                f"s.\n{_explain_formula(seconds, n, p, a, b)}"
            )
    ratios = _ratios_to_measured(function)
    if not all(0.5 <= ratio <= 2 for ratio in ratios.values()):
        text = ", ".join(f"{ratio:.2f} for {n:,} bytes" for n, ratio in ratios.items())
        raise CheckError(
            f"Predicted / measured time is {text}; the target is 0.5 to 2. The formula is right: "
            "is this machine very busy?\nRun the check again."
        )
    return (
        "The formula is right for 1 to 2,048 ranks, and on a slow network it predicts the "
        "measured ring within a factor of two."
    )


def _explain_formula(seconds, n, p, a, b):
    if p == 1:
        return "One rank sends nothing."
    mistakes = {
        "That is one half of the ring: reduce-scatter, then all-gather.": (p - 1) * (a + n / p * b),
        "In a step a rank sends one chunk, nbytes / ranks, not the whole array.": 2
        * (p - 1)
        * (a + n * b),
        "The bytes: 2 (p-1)/p of the array, not 2 times the array.": 2 * (p - 1) * a + 2 * n * b,
        "Each of the 2 (p-1) messages costs alpha.": 2 * a + 2 * (p - 1) / p * n * b,
    }
    return pick_hint(seconds, mistakes, same=partial(close, relative=1e-6))


def _ratios_to_measured(function, sizes=(1024, 1 << 20, 1 << 22), attempts=5):
    """Predicted / measured for three sizes. alpha and beta come from measured ring steps on the
    same slow network."""
    world = MPI.COMM_WORLD
    slow = MessageComm(world, alpha=SLOW_ALPHA, beta=SLOW_BETA)
    chunks = [n // world.size for n in sizes]
    steps, rings = np.full(len(sizes), np.inf), np.full(len(sizes), np.inf)
    try:
        for _ in range(attempts):  # with the smallest times so far, which are less disturbed
            steps = np.minimum(steps, [_slowest(slow, _step, n, 3) for n in chunks])
            rings = np.minimum(rings, [_slowest(slow, _ring, n, 1) for n in sizes])
            alpha, beta = costs.fit_alpha_beta(chunks, steps)
            predicted = [float(function(n, world.size, alpha, beta)) for n in sizes]
            ratios = dict(zip(sizes, predicted / rings, strict=True))
            if all(0.5 <= ratio <= 2 for ratio in ratios.values()):
                break
        return ratios
    finally:
        slow.free()


def _slowest(comm, run, nbytes, repeats):
    """The smallest time (s) of `repeats` runs, each of them the time of the slowest rank; the same
    on all ranks."""
    x, into, times = np.ones(nbytes // 8), np.ones(nbytes // 8), []
    for _ in range(repeats):
        comm.Barrier()
        start = time.perf_counter()
        run(comm, x, into)
        times.append(MPI.COMM_WORLD.allreduce(time.perf_counter() - start, op=MPI.MAX))
    return min(times)


def _step(comm, x, into):
    comm.Sendrecv(x, (comm.rank + 1) % comm.size, recvbuf=into, source=(comm.rank - 1) % comm.size)


def _ring(comm, x, into):
    rank, size, chunks = comm.rank, comm.size, np.array_split(x, comm.size)
    for step in range(2 * (size - 1)):
        out, here = chunks[(rank - step) % size], chunks[(rank - step - 1) % size]
        adds = step < size - 1
        received = into[: here.size] if adds else here
        comm.Sendrecv(out, (rank + 1) % size, recvbuf=received, source=(rank - 1) % size)
        if adds:
            here += received


def _judge_shift(reports, length):
    for rank, report in enumerate(reports):
        out, into = report["args"]
        left = (rank - 1) % len(reports)
        if np.any(out != 1.0 + rank):
            raise CheckError(f"rank {rank}'s `out` was changed; only `into` may be.")
        if np.all(into == -1):
            raise CheckError(
                f"nothing arrived in rank {rank}'s `into`; it has to be what rank {left} had in "
                "`out`."
            )
        if np.any(into != 1.0 + left):
            raise CheckError(
                f"rank {rank} got rank {int(into[0]) - 1}'s numbers; its left neighbour is rank "
                f"{left}."
            )
    judge_traffic("", reports, 1, np.inf, "one to the right neighbour")


# shift(comm, out, into): `into` becomes the left neighbour's `out`, with Send and Recv only
shift = Task(
    number=6,
    name="shift",
    cases=[(1,), (100_000,)],
    on_ranks=OnRanks(
        arguments=lambda rank, size, length: (np.full(length, 1.0 + rank), np.full(length, -1.0)),
        judge=_judge_shift,
        comm=partial(MessageComm, only=("Send", "Recv")),
    ),
    verified="No send waits for a receive that never comes, however long the array; tried with "
    "{ranks} ranks.",
)
