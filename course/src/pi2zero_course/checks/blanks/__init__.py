"""The blanks of the taught notebooks: functions that the learner writes, each with a check in the next cell and the kit's below.

A blank that still has its `raise NotImplementedError` is left: its check says so, and `@solution`, above the kit's function in
the cell after that, puts the kit's in its place. So a notebook runs from top to bottom, whatever was filled.
"""

import ast
import inspect
import re
import sys
from functools import wraps

from IPython import get_ipython

from pi2zero_course.checks.framework.base import CheckFailed, TaskNotDone, as_text, number
from pi2zero_course.checks.framework.bytecode import global_names
from pi2zero_course.dashboard.notes import note, noted

_right: list = []  # learners' functions that their checks have accepted
_kits: list = []  # the kit's own functions


def blank(judge):
    """Make the check of a blank. judge(function): raises CheckFailed if the function is wrong, else returns what it verified.

    The judge bears the name that the function has in the notebook.
    """
    name = judge.__name__

    @wraps(judge)
    def check(function):
        if not callable(function):
            raise CheckFailed(
                f"Give the check your function itself, without brackets behind its name; it got {function!r}."
            )
        if any(function is kits for kits in _kits):
            _say(
                f"{name} is the kit's now. To check your own, run its cell first; if that shows an error, mend it there."
            )
            return
        if is_left(function):
            if _speaks():
                note(f"blank {name}", "open")
            _say(
                f"{name} is still to be written. The next cell brings the kit's, so that the notebook goes on."
            )
            return
        try:
            with noted(f"blank {name}", _speaks()):
                verified = judge(function)
        except (CheckFailed, TaskNotDone) as wrong:
            text = f"{wrong}".rstrip()
            raise CheckFailed(
                f"{name} is not right yet.\n{text}\nMend it, or go on: the next cell has the kit's."
            ) from None
        _right.append(function)
        _say(f"{name} is right. {verified}")

    return check


def solution(kits):
    """Decorator of the kit's function for a blank: the name stands for the learner's if that is right, else for this one."""
    name = kits.__name__
    mine = kits.__globals__.get(name)
    if any(mine is function for function in _right):
        _say(f"Your {name} is used from here on.")
        return mine
    left = mine is None or is_left(mine) or any(mine is function for function in _kits)
    _say(
        f"The kit's {name} is used from here on{'' if left else ', because the check has not accepted yours'}."
    )
    _kits.append(kits)
    return kits


def is_left(function) -> bool:
    """Does a function, or its code, still come to the line that a blank begins with? Below a `return` that line is dead."""
    return "NotImplementedError" in global_names(function)


def blanks_left() -> None:
    """Print which blanks of this notebook are left, by the cells that were run in this kernel."""
    cells = get_ipython().history_manager.input_hist_raw
    names = dict.fromkeys(
        found[1]
        for cell in cells
        if (found := re.search(r"^@solution\ndef (\w+)", cell, re.MULTILINE))
    )
    written = {name: _last_written(cells, name) for name in names}
    still = [name for name, source in written.items() if _is_left_in(source, name)]
    if not still:
        print(f"You have written all {len(names)} blanks of this notebook.")
        return
    print(f"Blanks of this notebook: {len(names)}. Still to be written: {', '.join(still)}.")


def _last_written(cells, name) -> str:
    """The learner's last cell that defines a function."""
    mine = [
        cell
        for cell in cells
        if re.search(rf"^def {name}\(", cell, re.MULTILINE) and "@solution" not in cell
    ]
    return mine[-1] if mine else ""


def _is_left_in(source, name) -> bool:
    """Is the function that a cell's text defines left?"""
    lines = "\n".join(line for line in source.splitlines() if not line.startswith(("%", "!")))
    try:
        parts = [
            part
            for part in ast.parse(lines).body
            if isinstance(part, ast.FunctionDef) and part.name == name
        ]
        module = compile(ast.Module(parts[-1:], []), "<cell>", "exec")
    except SyntaxError:
        return "raise NotImplementedError" in source
    return any(is_left(code) for code in module.co_consts if inspect.iscode(code))


def guessed(guess, measured, unit: str = "") -> None:
    """Print a learner's guess beside what came out; both with the unit, if there is one."""
    if guess is None:
        print("You made no guess.")
        return
    unit = f" {unit}" if unit else ""
    numbers = number(guess) is not None and number(measured) is not None
    mine, due = (
        (f"{number(value):.3g}" for value in (guess, measured))
        if numbers
        else (as_text(guess), as_text(measured))
    )
    print(f"You guessed {mine}{unit}; it is {due}{unit}.")


def _say(text) -> None:
    """Print it once."""
    if _speaks():
        print(text)


def _speaks() -> bool:
    """Where there are ranks, rank 0 does."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is None or not mpi.Is_initialized() or mpi.COMM_WORLD.rank == 0
