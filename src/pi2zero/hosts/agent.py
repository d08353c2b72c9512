"""`python -m pi2zero.hosts.agent`: what the kit does on another host.

The kernel starts one agent on each host by ssh or srun: no port listens, and no folder is shared.
Requests come in on its input, one line of JSON each, and answers go to its output, with the state
of the ranks twice a second. When the kernel or the connection is gone, the agent ends what was
started here and removes the files. The kernel calls the same functions on its own host directly.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from pi2zero import log, ownership
from pi2zero.hosts import port_filter
from pi2zero.hosts.exit_watcher import ExitWatcher
from pi2zero.hosts.heartbeat import BEAT
from pi2zero.hosts.place import local_address_towards, shared_memory_dir
from pi2zero.hosts.slurm import SlurmJob
from pi2zero.ownership.process_marks import name_of

SILENCE = 30.0  # s without a byte from heartbeat.py, after which the kernel's host counts as lost
STATUS_INTERVAL, HEARTBEAT_INTERVAL = 0.5, 3.0  # s
PRTED_CLEANUP = 5.0  # s for Open MPI's daemon to remove its files
LAUNCHERS = ("mpirun", "mpiexec", "prterun", "prted")  # Open MPI's: their children are ranks,
SHELLS = (*LAUNCHERS, "ssh", "srun", "sh")  # or the way to another host

exit_watcher = ExitWatcher()
_watched: tuple[str, dict[int, str], dict[int, str]] = ("", {}, {})


def hello(folder: str) -> str:
    """Make the private folders for the cluster's files and shared memory; this host's name."""
    for path in (folder, shared_memory_dir(folder)):
        ownership.make_private_dir(Path(path))
    return socket.gethostname()


def write(path: str, text: str) -> None:
    """Write a private file, whole at once: ranks wait for it."""
    part = Path(path).with_suffix(".part")
    part.touch(0o600)
    part.write_text(text)
    part.replace(path)


def watch(ranks_mark: str, marks_of: dict, sample_paths: dict) -> dict:
    """Watch these ranks from now on. Returns their `status`.

    marks_of, sample_paths: of each rank, the mark of its process and the file of its samples.
    """
    global _watched
    _watched = (
        ranks_mark,
        {int(rank): mark for rank, mark in marks_of.items()},
        {int(rank): path for rank, path in sample_paths.items()},
    )
    exit_watcher.watch(_watched[1])
    return status()


def status() -> dict:
    """What is known of the watched ranks.

    ranks_mark: theirs. dead: those whose process has ended. exit_times: when, as far as known.
    launched: live processes that Open MPI has started here. samples: each rank's last sample.
    """
    ranks_mark, marks_of, sample_paths = _watched
    return {
        "ranks_mark": ranks_mark,
        "dead": [rank for rank, mark in marks_of.items() if ownership.owner_is_gone(mark)],
        "exit_times": exit_watcher.exit_times,
        "launched": launched(ranks_mark) if ranks_mark else 0,
        "samples": {rank: read(path) for rank, path in sample_paths.items()},
    }


def launched(ranks_mark: str) -> int:
    """How many live processes Open MPI's daemons have started here: ranks and what they spawned."""
    count = 0
    for daemon in daemons(ranks_mark):
        with contextlib.suppress(psutil.Error):
            count += sum(map(is_rank, daemon.children()))
    return count


def daemons(ranks_mark: str) -> set[psutil.Process]:
    """Open MPI's daemons here, found as parents of ranks: ssh does not pass the mark on to them."""
    parents = set()
    for process in ownership.marked_processes(ranks_mark):
        with contextlib.suppress(psutil.Error):
            if (parent := process.parent()) and parent.name().startswith(LAUNCHERS):
                parents.add(parent)
    return parents


def is_rank(process: psutil.Process) -> bool:
    """Whether a daemon's child is a live rank, and not the way to another host."""
    with contextlib.suppress(psutil.Error):
        is_way = process.name() in SHELLS or "pi2zero.hosts.srun" in process.cmdline()
        return not is_way and ownership.is_running(process)
    return False


def read(path: str) -> str:
    """A file's text; empty if it cannot be read."""
    with contextlib.suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""


def clear(paths: list[str]) -> None:
    """Empty these files."""
    for path in paths:
        with contextlib.suppress(OSError):
            Path(path).write_text("")


