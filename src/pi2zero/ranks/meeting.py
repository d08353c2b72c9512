"""How ranks learn who they are and meet: by the variables of torchrun and deepspeed, or by MPI."""

import itertools
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

INTERFACES = (
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
)  # the network interface of gloo, and of nccl's first words
REACH = 3.0  # s for a host to reach an address of rank 0's

_held = []  # on rank 0: the folder of the file where the ranks met, and the port of their world
_worlds = itertools.count()  # that this process has been in: torch's keys are the same in each
_named = False  # RANK and the others were set here, not by a launcher


@dataclass
class Met:
    """A rank that knows who it is. gather(value): every rank's value, of what JSON has, in the order of ranks. store: torch's."""

    rank: int
    size: int
    local_rank: int
    gather: Callable
    store: object
    address: str = ""
    port: int = 0
    close_to_others: Callable = lambda: None  # again, once the world listens

    def name_itself(self) -> None:
        """Set the variables by which programs ask who they are, unless a launcher has."""
        global _named
        os.environ["LOCAL_RANK"] = str(self.local_rank)
        if self.port:
            _named = True
            os.environ.update(RANK=str(self.rank), WORLD_SIZE=str(self.size))
            os.environ.update(MASTER_ADDR=self.address, MASTER_PORT=str(self.port))


# --- torchrun, deepspeed ----------------------------------------------------------------------------------------------


def has_launcher() -> bool:
    """Whether torchrun or deepspeed has started this process, or somebody who sets the same variables."""
    return "TORCHELASTIC_RUN_ID" in os.environ or (
        "RANK" in os.environ and "WORLD_SIZE" in os.environ and not _named
    )


def by_variables() -> Met:
    """They meet where MASTER_ADDR and MASTER_PORT say. LOCAL_RANK, or in its absence SLURM_LOCALID, is the local rank."""
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    told = os.environ.get
    if (
        told("LOCAL_WORLD_SIZE", told("LOCAL_SIZE")) == os.environ["WORLD_SIZE"]
    ):  # torchrun's name, DeepSpeed's
        use_interface("lo")
    else:
        use_interface_towards(told("MASTER_ADDR", "127.0.0.1"))
    store, rank, size = next(rendezvous("env://"))
    store = dist.PrefixStore(f"pi2zero-{next(_worlds)}", store)

    def gather(value):
        store.set(f"seat-{rank}", json.dumps(value))
        return [json.loads(store.get(f"seat-{other}")) for other in range(size)]

    return Met(rank, size, int(told("LOCAL_RANK", told("SLURM_LOCALID", "0"))), gather, store)


# --- MPI --------------------------------------------------------------------------------------------------------------


def by_mpi() -> Met:
    """MPI's ranks meet in a private file on one host, on several at rank 0's port. Without mpi4py: a world of one."""
    from pi2zero import mpi

    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # not there; or there, without an MPI library
        return alone(error)
    comm = MPI.COMM_WORLD
    mpi.refuse_worlds_of_one(comm.size)
    local_rank, local_size = mpi.local_rank(comm)
    if local_size == comm.size:
        return Met(comm.rank, comm.size, local_rank, comm.allgather, *_in_a_file(comm))
    return Met(
        comm.rank, comm.size, local_rank, comm.allgather, *_at_a_port(comm, mpi.ADDRESS, local_rank)
    )


def alone(error: Exception) -> Met:
    """A world of one, for a Python without MPI. Raises RuntimeError if a launcher has started more."""
    import torch.distributed as dist

    from pi2zero.mpi import LAUNCHED

    if started := next((name for name in LAUNCHED if int(os.environ.get(name, "1")) > 1), None):
        raise RuntimeError(
            f"{started} says that {os.environ[started]} ranks were started, and this Python cannot use MPI ({error}): each would "
            "be rank 0 of 1. Start them by torchrun, or install mpi4py."
        )
    return Met(0, 1, 0, lambda value: [value], dist.HashStore(), "127.0.0.1", _free_port())


def _free_port() -> int:
    """Nobody listens there. It is kept for this world, because DeepSpeed names shared memory by address and port, and
    because a program may make a world of its own later."""
    _held.append(free := socket.socket())
    free.bind(("127.0.0.1", 0))
    free.setsockopt(
        socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
    )  # this process may listen there after all
    return free.getsockname()[1]


