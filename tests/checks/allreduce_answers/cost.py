"""Answers to tasks 4 and 5: a step measured, the ring predicted."""

import numpy as np
from mpi4py import MPI

from . import right, wrong


@right(4)
def smallest_of_nine(comm, nbytes):
    out, into, times = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8), []
    for _ in range(9):
        comm.Barrier()
        start = MPI.Wtime()
        comm.Sendrecv(
            out, (comm.rank + 1) % comm.size, recvbuf=into, source=(comm.rank - 1) % comm.size
        )
        times.append(MPI.Wtime() - start)
    return np.min(times)


@right(4)
def by_pythons_clock(comm, nbytes):
    import time

    out, into, best = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8), float("inf")
    for _ in range(7):
        comm.Barrier()
        start = time.perf_counter()
        comm.Sendrecv(
            out, (comm.rank + 1) % comm.size, recvbuf=into, source=(comm.rank - 1) % comm.size
        )
        out += into
        best = min(best, time.perf_counter() - start)
    return best


@right(4)
def sorted_times(comm, nbytes):
    out, into, times = np.ones(nbytes, np.uint8), np.empty(nbytes, np.uint8), np.zeros(12)
    for at in range(len(times)):
        comm.barrier()
        start = MPI.Wtime()
        going = comm.Isend(out, (comm.rank + 1) % comm.size)
        comm.Recv(into, (comm.rank - 1) % comm.size)
        going.Wait()
        times[at] = MPI.Wtime() - start
    return np.sort(times)[0]


@right(4)
def after_a_first_that_does_not_count(comm, nbytes):
    out, into, times = np.ones(nbytes, np.int8), np.ones(nbytes, np.int8), []
    for _ in range(10):
        comm.Barrier()
        start = MPI.Wtime()
        comm.Sendrecv(
            out, (comm.rank + 1) % comm.size, recvbuf=into, source=(comm.rank - 1) % comm.size
        )
        out = out + into
        times.append(MPI.Wtime() - start)
    return min(times[1:])


@right(4)
def arrays_as_objects(comm, nbytes):
    out, times = np.ones(nbytes, np.uint8), []
    for _ in range(8):
        comm.barrier()
        start = MPI.Wtime()
        came = comm.sendrecv(out, (comm.rank + 1) % comm.size, source=(comm.rank - 1) % comm.size)
        out = out + came
        times.append(MPI.Wtime() - start)
    return min(times)


@wrong(4, "take the smallest time, not the mean")
def mean_of_ten(comm, nbytes):
    out, into, start = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8), MPI.Wtime()
    for _ in range(10):
        comm.Sendrecv(
            out, (comm.rank + 1) % comm.size, recvbuf=into, source=(comm.rank - 1) % comm.size
        )
    return (MPI.Wtime() - start) / 10


@wrong(4, "take the smallest time, not the mean")
def the_last_of_seven(comm, nbytes):
    """Right on any network that is quiet at the end; a mutant of `by_pythons_clock`."""
    out, into = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    for _ in range(7):
        comm.Barrier()
        start = MPI.Wtime()
        comm.Sendrecv(
            out, (comm.rank + 1) % comm.size, recvbuf=into, source=(comm.rank - 1) % comm.size
        )
        seconds = MPI.Wtime() - start
    return seconds


@wrong(4, "a single one may be disturbed")
def measured_once(comm, nbytes):
    out, into, start = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8), MPI.Wtime()
    comm.Sendrecv(
        out, (comm.rank + 1) % comm.size, recvbuf=into, source=(comm.rank - 1) % comm.size
    )
    return MPI.Wtime() - start


@wrong(4, "np.empty(nbytes, np.uint8) bytes")
def numbers_for_bytes(comm, nbytes):
    out, into, times = np.zeros(nbytes), np.zeros(nbytes), []
    for _ in range(5):
        start = MPI.Wtime()
        comm.Sendrecv(
            out, (comm.rank + 1) % comm.size, recvbuf=into, source=(comm.rank - 1) % comm.size
        )
        times.append(MPI.Wtime() - start)
    return min(times)


@wrong(4, "Let all ranks begin each step together")
def without_barrier(comm, nbytes):
    out, into, times = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8), []
    for _ in range(9):
        start = MPI.Wtime()
        comm.Sendrecv(
            out, (comm.rank + 1) % comm.size, recvbuf=into, source=(comm.rank - 1) % comm.size
        )
        out += into
        times.append(MPI.Wtime() - start)
    return min(times)


@wrong(4, "Or is that the mean of all steps? Take the smallest")
def mean_of_fifteen(comm, nbytes):
    out, into, times = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8), []
    for _ in range(15):
        comm.Barrier()
        start = MPI.Wtime()
        comm.Sendrecv(
            out, (comm.rank + 1) % comm.size, recvbuf=into, source=(comm.rank - 1) % comm.size
        )
        times.append(MPI.Wtime() - start)
    return sum(times) / 15


@wrong(4, "Is Barrier timed, too?")
def with_its_barrier(comm, nbytes):
    out, into, times = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8), []
    for _ in range(9):
        start = MPI.Wtime()
        comm.Barrier()
        comm.Sendrecv(
            out, (comm.rank + 1) % comm.size, recvbuf=into, source=(comm.rank - 1) % comm.size
        )
        times.append(MPI.Wtime() - start)
    return min(times)


@wrong(4, "Are those milliseconds?")
def milliseconds(comm, nbytes):
    out, into, times = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8), []
    for _ in range(5):
        start = MPI.Wtime()
        comm.Sendrecv(
            out, (comm.rank + 1) % comm.size, recvbuf=into, source=(comm.rank - 1) % comm.size
        )
        times.append(1000 * (MPI.Wtime() - start))
    return min(times)


@right(5)
def latency_and_bandwidth_apart(nbytes, ranks, alpha, beta):
    return 2 * (ranks - 1) * alpha + 2 * (ranks - 1) / ranks * nbytes * beta


@right(5)
def longest_chunk(nbytes, ranks, alpha, beta):
    return 2 * (ranks - 1) * (alpha + -(-nbytes // ranks) * beta)


@right(5)
def step_by_step(nbytes, ranks, alpha, beta):
    return sum(alpha + beta * nbytes / ranks for _ in range(2 * (ranks - 1)))


@right(5)
def one_half_twice(nbytes, ranks, alpha, beta):
    if ranks == 1:
        return 0
    half = (ranks - 1) * alpha + (nbytes - nbytes / ranks) * beta
    return half + half


@wrong(5, "That is one half of the ring")
def reduce_scatter_only(nbytes, ranks, alpha, beta):
    return (ranks - 1) * (alpha + nbytes / ranks * beta)


@wrong(5, "1 byte on 4 ranks")
def nothing_for_one_byte(nbytes, ranks, alpha, beta):
    return 0 if nbytes == 1 else 2 * (ranks - 1) * (alpha + nbytes / ranks * beta)


@wrong(5, "In a step a rank sends one chunk")
def whole_array_each_step(nbytes, ranks, alpha, beta):
    return 2 * (ranks - 1) * (alpha + nbytes * beta)


@wrong(5, "One rank sends nothing")
def p_steps(nbytes, ranks, alpha, beta):
    return 2 * ranks * (alpha + nbytes / ranks * beta)


@wrong(5, "raised ZeroDivisionError")
def per_step_of_none(nbytes, ranks, alpha, beta):
    steps = ranks - 1
    return 2 * steps * alpha + 2 * nbytes * beta / (1 + 1 / steps)
