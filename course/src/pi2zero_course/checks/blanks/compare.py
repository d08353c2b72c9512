"""What the checks of blanks share: an answer's values beside the right ones, and the mistake that gives just these."""

import copy
import sys

import numpy as np

from pi2zero_course.checks.framework.base import CheckFailed, answer, as_text, name_of, number

TOLERANCE = 1e-6  # relative


def compare(function, right, cases, mistakes=(), tolerance=TOLERANCE, alike=None) -> None:
    """Call an answer with each case of arguments; CheckFailed if a result is not that of `right`.

    mistakes: (a function that makes the mistake, what to say of it); the first one that gives the answer's value counts.
    alike(mine, due, tolerance): whether two results count as one; as a rule `same`.
    """
    alike = alike or same
    for case in cases:
        mine, due = answer(function, *copy.deepcopy(case)), right(*copy.deepcopy(case))
        if alike(mine, due, tolerance):
            continue
        arguments = ", ".join(map(shown, case))
        known = (
            text for wrong, text in mistakes if alike(mine, wrong(*copy.deepcopy(case)), tolerance)
        )
        why = "Is the `return` missing?" if mine is None else next(known, "")
        raise CheckFailed(
            f"{name_of(function)}({arguments}) gives {shown(mine)}; it has to be {shown(due)}.\n{why}"
        )


def same(mine, due, tolerance=TOLERANCE) -> bool:
    """Equal up to a relative error? Numbers, arrays and tensors of one shape, and dicts, tuples and lists of them."""
    if isinstance(due, dict):
        return (
            isinstance(mine, dict)
            and mine.keys() == due.keys()
            and all(same(mine[key], due[key], tolerance) for key in due)
        )
    if isinstance(due, tuple | list):
        mine = list(mine) if isinstance(mine, np.ndarray) and mine.ndim else mine
        alike = isinstance(mine, tuple | list) and len(mine) == len(due)
        return alike and all(
            same(one, other, tolerance) for one, other in zip(mine, due, strict=True)
        )
    if due is None or isinstance(due, str | bool):
        return type(mine) is type(due) and mine == due
    try:
        mine, due = np.asarray(mine, dtype=float), np.asarray(due, dtype=float)
    except (TypeError, ValueError, RuntimeError):
        return False
    scale = np.nan_to_num(np.abs(due)).max(initial=0.0)
    return mine.shape == due.shape and np.allclose(
        mine, due, rtol=tolerance, atol=tolerance * scale, equal_nan=True
    )


def shown(value) -> str:
    """A value in a message, cut short."""
    if isinstance(value, tuple | list):
        text = ", ".join(map(shown, value))
        return f"({text})" if isinstance(value, tuple) else f"[{text}]"
    if number(value) is not None and not isinstance(value, bool) and np.ndim(value) == 0:
        return as_text(value)
    text = " ".join(repr(value).split())
    return text if len(text) <= 90 else f"{text[:87]}..."


def steps_of(function, *arguments) -> int:
    """How many lines and calls of Python's a call takes: they grow with a loop, also with that of `map` or a generator."""
    count, former = 0, sys.gettrace()

    def tracer(frame, event, arg):
        nonlocal count
        count += event in ("call", "line")
        return tracer

    sys.settrace(tracer)
    try:
        answer(function, *arguments)
    finally:
        sys.settrace(former)
    return count
