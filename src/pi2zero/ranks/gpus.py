"""Which rank takes which GPU: by what each one sees, compared over all ranks by the devices' own identities (UUIDs).

A rank that sees one GPU takes that one, its cuda:0, whatever its local rank is (Slurm's --gpus-per-task does so); ranks of
a host that see the same ones take one each, in the order of their local ranks.
"""

import os
import socket
import sys
from collections import Counter
from dataclasses import dataclass

ON_CPU = "The CPU will do: export CUDA_VISIBLE_DEVICES="


@dataclass(frozen=True)
class Seat:
    """A rank before the GPUs are dealt: its host, its number there, the GPUs that it sees (cuda:0 first), what is wrong, and how
    many GPUs are on its host for which this torch was not built."""

    host: str
    local_rank: int
    gpus: tuple[str, ...] = ()
    problem: str = ""
    beyond: int = 0


def sit(local_rank: int) -> Seat:
    """This process's seat. Who has asked DeepSpeed for the CPU means all of it."""
    import torch

    host = socket.gethostname()
    if os.environ.get("DS_ACCELERATOR") == "cpu":
        return Seat(host, local_rank)
    try:
        seen = tuple(identity(index, host) for index in range(torch.cuda.device_count()))
    except RuntimeError as error:  # the driver's
        return Seat(host, local_rank, problem=str(error).splitlines()[0])
    return Seat(host, local_rank, seen, beyond=0 if seen or local_rank else beyond_torch())


def beyond_torch() -> int:
    """How many GPUs of this host lie idle because torch was built for the CPU: on a login node without a GPU, perhaps."""
    import torch

    from pi2zero.hosts.limits import nvidia_gpus

    wanted = (
        os.environ.get("CUDA_VISIBLE_DEVICES") != ""
        and torch.version.cuda is None
        and torch.version.hip is None
    )
    return nvidia_gpus() if wanted else 0


def identity(index: int, host: str) -> str:
    """What no two GPUs share: the UUID; before torch 2.4, the host and what CUDA_VISIBLE_DEVICES calls the device."""
    import torch

    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return (
        str(uuid)
        if uuid
        else f"{host}/{names[index] if index < len(names) and names[index] else index}"
    )


def refuse_broken(seats: list[Seat]) -> None:
    """Raise RuntimeError, the same on all ranks, if a rank's GPUs do not work."""
    for rank, seat in enumerate(seats):
        if seat.problem:
            raise RuntimeError(
                f"Rank {rank} on {seat.host} sees GPUs that torch cannot use: {seat.problem}. {ON_CPU}"
            )


def deal(seats: list[Seat]) -> tuple[list[int | None], bool]:
    """(the number of each rank's GPU among those that it sees, whether each has one of its own). All None: the CPU.

    Who sees the fewest chooses first, so that nobody takes another's only one.
    """
    if not all(seat.gpus for seat in seats):
        return [None] * len(seats), False
    users, chosen = Counter(), [None] * len(seats)
    for rank in sorted(
        range(len(seats)), key=lambda rank: (len(seats[rank].gpus), seats[rank].local_rank)
    ):
        mine = seats[rank].gpus
        gpu = min(mine, key=lambda one: users[one])  # the first of those with the fewest users
        users[gpu] += 1
        chosen[rank] = mine.index(gpu)
    return chosen, max(users.values()) == 1


def sentences(seats: list[Seat], chosen: list[int | None]) -> list[str]:
    """What has to be said aloud: ranks without a GPU, GPUs that are shared, GPUs that lie idle."""
    from pi2zero.mpi import name_ranks

    without = [rank for rank, seat in enumerate(seats) if not seat.gpus]
    if without:
        seen = len(without) < len(seats)
        who = name_ranks(without)
        text = f"{who[0].upper()}{who[1:]} see{'s' * (len(without) == 1)} no GPU, the others do: all ranks compute on the CPU."
        return [f"{text} (Slurm: ask for --gpus-per-node.)"] * seen or not_built_for(seats)
    users = Counter(seat.gpus[number] for seat, number in zip(seats, chosen, strict=True))
    told, idle, ranks = [], [], Counter(seat.host for seat in seats)
    for host in ranks:
        there = {gpu for seat in seats if seat.host == host for gpu in seat.gpus}
        if unused := len(there) - len(there & users.keys()):
            idle.append(f"{unused} of {len(there)} on {host}")
    if max(users.values()) > 1:
        shared = [
            seat for seat, number in zip(seats, chosen, strict=True) if users[seat.gpus[number]] > 1
        ]
        several = len(
            {
                seat.gpus[number]
                for seat, number in zip(seats, chosen, strict=True)
                if users[seat.gpus[number]] > 1
            }
        )
        told.append(
            f"{len(shared)} ranks share {several} GPU{'s' * (several > 1)}: all ranks talk over gloo, through the hosts' memory, "
            "because nccl wants a GPU for each rank."
        )
    if idle:
        total = len({gpu for seat in seats for gpu in seat.gpus})
        told.append(
            f"GPUs LIE IDLE: {', '.join(idle)}. Start {total} ranks to use all of them, one each (now: {len(seats)})."
        )
    return told


def not_built_for(seats: list[Seat]) -> list[str]:
    """What has to be said where torch sees no GPU, and the hosts have some."""
    idle = [f"{seat.beyond} on {seat.host}" for seat in seats if seat.beyond]
    cure = "this torch was built for the CPU. make clean, then make lab, on such a machine: docs/gpu/README.md"
    return [f"GPUs LIE IDLE: {', '.join(idle)}; {cure}"] * bool(idle)


def deal_aloud(seats: list[Seat]) -> tuple[list[int | None], bool, list[str]]:
    """What `deal` returns, and what has to be said. Raises RuntimeError if a rank's GPUs do not work."""
    refuse_broken(seats)
    chosen, own = deal(seats)
    return chosen, own, sentences(seats, chosen)


def leave_idle(
    seats: list[Seat], who: str, why: str = ""
) -> tuple[list[int | None], bool, list[str]]:
    """The same for who computes on the CPU, though there may be GPUs."""
    total = len({gpu for seat in seats for gpu in seat.gpus})
    return (
        [None] * len(seats),
        False,
        [f"GPUs LIE IDLE: all {total}. {who} computes on the CPU{why}."] * bool(total),
    )


def for_horovod(hvd) -> str:
    """This rank's device in Horovod's world, "cuda:1" or "cpu": a GPU of its own if each rank has one and Horovod has NCCL.

    Rank 0 says on stderr what lies idle. Raises RuntimeError, on all ranks, if a rank's GPUs do not work, or each is a world.
    """
    from pi2zero.mpi import refuse_worlds_of_one

    refuse_worlds_of_one(hvd.size())
    seats = hvd.allgather_object(sit(hvd.local_rank()))
    chosen, own, told = deal_aloud(seats)
    if not hvd.nccl_built():
        chosen, _, told = leave_idle(seats, "Horovod", ": it was built without NCCL")
    elif not own and chosen[0] is not None:
        chosen, _, told = leave_idle(
            seats, "Horovod", f": its NCCL wants one for each of the {len(seats)} ranks"
        )
    for sentence in told if hvd.rank() == 0 else ():
        print(sentence, file=sys.stderr, flush=True)
    number = chosen[hvd.rank()]
    return "cpu" if number is None else f"cuda:{number}"
