"""The checks of lab 2 that concern time: a step measured, the ring predicted.

A real network is busy or quiet as it likes. So the checks slow the ranks' own network down, with an alpha and a beta that they
know and that are much larger than any disturbance, and ask whether the answer finds them.
"""

import time
from functools import partial

import numpy as np
from mpi4py import MPI

from pi2zero import costs
from pi2zero.mpi import name_ranks
from pi2zero_course.checks.framework.base import (
    CheckFailed,
    answer,
    as_text,
    close,
    hint,
    listed,
    number,
    task,
)
from pi2zero_course.checks.framework.collective import on_ranks
from pi2zero_course.checks.framework.counted import MessageComm

SLOW_ALPHA, SLOW_BETA = 10e-3, 20e-9  # 10 ms and 50 MB/s: far above what a busy machine adds
SLOW_LATE = 0.15  # s by which two messages are late: the first, and another one


@task(4)
def task4(step_seconds):
    """step_seconds(comm, nbytes) -> s that a ring step of nbytes takes, undisturbed, measured on this rank."""
    late, seen = 4, []
    for nbytes in (1, 1_000_000):
        slow = partial(
            MessageComm, alpha=SLOW_ALPHA, beta=SLOW_BETA, late={1: SLOW_LATE, late: SLOW_LATE}
        )
        right = SLOW_ALPHA + SLOW_BETA * nbytes

        def judge(size, reports, nbytes=nbytes, right=right):
            _judge_step(size, reports, nbytes, right)
            seen.append(reports[0]["messages"])

        sizes = on_ranks(
            step_seconds, lambda rank, size, nbytes=nbytes: (nbytes,), judge, fewest=2, watch=slow
        )
        late = seen[0]  # then the last one, so that the last step's time is wrong, too
    return (
        f"On a network with alpha = {1e3 * SLOW_ALPHA:g} ms and beta = {1e9 * SLOW_BETA:g} ns a byte you find the time of a "
        f"step, though two messages are late; tried with {listed(sizes)} ranks."
    )


def _judge_step(size, reports, nbytes, right):
    case = f"a step of {nbytes:,} byte{'s' * (nbytes > 1)}"
    for rank, report in enumerate(reports):
        seconds, messages = report["result"], report["messages"]
        if not messages:
            raise CheckFailed(f"{case}: rank {rank} sent nothing on the comm that it was given.")
        if report["sent"] != nbytes * messages:
            each = report["sent"] / messages
            hint = (
                " np.empty(nbytes) holds numbers of 8 bytes; np.empty(nbytes, np.uint8) bytes."
                * (each == 8 * nbytes)
            )
            raise CheckFailed(f"{case}: rank {rank}'s messages have {each:,.0f} bytes each.{hint}")
        if len(report["targets"]) > 1:
            raise CheckFailed(
                f"{case}: rank {rank} sent to {name_ranks(report['targets'])}; a ring step goes to one neighbour."
            )
        if messages < 5:
            raise CheckFailed(
                f"{case}: rank {rank} measured {messages}; measure 5 or more, a single one may be disturbed."
            )
        if number(seconds) is None:
            raise CheckFailed(
                f"{case}: rank {rank} returned {seconds!r}; it has to be a number of seconds."
            )
        seconds = number(seconds)
        if (
            not 0.8 * right <= seconds <= 1.7 * max(right, report["fastest"])
        ):  # a busy machine is slower than its network
            raise CheckFailed(
                f"{case} takes {right:.4f} s here; rank {rank} says {as_text(seconds)}.\n{_why_step(seconds, right, messages)}"
            )
        if report["barriers"] < 5:
            raise CheckFailed(
                f"{case}: rank {rank} called Barrier {report['barriers']} times before {messages} steps. "
                "Let all ranks begin each step together,\nor you measure how late the others are."
            )


def _why_step(seconds, right, messages):
    late = 2 * SLOW_LATE
    if 500 * right < seconds < 20_000 * right:
        return "Are those milliseconds? Seconds are due."
    if seconds < 0.8 * right:
        return "That is less than any step took: is the message waited for before the clock stops? Divided once too often?"
    if seconds >= right + 0.9 * late:
        return "That is all steps together: the time of one is due."
    if (
        1.5 * SLOW_ALPHA < seconds - right < 2.9 * SLOW_ALPHA
    ):  # a barrier's two; the mean of 11 to 20 steps looks the same
        mean = " Or is that the mean of all steps? Take the smallest: two messages came late." * (
            11 <= messages <= 20
        )
        return f"Is Barrier timed, too? Let the clock start after it.{mean}"
    return "The first message and one more came late, as happens. A disturbance only adds: take the smallest time, not the mean."


