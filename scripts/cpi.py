#!/usr/bin/env python
"""π by integrating 4 / (1 + x²) over 0..1 with the midpoint rule, shared among MPI ranks.

Two ways to run it:
  mpirun -n 4 python scripts/cpi.py --n 1000000      a program of its own
  MPI.COMM_SELF.Spawn(sys.executable, args=["scripts/cpi.py"], maxprocs=4)
      as the children of another program, which broadcasts n and gets the reduced sum (notebook 02)
"""

import argparse
import time

import numpy as np
from mpi4py import MPI

from pi2zero.mpi import refuse_worlds_of_one

CHUNK = 65_536  # slices computed at once: 512 KiB an array, which stays in the core's cache
LARGEST = 2**52  # above it, float64 cannot hold the middle of a slice


def partial_pi(n, rank, size):
    """Area of the slices rank, rank + size, rank + 2 size, ... of n."""
    total = 0.0
    for first in range(rank, n, size * CHUNK):
        last = min(n, first + size * CHUNK)
        x = np.arange(first + 0.5, last, size)  # the middles, times n
        x /= n  # in place: fresh memory costs more than arithmetic
        x *= x
        x += 1
        total += np.sum(4 / x)
    return total / n


def child(parent, rank, size):
    """Get n from the parent, compute a share, send it back."""
    n = np.zeros(1, dtype="int64")
    parent.Bcast(n, root=0)
    if 1 <= n[0] <= LARGEST:
        share = np.array([partial_pi(int(n[0]), rank, size)])
    else:  # raising would leave the parent waiting in Reduce
        share = np.array([np.nan])
    parent.Reduce(share, None, op=MPI.SUM, root=0)
    parent.Disconnect()


def program(n, comm, part=partial_pi):
    """The whole computation on a communicator; rank 0 prints. part: computes a rank's share."""
    comm.Barrier()  # all ranks have started: from here on it is computing
    start = time.perf_counter()
    share = np.array([part(n, comm.rank, comm.size)])
    pi = np.zeros(1)
    comm.Reduce(share, pi, op=MPI.SUM, root=0)
    seconds = time.perf_counter() - start
    if comm.rank == 0:
        ranks = f"{comm.size} rank{'s' * (comm.size > 1)}"
        error = f"error {abs(pi[0] - np.pi):.1e}"
        print(f"pi = {pi[0]:.12f}, {error}, n = {n:,}, {ranks}, {seconds:.3f} s")


def slices_argument(text):
    """The value of --n as an int in 1..LARGEST."""
    try:
        n = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number; write it out, such as 1000000"
        ) from None
    if not 1 <= n <= LARGEST:
        raise argparse.ArgumentTypeError(
            f"{n} slices are not possible; give a number from 1 to {LARGEST}"
        )
    return n


def parse(rank, text=__doc__):
    """The options. All ranks read them; only rank 0 reports wrong ones. text: the description."""
    description, ways = text.split("\n\n", 1)
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        description=description, epilog=ways, formatter_class=formatter
    )
    parser.add_argument(
        "--n", type=slices_argument, default=1_000_000, help="number of slices (default: 1000000)"
    )
    if rank > 0:
        parser._print_message = lambda *_: None
    return parser.parse_args()


if __name__ == "__main__":
    parent = MPI.Comm.Get_parent()
    world = MPI.COMM_WORLD
    if parent == MPI.COMM_NULL:
        refuse_worlds_of_one(world.size)
        program(parse(world.rank).n, world)
    else:
        child(parent, world.rank, world.size)
