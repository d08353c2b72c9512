"""Time π on the ranks of one `mpirun`: `mpirun -n 2 python benchmarks/pi_worker.py METHOD N
REPEATS`.

Rank 0 prints the seconds of each repeat as JSON: from the barrier at which all ranks have started
to the reduced sum, so without the start of the processes. METHOD is midpoint (scripts/cpi.py) or
monte_carlo (notebook 01, in chunks).
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from cpi import CHUNK, partial_pi


def monte_carlo(n, rank, size):
    """This rank's part of the estimate from n samples; an independent stream for each rank."""
    rng = np.random.default_rng(np.random.SeedSequence(2026).spawn(size)[rank])
    count = n // size + (rank < n % size)
    inside = 0
    for first in range(0, count, CHUNK):
        x, y = rng.random((2, min(CHUNK, count - first)))
        inside += np.count_nonzero(x * x + y * y < 1)
    return 4 * inside / n


def main(method, n, repeats):
    comm = MPI.COMM_WORLD
    part = {"midpoint": partial_pi, "monte_carlo": monte_carlo}[method]
    part(CHUNK, comm.rank, comm.size)  # warm-up
    seconds, pi = [], np.zeros(1)
    for _ in range(repeats):
        comm.Barrier()
        start = time.perf_counter()
        comm.Reduce(np.array([part(n, comm.rank, comm.size)]), pi, op=MPI.SUM, root=0)
        seconds.append(time.perf_counter() - start)
    tolerance = 1e-8 if method == "midpoint" else 5 * 1.642 / n**0.5  # 5 sigma
    if comm.rank == 0:
        assert abs(pi[0] - np.pi) < tolerance, pi[0]
        print(json.dumps(seconds))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
