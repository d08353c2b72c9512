"""Which processes belong to the kit, and how they are ended.

Every process that a kernel starts through the kit inherits one environment variable, `PI2ZERO_MARK`, that says where
it belongs, from the outside in: `<kernel's pid>:<its start>/cluster-<number>/ranks-<number>/`. A kernel's own children
carry the first part, a controller the first two, ranks all three. So the kit finds its own processes by the beginning of
their mark, also those that changed their session or their parent (Open MPI's daemons, ipyparallel's nannies), and
never touches anybody else's.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

MARK = "PI2ZERO_MARK"
RUN_DIR_PREFIX = "pi2zero-"
_wardens: dict[str, subprocess.Popen] = {}  # by owner: a forked child is not its parent


def owner_mark(pid: int | None = None) -> str:
    """The mark of a process, `<pid>:<start>/`: with its start, a reused pid is not mistaken for it.

    The start is in clock ticks since boot: a date would change when the clock is set, and the warden would find its
    owner gone.
    """
    process = psutil.Process(pid)
    try:
        start = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]  # proc(5), field 22
    except FileNotFoundError:  # no /proc: macOS
        start = f"{process.create_time():.2f}"
    return f"{process.pid}:{start}/"


def owner_is_gone(mark: str) -> bool:
    """True if the process that a mark names first has ended (or is a zombie that only waits to be reaped)."""
    owner = mark.partition("/")[0] + "/"
    pid = owner.partition(":")[0]
    try:
        alive = owner_mark(int(pid)) == owner and psutil.Process(int(pid)).status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ProcessLookupError, ValueError):
        return True
    return not alive


def marked(prefix: str = "") -> list[psutil.Process]:
    """This user's processes whose mark begins so, as it stood when they started.

    Never the caller, nor the shell that it was started from.
    """
    spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid in spared or process.uids().real != os.getuid():
                continue
            mark = process.environ().get(MARK)
            if mark is not None and mark.startswith(prefix) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def leftovers() -> list[psutil.Process]:
    """Processes of the kit whose kernel is gone. There should be none: the warden ends them."""
    found = []
    for process in marked():
        with contextlib.suppress(psutil.Error):
            mark = process.environ().get(MARK)  # nothing, if it is just ending: its memory is gone before its process id
            if mark and owner_is_gone(mark):
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


def end_marked(prefix: str = "") -> int:
    """End every process whose mark begins so, and those it started meanwhile; how many there were."""
    count = 0
    for _ in range(5):
        batch = marked(prefix)
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
    return Path(tempfile.mkdtemp(prefix=f"{RUN_DIR_PREFIX}{_as_name(owner_mark())}"))


def remove_run_dirs(owner: str = "") -> None:
    """Remove run folders of this user: all, or those of one owner."""
    for folder in Path(tempfile.gettempdir()).glob(f"{RUN_DIR_PREFIX}{_as_name(owner)}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)


def _as_name(owner: str) -> str:
    return owner.replace(":", "-").replace("/", "-")


def ensure_warden() -> None:
    """Start, once, the process that cleans up when this one is killed, when nothing in it can run any more."""
    owner = owner_mark()
    if owner in _wardens and _wardens[owner].poll() is None:
        return
    _wardens[owner] = subprocess.Popen(
        [sys.executable, "-m", "pi2zero.cluster.warden", owner],
        env={k: v for k, v in os.environ.items() if k != MARK},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
