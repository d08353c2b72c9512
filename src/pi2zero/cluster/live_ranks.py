"""Which kernels of this user have live ranks on this host, how many, and their memory."""

import contextlib
import re

import psutil

from pi2zero import ownership

# Of what ranks have started; it begins with the mark of their kernel.
RANKS_MARK = re.compile(r"([^/]+/[^/]+/\d+:[\d.]+/)cluster-[^/]+/ranks-")
ENGINE = "pi2zero.cluster.rank_engine"
PROBE = "PI2ZERO_PROBE"  # a variable of ranks that the doctor starts, and ends by itself


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
            environ = process.environ()
            match = RANKS_MARK.match(environ.get(ownership.MARK, ""))
            if not match or PROBE in environ:
                continue
            parent = process.parent()
            is_rank = is_engine(process) and not (parent and is_engine(parent))  # else: its nanny
            ranks, size = totals.get(match[1], (0, 0))
            totals[match[1]] = ranks + is_rank, size + memory_of(process.pid)
    return {kernel: total for kernel, total in totals.items() if total[0]}


def is_engine(process: psutil.Process) -> bool:
    """Whether it is one of the kit's ranks, or the nanny of one."""
    return ENGINE in process.cmdline()[:4]  # mpirun has it, too, further behind
