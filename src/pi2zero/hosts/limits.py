"""What this process may use of the machine: cores and memory, as a container or a batch job limits them; GPUs.

Limits are read from Linux control groups, version 2. Where there are none, what the system says holds.
"""

import contextlib
import os
import subprocess
from pathlib import Path

import psutil

CGROUPS = Path("/sys/fs/cgroup")
TABLE = Path("/proc/self/cgroup")


def _groups(root: Path, table: Path) -> list[Path]:
    """The folders of this process's control group and of those above it: each may set a limit."""
    try:
        (own,) = [line[3:] for line in table.read_text().splitlines() if line.startswith("0::")]
    except (OSError, ValueError):
        return []
    group = Path(own.lstrip("/"))
    return [root / folder for folder in (group, *group.parents)]


def cores(root: Path = CGROUPS, table: Path = TABLE) -> float:
    """Cores that this process may use: those it is bound to, or fewer if a quota says so (then possibly 1.5)."""
    usable = float(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    for group in _groups(root, table):
        quota, period = _words(group / "cpu.max", ["max", "1"])
        if quota != "max":
            usable = min(usable, int(quota) / int(period))
    return usable


def free_memory(root: Path = CGROUPS, table: Path = TABLE) -> float:
    """Bytes that can be had now: what the system has available, or less if a limit leaves less."""
    free = float(psutil.virtual_memory().available)
    for group in _groups(root, table):
        limit = _words(group / "memory.max", ["max"])[0]
        if limit == "max":
            continue
        used = int(_words(group / "memory.current", ["0"])[0])
        stat = _words(group / "memory.stat", [])
        caches = (
            int(stat[stat.index("inactive_file") + 1]) if "inactive_file" in stat else 0
        )  # given back when asked for
        free = min(free, int(limit) - used + caches)
    return max(0.0, free)


def total_memory(root: Path = CGROUPS, table: Path = TABLE) -> float:
    """Bytes of memory: the system's, or a limit below it."""
    limits = [_words(group / "memory.max", ["max"])[0] for group in _groups(root, table)]
    return float(
        min([psutil.virtual_memory().total, *(int(limit) for limit in limits if limit != "max")])
    )


def nvidia_gpus() -> int:
    """How many GPUs NVIDIA's driver shows to this process, whatever torch can do; 0 where there is no driver."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=10)
        return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
    return 0


def _words(file: Path, absent: list[str]) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return absent
