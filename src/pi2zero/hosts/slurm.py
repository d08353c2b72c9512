"""Slurm: nodes for the ranks, in a job that holds them, or in the job that the kernel is in.

The job only holds its nodes. Open MPI's daemons come to them by `srun` (srun.py), one on each, and
make one MPI world: no site's `srun` is trusted to do that. Source: Slurm's manual pages of sbatch,
squeue, scontrol and srun.
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
from collections.abc import Callable
from pathlib import Path

from pi2zero import ownership
from pi2zero.hosts.concurrency import defer_sigint
from pi2zero.hosts.place import Place, PlaceError, PlaceRequest, Progress
from pi2zero.hosts.site import Site

JOB_FILE = (
    "slurm-job"  # in a run folder: the job that the watchdog cancels if the kernel was killed
)
FIRST_POLL, SLOWEST_POLL = 1.0, 10.0  # s between two looks at the queue: a room asks the same Slurm
SILENCE = 10.0  # s for Slurm's programs to answer
ENDING = 5.0  # s for Slurm to say why it is ending a job
SBATCH_RETRYING = "sleeping and retrying"  # sbatch, for two minutes, where Slurm is at MaxJobCount
JOB_END_REASONS = {
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
LEAVE_JOB = (
    "Open a new shell, or run: unset SLURM_JOB_ID "
    "(in a notebook: import os; os.environ.pop('SLURM_JOB_ID'))"
)
HOLD_SCRIPT = b"""#!/bin/sh
# This job holds nodes. The kernel that submitted it starts ranks there, and cancels it.
exec sleep 2147483647
"""


class SlurmJob:
    """A job that holds nodes. number: Slurm's."""

    def __init__(self, number: str, folder: Path | None = None):
        self.number = number
        self._folder = folder  # holds JOB_FILE

    @classmethod
    def submit(
        cls, n: int, site: Site, progress: Progress, pressed: list, folder: Path
    ) -> "SlurmJob":
        """Submit a job of n tasks. Raises PlaceError with sbatch's own words.

        pressed: not empty once the stop button was pressed. That counts while sbatch has no job yet
        and tries again.
        """
        # A name of its own: if sbatch is stopped, no number is known.
        name = f"pi2zero-{secrets.token_hex(3)}"
        options = ["--parsable", f"--job-name={name}", "--output=/dev/null", "--no-requeue"]
        command = ["sbatch", *options, *site.sbatch_options(n)]

        def on_retry(process: subprocess.Popen) -> None:
            progress(
                "Slurm, which takes no more jobs just now (sbatch tries again for two minutes)"
            )
            if pressed:
                os.killpg(process.pid, signal.SIGKILL)

        status, number, errors = run_sbatch(command, on_retry)
        if pressed and not number:
            ask("scancel", f"--user={os.getuid()}", f"--name={name}")
            raise KeyboardInterrupt
        if status:
            raise PlaceError(
                f"Slurm refused the job: {errors}\nIt was asked by: {' '.join(command)}"
            )
        return cls(number.partition(";")[0], folder)

    def _fields(self) -> dict[str, str]:
        """scontrol's record of the job; {} if Slurm does not answer."""
        text, errors = ask("scontrol", "-o", "-d", "show", "job", self.number)
        if "Invalid job id" in errors:
            return {"JobState": "GONE"}
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def wait(self, progress: Progress) -> dict[str, int]:
        """Wait in the queue. Returns how many ranks fit on each node. Raises PlaceError."""
        pause = FIRST_POLL
        while True:
            fields = self._fields()
            state = fields.get("JobState", "UNKNOWN")
            if state not in ("PENDING", "CONFIGURING", "UNKNOWN"):
                break
            why = self._place_in_queue(fields.get("Reason", "None"))
            progress(f"Slurm's job {self.number}{why if fields else ' (Slurm does not answer)'}")
            time.sleep(pause)
            pause = min(1.1 * pause, SLOWEST_POLL)
        if state != "RUNNING":
            why = JOB_END_REASONS.get(state, state)
            raise PlaceError(f"Slurm's job {self.number} did not start: {why}.")
        return nodes_of(self.number)

    def _place_in_queue(self, reason: str) -> str:
        """', place 2 of those that wait (Resources)'."""
        text, _ = ask("squeue", "-h", "-t", "PENDING", "-S", "-p", "-o", "%A")
        waiting, place = text.split(), ""
        if self.number in waiting:
            place = f", place {waiting.index(self.number) + 1} of those that wait"
        return place + (f" ({reason})" if reason not in ("None", "") else "")

    def why_over(self) -> str:
        """Why a job that ran does not run any more; "" while it does or nothing is known."""
        deadline = time.monotonic() + ENDING
        while True:
            fields = self._fields()
            state = fields.get("JobState", "UNKNOWN")
            if state != "COMPLETING" or time.monotonic() > deadline:
                break
            time.sleep(0.2)  # afterwards it says why
        if state == "RUNNING" and fields.get("PreemptTime", "None") != "None":
            state = "PREEMPTED"  # in its last seconds: its ranks were told to end
        if state in ("RUNNING", "CONFIGURING") and fields.get("Restarts", "0") != "0":
            state = "PENDING"  # and has been started anew, without ranks
        if state in ("RUNNING", "UNKNOWN"):
            return ""
        return f"Slurm ended job {self.number}: {JOB_END_REASONS.get(state, state)}"

    def cancel(self) -> None:
        """Give the nodes back; what still runs on them ends."""
        ask("scancel", self.number)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def run_sbatch(command: list[str], on_retry: Callable) -> tuple[int, str, str]:
    """sbatch's exit status, its output and its errors. on_retry(process): while it tries again."""
    # As in srun.py: Slurm would make this machine's temporary folder on the node, and leave it.
    env = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    with contextlib.ExitStack() as stack:
        script, output, errors = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        script.write(HOLD_SCRIPT)
        script.seek(0)

        def text_of(file) -> str:
            text = os.pread(file.fileno(), 65536, 0).decode(errors="replace")
            return text.replace("sbatch: error: ", "").strip()

        # In a session of its own: the stop button's SIGINT would end it when Slurm has the job
        # already, and its number would not be known.
        process = subprocess.Popen(
            command, env=env, stdin=script, stdout=output, stderr=errors, start_new_session=True
        )
        while process.poll() is None:
            if SBATCH_RETRYING in text_of(errors):
                on_retry(process)
            time.sleep(0.05)
        return process.returncode, text_of(output), text_of(errors)


