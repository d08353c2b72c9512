"""Answers to the tasks in which the ranks communicate: 4 to 6."""

import numpy as np
from mpi4py import MPI

from . import right, still_to_do, wrong

rank, size = (
    MPI.COMM_WORLD.rank,
    MPI.COMM_WORLD.size,
)  # as in the notebook: the checks' comm has others

# Task 4 -----------------------------------------------------------------------------------------------------------------


@right(4)
def buffers(comm, inside, total):
    everyone = np.zeros(1, dtype=np.int64)
    comm.Reduce(np.array([inside], dtype=np.int64), everyone, op=MPI.SUM, root=0)
    return 4 * everyone[0] / total if comm.Get_rank() == 0 else None


@right(4)
def messages_by_hand(comm, inside, total):
    if comm.rank > 0:
        comm.send(inside, dest=0)
        return None
    return 4 * (inside + sum(comm.recv(source=source) for source in range(1, comm.size))) / total


@right(4)
def non_blocking(comm, inside, total):
    counts = np.zeros(comm.size, dtype=np.int64)
    comm.Iallgather(np.array([inside], dtype=np.int64), counts).Wait()
    return 4 * counts.sum() / total if comm.rank == 0 else None


@right(4)
def gathered_and_added(comm, inside, total):
    counts = comm.gather(inside)
    if comm.rank == 0:
        return 4 * sum(counts) / total


@wrong(4, "cannot pickle 'generator' object")
def a_generator_broadcast(comm, inside, total):
    counts = comm.bcast((count for count in [inside]) if comm.rank == 0 else None)
    return 4 * comm.reduce(inside) / total if comm.rank == 0 else counts


@wrong(4, "take rank and size from the comm that it is given")
def rank_of_the_world(comm, inside, total):
    count = comm.allreduce(inside)
    return 4 * count / total if MPI.COMM_WORLD.rank == 0 else None


@wrong(4, "That is rank 0's count alone")
def rank_0_alone(comm, inside, total):
    return 4 * inside / total if comm.rank == 0 else None


@wrong(4, "The 4 is missing")
def four_forgotten(comm, inside, total):
    count = comm.reduce(inside)
    return count / total if comm.rank == 0 else None


@wrong(4, "Or you divided by the 4 ranks")
def mean_where_sum_is_due(comm, inside, total):
    count = comm.reduce(inside)
    return 4 * count / comm.size / total if comm.rank == 0 else None


@wrong(4, "multiplied by the number of ranks")
def total_taken_for_one_ranks_share(comm, inside, total):
    count = comm.reduce(inside)
    return 4 * count / (total / comm.size) if comm.rank == 0 else None


@wrong(4, "ranks 1, 2 and 3: none_times_four raised TypeError")
def none_times_four(comm, inside, total):
    return 4 * comm.reduce(inside) / total


@wrong(4, "only rank 0 returns π")
def all_ranks_know(comm, inside, total):
    return 4 * comm.allreduce(inside) / total


@wrong(4, "Rank 0 calls reduce, ranks 1, 2 and 3 have returned")
def only_rank_0_reduces(comm, inside, total):
    return 4 * comm.reduce(inside) / total if comm.rank == 0 else None


@wrong(4, "Use that one, not MPI.COMM_WORLD")
def wrong_communicator(comm, inside, total):
    count = MPI.COMM_WORLD.reduce(inside)
    return 4 * count / total if comm.rank == 0 else None


@wrong(4, "Rank 0 calls reduce, ranks 1, 2 and 3 call reduce with root")
def every_rank_its_own_root(comm, inside, total):
    count = comm.reduce(inside, root=min(comm.rank, 1))
    return 4 * count / total if comm.rank == 0 else None


# Task 5 -----------------------------------------------------------------------------------------------------------------


@right(5)
def by_hand(comm, estimate):
    everyone = comm.gather(estimate, root=0)
    if everyone is None:
        return None
    mean = sum(everyone) / len(everyone)
    return mean, (
        sum((e - mean) ** 2 for e in everyone) / (len(everyone) - 1) / len(everyone)
    ) ** 0.5


@right(5)
def gather_into_an_array(comm, estimate):
    everyone = np.zeros(comm.size) if comm.rank == 0 else None
    comm.Gather(np.array([estimate]), everyone, root=0)
    return (everyone.mean(), everyone.std(ddof=1) / np.sqrt(comm.size)) if comm.rank == 0 else None


