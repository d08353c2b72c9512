# pyright: reportPrivateImportUsage=false
"""How ranks learn who they are and meet: by the variables of torchrun and deepspeed, or by MPI."""

import functools
import itertools
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pi2zero import environment, mpi

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")  # nccl's: of its first messages
MEETING_POINT = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
REACH = 3.0  # s for a host to reach an address of rank 0's

_kept_open: list = []  # on rank 0: the folder of the file where the ranks met
_worlds = itertools.count()  # that this process has been in: torch's keys are the same in each


@dataclass
class Rendezvous:
    """A rank that knows who it is, and the way to the others.

    gather(value): the values of all ranks in their order, of types that JSON has. store: torch's.
    close_to_others: restricts what listens to the ranks' hosts; called again once more does.
    """

    rank: int
    size: int
    local_rank: int
    gather: Callable[[Any], list]
    store: Any
    address: str = ""
    port: int = 0
    close_to_others: Callable[[], None] = lambda: None

    def export_rank_variables(self) -> None:
        """Set the variables by which programs ask who they are, unless a launcher has."""
        environment.export(LOCAL_RANK=str(self.local_rank))
        if self.port:
            environment.export(RANK=str(self.rank), WORLD_SIZE=str(self.size))
            environment.export(MASTER_ADDR=self.address, MASTER_PORT=str(self.port))


# --- torchrun, deepspeed --------------------------------------------------------------------------


def has_launcher() -> bool:
    """Whether torchrun, deepspeed or another launcher has set the variables.

    On the ranks of a cluster MPI's numbers hold, whatever a cell has set.
    """
    if mpi.is_rank or environment.is_exported("RANK"):
        return False
    named = "RANK" in os.environ and "WORLD_SIZE" in os.environ
    return "TORCHELASTIC_RUN_ID" in os.environ or named


def by_variables() -> Rendezvous:
    """The ranks meet where MASTER_ADDR and MASTER_PORT say.

    The local rank is LOCAL_RANK, or in its absence SLURM_LOCALID.
    """
    mpi.refuse_another_launcher()
    import torch.distributed as dist

    env = os.environ.get
    # torchrun's name, DeepSpeed's
    if env("LOCAL_WORLD_SIZE", env("LOCAL_SIZE")) == os.environ["WORLD_SIZE"]:
        use_interface("lo")
    else:
        use_interface_towards(env("MASTER_ADDR", "127.0.0.1"))
    store, rank, size = _meet(*map(env, MEETING_POINT))
    store = dist.PrefixStore(f"pi2zero-{next(_worlds)}", store)

    def gather(value):
        store.set(f"rank-{rank}", json.dumps(value))
        return [json.loads(store.get(f"rank-{other}")) for other in range(size)]

    return Rendezvous(rank, size, int(env("LOCAL_RANK", env("SLURM_LOCALID", "0"))), gather, store)


@functools.cache
def _meet(*_where) -> tuple:
    """(torch's store, rank, size), once for a meeting point.

    A second world meets in the same store: a rank that is early would find the first one's server,
    just before rank 0 closes it.
    """
    from torch.distributed.rendezvous import rendezvous

    return next(rendezvous("env://"))


# --- MPI ------------------------------------------------------------------------------------------


