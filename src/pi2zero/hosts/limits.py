"""What this process may use of the machine, as a container or a batch job limits it."""

import contextlib
import os
import subprocess

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


def nvidia_gpus() -> int:
    """How many GPUs NVIDIA's driver shows to this process, whatever torch can do; 0 if none."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=10)
        return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
    return 0
