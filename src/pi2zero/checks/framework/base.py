"""What all checks share: how an answer is called, and how a check says that it is right, wrong or still to do."""

import signal
import traceback
from contextlib import contextmanager
from functools import wraps

SECONDS = 20.0  # that an answer gets; below the 30 s after which `%%px` itself would end the cell


class CheckFailed(AssertionError):
    """An answer that misses its target. The message is all that the learner sees: ranks and darts, no stack."""

    def _render_traceback_(self):
        return str(self).splitlines()


class TaskNotDone(NotImplementedError):
    """An answer that is not written yet."""

    def _render_traceback_(self):
        return str(self).splitlines()


def failures(error: Exception | None) -> dict[int, Exception]:
    """Every rank tells how its answer failed, or None. Returns {rank: exception}, the same on all; all ranks call it.

    Raises TaskNotDone on all of them if the answer of one is not written yet.
    """
    from mpi4py import MPI

    failed = {rank: raised for rank, raised in enumerate(MPI.COMM_WORLD.allgather(error)) if raised}
    for raised in failed.values():
        if isinstance(raised, TaskNotDone):
            raise raised
    return failed


def task(number: int):
    """Make the check of a task from a judge.

    judge(function): raises CheckFailed if the learner's function misses the target, else returns what was verified.
    The check prints that on rank 0 only, and is called by every rank.
    """

    def decorate(judge):
        @wraps(judge)
        def check(function):
            if not callable(function):
                raise CheckFailed(
                    f"Task {number}: give the check your function itself, not its result; it got {function!r}.\n"
                    "Write the function's name without brackets behind it."
                )
            try:
                verified = judge(function)
            except TaskNotDone as missing:
                raise TaskNotDone(f"Task {number} is still to do. {missing}") from None
            except CheckFailed as wrong:
                raise CheckFailed(f"Task {number} is not right yet.\n{wrong}".rstrip()) from None
            if _rank() == 0:
                print(f"Task {number} is right.\n{verified}")

        return check

    return decorate


def answer(function, *args):
    """What the learner's function returns for args. If it raises or takes too long, that becomes a CheckFailed."""
    name = getattr(function, "__name__", "your function")
    try:
        with _time_limit(name):
            return function(*args)
    except CheckFailed:
        raise
    except NotImplementedError:
        raise TaskNotDone(
            f"{name} is not written yet: replace its `raise NotImplementedError`, run that cell, then this one."
        ) from None
    except Exception as error:
        raise CheckFailed(f"{name} raised {type(error).__name__}: {error}{_line_of(function, error)}") from None


def is_whole(value) -> bool:
    """Is it an integer, of Python's or NumPy's kind? True and 3.0 are not."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def close(value, right, relative=1e-9) -> bool:
    """Are they equal up to a relative error? False if value is no number at all."""
    try:
        return abs(float(value) - right) <= relative * abs(right)
    except (TypeError, ValueError):
        return False


def shown(value) -> str:
    """A value as a message shows it: numbers with six digits, also in a tuple."""
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    return f"{value:.6g}" if hasattr(value, "__float__") else repr(value)


def listed(sizes) -> str:
    """[4, 3, 2] -> '4, 3 and 2'."""
    *rest, last = (f"{size:,}" for size in sizes)
    return f"{', '.join(rest)} and {last}"


def arm() -> None:
    """Give the answer that runs now SECONDS more."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)


def disarm() -> None:
    """Stop the clock, e.g. while this rank waits for others whose own clocks run."""
    signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def _time_limit(name: str):
    def ring(signum, frame):
        raise CheckFailed(f"{name} had not returned after {SECONDS:g} s. Does a loop in it never end?")

    before = signal.signal(signal.SIGALRM, ring)
    arm()
    try:
        yield
    finally:
        disarm()
        signal.signal(signal.SIGALRM, before)


def _line_of(function, error) -> str:
    """The learner's own line in which an exception arose."""
    code = getattr(function, "__code__", None)
    lines = [frame.line for frame in traceback.extract_tb(error.__traceback__) if code and frame.filename == code.co_filename]
    return f"\nin the line: {lines[-1]}" if lines and lines[-1] else ""


def _rank() -> int:
    from mpi4py import MPI

    return MPI.COMM_WORLD.Get_rank()
