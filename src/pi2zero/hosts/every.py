"""All hosts that a cluster's ranks run on, asked from the kernel at once (reach.py: one of them)."""

import contextlib
import time
from pathlib import Path

from pi2zero.hosts import agent
from pi2zero.hosts.ends import first_of
from pi2zero.hosts.reach import Here, HostError, There
from pi2zero.hosts.together import side_by_side


class Hosts:
    """All hosts of a cluster. `folder`: the private folder of its files, by the same name on each."""

    def __init__(self, place, mark: str, folder: Path):
        self.mark, self.folder, self.here = mark, str(folder), Here()
        self.others: list[There] = []
        self._closed = False
        self.friends = [
            one for one in [place.address()] if one
        ]  # the hosts' addresses in their network
        self._starting(place)

    def _starting(self, place) -> None:
        """The agents, all at once."""
        names = [host for host in place.slots if host != self.here.name]
        agent.hello(self.folder)
        failed, job = [], place.job.number if place.job else ""

        def start(host):
            try:
                self.others.append(new := There(host, place.shell, self.mark, self.folder, job))
                if self._closed:
                    new.close(self.mark, self.folder)
                    return
                self.friends.append(new.call("facing", self.friends[0]))
            except HostError as error:
                failed.append(str(error))
            except OSError as error:  # no ssh, no srun
                failed.append(f"{host} cannot be used: {error}")

        try:
            side_by_side(start, names)
        except BaseException:  # the stop button: what starts is ended as soon as it can be
            self._closed = True
            self.close()
            raise
        if failed:
            self.close()
            raise HostError("\n".join(sorted(failed)))

    def __iter__(self):
        return iter([self.here, *self.others])

    def seal(self, mark: str) -> None:
        """Of what carries this mark on these hosts, if they are several, only these hosts reach what it listens on."""
        for host in self if self.others else ():
            host.call("seal", mark, self.friends)

    def publish(self, path: Path, text: str) -> None:
        """Write a private file on all hosts."""
        for host in self:
            host.call("write", str(path), text)

    def watch(self, ranks_mark: str, info: list[dict], samples_of: dict[int, str]) -> None:
        """Look at these ranks from now on. info: of each, host and mark. samples_of: the file of each one's samples."""
        self.home = {
            one["rank"]: next((host for host in self if host.name == one["host"]), self.here)
            for one in info
        }
        for host in self:
            mine = {rank: info[rank]["mark"] for rank, home in self.home.items() if home is host}
            host.watch(ranks_mark, mine, {rank: samples_of[rank] for rank in mine})

    def sample(self, rank: int) -> str:
        """The text of a rank's last sample."""
        return self.home[rank].sample(rank)

    def gone(self) -> list[int]:
        """Ranks whose process has ended."""
        return sorted(rank for host in self for rank in host.gone())

    def ended_first(self, cut_off: set[int]) -> list[int]:
        """The rank that ended first, as far as it is known. cut_off: those that ended because they had lost their connection."""
        return first_of([host.ended() for host in self], cut_off)

    def lost(self) -> dict[str, str]:
        """Hosts that do not answer any more, and why."""
        return {host.host: host.why_lost for host in self.others if host.why_lost}

    def on_lost(self) -> dict[int, str]:
        """The ranks on hosts that do not answer any more, and why."""
        lost = self.lost()
        return {
            rank: f"its host {home.host} is lost: {lost[home.host]}"
            for rank, home in self.home.items()
            if home is not self.here and home.host in lost
        }

    def read(self, paths: dict[int, Path], before, patience: float = 0.5) -> dict[int, str]:
        """Each rank's file, once it has been emptied and before() has let the ranks write it anew."""
        by_host = {host: [rank for rank in paths if self.home[rank] is host] for host in self}
        by_host = {host: ranks for host, ranks in by_host.items() if ranks and not host.why_lost}
        found = dict.fromkeys(paths, "")
        with contextlib.suppress(HostError):
            for host, ranks in by_host.items():
                host.call("clear", [str(paths[rank]) for rank in ranks])
            before()
            deadline = time.monotonic() + patience
            while time.monotonic() < deadline and not all(found.values()):
                time.sleep(0.02)
                self._read_once(by_host, paths, found)
            time.sleep(0.02)  # the last frames
            self._read_once(by_host, paths, found)
        return found

    @staticmethod
    def _read_once(by_host, paths, found):
        for host, ranks in by_host.items():
            found |= dict(
                zip(ranks, host.call("read_all", [str(paths[rank]) for rank in ranks]), strict=True)
            )

    def end(self, mark: str) -> None:
        """End what carries this mark, on all hosts; here last: with mpirun the way to its daemons ends, and Slurm kills them."""
        side_by_side(lambda host: self._end_on(host, mark), self.others)
        self._end_on(self.here, mark)

    @staticmethod
    def _end_on(host, mark):
        with contextlib.suppress(HostError):
            if not host.why_lost:
                host.call("end", mark)

    def close(self) -> None:
        """End everything of this cluster on all hosts, here last, and remove its files."""
        try:
            side_by_side(lambda host: host.close(self.mark, self.folder), self.others)
        finally:
            self.here.close(self.mark, self.folder)
