"""A person's control group: what all of a person's processes together may use, and what they have used.

Linux counts and limits whatever is started in the group, also what changes its session or its parent, as MPI's daemons do; and
who has many processes gets no more processor time than who has few. Both versions of control groups are known.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PERIOD = 100_000  # us in which a person may use cores * PERIOD us of processor time
FIRST, SECOND = ("memory", "cpu", "cpuacct", "pids"), ("memory", "cpu", "pids")  # controllers


class Group:
    """The group of a person. Nothing is made before make()."""

    def __init__(self, name: str, root: Path = ROOT, table: Path = Path("/proc/self/cgroup")):
        own = dict(line.split(":", 2)[1:] for line in table.read_text().splitlines())
        self.unified = (root / "cgroup.controllers").exists()
        self.parents = {what: root / what / parent_of(own, what) for what in FIRST}
        if self.unified:
            self.parents = {"": root / own[""].strip().lstrip("/").removesuffix("/hub")}
        self.folders = {what: parent / f"person-{name}" for what, parent in self.parents.items()}

    def make(self, memory: int | None, cores: float | None, processes: int | None) -> None:
        """Make it, with limits: bytes, cores' worth of processor time, processes and threads. None: unlimited."""
        if self.unified:
            share_out(self.parents[""])
        for folder in self.folders.values():
            folder.mkdir(exist_ok=True)
        if self.unified:
            limits = {
                "memory.max": memory,
                "memory.swap.max": 0 if memory else None,
                "pids.max": processes,
            }
            limits["cpu.max"] = f"{round(cores * PERIOD)} {PERIOD}" if cores else None
            for name, limit in limits.items():
                self.set("", name, "max" if limit is None else limit)
        else:
            self.set("memory", "memory.limit_in_bytes", memory or -1)
            self.set("pids", "pids.max", processes or "max")
            self.set("cpu", "cpu.cfs_quota_us", round(cores * PERIOD) if cores else -1)

    def set(self, what: str, name: str, limit) -> None:
        file = self.folders[what] / name
        if file.exists() or name != "memory.swap.max":  # a kernel without swap has no such file
            file.write_text(str(limit))

    def enter(self) -> None:
        """The calling process, and all that it will start, belongs to it from now on."""
        for folder in self.folders.values():
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    def pids(self) -> list[int]:
        """Its processes."""
        with contextlib.suppress(FileNotFoundError):
            return [int(pid) for pid in (self.folder("pids") / "cgroup.procs").read_text().split()]
        return []

    def used(self) -> dict[str, float]:
        """Bytes now (without files that could be read again), processes and threads now, seconds of processor time so far."""
        told = dict(
            line.split()
            for line in (self.folder("memory") / "memory.stat").read_text().splitlines()
        )
        names = ("anon", "shmem") if self.unified else ("total_rss", "total_shmem")
        if self.unified:
            seconds = int((self.folder("cpu") / "cpu.stat").read_text().split()[1]) / 1e6
        else:
            seconds = int((self.folder("cpuacct") / "cpuacct.usage").read_text()) / 1e9
        tasks = int((self.folder("pids") / "pids.current").read_text())
        return {
            "bytes": sum(int(told.get(name, 0)) for name in names),
            "tasks": tasks,
            "seconds": seconds,
        }

    def folder(self, what: str) -> Path:
        return self.folders["" if self.unified else what]

    def end(self, patience: float = 10.0) -> None:
        """End all its processes and remove it. What refuses to die within `patience` s stays, and so does the group."""
        deadline = time.monotonic() + patience
        while not self.remove() and time.monotonic() < deadline:
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def remove(self) -> bool:
        """Remove it, if it is empty: a killed process is in it until its parent has heard of it. Whether it is gone."""
        for folder in self.folders.values():
            with contextlib.suppress(OSError):
                folder.rmdir()
        return not any(folder.exists() for folder in self.folders.values())


def parent_of(own: dict[str, str], what: str) -> str:
    """Where this process is in the hierarchy of a controller; a hierarchy may have several controllers."""
    (path,) = [path for controllers, path in own.items() if what in controllers.split(",")] or ["/"]
    return path.strip().lstrip("/")


def share_out(parent: Path) -> None:
    """Version 2: let children of a group have limits. Then it may hold no processes of its own: they go to its child `hub`."""
    given = set((parent / "cgroup.subtree_control").read_text().split())
    if set(SECOND) <= given:
        return
    if parent != ROOT:
        (parent / "hub").mkdir(exist_ok=True)
        for pid in (parent / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (parent / "hub" / "cgroup.procs").write_text(pid)
    (parent / "cgroup.subtree_control").write_text(" ".join(f"+{what}" for what in SECOND))