@right(5)
def in_one_pass(comm, estimate):
    total, squares, p = comm.reduce(estimate), comm.reduce(estimate**2), comm.size
    return None if comm.rank else (total / p, np.sqrt((squares / p - (total / p) ** 2) / (p - 1)))


@right(5)
def both_sums_in_an_array(comm, estimate):
    sums = comm.reduce(np.array([estimate, estimate**2]))
    if comm.rank == 0:
        mean, square = sums / comm.size
        return np.array([mean, np.sqrt((square - mean**2) / (comm.size - 1))])


@wrong(5, "That is their sum")
def sum_where_mean_is_due(comm, estimate):
    everyone = comm.gather(estimate)
    return (
        (sum(everyone), np.std(everyone, ddof=1) / np.sqrt(comm.size)) if comm.rank == 0 else None
    )


@wrong(5, "divide by sqrt(4)")
def divided_by_n(comm, estimate):
    everyone = comm.gather(estimate)
    return (np.mean(everyone), np.std(everyone, ddof=1) / comm.size) if comm.rank == 0 else None


@wrong(5, "the mean of 4 is sqrt(4) times as exact")
def spread_of_one_rank(comm, estimate):
    everyone = comm.gather(estimate)
    return (np.mean(everyone), np.std(everyone, ddof=1)) if comm.rank == 0 else None


@wrong(5, "divide by 3 (ddof=1)")
def ddof_forgotten(comm, estimate):
    everyone = comm.gather(estimate)
    return (np.mean(everyone), np.std(everyone) / np.sqrt(comm.size)) if comm.rank == 0 else None


@wrong(5, "That is rank 0's own estimate")
def mean_of_own(comm, estimate):
    everyone = comm.gather(estimate)
    return (estimate, np.std(everyone, ddof=1) / np.sqrt(comm.size)) if comm.rank == 0 else None


@wrong(
    5,
    "Your function uses the notebook's size: take rank and size from the comm that it is given, comm.rank and comm.size.",
)
def size_of_the_notebook(comm, estimate):
    everyone = comm.gather(estimate)
    return (np.mean(everyone), np.std(everyone, ddof=1) / np.sqrt(size)) if comm.rank == 0 else None


@wrong(5, "only rank 0 has gathered")
def everyone_gathers(comm, estimate):
    everyone = comm.allgather(estimate)
    return np.mean(everyone), np.std(everyone, ddof=1) / np.sqrt(comm.size)


# Task 6 -----------------------------------------------------------------------------------------------------------------


@right(6)
def rank_0_decides_and_tells(comm, throw, target, batch):
    inside, darts, go_on = 0, 0, True
    while go_on:
        count = comm.reduce(throw(batch))
        darts += comm.size * batch
        if comm.rank == 0:
            inside += count
            p = inside / darts
            error = 4 * np.sqrt(p * (1 - p) / darts)
            go_on = error >= target
        go_on = comm.bcast(go_on)
    return comm.bcast((4 * p, error, darts) if comm.rank == 0 else None)


@right(6)
def darts_as_a_float(comm, throw, target, batch):
    counts, error = np.zeros(2), np.inf
    while error >= target:
        counts += comm.allreduce(np.array([throw(batch), batch], dtype=float))
        p = counts[0] / counts[1]
        error = 4 * np.sqrt(p * (1 - p) / counts[1])
    return np.array([4 * p, error, counts[1]])


@right(6)
def gathered_by_all(comm, throw, target, batch):
    counts, error = [], np.inf
    while error >= target:
        counts.extend(comm.allgather(throw(batch)))
        p = np.mean(counts) / batch
        error = 4 * np.sqrt(p * (1 - p) / (batch * len(counts)))
    return 4 * p, error, batch * len(counts)


@right(6)
def a_buffer_and_a_break(comm, throw, target, batch):
    total, darts = np.zeros(1, dtype=np.int64), 0
    while True:
        mine = np.array([throw(batch)], dtype=np.int64)
        comm.Allreduce(MPI.IN_PLACE, mine)
        total, darts = total + mine, darts + comm.Get_size() * batch
        p = total[0] / darts
        error = 4 * (p * (1 - p) / darts) ** 0.5
        if error < target:
            return 4 * p, error, darts


