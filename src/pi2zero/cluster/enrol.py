"""What an engine does first, to become a rank that can be watched: this runs on the engines."""

import faulthandler
import os
import signal
import socket
from pathlib import Path

from pi2zero.mpi import mpi_library

_stack_file = None  # kept open: faulthandler writes to its descriptor


def enrol(run_dir: str) -> dict:
    """Make this engine a rank that can be watched; the kit calls it once on each.

    After it, SIGUSR1 writes the rank's Python stack to `run_dir/<rank>.stack`. faulthandler writes from the signal
    handler itself, so this works while the rank waits inside MPI, where no Python code can run.

    Returns rank, size, pid, host and the MPI library's name.
    """
    global _stack_file
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    # Launchers and DeepSpeed read LOCAL_RANK. It is Open MPI's local rank, which differs from the rank on several hosts.
    os.environ.setdefault("LOCAL_RANK", os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", str(rank)))
    path = stack_path(run_dir, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    _stack_file = path.open("a")
    faulthandler.register(signal.SIGUSR1, file=_stack_file, all_threads=False)
    return {
        "rank": rank,
        "size": MPI.COMM_WORLD.Get_size(),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "library": mpi_library(),
    }


def stack_path(run_dir: str, rank: int) -> Path:
    """Where a rank's stack is written."""
    return Path(run_dir) / "stacks" / f"{rank}.stack"
