"""Which kernels of this user have live ranks on this host, how many, and their memory."""

import contextlib
import re

import psutil

from pi2zero import ownership

# Of what ranks have started; it begins with the mark of their kernel.
RANKS_MARK = re.compile(r"([^/]+/[^/]+/\d+:[\d.]+/)cluster-[^/]+/ranks-")
ENGINE = "pi2zero.cluster.rank_engine"
PROBE = "pi2zero.doctor.probes"


def memory_of(pid: int) -> int:
    """Bytes of a process's memory. What it shares with others is divided among them."""
    with contextlib.suppress(psutil.Error, OSError):
        memory = psutil.Process(pid).memory_full_info()
        return getattr(memory, "pss", memory.uss)
    return 0


def ranks_by_kernel(prefix: str | None = None) -> dict[str, tuple[int, int]]:
    """{mark of a kernel: (ranks, bytes)} of this user's kernels on this host that have live ranks.

    prefix: see `ownership.marked_processes`. The bytes: of all that the ranks have started, too.
    """
    totals: dict[str, tuple[int, int]] = {}
    for process in ownership.marked_processes(prefix):
        with contextlib.suppress(psutil.Error, OSError):
            mark = process.environ().get(ownership.MARK, "")
            if not (match := RANKS_MARK.match(mark)):
                continue
            parent = process.parent()
            is_rank = is_engine(process) and not (parent and is_engine(parent))  # else: its nanny
            ranks, size = totals.get(match[1], (0, 0))
            totals[match[1]] = ranks + is_rank, size + memory_of(process.pid)
    return {kernel: total for kernel, total in totals.items() if total[0] and not _is_probe(kernel)}


def _is_probe(kernel: str) -> bool:
    """Whether a mark is that of the doctor, which `make lab` starts, and which ends its ranks."""
    pid = kernel.split("/")[2].partition(":")[0]
    with contextlib.suppress(psutil.Error):
        return PROBE in psutil.Process(int(pid)).cmdline()
    return False


def is_engine(process: psutil.Process) -> bool:
    """Whether it is one of the kit's ranks, or the nanny of one."""
    return ENGINE in process.cmdline()[:4]  # mpirun has it, too, further behind
