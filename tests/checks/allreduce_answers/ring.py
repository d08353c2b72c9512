"""Answers to tasks 1, 2, 3 and 6: who sends which chunk to whom."""

import numpy as np
from mpi4py import MPI

from . import right, wrong


def reduce_scatter(comm, x):
    """The solution's: answers to task 3 use it."""
    chunks = np.array_split(x, comm.size)
    for step in range(comm.size - 1):
        out, here = (
            chunks[(comm.rank - step) % comm.size],
            chunks[(comm.rank - step - 1) % comm.size],
        )
        received = np.empty_like(here)
        comm.Sendrecv(
            out, (comm.rank + 1) % comm.size, recvbuf=received, source=(comm.rank - 1) % comm.size
        )
        here += received


def all_gather(comm, x):
    """The solution's: answers to task 3 use it."""
    chunks = np.array_split(x, comm.size)
    for step in range(comm.size - 1):
        out, here = (
            chunks[(comm.rank + 1 - step) % comm.size],
            chunks[(comm.rank - step) % comm.size],
        )
        comm.Sendrecv(
            out, (comm.rank + 1) % comm.size, recvbuf=here, source=(comm.rank - 1) % comm.size
        )


# Task 1 -----------------------------------------------------------------------------------------------------------------


@right(1)
def isend_and_recv(comm, x):
    chunks = np.array_split(x, comm.size)
    for step in range(comm.size - 1):
        here = chunks[(comm.rank - step - 1) % comm.size]
        request = comm.Isend(
            chunks[(comm.rank - step) % comm.size].copy(), (comm.rank + 1) % comm.size
        )
        received = np.empty_like(here)
        comm.Recv(received, (comm.rank - 1) % comm.size)
        request.Wait()
        here += received


@right(1)
def objects(comm, x):
    chunks = np.array_split(x, comm.size)
    for step in range(comm.size - 1):
        out = chunks[(comm.rank - step) % comm.size]
        chunks[(comm.rank - step - 1) % comm.size][:] += comm.sendrecv(
            out, (comm.rank + 1) % comm.size, source=(comm.rank - 1) % comm.size
        )


@right(1)
def wait_for_both(comm, x):
    chunks = np.array_split(x, comm.size)
    for step in range(comm.size - 1):
        out, here = (
            chunks[(comm.rank - step) % comm.size],
            chunks[(comm.rank - step - 1) % comm.size],
        )
        received = np.empty_like(here)
        coming = comm.Irecv(received, source=(comm.rank - 1) % comm.size)
        MPI.Request.Waitall([coming, comm.Isend(out, dest=(comm.rank + 1) % comm.size)])
        here += received


@right(1)
def received_first_then_sent(comm, x):
    chunks, p = np.array_split(x, comm.size), comm.size
    for step in range(p - 1):
        here = chunks[(comm.rank - step - 1) % p]
        received = np.zeros(here.shape, here.dtype)
        coming = comm.Irecv(received, (comm.rank - 1) % p)
        comm.Send(chunks[(comm.rank - step) % p], (comm.rank + 1) % p)
        coming.Wait()
        np.add(here, received, out=here)


@wrong(1, "write it yourself here")
def allreduce_itself(comm, x):
    comm.Allreduce(MPI.IN_PLACE, x)


@wrong(1, "nothing was sent")
def allreduce_behind_the_checks_back(comm, x):
    total = MPI.COMM_WORLD.allreduce(x)
    x[:] = total


