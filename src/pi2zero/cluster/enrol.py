"""What an engine does first, to become a rank that can be watched: this runs on the engines."""

import faulthandler
import os
import signal
import socket
import sys
import threading
from pathlib import Path

from pi2zero.cluster.output import Capped
from pi2zero.cluster.pulse import Pulse, pulse_path
from pi2zero.hosts.place import interface_of, local_address_towards
from pi2zero.mpi import ADDRESS, local_rank, mpi_library
from pi2zero.ownership import make_private_dir, owner_mark

# Schedulers (Slurm, submitit) may use SIGUSR1 for themselves: a site can choose another, before the start.
STACK_SIGNAL = signal.Signals[os.environ.get("PI2ZERO_STACK_SIGNAL", "SIGUSR1")]
_stack_file = None  # kept open: faulthandler writes to its descriptor


def enrol(run_dir: str, kernel: str = "") -> dict:
    """Make this engine a rank that can be watched; the kit calls it once on each.

    After it, STACK_SIGNAL writes the rank's Python stack to `run_dir/<rank>.stack`. faulthandler writes from the signal
    handler itself, so this works while the rank waits inside MPI, where no Python code can run.

    kernel: its address, if ranks run on other hosts; the interface that leads to it is the one for all of their traffic.

    Returns rank, size, pid, mark (of this process: a pid can be given anew), host and the MPI library's name.
    """
    global _stack_file
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    # mpi4py duplicates a communicator at its first reduction of objects, and holds Python's lock: a rank that waits there could
    # not be looked at. So it does that now, while all ranks are here. (See HOLD_THE_LOCK in calls.py for other communicators.)
    MPI.COMM_WORLD.allreduce(0)
    os.environ.setdefault(
        "LOCAL_RANK", str(local_rank(MPI.COMM_WORLD)[0])
    )  # launchers and DeepSpeed read it
    if kernel:
        os.environ[ADDRESS] = local_address_towards(kernel)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface_of(os.environ[ADDRESS])[0])
        os.environ.setdefault(
            "TORCH_CPP_LOG_LEVEL", "ERROR"
        )  # it warns of each address that has no name
    path = stack_path(run_dir, rank)
    for folder in (
        path.parent.parent,
        path.parent,
    ):  # on another host it may not be there yet; closed to others, too
        make_private_dir(folder)
    _stack_file = path.open("a")
    faulthandler.register(STACK_SIGNAL, file=_stack_file, all_threads=False)
    _attach(run_dir, rank, MPI.COMM_WORLD.Get_size())
    return {
        "rank": rank,
        "size": MPI.COMM_WORLD.Get_size(),
        "pid": os.getpid(),
        "mark": owner_mark(),
        "host": socket.gethostname(),
        "cores": sorted(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else list(range(os.cpu_count() or 1)),
        "library": mpi_library(),
    }


def stack_path(run_dir: str, rank: int) -> Path:
    """Where a rank's stack is written."""
    return Path(run_dir) / "stacks" / f"{rank}.stack"


def _attach(run_dir: str, rank: int, size: int) -> None:
    """Let the engine's IPython cap what it prints, be looked at while a cell runs, and know top-level `await`."""
    from IPython import get_ipython

    if (shell := get_ipython()) is None:  # not an engine: a test
        return
    folder = Path(run_dir) / "output"
    for name in ("stdout", "stderr"):
        capped = Capped(getattr(sys, name), folder / f"rank-{rank}.{name}", size)
        setattr(sys, name, capped)
        shell.events.register("pre_run_cell", capped.new_cell)
        shell.events.register("post_run_cell", capped.end_cell)
    path = pulse_path(run_dir, rank)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    Pulse(path, shell).start()
    kernel = type(shell.kernel)
    # ipykernel 7 asks an `await` for its thread of subshells; an engine of ipyparallel 9.2 has none, and never answers.
    kernel._supports_kernel_subshells = False
    shell.kernel.shell_channel_thread = _NoSubshells()
    # After an error ipykernel leaves out the cells that are already on their way, and ipyparallel takes these for done.
    shell.kernel._abort_queues = lambda subshell_id=None: None


class _NoSubshells:
    parent_thread = threading.main_thread()

    def __bool__(self):
        return False