def _formula_cases():
    return [
        (n, p, a, b)
        for n in (0, 1, 4096, 1e6, 1e8)
        for p in (1, 4, 3, 2, 2048)
        for a, b in ((1e-5, 1e-9), (2e-6, 4e-11))
    ]


@task(5)
def task5(ring_seconds):
    """ring_seconds(nbytes, ranks, alpha, beta) -> s of a ring all-reduce; within a factor of two of the measured time."""
    for n, p, a, b in _formula_cases():
        mine, right = (
            answer(ring_seconds, n, p, a, b),
            float(costs.ring_allreduce_seconds(n, p, a, b)),
        )
        longest = float(
            costs.ring_allreduce_seconds(-(-n // p) * p, p, a, b)
        )  # by the longest chunk: also right
        if not any(close(mine, time, relative=1e-6) for time in (right, longest)) and not (
            right == 0 and mine == 0
        ):
            case = f"{n:,.0f} byte{'s' * (n != 1)} on {p:,} rank{'s' * (p > 1)}, alpha = {a:g} s and beta = {b:g} s a byte"
            raise CheckFailed(
                f"{case}: you say {as_text(mine)} s; the ring takes {right:.6g} s.\n{_why_formula(mine, n, p, a, b)}"
            )
    ratios = _against_measured(ring_seconds)
    text = ", ".join(f"{ratio:.2f} for {n:,} bytes" for n, ratio in ratios.items())
    if not all(0.5 <= ratio <= 2 for ratio in ratios.values()):
        raise CheckFailed(
            f"Predicted / measured time is {text}; the target is 0.5 to 2. The formula is right: is this machine very busy?\n"
            "Run the check again."
        )
    return "The formula is right for 1 to 2,048 ranks, and on a slow network it predicts the measured ring within a factor of two."


def _why_formula(mine, n, p, a, b):
    if p == 1:
        return "One rank sends nothing."
    mistakes = [
        (
            (p - 1) * (a + n / p * b),
            "That is one half of the ring: reduce-scatter, then all-gather.",
        ),
        (
            2 * (p - 1) * (a + n * b),
            "In a step a rank sends one chunk, nbytes / ranks, not the whole array.",
        ),
        (2 * p * (a + n / p * b), "p ranks, p - 1 steps: a rank's own chunk need not travel."),
        (2 * (p - 1) * a + 2 * n * b, "The bytes: 2 (p-1)/p of the array, not 2 times the array."),
        (2 * a + 2 * (p - 1) / p * n * b, "Each of the 2 (p-1) messages costs alpha."),
        (2 * (p - 1) * (a + n / p / b), "beta is seconds per byte, not bytes per second."),
    ]
    return hint(mine, mistakes, same=partial(close, relative=1e-6))


def _against_measured(ring_seconds, sizes=(1024, 1 << 20, 1 << 22), attempts=5):
    """Predicted / measured for three sizes. alpha and beta come from measured ring steps on the same slow network."""
    world = MPI.COMM_WORLD
    slow = MessageComm(world, alpha=SLOW_ALPHA, beta=SLOW_BETA)
    chunks = [n // world.size for n in sizes]
    steps, rings = np.full(len(sizes), np.inf), np.full(len(sizes), np.inf)
    try:
        for _ in range(
            attempts
        ):  # the smallest times so far: each attempt is less disturbed than the one before
            steps = np.minimum(steps, [_slowest(slow, _step, n, 3) for n in chunks])
            rings = np.minimum(rings, [_slowest(slow, _ring, n, 1) for n in sizes])
            alpha, beta = costs.fit_alpha_beta(chunks, steps)
            ratios = {
                n: float(ring_seconds(n, world.size, alpha, beta)) / t
                for n, t in zip(sizes, rings, strict=True)
            }
            if all(0.5 <= ratio <= 2 for ratio in ratios.values()):
                break
        return ratios
    finally:
        slow.free()


def _slowest(comm, run, nbytes, repeats):
    """The smallest time (s) of `repeats` runs, each of them the time of the slowest rank; the same on all ranks."""
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
    right, left, chunks = (
        (comm.rank + 1) % comm.size,
        (comm.rank - 1) % comm.size,
        np.array_split(x, comm.size),
    )
    for step in range(2 * (comm.size - 1)):
        out, here = (
            chunks[(comm.rank - step) % comm.size],
            chunks[(comm.rank - step - 1) % comm.size],
        )
        adds = step < comm.size - 1
        part = into[: here.size] if adds else here
        comm.Sendrecv(out, right, recvbuf=part, source=left)
        if adds:
            here += part
