"""What an engine does first, to become a rank that can be watched. This runs on the engines."""

import faulthandler
import functools
import os
import signal
import socket
import sys
import threading
from pathlib import Path

from pi2zero import log, mpi
from pi2zero.cluster.activity_sampler import ActivitySampler, sample_path
from pi2zero.cluster.capped_stream import CappedStream
from pi2zero.cluster.engine_shell import adapt_shell
from pi2zero.hosts.place import interface_of, local_address_towards
from pi2zero.mpi import ADDRESS, mpi_library
from pi2zero.ownership import make_private_dir, owner_mark

# Schedulers (Slurm, submitit) may use SIGUSR1 for themselves: a site can choose another signal.
STACK_SIGNAL = signal.Signals[os.environ.get("PI2ZERO_STACK_SIGNAL", "SIGUSR1")]
_stack_file = None  # kept open: faulthandler writes to its descriptor


def prepare_engine(run_dir: str, kernel: str = "") -> dict:
    """Make this engine a rank that can be watched. The kit calls it once on each engine.

    After it, STACK_SIGNAL writes the rank's Python stack to `stack_path`. faulthandler writes from
    the signal handler itself, so this works while the rank waits inside MPI, where no Python code
    runs.

    kernel: its address, if ranks run on other hosts; the interface that leads to it carries all of
    their traffic. Returns rank, size, pid, mark (of this process: a pid can be reused), host, cores
    and the MPI library's name.
    """
    from mpi4py import MPI

    rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
    # mpi4py duplicates a communicator at its first reduction of objects, and holds the GIL
    # meanwhile: a rank that waits there cannot be sampled. So do it now, while all ranks are here.
    # (For other communicators see GIL_HOLDING_CALLS in blocking_calls.py.)
    MPI.COMM_WORLD.allreduce(0)
    if kernel:
        os.environ[ADDRESS] = local_address_towards(kernel)
        # torch warns of each address that has no name
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    _set_rank_variables(MPI.COMM_WORLD)
    open_rank_files(run_dir, rank)
    log.write_to(run_dir, f"rank {rank}")
    log.logger.info("is up on %s", socket.gethostname())
    _attach_to_shell(run_dir, rank, size)
    if hasattr(os, "sched_getaffinity"):
        cores = sorted(os.sched_getaffinity(0))
    else:
        cores = list(range(os.cpu_count() or 1))
    return {
        "rank": rank,
        "size": size,
        "pid": os.getpid(),
        "mark": owner_mark(),
        "host": socket.gethostname(),
        "cores": cores,
        "library": mpi_library(),
    }


def _set_rank_variables(comm) -> None:
    """Set what torchrun would set: `dist.init_process_group("gloo")` needs no more.

    The address is rank 0's in the ranks' network, the port one that is free there. Gloo uses that
    network, also where a host does not know its own name.
    """
    own = os.environ.get(ADDRESS, "127.0.0.1")
    address, port = comm.bcast((own, mpi.reserve_port()) if comm.rank == 0 else None)
    number, count = mpi.local_rank(comm)
    os.environ |= {"RANK": str(comm.rank), "WORLD_SIZE": str(comm.size)}
    os.environ |= {"LOCAL_RANK": str(number), "LOCAL_WORLD_SIZE": str(count)}
    os.environ |= {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
    os.environ.setdefault("GLOO_SOCKET_IFNAME", interface_of(own)[0])
    mpi.is_rank = True


def open_rank_files(run_dir: str, rank: int) -> None:
    """Make what this rank writes to, where it is missing.

    On another host that is so at first, and a cleaner of temporary files may remove it later.
    """
    global _stack_file
    stack, sample = stack_path(run_dir, rank), sample_path(run_dir, rank)
    for folder in (Path(run_dir), stack.parent, sample.parent):
        make_private_dir(folder)
    if _stack_file is None or not stack.exists():  # a former rank may have left it
        former, _stack_file = _stack_file, stack.open("a")
        faulthandler.register(STACK_SIGNAL, file=_stack_file, all_threads=False)
        if former:
            former.close()


def stack_path(run_dir: str, rank: int) -> Path:
    """Where a rank's stack is written."""
    return Path(run_dir) / "stacks" / f"{rank}.stack"


def _attach_to_shell(run_dir: str, rank: int, size: int) -> None:
    """Cap the output of the engine's IPython, sample it, and let it run a top-level `await`."""
    from IPython import get_ipython

    if (shell := get_ipython()) is None:  # not an engine: a test
        return
    for name in ("stdout", "stderr"):
        file = Path(run_dir) / "output" / f"rank-{rank}.{name}"
        capped = CappedStream(getattr(sys, name), file, size)
        setattr(sys, name, capped)
        shell.events.register("pre_run_cell", capped.start_cell)
        shell.events.register("post_run_cell", capped.end_cell)
    open_files = functools.partial(open_rank_files, run_dir, rank)
    ActivitySampler(sample_path(run_dir, rank), shell, open_files).start()
    # Tab asks a rank between two cells. Jedi would read all of torch's source for it.
    shell.Completer.use_jedi = False
    adapt_shell(shell)
    # For an `await` ipykernel 7 asks for its thread of subshells; an engine of ipyparallel 9.2 has
    # none, and would never answer.
    type(shell.kernel)._supports_kernel_subshells = False
    shell.kernel.shell_channel_thread = _NoSubshells()
    # After an error ipykernel drops the cells that are already queued, and ipyparallel takes them
    # for done.
    shell.kernel._abort_queues = lambda subshell_id=None: None


class _NoSubshells:
    parent_thread = threading.main_thread()

    def __bool__(self):
        return False
