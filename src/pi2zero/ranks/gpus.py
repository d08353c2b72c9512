"""Which rank takes which GPU: by what each one sees, compared by the devices' identities (UUIDs).

A rank that sees one GPU takes that one, its cuda:0, whatever its local rank is (as with Slurm's
--gpus-per-task). Ranks of a host that see the same GPUs take one each, in the order of their local
ranks.
"""

import os
import socket
import sys
from collections import Counter
from dataclasses import dataclass

ON_CPU = "The CPU will do: export CUDA_VISIBLE_DEVICES="
IDLE = "GPUs LIE IDLE:"


@dataclass(frozen=True)
class VisibleGpus:
    """What a rank sees, before GPUs are assigned.

    gpus: identities, cuda:0 first. problem: why torch cannot use them. unsupported: how many GPUs
    of its host this torch was not built for.
    """

    host: str
    local_rank: int
    gpus: tuple[str, ...] = ()
    problem: str = ""
    unsupported: int = 0


@dataclass(frozen=True)
class Assignment:
    """numbers: of each rank's GPU among those that it sees; all None: the CPU.

    one_each: whether every rank has a GPU of its own. messages: what the user has to know.
    """

    numbers: list[int | None]
    one_each: bool
    messages: list[str]

    def print_messages(self) -> None:
        """On stderr."""
        for message in self.messages:
            print(message, file=sys.stderr, flush=True)


def detect(local_rank: int) -> VisibleGpus:
    """What this process sees; none if DS_ACCELERATOR asks for the CPU."""
    import torch

    host = socket.gethostname()
    if os.environ.get("DS_ACCELERATOR") == "cpu":
        return VisibleGpus(host, local_rank)
    try:
        seen = tuple(identity(index, host) for index in range(torch.cuda.device_count()))
    except RuntimeError as error:  # the driver's
        return VisibleGpus(host, local_rank, problem=str(error).splitlines()[0])
    unsupported = 0 if seen or local_rank else count_unsupported()
    return VisibleGpus(host, local_rank, seen, unsupported=unsupported)


def count_unsupported() -> int:
    """How many GPUs of this host lie idle because torch was built for the CPU."""
    import torch

    from pi2zero.hosts.limits import nvidia_gpus

    cpu_build = torch.version.cuda is None and torch.version.hip is None
    return nvidia_gpus() if cpu_build and os.environ.get("CUDA_VISIBLE_DEVICES") != "" else 0


def identity(index: int, host: str) -> str:
    """A GPU's UUID; before torch 2.4, its host and what CUDA_VISIBLE_DEVICES calls it."""
    import torch

    if uuid := getattr(torch.cuda.get_device_properties(index), "uuid", None):
        return str(uuid)
    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return f"{host}/{names[index] if index < len(names) and names[index] else index}"


def assign(views: list[VisibleGpus]) -> tuple[list[int | None], bool]:
    """(numbers, one_each), as in `Assignment`.

    The rank that sees the fewest chooses first, so that no rank takes another's only GPU.
    """
    numbers: list[int | None] = [None] * len(views)
    if not all(view.gpus for view in views):
        return numbers, False
    users: Counter[str] = Counter()
    order = sorted(range(len(views)), key=lambda r: (len(views[r].gpus), views[r].local_rank))
    for rank in order:
        seen = views[rank].gpus
        gpu = min(seen, key=lambda gpu: users[gpu])  # the first of those with the fewest users
        users[gpu] += 1
        numbers[rank] = seen.index(gpu)
    return numbers, max(users.values()) == 1


def messages_for(views: list[VisibleGpus], numbers: list[int | None]) -> list[str]:
    """What has to be said: ranks without a GPU, GPUs that are shared, GPUs that lie idle."""
    if without := [rank for rank, view in enumerate(views) if not view.gpus]:
        if len(without) < len(views):
            return [_some_see_none(without)]
        unsupported = [f"{view.unsupported} on {view.host}" for view in views if view.unsupported]
        cure = "make clean, then make lab, on such a machine: docs/gpu.md"
        text = f"{IDLE} {', '.join(unsupported)}; this torch was built for the CPU. {cure}"
        return [text] if unsupported else []
    pairs = zip(views, numbers, strict=True)
    taken = [view.gpus[number] for view, number in pairs if number is not None]
    messages, idle, users = [], [], Counter(taken)
    if shared := [gpu for gpu, count in users.items() if count > 1]:
        messages.append(
            f"{sum(users[gpu] for gpu in shared)} ranks share {len(shared)} "
            f"GPU{'s' * (len(shared) > 1)}: all ranks communicate by gloo, through the hosts' "
            "memory, because nccl wants a GPU for each rank."
        )
    for host in dict.fromkeys(view.host for view in views):
        seen = {gpu for view in views if view.host == host for gpu in view.gpus}
        if unused := seen - users.keys():
            idle.append(f"{len(unused)} of {len(seen)} on {host}")
    if idle:
        messages.append(
            f"{IDLE} {', '.join(idle)}. Start {_count(views)} ranks to use all of them, one each "
            f"(now: {len(views)})."
        )
    return messages


def _some_see_none(without: list[int]) -> str:
    from pi2zero.mpi import name_ranks

    who = name_ranks(without)
    return (
        f"{who[0].upper()}{who[1:]} see{'s' * (len(without) == 1)} no GPU, the others do: all "
        "ranks compute on the CPU. (Slurm: ask for --gpus-per-node.)"
    )


def _count(views: list[VisibleGpus]) -> int:
    return len({gpu for view in views for gpu in view.gpus})


def assign_with_messages(views: list[VisibleGpus]) -> Assignment:
    """Assign the GPUs. Raises RuntimeError, the same on all ranks, if a rank's do not work."""
    for rank, view in enumerate(views):
        if view.problem:
            raise RuntimeError(
                f"Rank {rank} on {view.host} sees GPUs that torch cannot use: {view.problem}. "
                f"{ON_CPU}"
            )
    numbers, one_each = assign(views)
    return Assignment(numbers, one_each, messages_for(views, numbers))


def all_on_cpu(views: list[VisibleGpus], who: str, why: str = "") -> Assignment:
    """No GPU for any rank; the message says which lie idle. who: computes on the CPU."""
    total = _count(views)
    message = f"{IDLE} all {total}. {who} computes on the CPU{why}."
    return Assignment([None] * len(views), False, [message] if total else [])


def for_horovod(hvd) -> str:
    """This rank's device in Horovod's world: "cuda:1" and its like, or "cpu".

    A GPU of its own if each rank has one and Horovod has NCCL. Rank 0 says on stderr what lies
    idle. Raises RuntimeError, on all ranks, if GPUs do not work, or if each rank is a world.
    """
    from pi2zero.mpi import refuse_worlds_of_one

    refuse_worlds_of_one(hvd.size())
    views = hvd.allgather_object(detect(hvd.local_rank()))
    assigned = assign_with_messages(views)
    if not hvd.nccl_built():
        assigned = all_on_cpu(views, "Horovod", ": it was built without NCCL")
    elif not assigned.one_each and assigned.numbers[0] is not None:
        why = f": its NCCL wants one for each of the {len(views)} ranks"
        assigned = all_on_cpu(views, "Horovod", why)
    if hvd.rank() == 0:
        assigned.print_messages()
    number = assigned.numbers[hvd.rank()]
    return "cpu" if number is None else f"cuda:{number}"
