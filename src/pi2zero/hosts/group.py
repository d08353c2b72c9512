"""All hosts that a cluster's ranks run on, asked from the kernel at once."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pi2zero import log
from pi2zero.hosts import agent
from pi2zero.hosts.concurrency import run_in_threads
from pi2zero.hosts.exit_watcher import first_to_exit
from pi2zero.hosts.host import HostError, LocalHost, RemoteHost
from pi2zero.hosts.place import Place


class HostGroup:
    """All hosts of a cluster. Raises HostError if one of them cannot be used.

    mark: the cluster's. folder: the private folder of its files, by the same name on each host.
    addresses: the hosts' addresses in their network; none if all ranks are here.
    """

    def __init__(self, place: Place, mark: str, folder: Path):
        self.mark, self.folder, self.local = mark, str(folder), LocalHost()
        self.remote: list[RemoteHost] = []
        self.addresses = [address] if (address := place.address()) else []
        self.host_of_rank: dict[int, LocalHost | RemoteHost] = {}
        self._closed = False
        agent.hello(self.folder)
        try:
            self._start_agents(place)
        except BaseException:  # also the stop button: an agent that starts later is ended at once
            self._closed = True
            self.close()
            raise

    def _start_agents(self, place: Place) -> None:
        errors, job = [], place.job.number if place.job else ""

        def start(name: str) -> None:
            try:
                host = RemoteHost(name, place.shell, self.mark, self.folder, job)
                self.remote.append(host)
                if self._closed:
                    return host.close(self.mark, self.folder)
                self.addresses.append(host.call("local_address_towards", self.addresses[0]))
            except HostError as error:
                errors.append(str(error))

        run_in_threads(start, [host for host in place.slots if host != self.local.name])
        if errors:
            raise HostError("\n".join(sorted(errors)))

    def __iter__(self) -> Iterator[LocalHost | RemoteHost]:
        return iter([self.local, *self.remote])

    def restrict_listeners(self, mark: str) -> None:
        """Let only these hosts, if several, reach what processes with this mark listen on."""
        for host in self if self.remote else ():
            host.call("restrict_listeners", mark, self.addresses)

    def publish(self, path: Path, text: str) -> None:
        """Write a private file on all hosts."""
        for host in self:
            host.call("write", str(path), text)

    def read(self, paths: dict[int, Path]) -> dict[int, str]:
        """Each rank's file; "" if its host is lost or has none."""
        texts = dict.fromkeys(paths, "")
        for host in self:
            ranks = [rank for rank in paths if self.host_of_rank[rank] is host]
            with contextlib.suppress(HostError):
                if ranks and not host.why_lost:
                    found = host.call("read_all", [str(paths[rank]) for rank in ranks])
                    texts.update(zip(ranks, found, strict=True))
        return texts

    def watch(self, ranks_mark: str, info: list[dict], sample_paths: dict[int, str]) -> None:
        """Watch these ranks from now on. info: host and mark of each, in their order."""
        by_name = {host.name: host for host in self}
        self.host_of_rank = {
            rank: by_name.get(about["host"], self.local) for rank, about in enumerate(info)
        }
        for host in self:
            ranks = [rank for rank, home in self.host_of_rank.items() if home is host]
            marks = {rank: info[rank]["mark"] for rank in ranks}
            host.watch(ranks_mark, marks, {rank: sample_paths[rank] for rank in ranks})

    def sample(self, rank: int) -> str:
        """The text of a rank's last sample."""
        return self.host_of_rank[rank].sample(rank)

    def dead_ranks(self) -> list[int]:
        """Ranks whose process has ended."""
        return sorted(rank for host in self for rank in host.dead_ranks())

    def first_to_exit(self, cut_off: set[int]) -> list[int]:
        """The rank that ended first, as far as known. cut_off: see exit_watcher.py."""
        return first_to_exit([host.exit_times() for host in self], cut_off)

    def lost(self) -> dict[str, str]:
        """Hosts that do not answer any more, and why."""
        return {host.host: host.why_lost for host in self.remote if host.why_lost}

    def ranks_on_lost(self) -> dict[int, str]:
        """The ranks on hosts that do not answer any more, and why."""
        return {
            rank: f"its host {host.host} is lost: {host.why_lost}"
            for rank, host in self.host_of_rank.items()
            if isinstance(host, RemoteHost) and host.why_lost
        }

    def read_after(
        self, paths: dict[int, Path], trigger: Callable[[], None], patience: float = 0.5
    ) -> dict[int, str]:
        """Each rank's file, emptied first and read once trigger() has let the ranks write it."""
        for host in self:
            ranks = [rank for rank in paths if self.host_of_rank[rank] is host]
            with contextlib.suppress(HostError):
                if ranks and not host.why_lost:
                    host.call("clear", [str(paths[rank]) for rank in ranks])
        trigger()
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and not all(self.read(paths).values()):
            time.sleep(0.02)
        time.sleep(0.02)  # for the last frames
        return self.read(paths)

    def end(self, mark: str) -> None:
        """End what carries this mark on all hosts.

        The local host comes last: mpirun is the way to its daemons, and Slurm would kill them.
        """

        def end_on(host: LocalHost | RemoteHost) -> None:
            with contextlib.suppress(HostError):
                if not host.why_lost:
                    host.call("end", mark)

        run_in_threads(end_on, self.remote)
        end_on(self.local)

    def collect_logs(self) -> None:
        """Append the other hosts' logs to the cluster's log here, unless it is the same file."""
        path = Path(self.folder) / log.NAME
        for host in self.remote:
            if host.why_lost:
                continue
            with log.failures("fetch the log of a host", HostError, OSError):
                (text,) = host.call("read_all", [str(path)])
                if text not in path.read_text():
                    with path.open("a") as file:
                        file.write(text)

    def close(self) -> None:
        """End everything of this cluster on all hosts, and remove its files."""
        try:
            run_in_threads(lambda host: host.close(self.mark, self.folder), self.remote)
        finally:
            self.local.close(self.mark, self.folder)