def ask(*command: str) -> tuple[str, str]:
    """What one of Slurm's programs prints, and its errors; nothing if it does not answer."""
    try:
        done = subprocess.run(command, capture_output=True, errors="replace", timeout=SILENCE)
    except subprocess.TimeoutExpired:
        return "", ""
    return done.stdout, done.stderr


def nodes_of(job: str) -> dict[str, int]:
    """The nodes of a running job, and how many of its tasks each has. Raises PlaceError."""
    text, _ = ask("scontrol", "-o", "-d", "show", "job", job)
    numbers = {name: int(n) for name, n in re.findall(r"(CPUs/Task|NumTasks)=(\d+)", text)}
    room = {
        node: count_ids(ids) // numbers.get("CPUs/Task", 1)
        for nodes, ids in re.findall(r"\bNodes=(\S+) CPU_IDs=(\S+)", text)
        for node in ask("scontrol", "show", "hostnames", nodes)[0].split()
    }
    if not room:
        raise PlaceError(
            f"Slurm does not say which nodes job {job} has: {text.strip() or 'nothing'}"
        )
    return spread_tasks(numbers.get("NumTasks", sum(room.values())), room)


def spread_tasks(tasks: int, room: dict[str, int]) -> dict[str, int]:
    """How many tasks each node gets: evenly, while the nodes have room.

    Not simply the room: a job may hold cores that it does not use (--exclusive), and Slurm counts
    two hyper-threads of a core as two.
    """
    slots = dict.fromkeys(room, 1)
    for _ in range(tasks - len(room)):
        free = [node for node in slots if slots[node] < room[node]]
        slots[min(free or slots, key=slots.__getitem__)] += 1
    return slots


def parse_tasks_per_node(text: str) -> list[int]:
    """SLURM_TASKS_PER_NODE: '2(x2),1' -> [2, 2, 1]."""
    pairs = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(tasks) for tasks, times in pairs for _ in range(int(times or 1))]


def count_ids(text: str) -> int:
    """'0-1,4' -> 3."""
    ranges = [part.partition("-") for part in text.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)


def shell(job: str) -> tuple[str, ...]:
    """The command that runs a line of sh on a node of the job, once the node's name is added."""
    return ("python", "-m", "pi2zero.hosts.srun", f"--job={job}")


def place_of_this_job(site: Site) -> Place | None:
    """The nodes of the Slurm job that this process is in; None if it is in none."""
    job = os.environ.get("SLURM_JOB_ID")
    if not job or not shutil.which("srun"):
        return None
    try:
        slots = nodes_of(job)
    except PlaceError:
        if over := SlurmJob(job).why_over():
            message = f"SLURM_JOB_ID is {job}. {over}. {LEAVE_JOB}."
            raise PlaceError(message) from None
        raise
    tasks = parse_tasks_per_node(os.environ.get("SLURM_TASKS_PER_NODE", ""))
    if len(tasks) == len(slots):  # a step on a part of the nodes has its own numbers
        slots = dict(zip(slots, tasks, strict=True))
    if list(slots) == [os.environ.get("SLURMD_NODENAME", socket.gethostname())]:
        return Place()
    return Place(slots, shell(job), site.interface)


class SlurmRequest(PlaceRequest):
    """Nodes that have to be asked for. Raises PlaceError where there is no Slurm."""

    def __init__(self, site: Site):
        if not shutil.which("sbatch"):
            raise PlaceError(
                'There is no Slurm here: no program "sbatch". Ranks on this machine: '
                'pi2zero.start(on="local").'
            )
        self.site = site

    def is_local(self) -> bool:
        return False

    def allocate(self, n: int, progress: Progress) -> Place:
        """Submit the job, and wait for its nodes. Raises PlaceError; then no job is left."""
        folder, job = ownership.make_run_dir(), None
        try:
            with defer_sigint() as pressed:  # once Slurm has the job, its number is known
                job = SlurmJob.submit(n, self.site, progress, pressed, folder)
                (folder / JOB_FILE).write_text(job.number)
            slots = job.wait(progress)
        except BaseException:
            if job:
                job.cancel()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return Place(slots, shell(job.number), self.site.interface, job)


def cancel_job_in(folder: Path) -> None:
    """Cancel the job that a run folder names; for the watchdog, when the kernel was killed."""
    with contextlib.suppress(OSError):
        SlurmJob((folder / JOB_FILE).read_text()).cancel()
