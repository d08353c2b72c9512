"""Which processes and folders belong to the kit, and how they are ended and removed.

Every process that a kernel starts through the kit inherits one environment variable, `PI2ZERO_MARK`, that says where
it belongs, from the outside in: `<host>/<scope>/<kernel's pid>:<its start>/cluster-<number>/ranks-<number>/`. A kernel's
own children carry the first three parts, a controller the first four, ranks all five. So the kit finds its own processes
by the beginning of their mark, also those that changed their session or their parent (Open MPI's daemons, ipyparallel's
nannies), and never touches anybody else's. Folders in the temporary folder, which hosts may share, have it in their name.

The scope keeps apart what one user does side by side on one host: the clone that is used, or what `PI2ZERO_SCOPE` says
(the tests take one of their own), and the Slurm job. `reset` ends its own scope on its own host.
"""

import contextlib
import hashlib
import os
import re
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Collection
from itertools import chain
from pathlib import Path

import psutil

MARK = "PI2ZERO_MARK"
SCOPE = "PI2ZERO_SCOPE"
SPAWNER = "prte"  # what Open MPI starts for a process that spawns and was not started by mpirun, as a kernel is


def scope_mark() -> str:
    """The beginning of all marks of this host and scope: `<host>/<scope>/`."""
    clone = hashlib.sha1(
        str(Path(__file__).resolve().parent).encode(), usedforsecurity=False
    ).hexdigest()[:8]
    scope = os.environ.get(SCOPE) or f"clone-{clone}"
    if job := os.environ.get("SLURM_JOB_ID"):
        scope += f".job-{job}"
    return "/".join(re.sub(r"[^\w.-]", "-", part) for part in (socket.gethostname(), scope)) + "/"


def owner_mark(pid: int | None = None) -> str:
    """The mark of a process of this scope, `<host>/<scope>/<pid>:<start>/`: a reused pid is not mistaken for it.

    The start is in clock ticks since boot: a date would change when the clock is set, and the warden would find its
    owner gone.
    """
    process = psutil.Process(pid)
    try:
        start = (
            Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        )  # proc(5), field 22
    except FileNotFoundError:  # no /proc: macOS
        start = f"{process.create_time():.2f}"
    return f"{scope_mark()}{process.pid}:{start}/"


def owner_is_gone(mark: str) -> bool:
    """True if the process that a mark names has ended (or is a zombie that only waits to be reaped).

    Of another host's process nothing is known: False. So it is of what is not a mark.
    """
    found = re.match(r"([^/]+)/[^/]+/(\d+):[\d.]+/", mark)
    if not found or found[1] != scope_mark().partition("/")[0]:
        return False
    pid = int(found[2])
    try:
        alive = (
            _process_part(owner_mark(pid)) == _process_part(mark)
            and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        )
    except (psutil.NoSuchProcess, ProcessLookupError):
        return True
    return not alive


def _process_part(mark: str) -> str:
    return mark.split("/")[2]


