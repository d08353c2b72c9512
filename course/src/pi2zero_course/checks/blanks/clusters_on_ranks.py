"""The checks of the blanks in notebook 12 that run on its ranks."""

from functools import partial

import numpy as np
from mpi4py import MPI

from pi2zero_course.checks.blanks.collectives_on_ranks import part_of
from pi2zero_course.checks.framework.answers import (
    CheckError,
    global_names,
    speaking_of,
    with_globals,
)
from pi2zero_course.checks.framework.task import blank
from pi2zero_course.checks.framework.values import show
from pi2zero_course.checks.framework.watched_comm import WatchedComm


@blank
def two_level_allreduce(function):
    """two_level_allreduce(x): x becomes the sum over all ranks, in place: inside the hosts,
    between them, inside."""
    world = MPI.COMM_WORLD
    hosts = [rank * 2 // world.size for rank in range(world.size)]  # as if on two hosts
    host = world.Split(hosts[world.rank])
    between = world.Split(host.rank)
    watched = WatchedComm(world)
    try:
        for length in (8, 1001, 3, 1):
            run = partial(_run, function, host, between)
            results = watched.run_together(speaking_of(function, run), (length,))
            _judge(length, hosts, host.size, results)
        if "between" not in global_names(function):
            raise CheckError(
                "the sum is right, but not by way of `between`, ranks of one place on each host: "
                "step 2 goes over these."
            )
    finally:
        watched.free()
        host.Free()
        between.Free()
    return "All ranks have the sum, of 1, 3, 8 and 1,001 numbers."


def _run(function, host, between, world, length):
    """(x, what the answer returned, the numbers it sent between the hosts) on this rank"""
    x, sent = part_of(world.rank, length), []
    host, between = world.part(host, "host"), world.part(between, "between")

    def ring(comm, part):
        """Stands for the notebook's ring_allreduce, and is known to be right."""
        sent.append(part.size)
        comm.Allreduce(MPI.IN_PLACE, part)

    names = {"comm": world, "host": host, "between": between, "ring_allreduce": ring}
    with with_globals(function, **names):
        returned = function(x)
    return x, returned, sum(sent)


def _judge(length, hosts, per_host, results):
    parts, most = [part_of(rank, length) for rank in range(len(hosts))], -(-length // per_host)
    for rank, (x, returned, sent) in enumerate(results):
        right = np.array_equal(x, sum(parts))
        if right and sent <= most:
            continue
        if right:
            raise CheckError(
                f"{length} numbers: the sum is right, but rank {rank} takes {sent} of them over "
                f"the network; {most} are its part. Each rank of a host carries its own part only: "
                "Reduce_scatter first, inside the host."
            )
        host_sum = sum(part for part, host in zip(parts, hosts, strict=True) if host == hosts[rank])
        why = ""
        if np.array_equal(x, host_sum):
            why = "That is the sum of its own host's ranks: step 2, between the hosts, is missing."
        elif isinstance(returned, np.ndarray) and np.array_equal(returned, sum(parts)):
            why = "You returned the sum; it has to be in x itself, which Allgatherv can fill."
        elif np.array_equal(x, parts[rank]):
            why = "x is as it was: does Allgatherv, step 3, write into x?"
        raise CheckError(
            f"{length} numbers: x of rank {rank} is {show(x[:8])}; the sum is "
            f"{show(sum(parts)[:8])}.\n{why}"
        )
