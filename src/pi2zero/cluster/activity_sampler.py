"""What a rank is doing while a cell runs. This runs on the engines; hang_detector.py reads the
samples.

Twice a second a thread looks at the main thread and writes a `Sample`. It asks three questions. Has
Python run? (A pending call that was left with the interpreter has been made. A rank that sits in
one C call cannot make it.) In which call is the thread? (Python keeps the position of the
expression for each instruction; its names are looked up in the frame.) And has the thread used the
processor? While C code holds the GIL, the thread cannot look: no fresh sample means "unknown",
never "waiting".

After the cell a last sample says that the rank is done: no thread and no process that it has
started lives, and none works in the background. Such a rank will not come to the others' help."""

import contextlib
import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from pi2zero import log
from pi2zero.cluster.blocking_calls import (
    IDLE_SHARE,
    Call,
    call_of,
    child_processes,
    files_to_read,
    is_file_collective,
    know_children,
    needs_all_ranks,
    polling_loop,
    waits_for_peers,
    warm_source_cache,
)

PERIOD = 0.5  # s between two samples
TRANSFER = 2**16  # bytes that a rank reads or writes between two samples, if it uses a file
# Of a core, used by threads other than the main one: libraries send and receive in their own.
BACKGROUND_SHARE = 0.05


@dataclass(frozen=True)
class Sample:
    """What a rank was doing.

    number: counts the samples; a reader on another host, with another clock, sees which are fresh.
    state: "waits" (in a call that needs other ranks), "polls" (in a loop that only asks whether a
    message is there), "runs" (Python runs), "computes" (one call, the processor works), "rests"
    (one call, the processor does not work: it sleeps, reads, ...), "done" (after the cell, see
    above). seconds: how long it has been in this state. method: the last name of the call, e.g.
    "Barrier". stack: (file, line, function), innermost first. needs_all: the call is a collective
    of MPI.COMM_WORLD. in_background: other threads of the process work, or it reads or writes."""

    number: int
    state: str
    seconds: float
    method: str = ""
    stack: list = field(default_factory=list)
    needs_all: bool = False
    in_background: bool = False


