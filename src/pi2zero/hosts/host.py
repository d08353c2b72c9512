"""One host that ranks run on, asked from the kernel: its own directly, another through its agent.

The kernel hears an agent's sign of life every few seconds (see agent.py), and the agent hears the
kernel's from a process of its own (heartbeat.py). So neither a busy kernel nor a busy host counts
as lost while it lives.
"""

import contextlib
import itertools
import json
import os
import queue
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from pi2zero import ownership
from pi2zero.hosts import agent, heartbeat

SILENCE = 15.0  # s without a byte from the agent, after which its host counts as lost
PATIENCE = 60.0  # s for one answer; a process of that host may wait for a dead file system
START = 60.0  # s for the first answer: a shared file system may be slow
SRUN_NOISE = "lacks support for cpu binding"  # srun says so where nothing would be bound


class HostError(RuntimeError):
    """A host cannot be reached, or has answered with an error."""


def parse_message(line: str) -> dict | None:
    """An agent's message; None if the line is something else, such as a shell's greeting."""
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(message := json.loads(line), dict):
            return message
    return None


class LocalHost:
    """The kernel's own host. Its methods are those of `RemoteHost`."""

    def __init__(self):
        self.name, self.why_lost = socket.gethostname(), ""
        self.watch("", {}, {})

    def call(self, command: str, *args) -> Any:
        """Call one of agent.py's functions in this process. Raises what it raises."""
        return agent.COMMANDS[command](*args)

    def watch(
        self, ranks_mark: str, marks_of: dict[int, str], sample_paths: dict[int, str]
    ) -> None:
        """Watch these ranks from now on."""
        self.ranks_mark, self.marks_of, self.sample_paths = ranks_mark, marks_of, sample_paths
        agent.exit_watcher.watch(marks_of)

    def dead_ranks(self) -> list[int]:
        """Ranks whose process has ended."""
        return [rank for rank, mark in self.marks_of.items() if ownership.owner_is_gone(mark)]

    def exit_times(self) -> dict[int, float]:
        """When ranks ended, as far as known, by this host's clock."""
        return agent.exit_watcher.exit_times

    def launched(self) -> int:
        """How many live processes Open MPI has started here."""
        return agent.launched(self.ranks_mark)

    def sample(self, rank: int) -> str:
        """The text of a rank's last sample."""
        return agent.read(self.sample_paths[rank])

    def close(self, mark: str, folder: str) -> None:
        """End what carries this mark here, and remove the cluster's files."""
        agent.end(mark)
        agent.clean(folder)