def marked(prefix: str | None = None) -> list[psutil.Process]:
    """This user's processes on this host whose mark begins so, as it stood when they started; by default, of this scope.

    Never the caller, nor the shell that it was started from.
    """
    prefix = scope_mark() if prefix is None else prefix
    spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid in spared or process.uids().real != os.getuid():
                continue
            mark = process.environ().get(MARK)
            if (
                mark is not None
                and mark.startswith(prefix)
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
    return found


def leftovers() -> list[psutil.Process]:
    """Processes of this scope whose kernel is gone. There should be none: the warden ends them."""
    found = []
    for process in marked():
        with contextlib.suppress(psutil.Error):
            mark = process.environ().get(
                MARK
            )  # nothing, if it is just ending: its memory is gone before its process id
            if mark and owner_is_gone(mark):
                found.append(process)
    return found


def end(processes: list[psutil.Process], patience: float = 1.0) -> None:
    """Ask with SIGTERM, wait `patience` seconds, then SIGKILL what is still there."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    alive = wait_until_ended(processes, patience)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    wait_until_ended(alive, 3)


def wait_until_ended(processes: list[psutil.Process], patience: float) -> list[psutil.Process]:
    """Wait up to `patience` seconds until they have ended; those that have not.

    A zombie has ended. psutil waits for its parent to collect it, too: in a container process 1 does that late, or never.
    """
    deadline, alive = time.monotonic() + patience, processes
    while True:
        _, there = psutil.wait_procs(alive, timeout=0)  # collects our own children
        alive = [process for process in there if runs(process)]
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(0.01)


def runs(process: psutil.Process) -> bool:
    """Whether a process is there, and no zombie."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def spawners(patience: float = 1.0) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """This scope's processes by which Open MPI spawns for kernels that live: (those in which something runs, idle ones).

    patience: seconds that spawned processes get which are just ending.
    """
    everything, deadline = marked(), time.monotonic() + patience
    found = [
        one
        for one in everything
        if _name(one) == SPAWNER and _parent(one) not in (None, *everything)
    ]
    while (busy := [one for one in found if _has_children(one)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return busy, [one for one in found if one not in busy and runs(one)]


def _parent(process: psutil.Process) -> psutil.Process | None:
    with contextlib.suppress(psutil.Error):
        return process.parent()
    return None


def _has_children(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.children())
    return False


def end_marked(prefix: str | None = None, spare: Collection[psutil.Process] = ()) -> int:
    """End every process whose mark begins so (by default, of this scope), and those it started meanwhile; how many.

    spare: those that stay.
    """
    done = set(spare)
    for _ in range(5):
        batch = [
            p for p in marked(prefix) if p not in done
        ]  # one in a file system that does not answer cannot even be killed
        if not batch:
            break
        done.update(batch)
        # mpirun first: told to stop, it ends its ranks and takes their shared-memory files away.
        launchers = [p for p in batch if _name(p).startswith(("prte", "mpirun", "mpiexec"))]
        folders = [(launcher, _session_folders(launcher)) for launcher in launchers]
        end(launchers, patience=5.0)
        for folder in chain(*(theirs for launcher, theirs in folders if not runs(launcher))):
            shutil.rmtree(
                folder, ignore_errors=True
            )  # one that was killed did not come to that itself
        end([p for p in batch if runs(p)], patience=0.3)
    return len(done) - len(spare)


def _session_folders(launcher: psutil.Process) -> list[Path]:
    """Where an mpirun, or the prte that Spawn starts for one process, may keep its files while it runs."""
    with contextlib.suppress(psutil.Error):
        temporary = launcher.environ().get("TMPDIR") or "/tmp"
        return [Path(temporary, f"{kind}.{launcher.pid}") for kind in ("ompi", "prte")]
    return []


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


# --- folders in the temporary folder: pi2zero-<kind>@<host>@<scope>@<pid>:<start>@<random> ---------------------------

# What ranks share on a host, Open MPI keeps here: in a folder of the cluster's name.
SEGMENTS = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
EVERY_HOST = Path("/tmp")  # what TMPDIR names here, another host need not have
RUN, STORIES, MEETING = (
    "run",
    "stories",
    "meeting",
)  # kinds: of a cluster, of the summarizer, of torch's ranks


def make_run_dir(within: Path | None = None) -> Path:
    """A private folder (0700) for one cluster's files; its name carries the owner. `remove_run_dirs` takes it away.

    within: SEGMENTS, EVERY_HOST, or by default the temporary folder.
    """
    return Path(tempfile.mkdtemp(prefix=_folder_name(RUN, owner_mark()), dir=within))


def is_private(path: Path) -> bool:
    """Whether it is a folder, not a link to one, that is this user's and closed to all others."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def private_folder(path: Path) -> None:
    """Make it, or take it if it is there. Raises PermissionError if somebody else could read or write in it: in a folder that all
    share, another user may have made one of the same name first, or a link."""
    path.mkdir(mode=0o700, exist_ok=True)
    if not is_private(path):
        raise PermissionError(
            f"{path} is not a private folder of this user's; somebody else may have made it. Start again."
        )


def temporary_folder(kind: str) -> tempfile.TemporaryDirectory:
    """A private folder (0700) that goes when this process ends by itself. What a killed one left, the next call clears away."""
    for folder in _folders(kind):
        if owner_is_gone("/".join(folder.name.split("@")[1:])):
            shutil.rmtree(folder, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=_folder_name(kind, owner_mark()))


def run_dirs(owner: str | None = None) -> list[Path]:
    """Run folders of this user: all of this scope, or those of one owner. Not another host's."""
    return _folders(RUN, scope_mark() if owner is None else owner)


def remove_run_dirs(owner: str | None = None) -> None:
    """Remove the folders that `run_dirs` gives."""
    for folder in run_dirs(owner):
        shutil.rmtree(folder, ignore_errors=True)


def _folders(kind: str, prefix: str = "") -> list[Path]:
    found = []
    for folder in chain.from_iterable(
        place.iterdir() for place in {Path(tempfile.gettempdir()), SEGMENTS, EVERY_HOST}
    ):
        with contextlib.suppress(OSError):
            if (
                folder.name.startswith(_folder_name(kind, prefix))
                and folder.lstat().st_uid == os.getuid()
            ):
                found.append(folder)
    return found


def _folder_name(kind: str, mark: str) -> str:
    return f"pi2zero-{kind}@{mark.replace('/', '@')}"


def remove_segments(age: float = 10.0) -> None:
    """Remove shared memory that this user's processes have left: 16 MB of each that used MPI without mpirun, 3 MB of MPICH's
    ranks that were killed.

    Open MPI 5 closes what could remove it too early (its issue 11123); after mpirun, its daemon does it. What a process maps
    stays, and so does what is younger than `age` seconds: somebody may be about to map it.
    """
    if not Path("/proc").is_dir():
        return
    names = {
        f"sm_segment.{host}.{os.getuid()}.*"
        for host in (socket.gethostname(), socket.gethostname().partition(".")[0])
    }
    left = []
    for path in chain.from_iterable(map(SEGMENTS.glob, names | {"mpich_shm_*"})):
        with contextlib.suppress(OSError):  # gone meanwhile
            if path.lstat().st_uid == os.getuid() and time.time() - path.lstat().st_mtime >= age:
                left.append(path)
    if not left:
        return
    maps = ""
    for process in psutil.pids():
        with contextlib.suppress(OSError):  # another user's, or gone
            maps += Path(f"/proc/{process}/maps").read_text()
    for path in left:
        if str(path) not in maps:
            path.unlink(missing_ok=True)
