"""Marks: an environment variable by which the kit finds the processes that it has started.

Every process that a kernel starts through the kit inherits `PI2ZERO_MARK`. It says where the
process belongs: `<host>/<scope>/<kernel's pid>:<its start>/cluster-<n>/ranks-<n>/`. A kernel's own
children carry the first three parts, a controller the first four, ranks all five. So the kit also
finds processes that changed their session or their parent, such as Open MPI's daemons, and never
touches a process of somebody else.

The host is known by its boot and its process namespace: its name may change while ranks run (DHCP,
a VPN), and containers that share a folder may have the same name. The scope separates what one user
runs side by side on one host: the clone (or PI2ZERO_SCOPE, which the tests set) and the Slurm job.
`reset` ends its own scope on its own host.
"""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import socket
import time
from collections.abc import Collection, Iterable
from pathlib import Path

import psutil

MARK = "PI2ZERO_MARK"
SCOPE = "PI2ZERO_SCOPE"
SPAWN_DAEMON = "prte"  # Open MPI starts it when a process that mpirun did not start calls Spawn
LAUNCHERS = ("prte", "mpirun", "mpiexec")


@functools.cache
def host_id() -> str:
    """What pids are valid in: this boot of this host, and in a container its process namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:  # no /proc: macOS
        return _plain(socket.gethostname())
    return _digest(f"{boot}{namespace}")


def _plain(text: str) -> str:
    return re.sub(r"[^\w.-]", "-", text)


def _digest(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:8]


def scope_mark() -> str:
    """The beginning of all marks of this host and scope: `<host>/<scope>/`."""
    scope = os.environ.get(SCOPE) or f"clone-{_digest(str(Path(__file__).resolve().parents[1]))}"
    if job := os.environ.get("SLURM_JOB_ID"):
        scope += f".job-{job}"
    return f"{host_id()}/{_plain(scope)}/"


def owner_mark(pid: int | None = None) -> str:
    """The mark of a process of this scope: `<host>/<scope>/<pid>:<start>/`.

    The start tells it from a later process with the same pid.
    """
    pid = pid or os.getpid()
    return f"{scope_mark()}{pid}:{_start_and_state(pid)[0]}/"


def _start_and_state(pid: int) -> tuple[str, str]:
    """When a process has started, and its state, "Z" for a zombie. Raises NoSuchProcess.

    The start is in clock ticks since boot, because a date would change when the clock is set. It is
    read directly: psutil takes six times as long, and every cell asks for every rank.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return fields[19].decode(), fields[0].decode()  # fields 22 and 3 of proc(5)
    except (FileNotFoundError, ProcessLookupError):  # it has ended, or no /proc: macOS
        process = psutil.Process(pid)
        is_zombie = process.status() == psutil.STATUS_ZOMBIE
        return f"{process.create_time():.2f}", "Z" if is_zombie else ""


def owner_is_gone(mark: str, here: bool = False) -> bool:
    """Whether the process that a mark names has ended; a zombie has.

    here: it is known to be a process of this host. Else False also for a process of another host,
    and for a text that is no mark: nothing is known then.
    """
    match = re.match(r"([^/]+)/[^/]+/(\d+):([\d.]+)/", mark)
    if not match or not (here or match[1] == host_id()):
        return False
    try:
        start, state = _start_and_state(int(match[2]))
    except psutil.NoSuchProcess:
        return True
    return start != match[3] or state == "Z"


def marked_processes(prefix: str | None = None) -> list[psutil.Process]:
    """This user's processes on this host whose mark begins with `prefix` (default: this scope's).

    Never the caller, nor the shell from which it was started.
    """
    prefix = scope_mark() if prefix is None else prefix
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid in own or process.uids().real != os.getuid():
                continue
            mark = process.environ().get(MARK)
            if mark is not None and mark.startswith(prefix) and is_running(process):
                processes.append(process)
    return processes


def leftovers() -> list[psutil.Process]:
    """Processes of this scope whose kernel is gone: none, if the watchdog has ended them."""
    processes = []
    for process in marked_processes():
        with contextlib.suppress(psutil.Error):
            # A process that is just ending has no environment any more.
            if (mark := process.environ().get(MARK)) and owner_is_gone(mark):
                processes.append(process)
    return processes


def end_processes(processes: Iterable[psutil.Process], patience: float = 1.0) -> None:
    """Ask with SIGTERM, wait `patience` seconds, then kill those that are still there."""
    processes = list(processes)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    alive = wait_until_ended(processes, patience)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    wait_until_ended(alive, 3)


def wait_until_ended(processes: Iterable[psutil.Process], patience: float) -> list[psutil.Process]:
    """Wait up to `patience` seconds until all have ended. Returns those that have not.

    A zombie has ended. (psutil would wait until its parent collects it, too: in a container process
    1 may do that late, or never.)
    """
    deadline, alive = time.monotonic() + patience, list(processes)
    while True:
        _, alive = psutil.wait_procs(alive, timeout=0)  # collects our own children
        alive = [process for process in alive if is_running(process)]
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(0.01)


def is_running(process: psutil.Process) -> bool:
    """Whether the process exists and is no zombie."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def spawn_daemons(patience: float = 1.0) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """This scope's daemons by which Open MPI spawns for live kernels: (busy ones, idle ones).

    patience: seconds for spawned processes that are just ending.
    """
    marked, deadline = marked_processes(), time.monotonic() + patience
    daemons = [
        process
        for process in marked
        if name_of(process) == SPAWN_DAEMON and _parent(process) not in (None, *marked)
    ]
    while (busy := [d for d in daemons if _has_children(d)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return busy, [daemon for daemon in daemons if daemon not in busy and is_running(daemon)]


def end_marked(prefix: str | None = None, spare: Collection[psutil.Process] = ()) -> int:
    """End all processes whose mark begins with `prefix` (default: this scope's); returns how many.

    Also ends those that they start meanwhile. spare: processes that stay.
    """
    done = set(spare)
    for _ in range(5):
        # A process that waits for a dead file system cannot be killed: each is tried once.
        batch = [process for process in marked_processes(prefix) if process not in done]
        if not batch:
            break
        done.update(batch)
        # mpirun first: when it is asked to stop, it ends its ranks and removes their files.
        launchers = [process for process in batch if name_of(process).startswith(LAUNCHERS)]
        folders = {launcher: _session_dirs(launcher) for launcher in launchers}
        end_processes(launchers, patience=5.0)
        for launcher in launchers:
            if not is_running(launcher):
                for folder in folders[launcher]:
                    shutil.rmtree(folder, ignore_errors=True)
        end_processes(filter(is_running, batch), patience=0.3)
    return len(done) - len(spare)


def _session_dirs(launcher: psutil.Process) -> list[Path]:
    """Where an mpirun, or the daemon that Spawn starts, may keep its files while it runs."""
    with contextlib.suppress(psutil.Error):
        temporary = launcher.environ().get("TMPDIR") or "/tmp"
        return [Path(temporary, f"{kind}.{launcher.pid}") for kind in ("ompi", "prte")]
    return []


def _parent(process: psutil.Process) -> psutil.Process | None:
    with contextlib.suppress(psutil.Error):
        return process.parent()
    return None


def _has_children(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.children())
    return False


def name_of(process: psutil.Process) -> str:
    """The process's name; empty if it has ended."""
    with contextlib.suppress(psutil.Error):
        return process.name()
    return ""
