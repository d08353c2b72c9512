"""An answer's time: seconds of the processor, of which a busy machine or a full classroom takes
none away.

An answer that stands in line for a core does not sleep: the kernel's scheduler counts how long it
stood there.
"""

import signal
import time
from _thread import interrupt_main
from contextlib import contextmanager
from pathlib import Path

SECONDS = 20.0  # of the processor, that an answer gets
# s after which an answer that hardly wants a core, because it sleeps or waits, is ended
WALL = 120.0
AGAIN = 0.5  # s until the clock rings once more for an answer that has swallowed the first TimeUp
NOTHING = (0.0, 0.0, 0.0)
QUEUED = Path("/proc/thread-self/schedstat")  # Linux: ns on a core, ns in line for one, turns


class TimeUp(BaseException):
    """The answer's time is over. No learner's `except Exception` shall catch it."""


class Clock:
    """Raises TimeUp in the function that it runs. The processor's seconds are those of the main
    thread, which runs answers: what gloo's or Horovod's threads compute is not the answer's."""

    def __init__(self):
        self._runs, self._since = False, None
        self._before = NOTHING  # what was spent up to the last pause
        self._alarms = 0

    def run(self, function, args):
        """function(*args)."""
        before = signal.signal(signal.SIGALRM, self._on_alarm)
        self._runs, self._alarms = True, 0
        self.refill()
        try:
            return _within(function, args)
        finally:
            self.pause()
            self._runs = False
            signal.signal(signal.SIGALRM, before)

    def pause(self) -> None:
        """Stand still, e.g. while this rank waits for others whose own clocks run."""
        if self._since is not None:
            self._before = self._spent()
            self._since = None
            signal.setitimer(signal.ITIMER_REAL, 0)

    @contextmanager
    def paused(self):
        """While this rank waits for a message."""
        self.pause()
        try:
            yield
        finally:
            self.go_on()

    def go_on(self) -> None:
        """After a pause."""
        if self._runs:
            self._since = _now()
            self._arm()

    def refill(self) -> None:
        """Give the answer all of its time once more."""
        if self._runs:
            self._before = NOTHING
            self.go_on()

    @property
    def time_up_message(self) -> str:
        """What to say if the time is over, else an empty text."""
        computed, queued, passed = self._spent()
        if computed >= SECONDS:
            return (
                f"had not returned after {SECONDS:g} s of the processor's time. Does a loop in it "
                "never end?"
            )
        if passed >= WALL and computed + queued < passed / 10:
            return (
                f"had not returned after {WALL:g} s, of which it computed {computed:.0f} s. "
                "Does it sleep, or wait for something that never comes?"
            )
        return ""

    def _spent(self):
        if self._since is None:
            return self._before
        return tuple(
            before + now - since
            for before, now, since in zip(self._before, _now(), self._since, strict=True)
        )

    def _arm(self) -> None:
        """Ring when the time could be over at the earliest: as if all of it were computing."""
        computed, _, passed = self._spent()
        left = [SECONDS - computed, WALL - passed]
        signal.setitimer(
            signal.ITIMER_REAL,
            max(0.05, min((seconds for seconds in left if seconds > 0), default=0)),
        )

    def _on_alarm(self, signum, frame):
        if self._since is None or not _is_within(frame):
            return
        if not self.time_up_message:
            self._arm()
            return
        self._alarms += 1
        signal.setitimer(signal.ITIMER_REAL, AGAIN)
        time_up = TimeUp(self.time_up_message)
        if self._alarms == 1:
            raise time_up
        # A bare `except:` in a loop has swallowed it. Ring again at the next step, behind that
        # except, and so on until the answer is left. Python looks for signals after each call that
        # it makes itself, so `map` makes this one: none is between it and the raise.
        for _ in map(interrupt_main, (signal.SIGALRM,)):
            raise time_up


def _now():
    """(s that this thread has computed, s that it stood in line for a core, s that have passed)."""
    try:
        queued = int(QUEUED.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        queued = 0.0  # not Linux: then a core that others hold counts as sleep
    return time.thread_time(), queued, time.monotonic()


def _within(function, args):
    return function(*args)


def _is_within(frame) -> bool:
    """Does a frame belong to what `_within` called, or to `_within` itself?"""
    while frame is not None and frame.f_code is not _within.__code__:
        frame = frame.f_back
    return frame is not None


clock = Clock()  # a process has one timer, and runs one answer at a time
