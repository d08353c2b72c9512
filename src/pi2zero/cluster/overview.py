"""What JupyterLab's menu and status bar ask of a kernel (tools/lab_extensions).

Nothing here waits for ranks, and a kernel without ranks imports little by it.
"""

import contextlib
import os
from pathlib import Path

import psutil
from IPython import get_ipython
from IPython.display import JSON

from pi2zero import ownership
from pi2zero.cluster.live_ranks import memory_of, ranks_by_kernel

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


def notebook_of(pid: int) -> str:
    """The name of a kernel's notebook, as far as it is known, with the kernel's pid."""
    name = "a program"
    with contextlib.suppress(psutil.Error, OSError):
        name = Path(psutil.Process(pid).environ().get("JPY_SESSION_NAME", name)).name
    return f"{name} (process {pid}{', this notebook' * (pid == os.getpid())})"


def show_all() -> None:
    """Print which notebooks of this user have live ranks, how many, and their memory."""
    found = {
        notebook_of(int(kernel.split("/")[2].partition(":")[0])): total
        for kernel, total in ranks_by_kernel("").items()
    }
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