def read_all(paths: list[str]) -> list[str]:
    """The text of each file; empty where it cannot be read."""
    return [read(path) for path in paths]


def restrict_listeners(mark: str, allowed: list[str]) -> int:
    """Let only `allowed` addresses connect to the ranks with this mark, and nobody to the daemons.

    All of Open MPI's daemons are connected by then, and they obey whoever connects. Returns the
    number of ports.
    """
    ranks = [p for p in ownership.marked_processes(mark) if name_of(p) not in SHELLS]
    count = sum(port_filter.restrict_listeners(rank.pid, allowed) for rank in ranks)
    return count + sum(port_filter.restrict_listeners(daemon.pid) for daemon in daemons(mark))


def end(mark: str) -> None:
    """End the processes with this mark here, and wait for Open MPI's daemon to end by itself.

    It removes its files then. A Slurm job that was given back earlier would have it killed.
    """
    own_daemons = [daemon for daemon in daemons(mark) if name_of(daemon).startswith("prted")]
    ownership.end_marked(mark)
    ownership.wait_until_ended(own_daemons, PRTED_CLEANUP)


def clean(folder: str) -> None:
    """Remove the cluster's files on this host."""
    for path in (folder, shared_memory_dir(folder)):
        shutil.rmtree(path, ignore_errors=True)


COMMANDS = {
    command.__name__: command
    for command in (
        hello, local_address_towards, write, watch, clear, read_all, restrict_listeners, end, clean
    )
}  # fmt: skip


def requests() -> Iterator[bytes]:
    """The lines of the input, until the kernel is gone."""
    buffer = b""
    while select.select([0], [], [], SILENCE)[0]:
        data = os.read(0, 65536)
        if not data:
            return
        *lines, buffer = (buffer + data.replace(BEAT, b"")).split(b"\n")
        yield from lines


def main(mark: str, folder: str, job: str = "") -> None:
    """Answer the kernel until it is gone; then end what carries the mark, and remove the files.

    job: the Slurm job that was submitted for these ranks. If the kernel vanishes without a word,
    its host may be gone with all that would cancel the job, so the agent does.
    """
    # Slurm ends a job by SIGTERM, and knows best what becomes of it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    writing = threading.Lock()

    def send(message: dict) -> None:
        data = json.dumps(message).encode() + b"\n"
        with writing:
            while data:
                data = data[os.write(1, data) :]

    def send_status() -> None:
        refreshed = time.monotonic()
        while True:
            time.sleep(STATUS_INTERVAL)
            if time.monotonic() - refreshed > ownership.REFRESH_INTERVAL:
                refreshed = time.monotonic()
                ownership.keep_fresh([Path(folder), Path(shared_memory_dir(folder))])
            try:
                send({"status": status()})
            except BrokenPipeError:  # the connection is gone: `requests` ends, too
                return
            except Exception as error:
                send({"failed": f"{type(error).__name__}: {error}"})

    def send_heartbeat() -> None:
        with contextlib.suppress(BrokenPipeError):
            while True:
                time.sleep(HEARTBEAT_INTERVAL)
                send({})

    # A thread of its own: the status takes long while a process of this host cannot be read.
    for target in (send_status, send_heartbeat):
        threading.Thread(target=target, daemon=True).start()
    kernel_vanished, last = False, ""
    log.write_to(folder, f"agent on {socket.gethostname()}")
    log.logger.info("started")
    try:
        for line in requests():
            request = json.loads(line)
            last = request["command"]
            try:
                answer = {"value": COMMANDS[last](*request["args"])}
            except Exception as error:  # raised where it was asked
                log.logger.warning("%s failed: %r", last, error)
                answer = {"error": f"{type(error).__name__}: {error}"}
            send({"number": request["number"], **answer})
        kernel_vanished = last != "clean"  # a live kernel cleans up, and cancels the job itself
    finally:
        if last != "clean":
            log.logger.warning("the kernel is gone; ending what is here")
            log.keep(Path(folder))
        clean(folder)  # first: Slurm kills what has not ended some seconds after its SIGTERM
        end(mark)
        clean(folder)  # what a rank has written meanwhile
        if job and kernel_vanished:
            with contextlib.suppress(OSError):
                SlurmJob(job).cancel()


if __name__ == "__main__":
    main(*sys.argv[1:])
