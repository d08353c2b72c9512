"""A person's control group: what all their processes together may use, and what they have used.

Linux counts and limits everything that is started in the group, also processes that change their
session or parent, as MPI's daemons do. Versions 1 and 2 of control groups are supported.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

import psutil

from pi2zero.hosts.control_groups import OWN_GROUPS, ROOT, ControlGroups

PERIOD = 100_000  # µs in which a person may use cores * PERIOD µs of processor time
V1_CONTROLLERS, V2_CONTROLLERS = ("memory", "cpu", "cpuacct", "pids"), ("memory", "cpu", "pids")
# Folders shared by all users, and the names of what MPI, torch and the kit leave there.
SHARED = {
    "/dev/shm": ("sm_segment.",),
    "/tmp": ("ompi.", "pi2zero-", "torchelastic_", "torchinductor_"),
}


class PersonGroup:
    """The group of a person. Nothing is made before make()."""

    def __init__(self, name: str, root: Path = ROOT, own_groups: Path = OWN_GROUPS):
        groups = ControlGroups(root, own_groups)
        self.is_v2 = groups.is_v2
        own_dir = groups.own_dir("")
        self.parents = {"": own_dir.parent if own_dir.name == "hub" else own_dir}
        if not self.is_v2:
            self.parents = {what: groups.own_dir(what) for what in V1_CONTROLLERS}
        self.dirs = {what: parent / f"person-{name}" for what, parent in self.parents.items()}

    def make(self, memory: int | None, cores: float | None, processes: int | None) -> None:
        """Make it, with limits: bytes, cores, processes and threads. None: unlimited."""
        if self.is_v2:
            delegate_controllers(self.parents[""])
        for path in self.dirs.values():
            path.mkdir(exist_ok=True)
        quota = round(cores * PERIOD) if cores else None
        if self.is_v2:
            limits = {
                "memory.max": memory or "max",
                "memory.swap.max": 0 if memory else "max",
                "pids.max": processes or "max",
                "cpu.max": f"{quota} {PERIOD}" if quota else "max",
            }
        else:
            limits = {
                "memory.limit_in_bytes": memory or -1,
                "pids.max": processes or "max",
                "cpu.cfs_quota_us": quota or -1,
            }
        for name, limit in limits.items():
            path = self.dir(name.split(".")[0]) / name
            if path.exists() or name != "memory.swap.max":  # kernels without swap have no such file
                path.write_text(str(limit))

    def dir(self, controller: str) -> Path:
        return self.dirs["" if self.is_v2 else controller]

    def enter(self) -> None:
        """Move the calling process, and all that it will start, into the group."""
        for path in self.dirs.values():
            (path / "cgroup.procs").write_text(str(os.getpid()))

    def pids(self) -> list[int]:
        with contextlib.suppress(FileNotFoundError):
            return [int(pid) for pid in (self.dir("pids") / "cgroup.procs").read_text().split()]
        return []

    def usage(self) -> dict[str, float]:
        """Bytes (without cached files), processes and threads now; seconds of processor time."""
        lines = (self.dir("memory") / "memory.stat").read_text().splitlines()
        stat = dict(line.split() for line in lines)
        if self.is_v2:
            names = ("anon", "shmem")
            seconds = int((self.dir("cpu") / "cpu.stat").read_text().split()[1]) / 1e6
        else:
            names = ("total_rss", "total_shmem")
            seconds = int((self.dir("cpuacct") / "cpuacct.usage").read_text()) / 1e9
        return {
            "bytes": sum(int(stat.get(name, 0)) for name in names),
            "tasks": int((self.dir("pids") / "pids.current").read_text()),
            "seconds": seconds,
        }

    def end(self, timeout: float = 10.0) -> None:
        """Kill its processes and remove it. After timeout (s) what refuses to die stays."""
        deadline = time.monotonic() + timeout
        while not self.remove() and time.monotonic() < deadline:
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def remove(self) -> bool:
        """Remove it if it is empty; whether it is gone."""
        for path in self.dirs.values():
            with contextlib.suppress(OSError):
                path.rmdir()
        return not any(path.exists() for path in self.dirs.values())


async def end_person(group: PersonGroup, uid: int, grace: float) -> None:
    """Wait grace (s) for the kit to end its ranks, kill the rest, remove the files of all.

    What takes time runs in a thread: the hub serves everybody else from one event loop.
    """
    deadline = time.monotonic() + grace
    while group.pids() and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    await asyncio.to_thread(group.end)
    await asyncio.to_thread(remove_shared_files, uid)


def remove_shared_files(uid: int, shared: dict[str, tuple[str, ...]] = SHARED) -> None:
    """Remove what MPI and torch have left of a user who has no process here: it holds memory."""
    for process in psutil.process_iter(["uids", "status"]):
        uids, status = process.info["uids"], process.info["status"]
        if uids and uids.real == uid and status != psutil.STATUS_ZOMBIE:
            return
    for folder, names in shared.items():
        for entry in os.scandir(folder):
            with contextlib.suppress(FileNotFoundError):  # other people's files come and go
                if entry.name.startswith(names) and entry.stat(follow_symlinks=False).st_uid == uid:
                    is_dir = entry.is_dir(follow_symlinks=False)
                    shutil.rmtree(entry.path) if is_dir else Path(entry.path).unlink()


def delegate_controllers(parent: Path) -> None:
    """Version 2: let children of a group have limits.

    Such a group may hold no processes of its own: they move to its child `hub`.
    """
    given = set((parent / "cgroup.subtree_control").read_text().split())
    if set(V2_CONTROLLERS) <= given:
        return
    if parent != ROOT:
        (parent / "hub").mkdir(exist_ok=True)
        for pid in (parent / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (parent / "hub" / "cgroup.procs").write_text(pid)
    wanted = " ".join(f"+{what}" for what in V2_CONTROLLERS)
    (parent / "cgroup.subtree_control").write_text(wanted)
