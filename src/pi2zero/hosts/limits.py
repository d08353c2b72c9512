"""What this process may use of the machine, as a container or a batch job limits it."""

import contextlib
import os
import resource
import subprocess
from pathlib import Path
from typing import NamedTuple

import psutil

from pi2zero.hosts.control_groups import ControlGroups


def cores(groups: ControlGroups | None = None) -> float:
    """Cores that this process may use: those it is bound to, or fewer by a quota (perhaps 1.5)."""
    bound = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    return min(float(len(bound)), (groups or ControlGroups()).cpu_limit())


def free_memory(groups: ControlGroups | None = None) -> float:
    """Bytes that can be allocated now: what the system has, or less if a limit leaves less."""
    left = [limit - used for limit, used in (groups or ControlGroups()).memory_limits()]
    return max(0.0, float(min([psutil.virtual_memory().available, *left])))


def total_memory(groups: ControlGroups | None = None) -> float:
    """Bytes of memory: the system's, or a limit below it."""
    limits = [limit for limit, _ in (groups or ControlGroups()).memory_limits()]
    return float(min([psutil.virtual_memory().total, *limits]))


class TaskLimit(NamedTuple):
    """How many processes and threads may exist, and do. whose: the subject of a sentence."""

    whose: str
    limit: int
    used: int


def task_limits(groups: ControlGroups | None = None) -> list[TaskLimit]:
    """The limits on processes and threads, which Linux counts together; [] if there is none."""
    limits = [
        TaskLimit("this container, session or batch job", limit, used)
        for limit, used in (groups or ControlGroups()).task_limits()
    ]
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if limit != resource.RLIM_INFINITY and not _is_exempt():
        limits.append(TaskLimit("your account", limit, own_tasks()))
    return limits


def own_tasks() -> int:
    """Processes and threads of this user that this process can see."""
    count = 0
    for pid in psutil.pids():
        with contextlib.suppress(OSError):  # it has ended
            status = Path(f"/proc/{pid}/task").stat()
            if status.st_uid == os.getuid():
                count += status.st_nlink - 2  # one folder for each thread
    return count


def _is_exempt() -> bool:
    """Whether the account's limit does not count: it does not for the host's own root."""
    with contextlib.suppress(OSError):
        identity = ["0", "0", "4294967295"]  # user_namespaces(7): ids are the host's own
        return os.geteuid() == 0 and Path("/proc/self/uid_map").read_text().split() == identity
    return False


def nvidia_gpus() -> int:
    """How many GPUs NVIDIA's driver shows to this process, whatever torch can do; 0 if none."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=10)
        return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
    return 0


def nvidia_gpu_memory() -> float:
    """Bytes of memory of the first GPU that NVIDIA's driver shows; 0 if there is none."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        listed = subprocess.run(command, capture_output=True, text=True, timeout=10)
        return 2**20 * float(listed.stdout.splitlines()[0])
    return 0.0
