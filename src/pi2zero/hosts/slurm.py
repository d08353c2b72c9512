"""Slurm: nodes for the ranks, by a job that holds them; or those of the job that the kernel itself is in.

The job only holds its nodes. Open MPI's daemons come to them by `srun` (in_job.py), one on each, and make one MPI world: no
site's `srun` is trusted to do that. Source: Slurm's manual pages of sbatch, squeue, scontrol and srun.
"""

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from pi2zero.hosts.place import Place, PlaceError
from pi2zero.hosts.site import Site
from pi2zero.hosts.together import uninterrupted
from pi2zero.ownership import TMP_ON_EVERY_HOST

JOB_FILE = (
    "slurm-job"  # in the run's folder: the job that the warden cancels when the kernel is killed
)
LOOK, SELDOM = (
    1.0,
    10.0,
)  # s between two looks at the queue, at first and later: a room of people asks the same Slurm
SILENCE = 10.0  # s that its programs get for an answer
AGAIN = "sleeping and retrying"  # sbatch's words while Slurm has as many jobs as it takes (MaxJobCount): for two minutes
ENDING = 5.0  # s that a job which Slurm is ending gets until Slurm says why
OVER = {
    "CANCELLED": "somebody cancelled it (scancel)",
    "TIMEOUT": "its time was over",
    "PREEMPTED": "another job took its nodes (preempted)",
    "NODE_FAIL": "Slurm lost one of its nodes",
    "OUT_OF_MEMORY": "its memory was full",
    "FAILED": "its script ended with an error",
    "DEADLINE": "its deadline was over",
    "COMPLETING": "it is ending",
    "COMPLETED": "it ended",
    "PENDING": "it was put back into the queue (requeued)",
    "SUSPENDED": "it was suspended",
    "GONE": "Slurm does not know it any more",
}
HOLD = b"#!/bin/sh\n# It holds nodes; the kernel that asked for them starts ranks there, and cancels it.\nexec sleep 2147483647\n"


class Job:
    """A job that holds nodes. number: Slurm's."""

    def __init__(self, number: str):
        self.number = number

    @classmethod
    def submit(cls, n: int, site: Site, progress, pressed=()) -> "Job":
        """Ask for n tasks as the site says. Raises PlaceError with sbatch's own words.

        pressed: not empty any more once somebody wants to stop it. That counts where sbatch has no job yet, and tries again.
        """
        name = f"pi2zero-{secrets.token_hex(3)}"  # its own: where sbatch is stopped, no number is known
        words = [
            "sbatch",
            "--parsable",
            f"--job-name={name}",
            "--output=/dev/null",
            "--no-requeue",
            *site.sbatch(n),
        ]

        def again(process):
            progress(
                "Slurm, which takes no more jobs just now (sbatch tries again for two minutes)"
            )
            if pressed:
                os.killpg(process.pid, signal.SIGKILL)

        code, number, said = answer_of_sbatch(words, again)
        if pressed and not number:
            ask("scancel", f"--user={os.getuid()}", f"--name={name}")
            raise KeyboardInterrupt
        if code:
            raise PlaceError(f"Slurm refused the job: {said}\nIt was asked by: {' '.join(words)}")
        return cls(number.partition(";")[0])

    def _told(self) -> dict[str, str]:
        said, errors = ask("scontrol", "-o", "-d", "show", "job", self.number)
        if "Invalid job id" in errors:
            return {"JobState": "GONE"}
        return dict(word.split("=", 1) for word in said.split() if "=" in word)

    def wait(self, progress) -> dict[str, int]:
        """Wait in the queue; says why and at which place. Returns the nodes and how many ranks fit on each. Raises PlaceError."""
        pause = LOOK
        while (state := (told := self._told()).get("JobState", "UNKNOWN")) in (
            "PENDING",
            "CONFIGURING",
            "UNKNOWN",
        ):
            place = (
                self._place_in_queue(told.get("Reason", "None"))
                if told
                else " (Slurm does not answer)"
            )
            progress(f"Slurm's job {self.number}{place}")
            time.sleep(pause)
            pause = min(1.1 * pause, SELDOM)  # after a minute a look in six seconds
        if state != "RUNNING":
            raise PlaceError(f"Slurm's job {self.number} did not start: {OVER.get(state, state)}.")
        return nodes_of(self.number)

    def _place_in_queue(self, reason: str) -> str:
        """', place 2 of those that wait (Resources)'."""
        waiting = ask("squeue", "-h", "-t", "PENDING", "-S", "-p", "-o", "%A")[0].split()
        place = (
            f", place {waiting.index(self.number) + 1} of those that wait"
            if self.number in waiting
            else ""
        )
        return place + (f" ({reason})" if reason not in ("None", "") else "")

    def why_over(self) -> str:
        """Why it does not run any more, in words; empty while it does, or while nothing is known. Asked once it has run."""
        deadline = time.monotonic() + ENDING
        while (
            state := (told := self._told()).get("JobState", "UNKNOWN")
        ) == "COMPLETING" and time.monotonic() < deadline:
            time.sleep(0.2)  # then it says why
        if (
            state == "RUNNING" and told.get("PreemptTime", "None") != "None"
        ):  # its last seconds: its ranks were told to end
            state = "PREEMPTED"
        if state in ("RUNNING", "CONFIGURING") and told.get("Restarts", "0") != "0":
            state = "PENDING"  # and has been started anew, without ranks
        if state in ("RUNNING", "UNKNOWN"):
            return ""
        return f"Slurm ended job {self.number}: {OVER.get(state, state)}"

    def cancel(self) -> None:
        """Give the nodes back; what still runs on them ends."""
        ask("scancel", self.number)


