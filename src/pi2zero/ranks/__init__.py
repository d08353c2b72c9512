"""What a rank is, seen from inside: functions that run on the engines, and in scripts however they were started."""

import contextlib
import functools
import inspect
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from pi2zero.ranks import gpus, meeting
from pi2zero.requirements import require_package

__all__ = ["Rank", "join", "leave", "together"]

EVERY_DEVICE = (
    "cpu:gloo,cuda:nccl"  # tensors on the CPU go over gloo also where nccl carries the others
)
_me = None  # this rank, while it is in a world that join() has made


@dataclass(frozen=True)
class Rank:
    """One rank of a `torch.distributed` world.

    device: "cpu", or "cuda:" and the number of this rank's GPU among those that it sees. backend: what carries tensors of
    that device: "nccl" if every rank has a GPU of its own, else "gloo".
    """

    rank: int
    world_size: int
    local_rank: int
    device: str
    backend: str


def join(deepspeed: bool = False, on_cpu: bool = False) -> Rank:
    """Make these processes one `torch.distributed` world, and give each its GPU where there are some. All ranks call it.

    Started by torchrun or deepspeed, the ranks are who RANK, WORLD_SIZE and LOCAL_RANK say, and MPI is left alone. Else they
    are MPI's ranks, with the same numbers; then these variables, MASTER_ADDR and MASTER_PORT are set. Ranks on one host meet
    in a private file, which no other user can read; on several, at an address that all have been seen to reach.

    nccl (with gloo for tensors on the CPU) if every rank has a GPU of its own; if ranks have to share GPUs, gloo; if a rank
    sees none, gloo on the CPU. The last two, and GPUs that nobody uses, rank 0 says on stderr.
    Called again, it changes nothing; a world that the program has made itself stays as it is.
    From then on an exception that a script does not catch ends all ranks; on the engines of a notebook it ends the cell.
    Raises RuntimeError, on all ranks, if srun has made a world of each of its tasks, or a rank's GPUs do not work.
    Source of the names: torch.distributed, "Environment variable initialization".

    deepspeed: make DeepSpeed's own start as well, without its words about compilers and accelerators.
    on_cpu: this program computes on the CPU, also where there are GPUs; rank 0 says then that they lie idle.
    """
    require_package("torch", "train")
    if deepspeed:
        require_package("deepspeed", "deepspeed")
    import torch.distributed as dist

    global _me
    os.environ.setdefault(
        "KINETO_LOG_LEVEL", "99"
    )  # else torch.profiler writes a line whenever it starts and stops
    if not dist.is_initialized():
        _me = _enter(meeting.by_variables() if meeting.has_launcher() else meeting.by_mpi(), on_cpu)
        _watch()
    me = _me or _as_it_is()
    if deepspeed:
        from pi2zero.ranks import start_deepspeed

        start_deepspeed.start(me)
    return me


def _enter(met: meeting.Met, on_cpu: bool) -> Rank:
    """Deal the GPUs, and make the process group."""
    import torch
    import torch.distributed as dist

    seats = [gpus.Seat(**seat) for seat in met.gather(asdict(gpus.sit(met.local_rank)))]
    chosen, own, told = gpus.leave_idle(seats, "This program") if on_cpu else gpus.deal_aloud(seats)
    number = chosen[met.rank]
    own = own and dist.is_nccl_available()
    if number is not None:
        torch.cuda.set_device(number)
    met.name_itself()
    bound = _device_id(number) if own and met.size > 1 else {}
    backend = EVERY_DEVICE if own else "gloo"
    dist.init_process_group(backend, store=met.store, rank=met.rank, world_size=met.size, **bound)
    met.close_to_others()
    _refuse_strangers()
    for sentence in told if met.rank == 0 else ():
        print(sentence, file=sys.stderr, flush=True)
    device = "cpu" if number is None else f"cuda:{number}"
    return Rank(met.rank, met.size, met.local_rank, device, "nccl" if own else "gloo")


def _refuse_strangers() -> None:
    """Raises RuntimeError if somebody else of this host has come in the place of a rank: before anything is exchanged."""
    try:
        from pi2zero.hosts.seal import strangers
    except ImportError:  # a Python without psutil: torchrun's, at a site
        return
    if found := strangers():
        whose = ", ".join(map(str, sorted(found)))
        raise RuntimeError(
            f"Another user of this machine (uid {whose}) has connected to this rank in the place of one of yours.\n"
            "Nothing was sent. Start again, and tell whoever runs this machine."
        )


def _device_id(number: int) -> dict:
    """init_process_group's option that binds this rank to its GPU: the connection is made at once, and barrier() knows where.

    torch has it from 2.3 on; 2.6.1 to 2.7.0 hang with it (pytorch issue 153960).
    """
    import torch
    import torch.distributed as dist

    version = tuple(map(int, re.findall(r"\d+", torch.__version__)[:3]))
    if "device_id" not in inspect.signature(dist.init_process_group).parameters or (
        2,
        6,
        0,
    ) < version < (2, 7, 1):
        return {}
    return {"device_id": torch.device("cuda", number)}


def _as_it_is() -> Rank:
    """A world that the program has made itself."""
    import torch
    import torch.distributed as dist

    nccl = "nccl" in dist.get_backend()
    device = f"cuda:{torch.cuda.current_device()}" if nccl else "cpu"
    local_rank = int(os.environ.get("LOCAL_RANK", dist.get_rank()))
    return Rank(
        dist.get_rank(), dist.get_world_size(), local_rank, device, "nccl" if nccl else "gloo"
    )


def _watch() -> None:
    """Have an exception that nobody catches end all ranks of a script. An engine lives on after one, and IPython tells it."""
    ipython = sys.modules.get("IPython")
    if _me.world_size > 1 and not (ipython and ipython.get_ipython()):
        sys.excepthook = functools.partial(_end_all, sys.excepthook)


def _end_all(tell: Callable, *error) -> None:
    """Say what was wrong, and end at once: at MPI's usual end this rank would wait for the others, and they for it."""
    import torch.distributed as dist

    if not dist.is_initialized():  # it has left the world: nobody waits for it there
        return tell(*error)
    with contextlib.redirect_stderr(
        sys.__stderr__
    ):  # torch's hook keeps the words, and says them when this one has returned
        tell(*error)
    sys.stdout.flush()
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.COMM_WORLD.Abort(1)  # srun does not end the others because one has ended
    os._exit(1)


def together(make: Callable) -> list:
    """What make() gives on each rank, on all ranks. All call it. If it ends one of them (SystemExit), it ends all, with the same
    sentence: a rank that ends alone leaves the others waiting for it."""
    import torch.distributed as dist

    made = said = None
    try:
        made = make()
    except SystemExit as stop:
        said = str(stop)
    dist.all_gather_object(every := [None] * dist.get_world_size(), (made, said))
    for _, said in every:
        if said is not None:
            raise SystemExit(said)
    return [made for made, _ in every]


def leave() -> None:
    """End `torch.distributed` on this rank, if it was joined; the last line of a program that ends by itself.

    gloo's thread lets go of the last tensor a moment after the call has returned. If Python is ending by then, the process
    aborts ("terminate called without an active exception"), after its work, in one run of ten or twenty.
    """
    import torch.distributed as dist

    global _me
    _me = None
    if dist.is_initialized():
        time.sleep(0.1)  # s for that thread; it needs Python's lock, which sleeping gives away
        dist.destroy_process_group()