def _in_a_file(comm):
    """(a FileStore in a private folder, 127.0.0.1, a free port). A TCPStore would let in every user of the host."""
    import torch.distributed as dist

    from pi2zero import mpi, ownership

    use_interface("lo")  # also where the host's own name does not resolve
    path = port = None
    if comm.rank == 0:
        folder = os.environ.get(mpi.RUN_DIR)
        if (
            not folder
        ):  # no cluster of the kit's, which removes its folder: mpirun, or a world of one
            _held.append(ownership.temporary_dir("meeting"))
            folder = _held[-1].name
        path, port = f"{folder}/torch-{time.monotonic_ns()}", _free_port()
    path, port = comm.bcast((path, port))
    return dist.FileStore(path, comm.size), "127.0.0.1", port


def _at_a_port(comm, known: str, local_rank: int):
    """(a TCPStore on rank 0, its address, its port, what closes it). The system chose the port: no two worlds on a host meet.

    known: the variable in which the kit's cluster has named this host's address; what then listens is for its hosts alone.
    """
    import torch.distributed as dist

    mine = os.environ.get(known)
    host = comm.bcast(mine) or common_address(comm, local_rank == 0)
    use_interface_towards(mine or host)

    def close_to_others():
        if mine:
            from pi2zero.hosts.seal import seal

            seal(os.getpid(), sorted(set(comm.allgather(mine))))

    store = (
        dist.TCPStore(host, 0, is_master=True, wait_for_workers=False) if comm.rank == 0 else None
    )
    close_to_others()  # the store: gloo's own port comes with the group
    port = comm.bcast(store.port if store else None)
    store = store or dist.TCPStore(host, port, is_master=False, wait_for_workers=False)
    return store, host, port, close_to_others


# --- networks ---------------------------------------------------------------------------------------------------------


def use_interface(name: str) -> None:
    """Have gloo and nccl use this network interface, unless the user has named one."""
    if sys.platform == "linux":
        for variable, value in zip(
            INTERFACES, (name, f"={name}"), strict=True
        ):  # to nccl eth1 would mean eth10, too
            os.environ.setdefault(variable, value)


def use_interface_towards(host: str) -> None:
    """The interface by which this host reaches another, or itself by an address of its own."""
    try:
        from pi2zero.hosts import place
    except ImportError:  # a Python without psutil
        return
    try:
        address = place.facing(host)
        use_interface("lo" if address.startswith("127.") else place.interface_of(address)[0])
    except place.PlaceError:
        return  # torch will say it


def common_address(comm, speaks: bool) -> str:
    """The address of rank 0's host that all hosts reach: they try. Of several, the one of the fastest interface.

    An interface that GLOO_SOCKET_IFNAME or the site file names is the only one tried. speaks: this rank tries for its host.
    Raises RuntimeError, on all ranks.
    """
    listener, offer = socket.socket(), None
    if comm.rank == 0:
        listener.bind(("", 0))
        listener.listen(1024)  # nobody is let in: to connect is enough
        offer = own_addresses(), listener.getsockname()[1]
    addresses, port = comm.bcast(offer)
    reached = {
        address
        for _, address in addresses
        if not speaks or comm.rank == 0 or is_reached(address, port)
    }
    everywhere = set.intersection(*comm.allgather(reached))
    listener.close()
    for _, address in addresses:
        if address in everywhere:
            return address
    told = ", ".join(f"{address} ({name})" for name, address in addresses) or "none"
    raise RuntimeError(
        f"Not all hosts reach rank 0's host. Its addresses: {told}. Name the network interface that they share: "
        "GLOO_SOCKET_IFNAME, or `interface` in the site file (python -m pi2zero site --write)."
    )


def own_addresses() -> list[tuple[str, str]]:
    """(interface, IPv4 address) of this host: of the one that was named, else of all that are up, the fastest first."""
    import psutil

    from pi2zero.hosts import site

    named = os.environ.get(INTERFACES[0]) or site.load().interface
    states = psutil.net_if_stats()
    found = []
    for name, addresses in psutil.net_if_addrs().items():
        usable = name in states and states[name].isup and name != "lo"
        found += [(name, a.address) for a in addresses if a.family == socket.AF_INET and usable]
    found.sort(key=lambda one: -states[one[0]].speed)
    return [one for one in found if one[0] == named] or found


def is_reached(address: str, port: int) -> bool:
    """Whether somebody listens there: a connection from this host comes about within REACH s."""
    try:
        socket.create_connection((address, port), timeout=REACH).close()
    except OSError:
        return False
    return True
