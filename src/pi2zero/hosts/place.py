"""Where ranks run: this machine, hosts that ssh reaches, or the nodes of a Slurm job; and how Open MPI starts them there."""

import os
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from pi2zero import ownership

SSH = [
    "ssh",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
]


class PlaceError(ValueError):
    """There is no such place, or it cannot be used. The message says what is possible."""

    def _render_traceback_(self):
        """IPython shows this in place of the traceback."""
        return f"PlaceError: {self}".splitlines()


@dataclass(frozen=True)
class Place:
    """slots: the hosts and how many ranks fit on each; none: this machine. shell: what runs a line of sh on the host whose name
    follows. interface: the name of this machine's network interface that leads to them; none: the one that the system takes."""

    slots: dict[str, int] = field(default_factory=dict)
    shell: tuple[str, ...] = ()
    interface: str = ""
    job: object = None  # Slurm's, if it was asked for these hosts: it ends with the cluster

    @property
    def folder(self) -> Path | None:
        """Where the cluster's private folder lies, by the same name on all hosts; None: in this machine's temporary folder."""
        return ownership.TMP_ON_EVERY_HOST if self.slots else None

    def take(self, n: int, folder: Path, progress) -> "Place":
        """The hosts are there already (see slurm.Wanted)."""
        return self

    def why_over(self) -> str:
        """Why the hosts are not ours any more; empty while they are."""
        return self.job.why_over() if self.job else ""

    def give_back(self) -> None:
        """Cancel the Slurm job, if one was asked for these hosts."""
        if self.job:
            self.job.cancel()

    def words(self, n: int) -> str:
        """' on node1 (2) and node2 (2)', or ' on this machine'."""
        if not self.slots:
            return " on this machine"
        shares = [f"{host} ({ranks})" for host, ranks in self.shares(n).items() if ranks]
        return (
            f" on {', '.join(shares[:-1])} and {shares[-1]}"
            if len(shares) > 1
            else "".join(f" on {one}" for one in shares)
        )

    def shares(self, n: int) -> dict[str, int]:
        """How many of n ranks each host gets: host by host, as they have room; if there is not enough, the same on each."""
        if n > sum(self.slots.values()):
            share, more = divmod(n, len(self.slots) or 1)
            return {host: share + (at < more) for at, host in enumerate(self.slots)}
        shares, left = {}, n
        for host, slots in self.slots.items():
            shares[host] = min(slots, left)
            left -= shares[host]
        return shares

    def address(self) -> str:
        """This machine's address that the hosts reach; "" where all ranks are here. Raises PlaceError."""
        others = [host for host in self.slots if host != socket.gethostname()]
        if not others:
            return ""
        if self.interface:
            found = [
                a.address
                for a in psutil.net_if_addrs().get(self.interface, [])
                if a.family == socket.AF_INET
            ]
            if not found:
                known = ", ".join(sorted(psutil.net_if_addrs()))
                raise PlaceError(
                    f"This machine has no network interface {self.interface!r} with an IPv4 address. It has: {known}."
                )
            return found[0]
        found = {facing(host) for host in others}
        if len(found) > 1:
            raise PlaceError(
                f"This machine reaches the hosts from {len(found)} addresses ({', '.join(sorted(found))}). Name one interface."
            )
        return found.pop()

    def mpi_args(self, n: int, environment: dict[str, str], folder: Path) -> list[str]:
        """What mpirun needs to start n ranks here, with these variables. folder: of the cluster's files, on each host."""
        if not self.slots:
            return []
        shares = {host: ranks for host, ranks in self.shares(n).items() if ranks}
        args = [
            "--host",
            ",".join(f"{host}:{ranks}" for host, ranks in shares.items()),
            "--map-by",
            "slot",
        ]
        # Whoever gave the hosts: they are reached by our own shell, and no scheduler's view of them counts.
        args += [
            "--prtemca",
            "plm",
            "ssh",
            "--prtemca",
            "plm_ssh_agent",
            " ".join(self.shell),
            "--prtemca",
            "ras",
            "^slurm",
        ]
        if address := self.address():
            network = network_of(address)
            args += [
                "--prtemca",
                "prte_if_include",
                network,
                "--mca",
                "btl_tcp_if_include",
                network,
            ]
            # What Open MPI keeps there goes where nobody else looks, and with the folder, also if its daemon is killed.
            args += ["--prtemca", "prte_remote_tmpdir_base", str(folder)]
            args += ["--mca", "btl_sm_backing_directory", segments(folder)]
        # srun hands the environment over, and the site's modules change it on the way
        kept = () if self.shell == tuple(SSH) else ("PATH", "LD_LIBRARY_PATH")
        for name in environment:
            args += ["-x", name] * (name not in kept)
        return args


def segments(folder: str | Path) -> str:
    """Where a cluster's ranks have their shared memory on a host, by the folder of the cluster's files."""
    return str(ownership.SHM_DIR / Path(folder).name)


def facing(host: str) -> str:
    """This machine's address on the way to a host. Nothing is sent. Raises PlaceError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
        except OSError as error:
            raise PlaceError(
                f"{host} has no address that this machine reaches ({error.strerror or error})."
            ) from None
        return probe.getsockname()[0]


def interface_of(address: str) -> tuple[str, str]:
    """(name, network mask) of this machine's interface with that address."""
    for name, addresses in psutil.net_if_addrs().items():
        for one in addresses:
            if one.family == socket.AF_INET and one.address == address:
                return name, one.netmask
    raise PlaceError(f"No network interface of this machine has the address {address}.")


def network_of(address: str) -> str:
    """10.77.0.1 -> 10.77.0.0/24, by the mask of the interface that has it."""
    import ipaddress

    return str(ipaddress.ip_network(f"{address}/{interface_of(address)[1]}", strict=False))


def own_variables() -> dict[str, str]:
    """The variables of this process that ranks on other hosts need, too."""
    wanted = r"(OMPI|PRTE|PMIX|UCX|NCCL|PI2ZERO|HF)_\w+|PATH|OMP_NUM_THREADS|PYTHON(?!PATH|HOME)\w*|LD_LIBRARY_PATH|VIRTUAL_ENV"
    return {name: value for name, value in os.environ.items() if re.fullmatch(wanted, name)}
