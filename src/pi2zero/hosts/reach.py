"""One host that ranks run on, asked from the kernel: this one directly, another through its agent (agent.py)."""

import contextlib
import itertools
import json
import queue
import shlex
import socket
import subprocess
import sys
import threading
import time

from pi2zero import ownership
from pi2zero.hosts import agent

EVERY = 0.5  # s between two looks at another host
LOST = 15.0  # s without an answer, after which a host counts as lost
START = 60.0  # s that an agent gets to start; a shared file system may be slow


class HostError(RuntimeError):
    """A host cannot be reached, or has answered with an error."""


def answer_in(line: str) -> dict | None:
    """An agent's answer; None if the line is something else."""
    with contextlib.suppress(ValueError, RecursionError):
        answer = json.loads(line)
        if isinstance(answer, dict) and "number" in answer:
            return answer
    return None


class Here:
    """The kernel's own host. All functions of agent.py are methods; these and `There`'s are the same."""

    def __init__(self):
        self.name, self.why_lost = socket.gethostname(), ""
        self.watch("", {}, {})

    def call(self, name: str, *args):
        """Do one of agent.py's functions here, in this process. Raises what it raises."""
        return agent.DOES[name](*args)

    def watch(self, ranks_mark: str, marks_of: dict[int, str], samples_of: dict[int, str]) -> None:
        """From now on look at these ranks. samples_of: the file of each one's samples."""
        self.mark, self.marks_of, self._samples_of = ranks_mark, marks_of, samples_of
        agent.ENDS.watch(marks_of)

    def gone(self) -> list[int]:
        """Ranks whose process has ended."""
        return [rank for rank, mark in self.marks_of.items() if ownership.owner_is_gone(mark)]

    def ended(self) -> dict[int, float]:
        """When those ended of which it is known, by this host's clock."""
        return agent.ENDS.times

    def launched(self) -> int:
        """How many processes live that Open MPI has started here."""
        return agent.launched(self.mark)

    def sample(self, rank: int) -> str:
        """The text of a rank's last sample."""
        return agent.read(self._samples_of[rank])

    def close(self, mark: str, folder: str) -> None:
        """End what carries this mark here, and remove the cluster's files."""
        agent.end(mark)
        agent.clean(folder)


class There:
    """Another host. shell: what runs a line of sh there, once the host's name is added. job: the number of the Slurm job that was
    asked for it, if one was."""

    def __init__(self, host: str, shell: list[str], mark: str, folder: str, job: str = ""):
        self.host, self.why_lost = host, ""
        line = shlex.join(
            [sys.executable, "-m", "pi2zero.hosts.agent", mark, folder, *[job] * bool(job)]
        )
        self._errors: list[str] = []
        self._process = subprocess.Popen(
            [*shell, host, line],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # a stop button's SIGINT is not for it
        )
        self._numbers, self._waiting = (
            itertools.count(),
            {},
        )  # who waits for the answer to which request
        self._writing, self._closing = threading.Lock(), threading.Event()
        for hear in (self._hear, self._hear_errors):
            threading.Thread(target=hear, daemon=True).start()
        self.news = {"gone": [], "ended": {}, "launched": 0, "samples": {}}
        self._asked = None
        try:
            self.name = self.call("hello", folder, patience=START)
        except HostError as error:
            self.close(mark, folder)
            raise HostError(f"{self.host} cannot be used: {error}") from None
        self._errors = []  # what it said before is no reason for what comes
        threading.Thread(target=self._look, name=f"pi2zero looks at {host}", daemon=True).start()

    def _hear_errors(self):
        for line in self._process.stderr:
            if (
                "lacks support for cpu binding" not in line
            ):  # srun says it where nothing would be bound
                self._errors = [*self._errors[-20:], line.rstrip()]

    def _hear(self):
        for line in self._process.stdout:
            if (
                answer := answer_in(line)
            ) is None:  # what the host's shell says when it starts; why it fails, perhaps
                self._errors = [*self._errors[-20:], line.rstrip()]
            elif waiting := self._waiting.pop(answer["number"], None):
                waiting.put(answer)
        time.sleep(0.1)  # the last words
        self._lose("\n".join(self._errors[-5:]) or "its connection has ended")

    def _lose(self, why: str) -> None:
        """It will not answer any more: tell who waits."""
        self.why_lost = self.why_lost or why
        for number in list(self._waiting):
            if waiting := self._waiting.pop(number, None):
                waiting.put({"error": self.why_lost})

    def call(self, name: str, *args, patience: float = LOST):
        """Do one of agent.py's functions there. Raises HostError, also after `patience` s without an answer."""
        number, mine = next(self._numbers), queue.SimpleQueue()
        self._waiting[number] = mine
        request = json.dumps({"number": number, "do": name, "with": args}) + "\n"
        try:
            with self._writing:
                self._process.stdin.write(request)
                self._process.stdin.flush()
            answer = {"error": self.why_lost} if self.why_lost else mine.get(timeout=patience)
        except (OSError, ValueError):  # its end is heard in a moment, or has been
            with contextlib.suppress(queue.Empty):
                self.why_lost or mine.get(timeout=5)
            answer = {"error": self.why_lost or "its connection has ended"}
        except queue.Empty:
            self._lose(f"it has not answered for {patience:.0f} s")
            self._process.kill()
            answer = {"error": self.why_lost}
        finally:
            self._waiting.pop(number, None)
        if "error" in answer:
            raise HostError(answer["error"])
        return answer["value"]

    def watch(self, ranks_mark: str, marks_of: dict[int, str], samples_of: dict[int, str]) -> None:
        """From now on look at these ranks."""
        self._asked = ranks_mark, marks_of, samples_of
        self.call("look", *self._asked)  # at once: from here on it sees in which order they end
        self.news = {"gone": [], "ended": {}, "launched": len(marks_of), "samples": {}}

    def _look(self):
        while not self._closing.wait(EVERY):
            try:
                if (asked := self._asked) is not None:
                    news = self.call("look", *asked)
                    for part in ("ended", "samples"):  # JSON has made words of the ranks
                        news[part] = {int(rank): value for rank, value in news[part].items()}
                    if asked is self._asked:
                        self.news = news
                else:
                    self.call("clear", [])
            except HostError as error:
                self._lose(str(error))
                return

    def gone(self) -> list[int]:
        """Ranks whose process had ended at the last look."""
        return self.news["gone"]

    def ended(self) -> dict[int, float]:
        """When those ended of which it is known, by that host's clock."""
        return self.news["ended"]

    def launched(self) -> int:
        """How many processes lived at the last look that Open MPI has started there."""
        return self.news["launched"]

    def sample(self, rank: int) -> str:
        """The text of a rank's sample at the last look; empty if there was none."""
        return self.news["samples"].get(rank, "")

    def close(self, mark: str, folder: str) -> None:
        """End what runs there, remove the files, and let the agent end."""
        self._closing.set()
        if not self.why_lost:
            with contextlib.suppress(HostError):
                self.call("end", mark)
                self.call("clean", folder)  # so it knows that this is the end
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # the agent does the rest
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
