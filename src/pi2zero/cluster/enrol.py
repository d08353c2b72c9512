"""What an engine does first, to become a rank that can be watched: this runs on the engines."""

import faulthandler
import os
import signal
import socket
from pathlib import Path

from pi2zero.marks import owner_mark
from pi2zero.mpi import local_rank, mpi_library

_stack_file = None  # kept open: faulthandler writes to its descriptor


def enrol(run_dir: str) -> dict:
    """Make this engine a rank that can be watched; the kit calls it once on each.

    After it, SIGUSR1 writes the rank's Python stack to `run_dir/<rank>.stack`. faulthandler writes from the signal
    handler itself, so this works while the rank waits inside MPI, where no Python code can run.

    Returns rank, size, pid, mark (of this process: a pid can be given anew), host and the MPI library's name.
    """
    global _stack_file
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    os.environ.setdefault("LOCAL_RANK", str(local_rank(MPI.COMM_WORLD)[0]))  # launchers and DeepSpeed read it
    path = stack_path(run_dir, rank)
    for folder in (path.parent.parent, path.parent):  # on another host it may not be there yet; closed to others, too
        folder.mkdir(mode=0o700, exist_ok=True)
    _stack_file = path.open("a")
    faulthandler.register(signal.SIGUSR1, file=_stack_file, all_threads=False)
    return {
        "rank": rank,
        "size": MPI.COMM_WORLD.Get_size(),
        "pid": os.getpid(),
        "mark": owner_mark(),
        "host": socket.gethostname(),
        "library": mpi_library(),
    }


def stack_path(run_dir: str, rank: int) -> Path:
    """Where a rank's stack is written."""
    return Path(run_dir) / "stacks" / f"{rank}.stack"