def by_mpi() -> Rendezvous:
    """MPI's ranks meet in a private file on one host, on several at rank 0's port.

    Without mpi4py: a world of one.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: it finds no MPI library
        return world_of_one(error)
    comm = MPI.COMM_WORLD
    mpi.refuse_worlds_of_one(comm.size)
    local_rank, local_size = mpi.local_rank(comm)
    if local_size == comm.size:
        way = _in_a_file(comm)
    else:
        way = _at_a_port(comm, mpi.ADDRESS, local_rank)
    return Rendezvous(comm.rank, comm.size, local_rank, comm.allgather, *way)


def world_of_one(error: Exception) -> Rendezvous:
    """For a Python without MPI. Raises RuntimeError if a launcher has started more ranks."""
    import torch.distributed as dist

    if started := next((name for name in mpi.LAUNCHED if int(os.environ.get(name, "1")) > 1), None):
        raise RuntimeError(
            f"{started} says that {os.environ[started]} ranks were started, and this Python cannot "
            f"use MPI ({error}): each would be rank 0 of 1. Start them by torchrun, or install "
            "mpi4py."
        )
    address = "127.0.0.1", mpi.reserve_port()
    return Rendezvous(0, 1, 0, lambda value: [value], dist.HashStore(), *address)


def _in_a_file(comm) -> tuple:
    """(a FileStore in a private folder, 127.0.0.1, a free port).

    A TCPStore would let in every user of the host.
    """
    import torch.distributed as dist

    from pi2zero import ownership
    from pi2zero.hosts.place import shared_memory_dir

    use_interface("lo")  # also where the host's own name does not resolve
    path = port = None
    if comm.rank == 0:
        # In shared memory: the store needs locks, which a disk over a network may not have.
        if run_dir := os.environ.get(mpi.RUN_DIR):  # of a cluster, which removes it
            folder = shared_memory_dir(run_dir)
            ownership.make_private_dir(Path(folder))  # unless it is there, as it should be
        else:
            temporary = ownership.temporary_dir("meeting", ownership.SHM_DIR)
            _kept_open.append(temporary)
            folder = temporary.name
        path, port = f"{folder}/torch-{time.monotonic_ns()}", mpi.reserve_port()
    path, port = comm.bcast((path, port))
    return dist.FileStore(path, comm.size), "127.0.0.1", port


def _at_a_port(comm, address_variable: str, local_rank: int) -> tuple:
    """(a TCPStore on rank 0, its address, its port, what closes it to other hosts).

    The system chooses the port: no two worlds on a host meet. address_variable: in it the kit's
    cluster names this host's address; what then listens is for the cluster's hosts alone.
    """
    import torch.distributed as dist

    own = os.environ.get(address_variable)
    host = comm.bcast(own) or common_address(comm, local_rank == 0)
    use_interface_towards(own or host)

    def close_to_others():
        if own:
            from pi2zero.hosts.port_filter import restrict_listeners

            restrict_listeners(os.getpid(), sorted(set(comm.allgather(own))))

    store = None
    if comm.rank == 0:
        store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
    close_to_others()  # the store; gloo's own port comes with the group
    port = comm.bcast(store.port if store else None)
    store = store or dist.TCPStore(host, port, is_master=False, wait_for_workers=False)
    return store, host, port, close_to_others


# --- networks -------------------------------------------------------------------------------------


def use_interface(name: str) -> None:
    """Let gloo and nccl use this network interface, unless the user has named one."""
    if sys.platform == "linux":
        # To nccl "eth1" would mean eth10, too.
        for variable, value in zip(INTERFACES, (name, f"={name}"), strict=True):
            if variable not in os.environ:
                environment.export(**{variable: value})


def use_interface_towards(host: str) -> None:
    """Let gloo and nccl use the interface by which this host reaches another, or itself."""
    try:
        from pi2zero.hosts import place
    except ImportError:  # a Python without psutil
        return
    try:
        address = place.local_address_towards(host)
        use_interface("lo" if address.startswith("127.") else place.interface_of(address)[0])
    except place.PlaceError:
        return  # torch will say it


def common_address(comm, tries: bool) -> str:
    """The address of rank 0's host that all hosts reach; of several, the fastest interface's.

    An interface that GLOO_SOCKET_IFNAME or the site file names is the only one tried. tries: this
    rank tries for its host. Raises RuntimeError, on all ranks.
    """
    listener, offer = socket.socket(), None
    if comm.rank == 0:
        listener.bind(("", 0))
        listener.listen(1024)  # to connect is enough: no connection is accepted
        offer = own_addresses(), listener.getsockname()[1]
    addresses, port = comm.bcast(offer)
    trusted = not tries or comm.rank == 0
    reached = {address for _, address in addresses if trusted or is_reached(address, port)}
    everywhere = set.intersection(*comm.allgather(reached))
    listener.close()
    for _, address in addresses:
        if address in everywhere:
            return address
    tried = ", ".join(f"{address} ({name})" for name, address in addresses) or "none"
    raise RuntimeError(
        f"Not all hosts reach rank 0's host. Its addresses: {tried}. Name the network interface "
        "that they share: GLOO_SOCKET_IFNAME, or `interface` in the site file "
        "(python -m pi2zero site --write)."
    )


def own_addresses() -> list[tuple[str, str]]:
    """(interface, IPv4 address) of this host, the fastest first; of the named interface if any."""
    import psutil

    from pi2zero.hosts import site

    named = os.environ.get(INTERFACES[0]) or site.load().interface
    states = psutil.net_if_stats()
    found = [
        (name, entry.address)
        for name, entries in psutil.net_if_addrs().items()
        if name != "lo" and name in states and states[name].isup
        for entry in entries
        if entry.family == socket.AF_INET
    ]
    found.sort(key=lambda pair: -states[pair[0]].speed)
    return [pair for pair in found if pair[0] == named] or found


def is_reached(address: str, port: int) -> bool:
    """Whether this host can connect to that port within REACH s."""
    try:
        socket.create_connection((address, port), timeout=REACH).close()
    except OSError:
        return False
    return True
