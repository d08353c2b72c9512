#!/usr/bin/env python
"""π as in cpi.py, with the loop over the slices compiled by torch for the core's vector unit.

  mpirun -n 2 python scripts/cpi_compiled.py --n 100000000      two ranks

NumPy passes over the slices once per operation, and even a chunk in the cache is read and written
each time. Compiled, one pass does it all, in registers, several slices at once. The first call
compiles: seconds to half a minute.
"""

from mpi4py import MPI

import cpi

world = MPI.COMM_WORLD
cpi.refuse_worlds_of_one(world.size)
n = cpi.parse(world.rank, __doc__).n  # before torch is imported, which takes seconds

import torch


@torch.compile
def area(first, count, n):
    """Area of `count` of the n slices, from `first` on.

    `first` is a tensor: for an int each rank would compile a program of its own.
    """
    x = (first + torch.arange(count, dtype=torch.float64) + 0.5) * (1 / n)
    return (4 / (1 + x * x)).sum() / n


def partial_pi(n, rank, size):
    """Area of this rank's block of the n slices."""
    count = n // size + (rank < n % size)
    first = rank * (n // size) + min(rank, n % size)
    return area(torch.tensor(float(first), dtype=torch.float64), count, n).item() if count else 0.0


if __name__ == "__main__":
    torch.set_num_threads(1)  # a rank, a core
    partial_pi(n, world.rank, world.size)  # compiles
    cpi.program(n, world, partial_pi)