@wrong(6, "this would hang. After 2 calls that all ranks made")
def each_rank_decides_alone(comm, throw, target, batch):
    mine, inside, darts, error = 0, 0, 0, 1.0
    while error >= target:
        count = throw(batch)
        mine += count
        inside += comm.allreduce(count)
        darts += comm.size * batch
        p = mine / (darts // comm.size)
        error = 4 * np.sqrt(p * (1 - p) / darts)
    return 4 * inside / darts, error, darts


@wrong(6, "or has them in what it returned: return values")
def the_communicator_among_the_results(comm, throw, target, batch):
    counts, error = np.zeros(2), np.inf
    while error >= target:
        counts += comm.allreduce(np.array([throw(batch), batch], dtype=float))
        p = counts[0] / counts[1]
        error = 4 * np.sqrt(p * (1 - p) / counts[1])
    return 4 * p, comm, counts[1]


@wrong(6, "give their result to rank 0 only; the other ranks get None")
def reduce_where_allreduce_is_due(comm, throw, target, batch):
    inside, darts, error = 0, 0, 1.0
    while error >= target:
        inside += comm.reduce(throw(batch))
        darts += comm.size * batch
        p = inside / darts
        error = 4 * np.sqrt(p * (1 - p) / darts)
    return 4 * inside / darts, error, darts


@wrong(6, "this would hang")
def reduce_and_only_rank_0_stops(comm, throw, target, batch):
    inside, darts, error = np.zeros(1, dtype=int), 0, 1.0
    while error >= target:
        total = np.zeros(1, dtype=int)
        comm.Reduce(np.array([throw(batch)]), total)
        inside += total
        darts += comm.size * batch
        p = inside[0] / darts
        error = 4 * np.sqrt(p * (1 - p) / darts) if comm.rank == 0 else 1.0
    return 4 * p, error, darts


@wrong(6, "Divide by sqrt(darts), not by darts")
def error_over_n(comm, throw, target, batch):
    inside, darts, error = 0, 0, 1.0
    while error >= target:
        inside += comm.allreduce(throw(batch))
        darts += comm.size * batch
        p = inside / darts
        error = 4 * np.sqrt(p * (1 - p)) / darts
    return 4 * p, error, darts


@wrong(6, "The 4 is missing")
def four_forgotten_in_the_error(comm, throw, target, batch):
    inside, darts, error = 0, 0, 1.0
    while error >= target:
        inside += comm.allreduce(throw(batch))
        darts += comm.size * batch
        p = inside / darts
        error = np.sqrt(p * (1 - p) / darts)
    return 4 * p, error, darts


@wrong(6, "you say 0 darts; 4 ranks with")
def darts_not_counted(comm, throw, target, batch):
    inside, darts, error = 0, 0, 1.0
    while error >= target:
        inside += comm.allreduce(throw(batch))
        darts += comm.size * batch
        p = inside / darts
        error = 4 * np.sqrt(p * (1 - p) / darts)
    return 4 * p, error, 0


@wrong(6, "error of one rank's darts alone")
def own_darts_in_the_error(comm, throw, target, batch):
    inside, darts, error = 0, 0, 1.0
    while error >= target:
        inside += comm.allreduce(throw(batch))
        darts += comm.size * batch
        p = inside / darts
        error = 4 * np.sqrt(p * (1 - p) / (darts / comm.size))
    return 4 * p, error, darts


@wrong(6, "ten times what the target needs")
def darts_not_added_up(comm, throw, target, batch):
    error = 1.0
    while error >= target:
        darts = comm.size * batch
        p = comm.allreduce(throw(batch)) / darts
        error = 4 * np.sqrt(p * (1 - p) / darts)
    return 4 * p, error, darts


@wrong(6, "not below the target yet")
def one_round_only(comm, throw, target, batch):
    darts = comm.size * batch
    p = comm.allreduce(throw(batch)) / darts
    return 4 * p, 4 * np.sqrt(p * (1 - p) / darts), darts


@wrong(6, "was exact enough")
def one_round_too_many(comm, throw, target, batch):
    inside, darts, last, error = 0, 0, 1.0, 1.0
    while last >= target:
        inside, darts, last = (
            inside + comm.allreduce(throw(batch)),
            darts + comm.size * batch,
            error,
        )
        p = inside / darts
        error = 4 * np.sqrt(p * (1 - p) / darts)
    return 4 * p, error, darts


@wrong(6, "all ranks have to agree")
def own_pi_returned(comm, throw, target, batch):
    mine, inside, darts, error = 0, 0, 0, 1.0
    while error >= target:
        count = throw(batch)
        mine += count
        inside += comm.allreduce(count)
        darts += comm.size * batch
        p = inside / darts
        error = 4 * np.sqrt(p * (1 - p) / darts)
    return 4 * mine / darts * comm.size, error, darts


@still_to_do(6)
def not_written(comm, throw, target, batch):
    raise NotImplementedError("task 6")