class RemoteHost:
    """Another host, through its agent. Raises HostError if the agent does not start.

    shell: the command that runs a line of sh there, once the host's name is added. mark, folder: of
    the cluster. job: the number of the Slurm job that was submitted for the ranks, if any.
    """

    def __init__(self, host: str, shell: tuple[str, ...], mark: str, folder: str, job: str = ""):
        self.host, self.name, self.why_lost = host, "", ""
        self.last_status = {"dead": [], "exit_times": {}, "launched": 0, "samples": {}}
        self._ranks_mark = ""
        self._numbers = itertools.count()
        self._answers: dict[int, queue.SimpleQueue] = {}  # of the requests that wait for one
        self._errors: list[str] = []
        self._writing = threading.Lock()
        command = [sys.executable, "-m", "pi2zero.hosts.agent", mark, folder, *filter(None, [job])]
        # A session of its own: the stop button's SIGINT is not meant for the way to the host.
        self._process = subprocess.Popen(
            [sys.executable, "-IS", heartbeat.__file__, *shell, host, shlex.join(command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._stderr = self._process.stderr
        for target in (self._read_messages, self._read_errors):
            threading.Thread(target=target, name=f"pi2zero host {host}", daemon=True).start()
        try:
            self.name = self.call("hello", folder, patience=START)
        except HostError as error:
            self.close(mark, folder)
            raise HostError(f"{host} cannot be used: {error}") from None
        self._errors = []  # earlier lines do not explain later errors

    def _read_errors(self) -> None:
        for line in self._stderr:
            self._note(line)

    def _note(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if SRUN_NOISE not in text:
            self._errors = [*self._errors[-20:], text]

    def _read_messages(self) -> None:
        """Until the connection ends, or nothing comes for SILENCE s while this thread waits.

        The system measures the silence. A kernel that was busy finds what has come meanwhile.
        """
        buffer, limit, poll = b"", START, select.poll()
        poll.register(self._stdout, select.POLLIN)
        while poll.poll(1000 * limit):
            if not (data := os.read(self._stdout.fileno(), 65536)):
                time.sleep(0.1)  # for the last errors
                return self._mark_lost(self._why_ended())
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                if (message := parse_message(line.decode(errors="replace"))) is None:
                    self._note(line)  # the host's shell may say why it fails
                else:
                    limit = SILENCE
                    self._receive(message)
        self._mark_lost(f"it has not answered for {limit:.0f} s")
        self._kill()

    def _why_ended(self) -> str:
        """That the connection has ended, with what the shell or ssh said; at a start only that."""
        words = "\n".join(self._errors[-5:])
        if not self.name:
            return words or "its connection has ended"
        return f"its connection has ended: {words}" if words else "its connection has ended"

    def _receive(self, message: dict) -> None:
        if status := message.get("status"):
            for part in ("exit_times", "samples"):  # JSON has made texts of the ranks
                status[part] = {int(rank): value for rank, value in status[part].items()}
            if status["ranks_mark"] == self._ranks_mark:  # else it was sent before the last `watch`
                self.last_status = status
        elif "failed" in message:
            self._mark_lost(message["failed"])
        elif answers := self._answers.pop(message.get("number", -1), None):
            answers.put(message)

    def _mark_lost(self, why: str) -> None:
        """It will not answer any more: answer all that wait."""
        self.why_lost = self.why_lost or why
        for number in list(self._answers):
            if answers := self._answers.pop(number, None):
                answers.put({"error": self.why_lost})

    def call(self, command: str, *args, patience: float = PATIENCE) -> Any:
        """Call one of agent.py's functions there. Raises HostError."""
        number, answers = next(self._numbers), queue.SimpleQueue()
        self._answers[number] = answers
        request = json.dumps({"number": number, "command": command, "args": args}) + "\n"
        try:
            with self._writing:
                self._stdin.write(request.encode())
                self._stdin.flush()
        except (OSError, ValueError):
            pass  # the connection has ended: `_read_messages` answers in a moment
        answer = {"error": self.why_lost} if self.why_lost else self._wait(answers, patience)
        self._answers.pop(number, None)
        if "error" in answer:
            raise HostError(answer["error"])
        return answer["value"]

    def _wait(self, answers: queue.SimpleQueue, patience: float) -> dict:
        # Twice: after a long call in C code the thread that reads gets its turn only now.
        for seconds in (patience, 2.0):
            with contextlib.suppress(queue.Empty):
                return answers.get(timeout=seconds)
        self._mark_lost(f"it has not answered for {patience:.0f} s")
        self._kill()
        return {"error": self.why_lost}

    def watch(
        self, ranks_mark: str, marks_of: dict[int, str], sample_paths: dict[int, str]
    ) -> None:
        """Watch these ranks from now on."""
        self._ranks_mark = ranks_mark
        self._receive({"status": self.call("watch", ranks_mark, marks_of, sample_paths)})

    def dead_ranks(self) -> list[int]:
        """Ranks whose process had ended at the last status."""
        return self.last_status["dead"]

    def exit_times(self) -> dict[int, float]:
        """When ranks ended, as far as known, by that host's clock."""
        return self.last_status["exit_times"]

    def launched(self) -> int:
        """How many processes that Open MPI has started there lived at the last status."""
        return self.last_status["launched"]

    def sample(self, rank: int) -> str:
        """The text of a rank's sample at the last status; empty if there was none."""
        return self.last_status["samples"].get(rank, "")

    def close(self, mark: str, folder: str) -> None:
        """End what runs there, remove the files, and let the agent end."""
        if not self.why_lost:
            with contextlib.suppress(HostError):
                self.call("end", mark)
                self.call("clean", folder)  # tells the agent that this is the end
        with contextlib.suppress(OSError):
            self._stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # heartbeat.py, and the ssh that it runs
