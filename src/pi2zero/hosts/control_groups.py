"""Linux control groups, versions 1 and 2: where this process's own groups are, and their limits.

Version 1 has a hierarchy for each controller ("memory", "cpu", ...), version 2 one for all. A limit
may stand in this process's group or in any group above it.
"""

import contextlib
import math
from pathlib import Path

ROOT, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
UNLIMITED = 2**60  # version 1 writes nearly 2**63


class ControlGroups:
    """The groups of this process. is_v2: one hierarchy for all controllers."""

    def __init__(self, root: Path = ROOT, own_groups: Path = OWN_GROUPS):
        self.root, self.is_v2 = root, (root / "cgroup.controllers").exists()
        self._paths: dict[str, str] = {}  # by controller; "" is version 2's
        with contextlib.suppress(OSError):
            for line in own_groups.read_text(errors="replace").splitlines():
                _, controllers, path = line.split(":", 2)
                self._paths |= dict.fromkeys(controllers.split(","), path.lstrip("/"))

    def own_dir(self, controller: str) -> Path:
        """The folder of this process's group in the hierarchy of a controller."""
        if self.is_v2:
            return self.root / self._paths.get("", "")
        return self.root / controller / self._paths.get(controller, "")

    def cpu_limit(self) -> float:
        """Cores' worth of processor time that this process may use; infinity if unlimited."""
        limits = [math.inf]
        for group in self._levels("cpu"):
            if self.is_v2:
                quota, period = (_words(group / "cpu.max") or ["max", "1"])[:2]
            else:
                quota = (_words(group / "cpu.cfs_quota_us") or ["-1"])[0]
                period = (_words(group / "cpu.cfs_period_us") or ["1"])[0]
            if quota not in ("max", "-1"):
                limits.append(int(quota) / int(period))
        return min(limits)

    def memory_limits(self) -> list[tuple[int, int]]:
        """(limit, used) in bytes for each group that limits this process's memory.

        Cached files do not count as used: the system gives them back when they are needed.
        """
        names = ("memory.max", "memory.current", "inactive_file")
        if not self.is_v2:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        limits = []
        for group in self._levels("memory"):
            limit = (_words(group / names[0]) or ["max"])[0]
            if limit == "max" or int(limit) > UNLIMITED:
                continue
            used = int((_words(group / names[1]) or ["0"])[0])
            stat = _words(group / "memory.stat")
            cached = dict(zip(stat[::2], stat[1::2], strict=False)).get(names[2], "0")
            limits.append((int(limit), used - int(cached)))
        return limits

    def task_limits(self) -> list[tuple[int, int]]:
        """(limit, used) processes and threads, for each group that limits this process's."""
        limits = []
        for group in self._levels("pids"):
            limit, used = (_words(group / name) for name in ("pids.max", "pids.current"))
            if limit and used and limit != ["max"]:
                limits.append((int(limit[0]), int(used[0])))
        return limits

    def _levels(self, controller: str) -> list[Path]:
        """This process's group and those above it, up to the root of the hierarchy."""
        own = self.own_dir(controller)
        top = self.root if self.is_v2 else self.root / controller
        return [group for group in (own, *own.parents) if group.is_relative_to(top)]


def _words(file: Path) -> list[str]:
    """The words in a file; none if it cannot be read."""
    with contextlib.suppress(OSError):
        return file.read_text().split()
    return []