def answer_of_sbatch(words: list[str], again) -> tuple[int, str, str]:
    """sbatch's exit status, what it says, and its errors. again(process) is called while it waits to try again."""
    # As in in_job.py: Slurm would make this machine's temporary folder on the node, and leave it
    env = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    with (
        tempfile.TemporaryFile() as script,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        script.write(HOLD)
        script.seek(0)

        def text_of(file):
            return (
                os.pread(file.fileno(), 65536, 0)
                .decode(errors="replace")
                .replace("sbatch: error: ", "")
                .strip()
            )

        # In a session of its own: a stop button's SIGINT would end it without the number of a job that there is
        process = subprocess.Popen(
            words, env=env, stdin=script, stdout=output, stderr=errors, start_new_session=True
        )
        while process.poll() is None:
            if AGAIN in text_of(errors):
                again(process)
            time.sleep(0.05)
        return process.returncode, text_of(output), text_of(errors)


def ask(*words) -> tuple[str, str]:
    """What one of Slurm's programs says, and its errors; nothing if it does not answer."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SILENCE)
    except subprocess.TimeoutExpired:
        return "", ""
    return done.stdout, done.stderr


def nodes_of(job: str) -> dict[str, int]:
    """The nodes of a running job, and how many of its tasks each has."""
    told, _ = ask("scontrol", "-o", "-d", "show", "job", job)
    said = {
        name: int(number)
        for name, number in re.findall(r"(CPUs/Task|NumTasks|NtasksPerN\S*?)=(\d+)", told)
    }
    room = {}
    for names, ids in re.findall(r"\bNodes=(\S+) CPU_IDs=(\S+)", told):
        for name in expanded(names):
            room[name] = count_ids(ids) // said.get("CPUs/Task", 1)
    if not room:
        raise PlaceError(
            f"Slurm does not say which nodes job {job} has: {told.strip() or 'nothing'}"
        )
    return dealt(said.get("NumTasks", sum(room.values())), room)


def dealt(tasks: int, room: dict[str, int]) -> dict[str, int]:
    """So many tasks, evenly over the nodes while they have room. Not as many as have room: a job may hold a node's cores
    without using them (--exclusive), and Slurm counts a core's two hyper-threads as two."""
    slots = dict.fromkeys(room, 1)
    for _ in range(tasks - len(room)):
        slots[
            min([node for node in slots if slots[node] < room[node]] or slots, key=slots.get)
        ] += 1
    return slots


def told_here(text: str) -> list[int]:
    """SLURM_TASKS_PER_NODE: '2(x2),1' -> [2, 2, 1]."""
    found = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(tasks) for tasks, times in found for _ in range(int(times or 1))]


def expanded(names: str) -> list[str]:
    """node[1-2] -> node1, node2: Slurm does it."""
    return ask("scontrol", "show", "hostnames", names)[0].split()


def count_ids(text: str) -> int:
    """'0-1,4' -> 3."""
    return sum(
        int(last or first) - int(first) + 1
        for first, _, last in (part.partition("-") for part in text.split(","))
    )


def shell(job: str) -> tuple[str, ...]:
    """What runs a line of sh on a node of the job, once the node's name is added."""
    return ("python", "-m", "pi2zero.hosts.in_job", f"--job={job}")


def of_this_job(site: Site) -> Place | None:
    """The nodes of the Slurm job that this process is in; None if it is in none."""
    job = os.environ.get("SLURM_JOB_ID")
    if not job or not shutil.which("srun"):
        return None
    slots = nodes_of(job)
    tasks = told_here(os.environ.get("SLURM_TASKS_PER_NODE", ""))
    if len(tasks) == len(slots):  # a step on a part of the nodes has its own
        slots = dict(zip(slots, tasks, strict=True))
    if list(slots) == [os.environ.get("SLURMD_NODENAME", socket.gethostname())]:
        return Place()
    return Place(slots, shell(job), site.interface)


class Wanted:
    """Nodes that are not there yet: `take` asks Slurm for them."""

    folder = TMP_ON_EVERY_HOST

    def __init__(self, site: Site):
        if not shutil.which("sbatch"):
            raise PlaceError(
                'There is no Slurm here: no program "sbatch". Ranks on this machine: pi2zero.start(on="local").'
            )
        self.site = site

    def take(self, n: int, folder: Path, progress) -> Place:
        """Submit the job, wait for it, and return its nodes as a place. The job is cancelled if that is interrupted."""
        job = None
        try:
            with uninterrupted() as pressed:  # once Slurm has it, its number is known
                job = Job.submit(n, self.site, progress, pressed)
                (folder / JOB_FILE).write_text(job.number)
            slots = job.wait(progress)
        except BaseException:
            if job:
                job.cancel()
            raise
        return Place(slots, shell(job.number), self.site.interface, job)


def cancel_left(folder: Path) -> None:
    """Cancel the job that a run's folder names; for the warden, when the kernel was killed."""
    with contextlib.suppress(OSError):
        Job((folder / JOB_FILE).read_text()).cancel()
