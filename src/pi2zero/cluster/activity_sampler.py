"""What a rank is doing while a cell runs. This runs on the engines; hang_detector.py reads the
samples.

Twice a second a thread looks at the main thread and writes a `Sample`. It asks three questions. Has
Python run? (A pending call that was left with the interpreter has been made. A rank that sits in
one C call cannot make it.) In which call is the thread? (Python keeps the position of the
expression for each instruction; its names are looked up in the frame.) And has the thread used the
processor? While C code holds the GIL, the thread cannot look: no fresh sample means "unknown",
never "waiting"."""

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pi2zero import log
from pi2zero.cluster.blocking_calls import (
    IDLE_SHARE,
    call_of,
    library_frames,
    polling_loop,
    waits_for_peers,
    warm_source_cache,
)

PERIOD = 0.5  # s between two samples


@dataclass(frozen=True)
class Sample:
    """What a rank was doing.

    number: counts the samples; a reader on another host, with another clock, sees which are fresh.
    state: "waits" (in a call that needs other ranks), "polls" (in a loop that only asks whether a
    message is there), "runs" (Python runs), "computes" (one call, the processor works), "rests"
    (one call, the processor does not work: it sleeps, reads, ...). seconds: how long it has been in
    this state. method: the last name of the call, e.g. "Barrier". stack: (file, line, function),
    innermost first."""

    number: int
    state: str
    seconds: float
    method: str = ""
    stack: list = field(default_factory=list)


class ActivitySampler(threading.Thread):
    """Samples the main thread while a cell runs, and writes each Sample to `path`.

    shell: the engine's IPython shell, which tells when a cell starts and ends. open_files: makes
    the rank's files again if they are gone.
    """

    def __init__(self, path: Path, shell, open_files: Callable[[], None] = lambda: None):
        super().__init__(name="pi2zero activity sampler", daemon=True)
        self._open_files = open_files
        self.path, self._cell_runs = path, threading.Event()
        self._main = threading.main_thread()
        self._clock = time.pthread_getcpuclockid(self._main.ident or 0)
        self._pending_calls_made = self._pending_calls_run = self._number = 0
        # An attribute: the interpreter may call it after the function that registered it has
        # returned.
        self._callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._on_pending_call)
        shell.events.register("pre_run_cell", self._start_cell)
        shell.events.register("post_run_cell", self._end_cell)

    def _start_cell(self, *_):
        with log.failures("make the rank's files again", OSError):
            self._open_files()
        self._since, self._cpu = time.monotonic(), time.clock_gettime(self._clock)
        self._state, self._place = "runs", None
        self._threads = {thread.ident for thread in threading.enumerate()}
        self._cell_runs.set()

    def _end_cell(self, *_):
        self._cell_runs.clear()

    def run(self):
        """Sample until the process ends."""
        while True:
            self._cell_runs.wait()
            time.sleep(PERIOD)
            if self._cell_runs.is_set():
                # Without this thread nothing would be known of the rank. The next sample may
                # succeed.
                with log.failures("sample the main thread", Exception):
                    self._write_sample()

    def _on_pending_call(self, _):
        self._pending_calls_run += 1
        return 0

    def _python_ran(self) -> bool:
        """Whether the main thread has run Python since the last time; leaves a new pending call."""
        if self._pending_calls_run < self._pending_calls_made:
            return False
        self._pending_calls_made += 1
        ctypes.pythonapi.Py_AddPendingCall(self._callback, None)
        return True

    def _write_sample(self):
        # A frame reference keeps its locals alive, tensors too: so source files are read before,
        # and the sample is written after, without one.
        for file in self._files():
            warm_source_cache(file)
        if sample := self._sample():
            self._open_files()
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps(asdict(sample)))
            part.replace(self.path)

    def _files(self) -> list[str]:
        frame = sys._current_frames().get(self._main.ident or 0)
        return [frame.f_code.co_filename for frame in library_frames(frame)]

    def _sample(self) -> Sample | None:
        frame = sys._current_frames().get(self._main.ident or 0)
        if frame is None:
            return None
        python_ran = self._python_ran()
        call = call_of(frame)
        if loop := polling_loop(frame):
            self._set_state("polls", loop)
        elif python_ran:
            self._set_state("runs", object())  # a new place: the time in this state starts again
        else:
            share = self._cpu_share()
            waits = waits_for_peers(frame, call, share) and not self._has_new_threads()
            state = "waits" if waits else "rests" if share < IDLE_SHARE else "computes"
            self._set_state(state, "call")
        self._number += 1
        seconds = time.monotonic() - self._since
        return Sample(self._number, self._state, seconds, call.method, _stack(frame))

    def _has_new_threads(self) -> bool:
        """Whether this cell has started Python threads that still run: one may be about to send."""
        return any(thread.ident not in self._threads for thread in threading.enumerate())

    def _cpu_share(self) -> float:
        """The main thread's share of a core since it came to this place."""
        used = time.clock_gettime(self._clock) - self._cpu
        return used / max(1e-3, time.monotonic() - self._since)

    def _set_state(self, state: str, place) -> None:
        # From "rests" to "waits" the time goes on: it is the same call, and an idle processor shows
        # late.
        if place != self._place:
            self._since, self._cpu = time.monotonic(), time.clock_gettime(self._clock)
        self._state, self._place = state, place


def _stack(frame) -> list:
    stack = []
    while frame is not None:
        stack.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return stack


def sample_path(run_dir: str, rank: int) -> Path:
    """Where a rank's last sample is written."""
    return Path(run_dir) / "samples" / f"{rank}.json"


def parse_sample(text: str) -> Sample | None:
    """A sample from its file's text; None if there is none yet."""
    try:
        return Sample(**json.loads(text))
    except ValueError:
        return None
