"""What JupyterLab's menu and status bar ask of a kernel (tools/lab_extensions).

Nothing here waits for ranks, and a kernel without ranks imports little by it.
"""

import contextlib
import os
import re
from collections import defaultdict
from pathlib import Path

import psutil
from IPython import get_ipython
from IPython.display import JSON

from pi2zero import ownership

RANKS_MARK = re.compile(r"[^/]+/[^/]+/(\d+):[\d.]+/cluster-[^/]+/ranks-")
RANK_VARIABLES = {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}  # set for a rank, and for what it starts
NO_RANKS = "This notebook has no ranks. Start them: cluster = pi2zero.start(n=4)"


def overview() -> JSON:
    """Which process this kernel is, the state of its ranks, and the bytes of each on this host."""
    cluster = _cluster()
    state = cluster.state if cluster else ""
    process = ownership.owner_mark()
    here = process.partition("/")[0]
    ranks = cluster.info if cluster and state.endswith(", ready") else []
    pids = [about["pid"] for about in ranks if about["mark"].startswith(f"{here}/")]
    return JSON({"process": process, "state": state, "memory": [memory_of(pid) for pid in pids]})


def memory_of(pid: int) -> int:
    """Bytes of a process's memory. What it shares with others is divided among them."""
    with contextlib.suppress(psutil.Error, OSError):
        memory = psutil.Process(pid).memory_full_info()
        return getattr(memory, "pss", memory.uss)
    return 0


def ranks_by_notebook() -> dict[str, tuple[int, int]]:
    """{notebook: (ranks, bytes)} of all this user's kernels on this host that have live ranks."""
    parts = defaultdict(list)  # (number of ranks, bytes) of each process of a notebook
    for process in ownership.marked_processes(""):
        with contextlib.suppress(psutil.Error, OSError):
            environment = process.environ()
            if not (match := RANKS_MARK.match(environment.get(ownership.MARK, ""))):
                continue
            parent = process.parent()
            is_rank = RANK_VARIABLES & environment.keys() and not (
                parent and RANK_VARIABLES & parent.environ().keys()
            )
            parts[int(match[1])].append((int(bool(is_rank)), memory_of(process.pid)))
    totals = {
        pid: (sum(ranks for ranks, _ in each), sum(memory for _, memory in each))
        for pid, each in parts.items()
    }
    return {notebook_of(pid): total for pid, total in totals.items() if total[0]}


def notebook_of(pid: int) -> str:
    """The name of a kernel's notebook, as far as it is known, with the kernel's pid."""
    name = "a program"
    with contextlib.suppress(psutil.Error, OSError):
        name = Path(psutil.Process(pid).environ().get("JPY_SESSION_NAME", name)).name
    return f"{name} (process {pid}{', this notebook' * (pid == os.getpid())})"


def show_all() -> None:
    """Print which notebooks of this user have live ranks, how many, and their memory."""
    found = ranks_by_notebook()
    if not found:
        print("No ranks of yours are alive on this machine.")
        return
    width = max(map(len, found))
    for notebook, (ranks, size) in sorted(found.items()):
        print(
            f"{notebook:<{width}}  {ranks:3} rank{'s' if ranks > 1 else ' '}  {size / 1e9:5.1f} GB"
        )
    print(
        "\nRanks end with their notebook's kernel: shut it down in the panel "
        "Running Terminals and Kernels, at the left."
    )


def restart() -> None:
    """Replace this notebook's ranks by fresh ones."""
    if cluster := _cluster_with_ranks():
        cluster.restart()
        print(f"{cluster.n} fresh ranks are up. Replay runs the earlier %%px cells on them.")


def replay() -> None:
    """Run the earlier cells again on this notebook's ranks."""
    if cluster := _cluster_with_ranks():
        cluster.replay()


def stop() -> None:
    """End this notebook's ranks."""
    if cluster := _cluster_with_ranks():
        cluster.stop()
        print(f"The {cluster.n} ranks have ended. New ones: cluster = pi2zero.start(n={cluster.n})")


def reset() -> None:
    """End all processes that the kit has started from this clone."""
    from pi2zero.cluster import api

    print(api.reset())


def _cluster():
    """The cluster that `%%px` of this kernel ran on last, without importing what makes one."""
    magics = get_ipython().magics_manager.registry.get("RankMagics")
    return magics.cluster if magics else None


def _cluster_with_ranks():
    """The same, if it has ranks; else it is said how to get some."""
    cluster = _cluster()
    if cluster and cluster.runs():
        return cluster
    print(NO_RANKS)
    return None
