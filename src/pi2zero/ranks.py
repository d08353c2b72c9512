"""What a rank is, seen from inside: functions that run on the engines."""

import contextlib
import os
import socket
import sys
import time
from dataclasses import dataclass

from pi2zero import marks, mpi
from pi2zero.hosts.seal import seal

_held = []  # on rank 0: the folder of the file where the ranks met, and the port of their world


@dataclass(frozen=True)
class Rank:
    """One rank of a `torch.distributed` world: device is "cpu" or "cuda:<local rank>", backend "gloo" or "nccl"."""

    rank: int
    world_size: int
    local_rank: int
    device: str
    backend: str


def join(deepspeed: bool = False) -> Rank:
    """Make the MPI ranks a `torch.distributed` world too, with the same rank numbers. All ranks call it.

    What torchrun does for its processes, done through MPI: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are
    set, and the process group is made: nccl if every rank on every host has a GPU of its own, else gloo on the CPU.
    Ranks on one host meet in a private file, which no other user can read; on several, at rank 0's port.
    Called again, it changes nothing.
    Raises RuntimeError if srun has made a world of each of its tasks.
    Source of the names: torch.distributed, "Environment variable initialization".

    deepspeed: make DeepSpeed's own start as well, without its words about compilers and accelerators.
    """
    import torch
    import torch.distributed as dist
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    mpi.refuse_worlds_of_one(comm)
    local_rank, local_size = mpi.local_rank(comm)
    has_gpu = comm.allreduce(torch.cuda.device_count() >= local_size, op=MPI.LAND)
    device = f"cuda:{local_rank}" if has_gpu else "cpu"
    if has_gpu:
        torch.cuda.set_device(device)
    backend = "nccl" if has_gpu else "gloo"
    if not dist.is_initialized():
        one_host = local_size == comm.size
        store, address, port = _meeting_file(comm, dist) if one_host else _meeting_port(comm, dist)
        os.environ.update(RANK=str(comm.rank), WORLD_SIZE=str(comm.size), LOCAL_RANK=str(local_rank))
        os.environ.update(MASTER_ADDR=address, MASTER_PORT=str(port))
        dist.init_process_group(backend, store=store, rank=comm.rank, world_size=comm.size)
        if not one_host and mpi.ADDRESS in os.environ:  # what the store and gloo listen on is for these ranks' hosts alone
            seal(os.getpid(), sorted(set(comm.allgather(os.environ[mpi.ADDRESS]))))
    if deepspeed:
        _start_deepspeed(comm, "cuda" if has_gpu else "cpu", first=local_rank == 0)
    return Rank(comm.rank, comm.size, local_rank, device, dist.get_backend())


def _start_deepspeed(comm, accelerator: str, first: bool) -> None:
    """`deepspeed.init_distributed()` on ranks that are a world already; what DeepSpeed prints meanwhile goes nowhere."""
    import io
    import warnings

    from pi2zero import built
    from pi2zero.zero import operators

    built.wait_for("deepspeed", show=first)
    os.environ.setdefault("DS_ACCELERATOR", accelerator)  # else it looks for one, and warns that there is none
    # DeepSpeed 0.19 calls torch's collectives by names that torch 2.13 calls old, at every step.
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed.c10d_logger")
    operators.use_folder()
    if first:
        operators.drop_stale_locks()
    comm.Barrier()
    with contextlib.redirect_stdout(io.StringIO()), _silent():
        import deepspeed

        deepspeed.init_distributed(dist_init_required=False)


@contextlib.contextmanager
def _silent():
    """What programs started meanwhile print goes nowhere: DeepSpeed tries what the compiler can link."""
    kept = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for descriptor in kept:
            os.dup2(nowhere, descriptor)
        yield
    finally:
        for descriptor, former in kept.items():
            os.dup2(former, descriptor)
            os.close(former)
        os.close(nowhere)


def leave() -> None:
    """End `torch.distributed` on this rank, if it was joined; the last line of a program that ends by itself.

    gloo's thread lets go of the last tensor a moment after the call has returned. If Python is ending by then, the process
    aborts ("terminate called without an active exception"), after its work, in one run of ten or twenty.
    """
    import torch.distributed as dist

    if dist.is_initialized():
        time.sleep(0.1)  # s for that thread; it needs Python's lock, which sleeping gives away
        dist.destroy_process_group()


def _meeting_file(comm, dist):
    """(a FileStore in a private folder, 127.0.0.1, a free port). A TCPStore would let in every user of the host.

    Nobody listens on the port. It is kept for this world, because DeepSpeed names shared memory by address and port, and
    because a program may make a world of its own later.
    """
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # also where the host's own name does not resolve
    path = port = None
    if comm.rank == 0:
        folder = os.environ.get(mpi.RUN_DIR)
        if not folder:  # no cluster of the kit's, which removes its folder: mpirun, or a world of one
            _held.append(marks.temporary_folder(marks.MEETING))
            folder = _held[-1].name
        path = f"{folder}/torch-{time.monotonic_ns()}"
        _held.append(free := socket.socket())
        free.bind(("127.0.0.1", 0))
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # this process may listen there after all
        port = free.getsockname()[1]
    path, port = comm.bcast((path, port))
    return dist.FileStore(path, comm.size), "127.0.0.1", port


def _meeting_port(comm, dist):
    """(a TCPStore on rank 0, its host, its port). The system chose the port, so that no two worlds on a host meet."""
    host = comm.bcast(os.environ.get(mpi.ADDRESS, socket.gethostname()))
    store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False) if comm.rank == 0 else None
    port = comm.bcast(store.port if store else None)
    return store or dist.TCPStore(host, port, is_master=False, wait_for_workers=False), host, port