class ActivitySampler(threading.Thread):
    """Samples the main thread while a cell runs, and writes each Sample to `path`.

    shell: the engine's IPython shell, which tells when a cell starts and ends. open_files: makes
    the rank's files again if they are gone.
    """

    def __init__(self, path: Path, shell, open_files: Callable[[], None] = lambda: None):
        super().__init__(name="pi2zero activity sampler", daemon=True)
        self._open_files = open_files
        self.path, self._awake, self._in_cell = path, threading.Event(), False
        self._main, self._process = threading.main_thread(), psutil.Process()
        know_children()
        self._clock = time.pthread_getcpuclockid(self._main.ident or 0)
        self._pending_calls_made = self._pending_calls_run = 0
        # Ranks that were replaced have written into the same file: no number comes again.
        self._number = time.time_ns() // 10**6
        # An attribute: the interpreter may call it after the function that registered it has
        # returned.
        self._callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._on_pending_call)
        shell.events.register("pre_run_cell", self._start_cell)
        shell.events.register("post_run_cell", self._end_cell)
        self._own_threads: set[int | None] = set()
        self._meter = self._read_meter()

    def _start_cell(self, *_):
        with log.failures("make the rank's files again", OSError):
            self._open_files()
        self._since, self._cpu = time.monotonic(), time.clock_gettime(self._clock)
        self._state, self._place = "runs", None
        self._threads = {thread.ident for thread in threading.enumerate()}
        self._own_threads = self._own_threads or self._threads  # before the first cell
        self._in_cell = True
        self._awake.set()

    def _end_cell(self, *_):
        self._in_cell, self._ended = False, time.monotonic()

    def run(self):
        """Sample until the process ends."""
        while True:
            self._awake.wait()
            self._meter = self._read_meter()
            time.sleep(PERIOD)
            # Without this thread nothing would be known of the rank. The next sample may succeed.
            with log.failures("sample the main thread", Exception):
                if self._in_cell:
                    self._write_sample()
                else:
                    self._look_after_cell()

    def _look_after_cell(self) -> None:
        """Say once whether the rank is done, or a thread or a process of it goes on."""
        rests = time.monotonic() - self._ended > PERIOD  # not between two quick cells
        if not rests or self._measure().in_background:
            return  # look again
        self._awake.clear()
        if self._in_cell:  # a cell has begun meanwhile
            self._awake.set()
            return
        goes_on = child_processes() or active_threads(self._own_threads)
        self._number += 1
        self._write(Sample(self._number, "runs" if goes_on else "done", 0.0))

    def _write(self, sample: Sample) -> None:
        self._open_files()
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(asdict(sample)))
        part.replace(self.path)

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
            self._write(sample)

    def _files(self) -> set[str]:
        return files_to_read(sys._current_frames().get(self._main.ident or 0))

    def _sample(self) -> Sample | None:
        frame = sys._current_frames().get(self._main.ident or 0)
        if frame is None:
            return None
        python_ran = self._python_ran()
        call, use = call_of(frame), self._measure()
        if loop := polling_loop(frame):
            self._set_state("polls", loop)
        elif python_ran:
            self._set_state("runs", object())  # a new place: the time in this state starts again
        else:
            share = self._cpu_share()
            # A thread that this cell has started may be about to send.
            waits = waits_for_peers(frame, call, share) and not active_threads(self._threads)
            state = "waits" if waits else "rests" if share < IDLE_SHARE else "computes"
            place = "call"
            if waits and is_file_collective(call) and use.uses_file:
                state, place = "rests", object()
            self._set_state(state, place)
        self._number += 1
        return Sample(
            self._number,
            self._state,
            time.monotonic() - self._since,
            call.method,
            _stack(frame),
            needs_all_ranks(call),
            use.in_background,
        )

    def _read_meter(self) -> "_Meter":
        with contextlib.suppress(OSError, AttributeError, psutil.Error):
            counters: Any = self._process.io_counters()
            moved = counters.read_chars + counters.write_chars
            return _Meter(*self._times(), moved)
        return _Meter(*self._times(), 0)

    def _times(self) -> tuple[float, float, float]:
        main = time.clock_gettime(self._clock)
        return time.monotonic(), main, time.process_time() - time.thread_time()

    def _measure(self) -> "_Use":
        """What the process has used in the last PERIOD, without the sampler."""
        now, before = self._read_meter(), self._meter
        seconds = max(1e-3, now.clock - before.clock)
        main = now.main - before.main
        moves = now.moved - before.moved > TRANSFER
        others = (now.process - before.process - main) / seconds
        return _Use(moves or others >= BACKGROUND_SHARE, moves or main / seconds < IDLE_SHARE)

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


@dataclass(frozen=True)
class _Meter:
    """clock: s. main, process: s of the processor, of the main thread, of all but the sampler's.
    moved: bytes that were read and written."""

    clock: float
    main: float
    process: float
    moved: int


@dataclass(frozen=True)
class _Use:
    """in_background: other threads use the processor, or the process reads or writes. uses_file:
    it reads or writes, or the main thread rests; who waits in MPI looks for messages all the
    time."""

    in_background: bool
    uses_file: bool


def active_threads(known: set) -> list[threading.Thread]:
    """Python threads that may act by themselves, except the known ones (by their `ident`).

    Left out are those that wait until another one gives them work, and tqdm's, which only looks.
    """
    frames = sys._current_frames()
    fresh = [thread for thread in threading.enumerate() if thread.ident not in known]
    return [
        thread
        for thread in fresh
        if not type(thread).__module__.startswith("tqdm")
        and not _waits_for_work(frames.get(thread.ident or 0))
    ]


def _waits_for_work(frame) -> bool:
    """Whether a thread waits, without a limit, for a lock or for the next item of a pool."""
    if frame is None:
        return False
    if frame.f_code.co_filename.endswith("/concurrent/futures/thread.py"):
        return frame.f_code.co_name == "_worker"
    call: Call = call_of(frame)
    return call.method == "acquire" and call.text.endswith("acquire()")


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
