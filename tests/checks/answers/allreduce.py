"""Answers to lab 2, as learners write them: right ones, and wrong ones with words of the check's
message."""

import numpy as np
from lab_answers import LabAnswers
from mpi4py import MPI

lab = LabAnswers("02_allreduce", setup="import time")
reduce_scatter = all_gather = None  # the notebook's, on the ranks


@lab.right("reduce_scatter")
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


@lab.right("reduce_scatter")
def objects(comm, x):
    chunks = np.array_split(x, comm.size)
    for step in range(comm.size - 1):
        out = chunks[(comm.rank - step) % comm.size]
        chunks[(comm.rank - step - 1) % comm.size][:] += comm.sendrecv(
            out, (comm.rank + 1) % comm.size, source=(comm.rank - 1) % comm.size
        )


@lab.wrong("reduce_scatter", "3/4 of the array, one chunk per step")
def sends_the_whole_array(comm, x):
    mine, right, left = x.copy(), (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for _ in range(comm.size - 1):
        received = np.empty_like(mine)
        comm.Sendrecv(mine, right, recvbuf=received, source=left)
        x += received
        mine = received


lab.wrong_variants(
    "reduce_scatter",
    (
        "    rank, size",
        "    return comm.Allreduce(MPI.IN_PLACE, x)\n    rank, size",
        "write it yourself here",
    ),
    (
        "    rank, size",
        "    x[:] = MPI.COMM_WORLD.allreduce(x)\n    return\n    rank, size",
        "made no call on the comm",
    ),
    ("range(size - 1)", "range(size - 2)", "holds the numbers of"),
    (
        "(rank - step) % size], chunks[(rank - step - 1)",
        "(rank - step - 1) % size], chunks[(rank - step - 2)",
        "Chunk 0 is summed up there: at which chunk do you begin?",
    ),
    (
        "comm.Sendrecv(out, right, recvbuf=received, source=left)",
        "comm.Send(out, right)\n        comm.Recv(received, left)",
        "this would hang. Rank 0 waits in Send to rank 1, rank 1 waits in Send to rank 2",
    ),
    (
        "np.empty_like(here)",
        "np.empty(len(x) // size)",
        "+= received",
        "+= received[: len(here)]",
        "a message is longer than the array that should receive it",
    ),
)


@lab.right("all_gather")
def through_a_buffer(comm, x):
    chunks, p = np.array_split(x, comm.size), comm.size
    for step in range(p - 1):
        here = chunks[(comm.rank - step) % p]
        received = np.empty_like(here)
        requests = [comm.Irecv(received, (comm.rank - 1) % p)]
        requests.append(comm.Isend(chunks[(comm.rank + 1 - step) % p], (comm.rank + 1) % p))
        MPI.Request.Waitall(requests)
        here[:] = received


@lab.wrong("all_gather", "in a ring a rank sends to one neighbour only")
def everybody_to_everybody(comm, x):
    chunks = np.array_split(x, comm.size)
    for other in range(1, comm.size):
        to, source = (comm.rank + other) % comm.size, (comm.rank - other) % comm.size
        here = chunks[(source + 1) % comm.size]
        comm.Sendrecv(chunks[(comm.rank + 1) % comm.size], to, recvbuf=here, source=source)


lab.wrong_variants(
    "all_gather",
    (
        "comm.Sendrecv(out, right, recvbuf=here, source=left)",
        "comm.Isend(out, right)\n        comm.Recv(here, left)",
        "Wait, else MPI may still send",
    ),
    (
        "recvbuf=here, source=left)",
        "recvbuf=(got := here.copy()), source=left)\n        here += got",
        "Copy here; do not add.",
    ),
    (
        "(rank + 1 - step) % size], chunks[(rank - step)",
        "(rank - step) % size], chunks[(rank - step - 1)",
        "holds what was there before; nothing good arrived in it",
    ),
)


@lab.right("ring_allreduce")
def of_a_copy_cut_between_its_rows(comm, x):
    x = np.ascontiguousarray(x).copy()
    reduce_scatter(comm, x)
    all_gather(comm, x)
    return x


@lab.right("ring_allreduce")
def both_halves_in_one_loop(comm, x):
    total, p = x.flatten(), comm.size
    chunks = np.array_split(total, p)
    for step in range(2 * p - 2):
        out, here = chunks[(comm.rank - step) % p], chunks[(comm.rank - step - 1) % p]
        received = np.empty_like(here)
        comm.Sendrecv(out, (comm.rank + 1) % p, recvbuf=received, source=(comm.rank - 1) % p)
        here[:] = received + here if step < p - 1 else received
    return total.reshape(x.shape)


lab.wrong_variants(
    "ring_allreduce",
    (
        "x.flatten()",
        "x.reshape(-1)",
        "reshape(x.shape)",
        "reshape(x.shape).copy()",
        "was changed; work on a copy",
    ),
    ("return ", "", "returned None. Is the `return` missing?"),
    (
        "x.flatten()",
        "x.flatten().astype(float)",
        "return total",
        "return (total / comm.size)",
        "returned the mean; the sum is due",
    ),
    ("x.flatten()", "x.flatten().astype(float)", "it has to be float32, as x"),
)


@lab.right("step_seconds")
def arrays_as_objects(comm, nbytes):
    out, times = np.ones(nbytes, np.uint8), []
    for _ in range(8):
        comm.barrier()
        start = MPI.Wtime()
        came = comm.sendrecv(out, (comm.rank + 1) % comm.size, source=(comm.rank - 1) % comm.size)
        out = out + came
        times.append(MPI.Wtime() - start)
    return min(times)


lab.wrong_variants(
    "step_seconds",
    ("range(20)", "range(7)", "min(times)", "times[-1]", "take the smallest time, not the mean"),
    ("range(20)", "range(15)", "min(times)", "sum(times) / 15", "Or is that the mean of all"),
    ("range(20)", "range(1)", "a single one may be disturbed"),
    (
        "np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)",
        "np.ones(nbytes), np.ones(nbytes)",
        "np.empty(nbytes, np.uint8) bytes",
    ),
    ("comm.Barrier()", "pass", "Let all ranks begin each step together"),
    (
        "comm.Barrier()\n        start = MPI.Wtime()",
        "start = MPI.Wtime()\n        comm.Barrier()",
        "Is Barrier timed, too?",
    ),
)


@lab.right("ring_seconds")
def longest_chunk(nbytes, ranks, alpha, beta):
    return 2 * (ranks - 1) * (alpha + -(-nbytes // ranks) * beta)


lab.wrong_variants(
    "ring_seconds",
    ("2 * (ranks", "(ranks", "That is one half of the ring"),
    ("return 2", "return (nbytes != 1) * 2", "1 byte on 4 ranks"),
    (" / ranks", "", "In a step a rank sends one chunk"),
    ("return", "return 1 / (ranks - 1) *", "raised ZeroDivisionError"),
)


@lab.right("shift")
def rank_0_receives_first(comm, out, into):
    if comm.size == 1:
        into[:] = out
    elif comm.rank == 0:
        comm.Recv(into, comm.size - 1)
        comm.Send(out, 1)
    else:
        comm.Send(out, (comm.rank + 1) % comm.size)
        comm.Recv(into, comm.rank - 1)


lab.wrong_variants(
    "shift",
    ("rank % 2 == 0", "True", "this would hang. Rank 0 waits in Send to rank 1"),
    ("size == 1", "False", "On 1 rank: this would hang"),
    (
        "comm.Send(out, right)\n        comm.Recv(into, left)",
        "comm.Sendrecv(out, right, recvbuf=into, source=left)",
        "here only Send and Recv are allowed",
    ),
    (
        "(rank + 1) % size, (rank - 1) % size",
        "(rank - 1) % size, (rank + 1) % size",
        "its left neighbour is rank 3",
    ),
)
