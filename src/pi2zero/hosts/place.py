"""Where ranks run: this machine, hosts by ssh, or a Slurm job's nodes; mpirun's options."""

import ipaddress
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from pi2zero import ownership
from pi2zero.environment import NO_SCHEDULER

SSH = (
    *("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
)
Progress = Callable[[str], None]  # shows what is being waited for


class PlaceError(ValueError):
    """There is no such place, or it cannot be used. The message says what is possible."""

    def _render_traceback_(self):
        """IPython shows this in place of the traceback."""
        return f"PlaceError: {self}".splitlines()


class Job(Protocol):
    """A scheduler's job that holds the hosts (slurm.py)."""

    number: str

    def why_over(self) -> str:
        """Why the job has ended; empty while it runs."""
        ...

    def cancel(self) -> None:
        """Give the hosts back."""


@dataclass(frozen=True)
class Place:
    """Hosts for ranks.

    slots: how many ranks fit on each host; empty: this machine. shell: the command that runs a line
    of sh on a host, once the host's name is added. interface: the name of this machine's network
    interface that leads to the hosts; empty: the system chooses. job: ends with the cluster.
    """

    slots: dict[str, int] = field(default_factory=dict)
    shell: tuple[str, ...] = ()
    interface: str = ""
    job: Job | None = None

    def why_over(self) -> str:
        """Why the hosts are not ours any more; empty while they are."""
        return self.job.why_over() if self.job else ""

    def give_back(self) -> None:
        """Cancel the job, if one was submitted for these hosts."""
        if self.job:
            self.job.cancel()

    def describe(self, n: int) -> str:
        """' on node1 (2) and node2 (2)', or ' on this machine'."""
        if not self.slots:
            return " on this machine"
        *others, last = [f"{host} ({ranks})" for host, ranks in self.shares(n).items() if ranks]
        return f" on {', '.join(others)} and {last}" if others else f" on {last}"

    def shares(self, n: int) -> dict[str, int]:
        """How many of n ranks each host gets: hosts are filled in order, or all get the same.

        The latter if there are more ranks than slots.
        """
        if n > sum(self.slots.values()):
            share, more = divmod(n, len(self.slots) or 1)
            return {host: share + (at < more) for at, host in enumerate(self.slots)}
        shares = {}
        for host, slots in self.slots.items():
            shares[host] = min(slots, n)
            n -= shares[host]
        return shares

    def address(self) -> str:
        """This machine's address that the hosts reach; "" if all ranks are here.

        Raises PlaceError.
        """
        others = [host for host in self.slots if host != socket.gethostname()]
        if not others:
            return ""
        interfaces = psutil.net_if_addrs()
        if self.interface:
            for address in interfaces.get(self.interface, []):
                if address.family == socket.AF_INET:
                    return address.address
            raise PlaceError(
                f"This machine has no network interface {self.interface!r} with an IPv4 address. "
                f"It has: {', '.join(sorted(interfaces))}."
            )
        addresses = {local_address_towards(host) for host in others}
        if len(addresses) > 1:
            raise PlaceError(
                f"This machine reaches the hosts from {len(addresses)} addresses "
                f"({', '.join(sorted(addresses))}). Name one interface."
            )
        return addresses.pop()

    def mpi_args(self, n: int, environment: dict[str, str], folder: Path) -> list[str]:
        """mpirun's options to start n ranks here with these variables.

        folder: of the cluster's files, by the same name on each host.
        """
        if not self.slots:
            return []
        hosts = [f"{host}:{ranks}" for host, ranks in self.shares(n).items() if ranks]
        args = ["--host", ",".join(hosts), "--map-by", "slot"]
        # Our own shell reaches the hosts, and no scheduler's view of them counts.
        daemon_settings = {"plm": "ssh", "plm_ssh_agent": " ".join(self.shell)}
        daemon_settings["ras"] = NO_SCHEDULER["ras"]
        rank_settings = {}
        if address := self.address():
            network = network_of(address)
            daemon_settings["prte_if_include"] = rank_settings["btl_tcp_if_include"] = network
            # Private folders, which the kit removes also when Open MPI's daemon was killed.
            daemon_settings["prte_remote_tmpdir_base"] = str(folder)
            rank_settings["btl_sm_backing_directory"] = shared_memory_dir(folder)
        for option, settings in (("--prtemca", daemon_settings), ("--mca", rank_settings)):
            for name, value in settings.items():
                args += [option, name, value]
        # srun hands the environment over, and the site's modules change these two on the way.
        changed = () if self.shell == SSH else ("PATH", "LD_LIBRARY_PATH")
        return [*args, *(w for name in environment if name not in changed for w in ("-x", name))]


@dataclass
class PlaceRequest:
    """What the user has asked for. `allocate` gives the hosts; here they are known already."""

    place: Place = field(default_factory=Place)

    def is_local(self) -> bool:
        """Whether all ranks will be on this machine."""
        return not self.place.slots

    def allocate(self, n: int, progress: Progress) -> Place:
        """The hosts for n ranks. Raises PlaceError."""
        return self.place


def shared_memory_dir(folder: str | Path) -> str:
    """Where ranks have their shared memory on a host. folder: of the cluster's files."""
    return str(ownership.SHM_DIR / Path(folder).name)


def local_address_towards(host: str) -> str:
    """This machine's address on the way to a host. Nothing is sent. Raises PlaceError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
        except OSError as error:
            why = error.strerror or error
            raise PlaceError(f"{host} has no address that this machine reaches ({why}).") from None
        return probe.getsockname()[0]


def interface_of(address: str) -> tuple[str, str]:
    """(name, network mask) of this machine's interface with that address. Raises PlaceError."""
    for name, addresses in psutil.net_if_addrs().items():
        for entry in addresses:
            if entry.family == socket.AF_INET and entry.address == address:
                return name, entry.netmask or ""
    raise PlaceError(f"No network interface of this machine has the address {address}.")


def network_of(address: str) -> str:
    """10.77.0.1 -> 10.77.0.0/24, by the mask of the interface that has it."""
    return str(ipaddress.ip_network(f"{address}/{interface_of(address)[1]}", strict=False))


def variables_for_ranks() -> dict[str, str]:
    """The variables of this process that ranks on other hosts need, too."""
    wanted = (
        r"(OMPI|PRTE|PMIX|UCX|NCCL|PI2ZERO|HF)_\w+|PATH|OMP_NUM_THREADS"
        r"|PYTHON(?!PATH|HOME)\w*|LD_LIBRARY_PATH|VIRTUAL_ENV"
    )
    return {name: value for name, value in os.environ.items() if re.fullmatch(wanted, name)}
