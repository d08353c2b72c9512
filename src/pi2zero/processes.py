"""Which processes belong to the kit, and how they are ended.

Every process that a kernel starts through the kit inherits one environment variable, `PI2ZERO_OWNER`, that names
the kernel (its pid and start time). So the kit finds its own processes, also those that changed their session or
their parent (Open MPI's daemons, ipyparallel's nannies), and never touches anybody else's.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

OWNER = "PI2ZERO_OWNER"  # "<pid>:<start time>" of the kernel or script that started the process
RANKS = "PI2ZERO_RANKS"  # which set of ranks of that owner the process belongs to
RUN_DIR_PREFIX = "pi2zero-"


def mpi_env() -> None:
    """Set in `os.environ` what Open MPI needs on a laptop, in a container and in a kernel.

    Root is allowed, and so are more ranks than cores (Open MPI 5 reads the PRTE names, 4.x the OMPI ones; names that are
    not known are ignored). Values that are already set win. The environment's own `bin` comes first on the
    PATH, because a kernel may run without it, and `mpirun` has to be the one that mpi4py uses.
    """
    for family in ("OMPI", "PRTE"):
        os.environ.setdefault(f"{family}_ALLOW_RUN_AS_ROOT", "1")
        os.environ.setdefault(f"{family}_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    os.environ.setdefault("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
    os.environ.setdefault("OMPI_MCA_rmaps_base_oversubscribe", "1")
    bin_dir = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if path[0] != bin_dir:
        os.environ["PATH"] = os.pathsep.join([bin_dir, *path])
    os.environ[OWNER] = owner_mark()


def owner_mark(pid: int | None = None) -> str:
    """The mark of a process: pid and start time, so that a reused pid is not mistaken for it."""
    process = psutil.Process(pid)
    return f"{process.pid}:{process.create_time():.2f}"


def owner_is_gone(mark: str) -> bool:
    """True if the process that a mark names has ended (or is a zombie that only waits to be reaped)."""
    pid = mark.partition(":")[0]
    try:
        alive = owner_mark(int(pid)) == mark and psutil.Process(int(pid)).status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError):
        return True
    return not alive


def marked(owner: str | None = None, ranks: str | None = None) -> list[psutil.Process]:
    """This user's processes that carry the kit's mark, as it stood when they started; never the caller itself.

    owner, ranks: only those with these values; None means any.
    """
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.uids().real != os.getuid():
                continue
            env = process.environ()
            if OWNER in env and env[OWNER] == (owner or env[OWNER]) and (ranks is None or env.get(RANKS) == ranks):
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


def leftovers() -> list[psutil.Process]:
    """Processes of the kit whose kernel is gone. There should be none: the warden ends them."""
    found = []
    for process in marked():
        with contextlib.suppress(psutil.Error):
            if owner_is_gone(process.environ()[OWNER]):
                found.append(process)
    return found


def end(processes: list[psutil.Process], patience: float = 1.0) -> None:
    """Ask with SIGTERM, wait `patience` seconds, then SIGKILL what is still there."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=patience)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=3)


def end_marked(owner: str | None = None, ranks: str | None = None) -> int:
    """End every process with the mark, and those it started meanwhile; how many there were."""
    count = 0
    for _ in range(5):
        batch = marked(owner, ranks)
        if not batch:
            break
        count += len(batch)
        # mpirun first: told to stop, it ends its ranks and takes their shared-memory files away.
        end([p for p in batch if _name(p).startswith(("prte", "mpirun", "mpiexec"))], patience=2.0)
        end([p for p in batch if p.is_running()], patience=0.3)
    return count


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


def make_run_dir() -> Path:
    """A private folder (0700) for one cluster's files; its name carries the owner."""
    return Path(tempfile.mkdtemp(prefix=f"{RUN_DIR_PREFIX}{owner_mark().replace(':', '-')}-"))


def remove_run_dirs(owner: str | None = None) -> None:
    """Remove run folders of this user: all, or those of one owner."""
    who = "" if owner is None else owner.replace(":", "-") + "-"
    for folder in Path(tempfile.gettempdir()).glob(f"{RUN_DIR_PREFIX}{who}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)


def start_warden(owner: str) -> subprocess.Popen:
    """Start the process that cleans up when this one is killed, when nothing in it can run any more."""
    env = {k: v for k, v in os.environ.items() if k not in (OWNER, RANKS)}
    return subprocess.Popen(
        [sys.executable, "-m", "pi2zero.warden", owner],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
