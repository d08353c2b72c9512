"""What a rank is, seen from inside: for engines and for scripts, however they were started."""

import contextlib
import functools
import inspect
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from pi2zero import environment
from pi2zero.ranks import gpus, rendezvous
from pi2zero.ranks.outcomes import gather_or_raise, raise_on_all
from pi2zero.ranks.stopping import stopping
from pi2zero.requirements import require_package

__all__ = ["Rank", "gather_or_raise", "join", "leave", "raise_on_all", "stopping"]

CPU_AND_GPU = "cpu:gloo,cuda:nccl"  # tensors on the CPU use gloo also where others use nccl
_joined = None  # this rank, while it is in a world that join() has made


@dataclass(frozen=True)
class Rank:
    """One rank of a `torch.distributed` world.

    device: "cpu", or "cuda:" and the number of this rank's GPU among those that it sees.
    backend: of tensors on that device: "nccl" if every rank has a GPU of its own, else "gloo".
    """

    rank: int
    world_size: int
    local_rank: int
    device: str
    backend: str


def join(deepspeed: bool = False, on_cpu: bool = False) -> Rank:
    """Make these processes one `torch.distributed` world, with a GPU for each. All ranks call it.

    Started by torchrun or deepspeed, the ranks are who RANK, WORLD_SIZE and LOCAL_RANK say. Else
    they are MPI's ranks; then these variables, MASTER_ADDR and MASTER_PORT are set until `leave`.
    If mpirun says something else than these variables, all ranks raise RuntimeError. Ranks on one
    host meet in a private file; on several hosts at an address that all have been seen to reach.

    The backend is nccl (gloo for tensors on the CPU) if every rank has a GPU of its own; gloo if
    ranks share GPUs; gloo on the CPU if a rank sees none. Rank 0 says the last two, and GPUs that
    nobody uses, on stderr. A second call changes nothing, nor does a call in a world that the
    program has made itself. From then on an exception that a script does not catch ends all ranks.
    Raises RuntimeError, on all ranks, if each task of srun is a world of its own, or if GPUs do not
    work. Source of the names: torch.distributed, "Environment variable initialization".

    deepspeed: initialize DeepSpeed as well, without its messages on compilers and accelerators.
    on_cpu: this program computes on the CPU; rank 0 says if GPUs lie idle.
    """
    require_package("torch", "train")
    if deepspeed:
        require_package("deepspeed", "deepspeed")
    import torch.distributed as dist

    global _joined
    # Else torch.profiler prints a line whenever it starts and stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    if not dist.is_initialized():
        has_launcher = rendezvous.has_launcher()
        _joined = _enter(rendezvous.by_variables() if has_launcher else rendezvous.by_mpi(), on_cpu)
        _abort_world_on_exception(_joined)
    rank = _joined or _rank_in_own_world()
    if deepspeed:
        from pi2zero.ranks import start_deepspeed

        start_deepspeed.start(rank)
    return rank


def _enter(meeting: rendezvous.Rendezvous, on_cpu: bool) -> Rank:
    """Assign the GPUs, and make the process group."""
    import torch
    import torch.distributed as dist

    views = [
        gpus.VisibleGpus(**view) for view in meeting.gather(asdict(gpus.detect(meeting.local_rank)))
    ]
    assigned = (
        gpus.all_on_cpu(views, "This program") if on_cpu else gpus.assign_with_messages(views)
    )
    number = assigned.numbers[meeting.rank]
    nccl = assigned.one_each and dist.is_nccl_available()
    if number is not None:
        torch.cuda.set_device(number)
    meeting.export_rank_variables()
    dist.init_process_group(
        CPU_AND_GPU if nccl else "gloo",
        store=meeting.store,
        rank=meeting.rank,
        world_size=meeting.size,
        **_device_id(number if nccl and meeting.size > 1 else None),
    )
    meeting.close_to_others()
    _refuse_strangers()
    if meeting.rank == 0:
        assigned.print_messages()
    device = "cpu" if number is None else f"cuda:{number}"
    backend = "nccl" if nccl else "gloo"
    return Rank(meeting.rank, meeting.size, meeting.local_rank, device, backend)


def _refuse_strangers() -> None:
    """Raise RuntimeError if another user of this host has connected in the place of a rank."""
    try:
        from pi2zero.hosts.port_filter import foreign_peer_uids
    except ImportError:  # a Python without psutil: torchrun's, at a site
        return
    if uids := foreign_peer_uids():
        raise RuntimeError(
            f"Another user of this machine (uid {', '.join(map(str, sorted(uids)))}) has connected "
            "to this rank in the place of one of yours.\n"
            "Nothing was sent. Start again, and tell whoever runs this machine."
        )


def _device_id(number: int | None) -> dict:
    """init_process_group's option that binds this rank to its GPU, if it has one.

    With it the ranks connect at once, and barrier() knows the device. torch has it from 2.3 on;
    2.6.1 to 2.7.0 hang with it (pytorch issue 153960).
    """
    import torch
    import torch.distributed as dist

    known = "device_id" in inspect.signature(dist.init_process_group).parameters
    version = tuple(map(int, re.findall(r"\d+", torch.__version__)[:3]))
    if number is None or not known or (2, 6, 0) < version < (2, 7, 1):
        return {}
    return {"device_id": torch.device("cuda", number)}


def _rank_in_own_world() -> Rank:
    """This rank in a world that the program has made itself."""
    import torch
    import torch.distributed as dist

    nccl = "nccl" in dist.get_backend()
    device = f"cuda:{torch.cuda.current_device()}" if nccl else "cpu"
    rank, backend = dist.get_rank(), "nccl" if nccl else "gloo"
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    return Rank(rank, dist.get_world_size(), local_rank, device, backend)


def _abort_world_on_exception(rank: Rank) -> None:
    """Let an exception that a script does not catch end all ranks. An engine survives one."""
    ipython = sys.modules.get("IPython")
    if rank.world_size > 1 and not (ipython and ipython.get_ipython()):
        sys.excepthook = functools.partial(_end_all, sys.excepthook)


def _end_all(print_traceback: Callable, *error) -> None:
    """Print what was wrong, and end all ranks at once.

    At MPI's usual end this rank would wait for the others, and they for it.
    """
    import torch.distributed as dist

    if not dist.is_initialized():  # it has left the world: no rank waits for it there
        return print_traceback(*error)
    # torch's hook would keep the text until this one has returned.
    with contextlib.redirect_stderr(sys.__stderr__):
        print_traceback(*error)
    sys.stdout.flush()
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.COMM_WORLD.Abort(1)  # srun does not end the others when one has ended
    os._exit(1)


def leave() -> None:
    """End `torch.distributed` on this rank, if it was joined; a script's last line.

    RANK and the other variables that `join` has set get the values that they had before.
    gloo's thread releases the last tensor a moment after the call has returned. If Python is ending
    by then, one run in ten or twenty aborts ("terminate called without an active exception").
    """
    import torch.distributed as dist

    global _joined
    _joined = None
    if dist.is_initialized():
        time.sleep(0.1)  # s for that thread, which needs Python's lock
        dist.destroy_process_group()
    environment.take_back_rank()
