"""On each rank: what it is doing while a cell runs. This runs on the engines; `hang.py` reads what it writes.

Twice a second a thread looks at the main thread and writes a `Sample` down. It asks three things. Has Python moved? (A call that
was left for the interpreter has been made; a rank that sits in one call of C cannot make it.) In which call does it stand?
(The exact expression, by the position that Python 3.11 keeps for each instruction, and what its names are bound to.) And does
the processor work for it? While C code holds Python's lock, the thread cannot look: no fresh sample means unknown, never still.
"""

import contextlib
import ctypes
import json
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pi2zero.cluster.calls import IDLE, answering, call_of, polls, read, waiting_call

PERIOD = 0.5  # s between two looks


@dataclass(frozen=True)
class Sample:
    """What a rank was doing. number: counts the looks, so that a reader on another clock sees which are fresh.

    state: "waits" (in a call that needs other ranks), "polls" (in a loop that only asks whether a message is there), "moves"
    (Python runs), "computes" (one call, the processor works), "rests" (one call, the processor does not: it sleeps, reads, ...).
    seconds: how long it has been in this state without a break. method: the last name of the call that it stands in, e.g.
    "Barrier". stack: (file, line, function), innermost first.
    """

    number: int
    state: str
    seconds: float
    method: str = ""
    stack: list = field(default_factory=list)


class Pulse(threading.Thread):
    """Looks at the main thread while a cell runs, and writes a Sample to `path`. `shell`: the engine's IPython shell."""

    def __init__(self, path: Path, shell):
        super().__init__(name="pi2zero pulse", daemon=True)
        self.path, self._running = path, threading.Event()
        self._main = threading.main_thread()
        self._clock = time.pthread_getcpuclockid(self._main.ident)
        self._asked = self._answered = self._number = 0
        # Kept: ctypes' callbacks must outlive their last use.
        self._answer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._was_called)
        shell.events.register("pre_run_cell", self._begin)
        shell.events.register("post_run_cell", self._end)

    def _begin(self, *_):
        self._since, self._cpu = time.monotonic(), time.clock_gettime(self._clock)
        self._state, self._place = "moves", None
        self._threads = {thread.ident for thread in threading.enumerate()}
        self._running.set()

    def _end(self, *_):
        self._running.clear()

    def run(self):
        while True:
            self._running.wait()
            time.sleep(PERIOD)
            if self._running.is_set():
                # trees.Building, say. The next look may see it; without this thread nothing would be known again.
                with contextlib.suppress(Exception):
                    self._look()

    def _was_called(self, _):
        self._answered += 1
        return 0

    def _moved(self) -> bool:
        """Has the main thread run Python since the last look? Asks anew."""
        if self._answered < self._asked:
            return False
        self._asked += 1
        ctypes.pythonapi.Py_AddPendingCall(self._answer, None)
        return True

    def _look(self):
        # Whoever holds a frame holds what its function has let go of, tensors with it: so nothing slow is done meanwhile.
        for file in self._files():
            read(file)
        if sample := self._sample():
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps(asdict(sample)))
            part.replace(self.path)

    def _files(self) -> list[str]:
        return [
            frame.f_code.co_filename
            for frame in answering(sys._current_frames().get(self._main.ident))
        ]

    def _sample(self) -> Sample | None:
        frame = sys._current_frames().get(self._main.ident)
        if frame is None:
            return None
        moved = self._moved()
        call = call_of(frame)
        if loop := polls(frame):
            self._enter("polls", loop)
        elif moved:
            self._enter("moves", object())  # a new place each time: no break-free stay
        else:
            share = self._share()
            waits = waiting_call(frame, call, share) and not self._new_threads()
            state = "waits" if waits else "rests" if share < IDLE else "computes"
            self._enter(state, "call")
        self._number += 1
        seconds = time.monotonic() - self._since
        return Sample(self._number, self._state, seconds, call.method, _stack(frame))

    def _new_threads(self) -> bool:
        """Whether this cell has started threads of Python that live: one may be about to send."""
        return any(thread.ident not in self._threads for thread in threading.enumerate())

    def _share(self) -> float:
        """The main thread's share of a core since it came to this place."""
        return (time.clock_gettime(self._clock) - self._cpu) / max(
            1e-3, time.monotonic() - self._since
        )

    def _enter(self, state: str, place) -> None:
        # From "rests" to "waits" and back is no break: it is the same call, and an idle processor was seen late.
        if place != self._place:
            self._since, self._cpu = time.monotonic(), time.clock_gettime(self._clock)
        self._state, self._place = state, place


def _stack(frame) -> list:
    stack = []
    while frame is not None:
        stack.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return stack


def pulse_path(run_dir: str, rank: int) -> Path:
    """Where a rank's last sample is written."""
    return Path(run_dir) / "pulses" / f"{rank}.json"


def parse(text: str) -> Sample | None:
    """A sample from its file's text; None if there is none (yet)."""
    try:
        return Sample(**json.loads(text))
    except ValueError:
        return None
