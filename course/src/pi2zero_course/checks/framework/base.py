"""What all checks share: how an answer is called, and how a check says that it is right, wrong or still to do."""

import inspect
import operator
import re
import traceback
from functools import wraps

import numpy as np

from pi2zero_course.checks.framework.clock import TimeUp, clock
from pi2zero_course.dashboard.notes import noted, task_name


class CheckFailed(AssertionError):
    """An answer that misses its target. The message is all that the learner sees: ranks and darts, no stack."""

    def _render_traceback_(self):
        return str(self).splitlines()


class TaskNotDone(NotImplementedError):
    """An answer that is not written yet, or a function that it needs. task: its task's number; None if its stub says none."""

    def __init__(self, text, task=None):
        super().__init__(text)
        self.task = task

    def _render_traceback_(self):
        return str(self).splitlines()


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
                with noted(task_name(judge, number), _rank() == 0):
                    verified = judge(function)
            except TaskNotDone as missing:
                needs = (
                    ""
                    if missing.task in (None, number)
                    else f"needs the function of task {missing.task}, which "
                )
                raise TaskNotDone(
                    f"Task {number} {needs}is still to do. {missing}", missing.task
                ) from None
            except CheckFailed as wrong:
                raise CheckFailed(f"Task {number} is not right yet.\n{wrong}".rstrip()) from None
            if _rank() == 0:
                print(f"Task {number} is right.\n{verified}")

        return check

    return decorate


def answer(function, *args):
    """What the learner's function returns for args. If it raises or takes too long, that becomes a CheckFailed."""
    name = name_of(function)
    try:
        return clock.run(function, args)
    except CheckFailed:
        raise
    except TimeUp as over:
        raise CheckFailed(f"{name} {over}") from None
    except Exception as error:
        if missing := _unwritten(error):
            raise missing from None
        raise CheckFailed(
            f"{name} raised {type(error).__name__}: {error}{_line_of(function, error)}"
        ) from None


def name_of(function) -> str:
    """A function's name as a message shows it."""
    return getattr(inspect.unwrap(function), "__name__", "your function")


def named(function, run):
    """`run`, which calls the learner's function: messages speak of that one and of its lines."""
    run.__wrapped__ = function
    return run


def is_whole(value) -> bool:
    """Is it an integer, of Python's or NumPy's kind? True, 3.0 and an array of one are not."""
    try:
        return operator.index(value) is not None and not isinstance(value, bool)
    except TypeError:
        return False


def whole(value) -> int | None:
    """The integer that a value is, also one that came out of `//` as a float, such as 9.0; None if it is none."""
    if isinstance(value, float | np.floating):
        return int(value) if float(value).is_integer() else None
    return operator.index(value) if is_whole(value) else None


def single(value):
    """The element of an array of one, as `comm.Reduce` fills it; anything else as it is."""
    return value.item() if isinstance(value, np.ndarray) and value.size == 1 else value


def several(value, count) -> list | None:
    """The numbers in a tuple, a list or an array; None if they are not `count`."""
    if isinstance(value, np.ndarray) and value.shape == (count,):
        return value.tolist()
    return list(value) if isinstance(value, tuple | list) and len(value) == count else None


def number(value) -> float | None:
    """The number that a value is, also in an array of one element; None if it is none."""
    try:
        return None if isinstance(value, str | bytes) else float(single(value))
    except (TypeError, ValueError):
        return None


def close(value, right, relative=1e-9) -> bool:
    """Are they equal up to a relative error? False if value is no number at all."""
    mine = number(value)
    return mine is not None and abs(mine - right) <= relative * abs(right)


def as_text(value) -> str:
    """A value as a message shows it: numbers with six digits, also in a tuple; anything else as Python does."""
    if isinstance(value, tuple):
        return f"({', '.join(map(as_text, value))})"
    mine = number(value)
    return repr(value) if mine is None else f"{mine:.6g}"


def in_units(nbytes) -> str:
    """31406250000.0 -> '31.41 GB'."""
    unit, name = (1e9, "GB") if abs(nbytes) >= 1e9 else (1e6, "MB")
    return f"{nbytes / unit:.4g} {name}"


def listed(sizes) -> str:
    """[4, 3, 2] -> '4, 3 and 2'."""
    *rest, last = (f"{size:,}" for size in sizes)
    return f"{', '.join(rest)} and {last}"


def hint(mine, mistakes, same=close, otherwise="") -> str:
    """What to say about a wrong value. mistakes: (value, hint), the likelier first; the first that gives `mine` counts.

    same(mine, value): whether a mistake's value is `mine`.
    """
    return next((text for value, text in mistakes if same(mine, value)), otherwise)


def _unwritten(error) -> TaskNotDone | None:
    """What to say if an answer came to a stub: its own, or that of a function which it calls. Torch raises it, too."""
    stub = re.match(r"task (\d*)|$", str(error)) if isinstance(error, NotImplementedError) else None
    if not stub:
        return None
    name = traceback.extract_tb(error.__traceback__)[-1].name
    why = f"{name} is not written yet: replace its `raise NotImplementedError`, run that cell, then this one."
    return TaskNotDone(why, int(stub[1]) if stub[1] else None)


def _line_of(function, error) -> str:
    """The learner's own line in which an exception arose."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    lines = [
        frame.line
        for frame in traceback.extract_tb(error.__traceback__)
        if code and frame.filename == code.co_filename
    ]
    return f"\nin the line: {lines[-1]}" if lines and lines[-1] else ""


def _rank() -> int:
    from mpi4py import MPI

    return MPI.COMM_WORLD.Get_rank()
