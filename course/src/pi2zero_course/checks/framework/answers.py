"""A learner's function: how a check calls it, lends it names, and looks at what it does."""

import dis
import functools
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from pi2zero_course.checks.framework.clock import TimeUp, clock


class CheckError(AssertionError):
    """An answer that misses its target. The message is all that the learner sees, without a
    stack."""

    def _render_traceback_(self):
        return str(self).splitlines()


class TaskNotDoneError(NotImplementedError):
    """An answer that is not written yet, or one that it needs. task: its number, None if its stub
    has none."""

    def __init__(self, text, task=None):
        super().__init__(text)
        self.task = task

    def _render_traceback_(self):
        return str(self).splitlines()


def call_answer(function: Callable, *args):
    """What the learner's function returns. If it raises or takes too long, that is a CheckError."""
    name = name_of(function)
    try:
        return clock.run(function, args)
    except CheckError:
        raise
    except TimeUp as time_up:
        raise CheckError(f"{name} {time_up}") from None
    except Exception as error:
        if missing := _not_written(error):
            raise missing from None
        raise CheckError(
            f"{name} raised {type(error).__name__}: {error}{_line_of(function, error)}"
        ) from None


def as_losses(rank, losses):
    """The losses that a rank returned, as an array. Raises CheckError if they are none."""
    if losses is None:
        raise CheckError(
            f"rank {rank} returned None; the list of losses is due. Is the `return` missing?"
        )
    try:
        return np.array(losses, dtype=float).ravel()
    except (TypeError, ValueError):
        raise CheckError(
            f"rank {rank} returned {type(losses).__name__!r}; the list of losses is due."
        ) from None
    except RuntimeError:  # torch does not turn them into numbers while they could go backward
        raise CheckError(
            f"rank {rank} returned losses that keep their graph, and its memory: loss.item()."
        ) from None


def name_of(function: Callable) -> str:
    """A function's name as a message shows it."""
    return getattr(_plain(function), "__name__", "your function")


def _plain(function: Callable) -> Callable:
    """The learner's own function, also if it is wrapped or a functools.partial."""
    function = inspect.unwrap(function)
    return _plain(function.func) if isinstance(function, functools.partial) else function


def speaking_of(function: Callable, run: Callable) -> Callable:
    """`run`, which calls the learner's function: messages name that one and its lines."""
    run.__wrapped__ = function
    return run


def globals_of(function: Callable) -> dict:
    """The names of the notebook that a function was defined in; none for one of a library."""
    return getattr(_plain(function), "__globals__", {})


@contextmanager
def with_globals(function: Callable, **values):
    """Lend a function other values of its notebook's names, such as `comm`."""
    names = globals_of(function)
    before = {name: names[name] for name in values if name in names}
    names.update(values)
    try:
        yield
    finally:
        for name in values.keys() - before.keys():
            del names[name]
        names.update(before)


def lending(function: Callable, **values) -> Callable:
    """The function, with these values of its notebook's names whenever it is called."""

    def run(*args, **options):
        with with_globals(function, **values):
            return function(*args, **options)

    return speaking_of(function, run)


def instructions(function) -> Iterator[dis.Instruction]:
    """The bytecode of a function, or of its code, with the functions and comprehensions in it.

    Lines that are never reached are not in it.
    """
    codes = [function if inspect.iscode(function) else getattr(_plain(function), "__code__", None)]
    for code in filter(None, codes):
        for instruction in dis.get_instructions(code):
            yield instruction
            if inspect.iscode(instruction.argval):
                codes.append(instruction.argval)


def global_names(function) -> set[str]:
    """The names that a function reads from its notebook or from Python."""
    return {
        instruction.argval
        for instruction in instructions(function)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }


def attribute_names(function) -> set[str]:
    """The names of the attributes and methods that a function reads."""
    return {
        instruction.argval
        for instruction in instructions(function)
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD")
    }


def count_steps(function: Callable, *args) -> int:
    """The lines and calls of Python that a call takes: they grow with a loop, also within `map`."""
    count, former = 0, sys.gettrace()

    def tracer(frame, event, arg):
        nonlocal count
        count += event in ("call", "line")
        return tracer

    sys.settrace(tracer)
    try:
        call_answer(function, *args)
    finally:
        sys.settrace(former)
    return count


def _not_written(error: Exception) -> TaskNotDoneError | None:
    """What to say if an answer came to a stub: its own, or that of a function which it calls.

    Torch raises NotImplementedError, too, with another text.
    """
    stub = re.match(r"task (\d*)|$", str(error)) if isinstance(error, NotImplementedError) else None
    if not stub:
        return None
    name = traceback.extract_tb(error.__traceback__)[-1].name
    why = (
        f"{name} is not written yet: replace its `raise NotImplementedError`, run that cell, then "
        "this one."
    )
    return TaskNotDoneError(why, int(stub[1]) if stub[1] else None)


def _line_of(function: Callable, error: Exception) -> str:
    """The learner's own line in which an exception arose."""
    code = getattr(_plain(function), "__code__", None)
    lines = [
        frame.line
        for frame in traceback.extract_tb(error.__traceback__)
        if code and frame.filename == code.co_filename
    ]
    return f"\nin the line: {lines[-1]}" if lines and lines[-1] else ""
