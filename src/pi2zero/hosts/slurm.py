"""Slurm: nodes for the ranks, by a job that holds them; or those of the job that the kernel itself is in.

The job only holds its nodes. Open MPI's daemons come to them by `srun` (in_job.py), one on each, and make one MPI world: no
site's `srun` is trusted to do that. Source: Slurm's manual pages of sbatch, squeue, scontrol and srun.
"""

import contextlib
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from pi2zero.hosts.place import Place, PlaceError
from pi2zero.hosts.site import Site

JOB_FILE = "slurm-job"  # in the run's folder: the job that the warden cancels when the kernel is killed
LOOK = 1.0  # s between two looks at the queue
OVER = {
    "CANCELLED": "somebody cancelled it (scancel)",
    "TIMEOUT": "its time was over",
    "PREEMPTED": "another job took its nodes (preempted)",
    "NODE_FAIL": "Slurm lost one of its nodes",
    "OUT_OF_MEMORY": "its memory was full",
    "FAILED": "its script ended with an error",
    "DEADLINE": "its deadline was over",
    "COMPLETED": "it ended",
}
HOLD = "#!/bin/sh\n# It holds nodes; the kernel that asked for them starts ranks there, and cancels it.\nexec sleep 2147483647\n"


class Job:
    """A job that holds nodes. number: Slurm's."""

    def __init__(self, number: str):
        self.number = number

    @classmethod
    def submit(cls, n: int, site: Site) -> "Job":
        """Ask for n tasks as the site says. Raises PlaceError with sbatch's own words."""
        words = ["sbatch", "--parsable", "--job-name=pi2zero", "--output=/dev/null", *site.sbatch(n)]
        done = subprocess.run(words, input=HOLD, capture_output=True, text=True)
        if done.returncode:
            said = done.stderr.strip().removeprefix("sbatch: error: ")
            raise PlaceError(f"Slurm refused the job: {said}\nIt was asked by: {' '.join(words)}")
        return cls(done.stdout.strip().partition(";")[0])

    def state(self) -> str:
        """PENDING, RUNNING, ...; UNKNOWN if Slurm does not know or does not answer."""
        return self._told().get("JobState", "UNKNOWN")

    def _told(self) -> dict[str, str]:
        done = subprocess.run(["scontrol", "-o", "-d", "show", "job", self.number], capture_output=True, text=True)
        return dict(word.split("=", 1) for word in done.stdout.split() if "=" in word) if not done.returncode else {}

    def wait(self, progress) -> dict[str, int]:
        """Wait in the queue; says why and at which place. Returns the nodes and how many ranks fit on each. Raises PlaceError."""
        while (state := (told := self._told()).get("JobState", "UNKNOWN")) in ("PENDING", "CONFIGURING", "UNKNOWN"):
            if not told and not self._is_queued():
                raise PlaceError(f"Slurm does not know job {self.number} any more.")
            progress(f"Slurm's job {self.number} waits{self._place_in_queue(told.get('Reason', 'None'))}")
            time.sleep(LOOK)
        if state != "RUNNING":
            raise PlaceError(f"Slurm's job {self.number} did not start: {self.why_over(state)}.")
        return nodes_of(self.number)

    def _is_queued(self) -> bool:
        return bool(subprocess.run(["squeue", "-h", "-j", self.number], capture_output=True, text=True).stdout.strip())

    def _place_in_queue(self, reason: str) -> str:
        """', place 2 of those that wait (Resources)'."""
        queue = subprocess.run(["squeue", "-h", "-t", "PENDING", "-S", "-p", "-o", "%A"], capture_output=True, text=True)
        waiting = queue.stdout.split()
        place = f", place {waiting.index(self.number) + 1} of those that wait" if self.number in waiting else ""
        return place + (f" ({reason})" if reason not in ("None", "") else "")

    def why_over(self, state: str | None = None) -> str:
        """Why it does not run any more, in words; empty while it does, or while nothing is known."""
        state = state or self.state()
        if state in ("RUNNING", "COMPLETING", "UNKNOWN", "PENDING", "CONFIGURING"):
            return ""
        return f"Slurm ended job {self.number}: {OVER.get(state, state)}"

    def cancel(self) -> None:
        subprocess.run(["scancel", self.number], capture_output=True)


def nodes_of(job: str) -> dict[str, int]:
    """The nodes of a running job, and how many of its tasks fit on each."""
    told = subprocess.run(["scontrol", "-o", "-d", "show", "job", job], capture_output=True, text=True).stdout
    each = re.search(r"CPUs/Task=(\d+)", told)
    each = int(each[1]) if each else 1
    slots = {}
    for names, ids in re.findall(r"\bNodes=(\S+) CPU_IDs=(\S+)", told):
        for name in expanded(names):
            slots[name] = max(1, count_ids(ids) // each)
    if not slots:
        raise PlaceError(f"Slurm does not say which nodes job {job} has: {told.strip() or 'nothing'}")
    return slots


def expanded(names: str) -> list[str]:
    """node[1-2] -> node1, node2: Slurm does it."""
    return subprocess.run(["scontrol", "show", "hostnames", names], capture_output=True, text=True).stdout.split()


def count_ids(text: str) -> int:
    """'0-1,4' -> 3."""
    return sum(int(last or first) - int(first) + 1 for first, _, last in (part.partition("-") for part in text.split(",")))


def shell(job: str) -> tuple[str, ...]:
    """What runs a line of sh on a node of the job, once the node's name is added."""
    return ("python", "-m", "pi2zero.hosts.in_job", f"--job={job}")


def of_this_job() -> Place | None:
    """The nodes of the Slurm job that this process is in; None if it is in none, or in one on this machine alone."""
    job = os.environ.get("SLURM_JOB_ID")
    if not job or not shutil.which("srun"):
        return None
    slots = nodes_of(job)
    return Place(slots, shell(job)) if len(slots) > 1 else None


class Wanted:
    """Nodes that are not there yet: `take` asks Slurm for them."""

    def __init__(self, site: Site):
        if not shutil.which("sbatch"):
            raise PlaceError('There is no Slurm here: no program "sbatch". Ranks on this machine: pi2zero.start(on="local").')
        self.site = site

    def take(self, n: int, folder: Path, progress) -> Place:
        """Submit the job, wait for it, and return its nodes as a place. The job is cancelled if that is interrupted."""
        job = Job.submit(n, self.site)
        (folder / JOB_FILE).write_text(job.number)
        try:
            slots = job.wait(progress)
        except BaseException:
            job.cancel()
            raise
        return Place(slots, shell(job.number), self.site.interface, job)


def cancel_left(folder: Path) -> None:
    """Cancel the job that a run's folder names; for the warden, when the kernel was killed."""
    with contextlib.suppress(OSError):
        Job((folder / JOB_FILE).read_text()).cancel()