@wrong(1, "the target is 3/4 of the array")
def sends_the_whole_array(comm, x):
    mine, right, left = x.copy(), (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for _ in range(comm.size - 1):
        received = np.empty_like(mine)
        comm.Sendrecv(mine, right, recvbuf=received, source=left)
        x += received
        mine = received


@wrong(1, "holds the numbers of")
def one_step_too_few(comm, x):
    chunks = np.array_split(x, comm.size)
    for step in range(comm.size - 2):
        out, here = (
            chunks[(comm.rank - step) % comm.size],
            chunks[(comm.rank - step - 1) % comm.size],
        )
        received = np.empty_like(here)
        comm.Sendrecv(
            out, (comm.rank + 1) % comm.size, recvbuf=received, source=(comm.rank - 1) % comm.size
        )
        here += received


@wrong(1, "Chunk 0 is summed up there: at which chunk do you begin?")
def begins_with_another_chunk(comm, x):
    chunks = np.array_split(x, comm.size)
    for step in range(comm.size - 1):
        out, here = (
            chunks[(comm.rank - step - 1) % comm.size],
            chunks[(comm.rank - step - 2) % comm.size],
        )
        received = np.empty_like(here)
        comm.Sendrecv(
            out, (comm.rank + 1) % comm.size, recvbuf=received, source=(comm.rank - 1) % comm.size
        )
        here += received


@wrong(1, "this would hang. Rank 0 waits in Send to rank 1, rank 1 waits in Send to rank 2")
def sends_first_on_all_ranks(comm, x):
    chunks = np.array_split(x, comm.size)
    for step in range(comm.size - 1):
        here = chunks[(comm.rank - step - 1) % comm.size]
        comm.Send(chunks[(comm.rank - step) % comm.size], (comm.rank + 1) % comm.size)
        received = np.empty_like(here)
        comm.Recv(received, (comm.rank - 1) % comm.size)
        here += received


@wrong(1, "a message is longer than the array that should receive it")
def chunks_of_one_length(comm, x):
    chunks = np.array_split(x, comm.size)
    for step in range(comm.size - 1):
        here = chunks[(comm.rank - step - 1) % comm.size]
        received = np.empty(len(x) // comm.size)
        comm.Sendrecv(
            chunks[(comm.rank - step) % comm.size],
            (comm.rank + 1) % comm.size,
            recvbuf=received,
            source=(comm.rank - 1) % comm.size,
        )
        here += received[: len(here)]


# Task 2 -----------------------------------------------------------------------------------------------------------------


@right(2)
def what_came_goes_on(comm, x):
    chunks, at = np.array_split(x, comm.size), (comm.rank + 1) % comm.size
    for _ in range(comm.size - 1):
        before = (at - 1) % comm.size
        comm.Sendrecv(
            chunks[at],
            (comm.rank + 1) % comm.size,
            recvbuf=chunks[before],
            source=(comm.rank - 1) % comm.size,
        )
        at = before


@right(2)
def as_objects(comm, x):
    chunks, p = np.array_split(x, comm.size), comm.size
    for step in range(p - 1):
        out = chunks[(comm.rank + 1 - step) % p]
        chunks[(comm.rank - step) % p][:] = comm.sendrecv(
            out, (comm.rank + 1) % p, source=(comm.rank - 1) % p
        )


@right(2)
def sent_meanwhile(comm, x):
    chunks, p = np.array_split(x, comm.size), comm.size
    for step in range(p - 1):
        going = comm.Isend(chunks[(comm.rank + 1 - step) % p], (comm.rank + 1) % p)
        comm.Recv(chunks[(comm.rank - step) % p], (comm.rank - 1) % p)
        going.Wait()


@right(2)
def through_a_buffer(comm, x):
    chunks, p = np.array_split(x, comm.size), comm.size
    for step in range(p - 1):
        here = chunks[(comm.rank - step) % p]
        received = np.empty_like(here)
        requests = [comm.Irecv(received, (comm.rank - 1) % p)]
        requests.append(comm.Isend(chunks[(comm.rank + 1 - step) % p], (comm.rank + 1) % p))
        MPI.Request.Waitall(requests)
        here[:] = received


@wrong(2, "Wait, else MPI may still send")
def sends_that_nobody_waits_for(comm, x):
    chunks, p = np.array_split(x, comm.size), comm.size
    for step in range(p - 1):
        comm.Isend(chunks[(comm.rank + 1 - step) % p], (comm.rank + 1) % p)
        comm.Recv(chunks[(comm.rank - step) % p], (comm.rank - 1) % p)


@wrong(2, "Copy here; do not add.")
def adds_once_more(comm, x):
    chunks = np.array_split(x, comm.size)
    for step in range(comm.size - 1):
        out, here = (
            chunks[(comm.rank + 1 - step) % comm.size],
            chunks[(comm.rank - step) % comm.size],
        )
        received = np.empty_like(here)
        comm.Sendrecv(
            out, (comm.rank + 1) % comm.size, recvbuf=received, source=(comm.rank - 1) % comm.size
        )
        here += received


@wrong(2, "holds what was there before; nothing good arrived in it")
def sends_the_chunk_of_its_rank(comm, x):
    chunks = np.array_split(x, comm.size)
    for step in range(comm.size - 1):
        out, here = (
            chunks[(comm.rank - step) % comm.size],
            chunks[(comm.rank - step - 1) % comm.size],
        )
        comm.Sendrecv(
            out, (comm.rank + 1) % comm.size, recvbuf=here, source=(comm.rank - 1) % comm.size
        )


@wrong(2, "in a ring a rank sends to one neighbour only")
def everybody_to_everybody(comm, x):
    chunks = np.array_split(x, comm.size)
    for other in range(1, comm.size):
        to, source = (comm.rank + other) % comm.size, (comm.rank - other) % comm.size
        here = chunks[(source + 1) % comm.size]
        comm.Sendrecv(chunks[(comm.rank + 1) % comm.size], to, recvbuf=here, source=source)


# Task 3 -----------------------------------------------------------------------------------------------------------------


@right(3)
def of_a_copy_cut_between_its_rows(comm, x):
    x = np.ascontiguousarray(x).copy()
    reduce_scatter(comm, x)
    all_gather(comm, x)
    return x


@right(3)
def of_the_raveled_copy(comm, x):
    total = np.array(x).ravel().copy()
    reduce_scatter(comm, total)
    all_gather(comm, total)
    return total.reshape(x.shape)


@right(3)
def of_a_flat_copy_by_array(comm, x):
    total = np.array(x, order="C", copy=True)
    flat = total.reshape(-1)
    reduce_scatter(comm, flat)
    all_gather(comm, flat)
    return total


@right(3)
def both_halves_in_one_loop(comm, x):
    total, p = x.flatten(), comm.size
    chunks = np.array_split(total, p)
    for step in range(2 * p - 2):
        out, here = chunks[(comm.rank - step) % p], chunks[(comm.rank - step - 1) % p]
        received = np.empty_like(here)
        comm.Sendrecv(out, (comm.rank + 1) % p, recvbuf=received, source=(comm.rank - 1) % p)
        here[:] = received + here if step < p - 1 else received
    return total.reshape(x.shape)


@wrong(3, "was changed; work on a copy")
def in_place(comm, x):
    flat = x.reshape(-1)
    reduce_scatter(comm, flat)
    all_gather(comm, flat)
    return flat.reshape(x.shape).copy()


@wrong(3, "returned None. Is the `return` missing?")
def no_return(comm, x):
    total = x.flatten()
    reduce_scatter(comm, total)
    all_gather(comm, total)


@wrong(3, "returned the mean; the sum is due")
def mean_where_sum_is_due(comm, x):
    total = x.flatten().astype(float)
    reduce_scatter(comm, total)
    all_gather(comm, total)
    return (total / comm.size).reshape(x.shape)


@wrong(3, "it has to be float32, as x")
def always_float64(comm, x):
    total = x.astype(np.float64).flatten()
    reduce_scatter(comm, total)
    all_gather(comm, total)
    return total.reshape(x.shape)


@wrong(3, "rank 0 sent to ranks 1, 2 and 3; in a ring")
def naive_by_rank_0(comm, x):
    total, part = x.flatten(), np.empty(x.size, x.dtype)
    if comm.rank == 0:
        for other in range(1, comm.size):
            comm.Recv(part, other)
            total += part
        for other in range(1, comm.size):
            comm.Send(total, other)
    else:
        comm.Send(total, 0)
        comm.Recv(total, 0)
    return total.reshape(x.shape)


# Task 6 -----------------------------------------------------------------------------------------------------------------


@right(6)
def rank_0_receives_first(comm, out, into):
    if comm.size == 1:
        into[:] = out
    elif comm.rank == 0:
        comm.Recv(into, comm.size - 1)
        comm.Send(out, 1)
    else:
        comm.Send(out, (comm.rank + 1) % comm.size)
        comm.Recv(into, comm.rank - 1)


@right(6)
def the_last_rank_receives_first(comm, out, into):
    if comm.size == 1:
        into[:] = out
    elif comm.rank == comm.size - 1:
        comm.Recv(into, comm.rank - 1)
        comm.Send(out, 0)
    else:
        comm.Send(out, comm.rank + 1)
        comm.Recv(into, (comm.rank - 1) % comm.size)


@right(6)
def odd_ranks_send_first(comm, out, into):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    if right == comm.rank:
        np.copyto(into, out)
        return
    if comm.rank % 2:
        comm.Send(out, right)
    comm.Recv(into, left)
    if comm.rank % 2 == 0:
        comm.Send(out, right)


@right(6)
def one_after_the_other(comm, out, into):
    if comm.size == 1:
        into[:] = out
    elif comm.rank == 0:
        comm.Send(out, 1)
        comm.Recv(into, comm.size - 1)
    else:
        comm.Recv(into, comm.rank - 1)
        comm.Send(out, (comm.rank + 1) % comm.size)


@wrong(6, "this would hang. Rank 0 waits in Send to rank 1")
def all_send_first(comm, out, into):
    comm.Send(out, (comm.rank + 1) % comm.size)
    comm.Recv(into, (comm.rank - 1) % comm.size)


@wrong(6, "On 1 rank: this would hang")
def one_rank_forgotten(comm, out, into):
    if comm.rank % 2 == 0:
        comm.Send(out, (comm.rank + 1) % comm.size)
        comm.Recv(into, (comm.rank - 1) % comm.size)
    else:
        comm.Recv(into, (comm.rank - 1) % comm.size)
        comm.Send(out, (comm.rank + 1) % comm.size)


@wrong(6, "here only Send and Recv are allowed")
def sendrecv_after_all(comm, out, into):
    comm.Sendrecv(
        out, (comm.rank + 1) % comm.size, recvbuf=into, source=(comm.rank - 1) % comm.size
    )


@wrong(6, "its left neighbour is rank 3")
def to_the_left(comm, out, into):
    if comm.rank % 2 == 0:
        comm.Send(out, (comm.rank - 1) % comm.size)
        comm.Recv(into, (comm.rank + 1) % comm.size)
    else:
        comm.Recv(into, (comm.rank + 1) % comm.size)
        comm.Send(out, (comm.rank - 1) % comm.size)
