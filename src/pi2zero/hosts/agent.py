"""`python -m pi2zero.hosts.agent`: what the kit does on another host. Requests come on its input, answers go
to its output.

The kernel starts one on each host by ssh or srun, so that nothing listens on a port and no folder has to be shared. When the
kernel or the connection is gone, it ends what was started here and removes the files. On the kernel's own host the same functions
are called directly (reach.py).
"""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import sys
from pathlib import Path

import psutil

from pi2zero import ownership
from pi2zero.hosts.ends import Ends
from pi2zero.hosts.place import facing, segments
from pi2zero.hosts.seal import seal as seal_process
from pi2zero.hosts.slurm import Job
from pi2zero.ownership.process_marks import name_of

SILENCE = (
    30.0  # s without a request (they come twice a second), after which the kernel counts as gone
)
CLEARING = 5.0  # s that Open MPI's daemon gets to do so
DAEMONS = ("mpirun", "mpiexec", "prterun", "prted")  # Open MPI's: their children are ranks,
ENDS = Ends()
SHELLS = (*DAEMONS, "ssh", "srun", "sh")  # or the way to another host


def hello(folder: str) -> str:
    """Make the private folders for this cluster's files and shared memory; this host's name."""
    for path in (folder, segments(folder)):
        ownership.make_private_dir(Path(path))
    return socket.gethostname()


def write(path: str, text: str) -> None:
    """A private file, whole at once: others wait for it."""
    part = Path(path).with_suffix(".part")
    part.touch(0o600)
    part.write_text(text)
    part.replace(path)


def look(ranks_mark: str, marks_of: dict, samples_of: dict) -> dict:
    """gone: those ranks whose process has ended; ended: when, as far as it is known; launched: live processes that Open MPI has
    started here; samples: the text of each rank's last sample. marks_of and samples_of: {rank: its process's mark, the file of
    its samples}."""
    ENDS.watch({int(rank): mark for rank, mark in marks_of.items()})
    return {
        "gone": [int(rank) for rank, mark in marks_of.items() if ownership.owner_is_gone(mark)],
        "ended": ENDS.times,
        "launched": launched(ranks_mark),
        "samples": {int(rank): read(path) for rank, path in samples_of.items()},
    }


def launched(ranks_mark: str) -> int:
    """How many live processes the cluster's daemons of Open MPI have started on this host: ranks, and what they spawned."""
    count = 0
    for daemon in daemons(ranks_mark):
        with contextlib.suppress(psutil.Error):
            count += sum(map(is_rank, daemon.children()))
    return count


def daemons(ranks_mark: str) -> set[psutil.Process]:
    """Open MPI's daemons on this host, by the ranks that they have started: ssh does not hand the mark over to them."""
    found = set()
    for process in ownership.marked_processes(ranks_mark):
        with contextlib.suppress(psutil.Error):
            if (parent := process.parent()) and parent.name().startswith(DAEMONS):
                found.add(parent)
    return found


def is_rank(process: psutil.Process) -> bool:
    """Whether a daemon's child is a rank that lives, and not the way to another host (in_job.py becomes srun in a moment)."""
    with contextlib.suppress(psutil.Error):
        way = process.name() in SHELLS or "pi2zero.hosts.in_job" in process.cmdline()
        return not way and process.status() != psutil.STATUS_ZOMBIE
    return False


def read(path: str) -> str:
    """A file's text; nothing if it is not there."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def clear(paths: list[str]) -> None:
    """Empty these files."""
    for path in paths:
        with contextlib.suppress(OSError):
            Path(path).write_text("")


def read_all(paths: list[str]) -> list[str]:
    """The text of each file; empty where it cannot be read."""
    return [read(path) for path in paths]


def seal(mark: str, friends: list[str]) -> int:
    """Let nobody but friends (addresses) connect to what the ranks with this mark listen on here, and nobody at all to Open MPI's
    daemons: theirs are all there, and whom they take they obey. (Slurm's own daemons speak to srun.)"""
    ranks = sum(
        seal_process(process.pid, friends)
        for process in ownership.marked_processes(mark)
        if name_of(process) not in SHELLS
    )
    return ranks + sum(seal_process(daemon.pid) for daemon in daemons(mark))


def end(mark: str) -> None:
    """End what carries this mark on this host. Open MPI's daemon then ends by itself and takes its files away: a job that is
    given back before would have it killed."""
    theirs = [daemon for daemon in daemons(mark) if name_of(daemon).startswith("prted")]
    ownership.end_marked(mark)
    ownership.wait_until_ended(theirs, CLEARING)


def clean(folder: str) -> None:
    """Remove the cluster's files on this host."""
    for path in (folder, segments(folder)):
        shutil.rmtree(path, ignore_errors=True)


DOES = {
    one.__name__: one for one in (hello, facing, write, look, clear, read_all, seal, end, clean)
}


def requests():
    """The lines of the input, until the kernel is gone."""
    waiting = b""
    while select.select([0], [], [], SILENCE)[0]:
        new = os.read(0, 65536)
        if not new:
            return
        *lines, waiting = (waiting + new).split(b"\n")
        yield from lines


def main(mark: str, folder: str, job: str = "") -> None:
    """Answer the kernel's requests, one line of JSON each, until it is gone; then end what carries the mark, and clean up.

    job: Slurm's, if it was asked for these ranks. The kernel's host may be gone, and with it all that would cancel it.
    """
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit()
    )  # so does Slurm end a job, and knows best what becomes of it
    alone, last = False, ""
    try:
        for line in requests():
            request = json.loads(line)
            last = request["do"]
            try:
                answer = {"value": DOES[request["do"]](*request["with"])}
            except Exception as error:  # told where it was asked
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps({"number": request["number"], **answer}), flush=True)
        alone = (
            last != "clean"
        )  # a kernel that lives says so in the end, and gives the job back itself
    finally:
        clean(
            folder
        )  # at once: Slurm kills what has not ended some seconds after it has told it to
        end(mark)
        clean(folder)  # what a rank has written meanwhile
        if job and alone:
            with contextlib.suppress(OSError):
                Job(job).cancel()


if __name__ == "__main__":
    main(*sys.argv[1:])
