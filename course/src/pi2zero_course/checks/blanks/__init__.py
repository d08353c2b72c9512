"""The blanks of the taught notebooks: functions that the learner writes, each with a check in the
next cell.

A blank that still has its `raise NotImplementedError` is left: its check says so, and `@solution`,
above the kit's function in the cell after that, puts the kit's in its place. So a notebook runs
from top to bottom, whatever was filled.
"""

import ast
import inspect
import re

from IPython import get_ipython

from pi2zero_course.checks.framework.task import is_left, solution
from pi2zero_course.checks.framework.values import as_number, as_text

__all__ = ["blanks_left", "guessed", "solution"]


def blanks_left() -> None:
    """Print which blanks of this notebook are left, by the cells that were run in this kernel."""
    cells = get_ipython().history_manager.input_hist_raw
    matches = (re.search(r"^@solution\ndef (\w+)", cell, re.MULTILINE) for cell in cells)
    names = dict.fromkeys(match[1] for match in matches if match)
    left = [name for name in names if _is_left_in(_last_cell_of(cells, name), name)]
    if not left:
        print(f"You have written all {len(names)} blanks of this notebook.")
        return
    print(f"Blanks of this notebook: {len(names)}. Still to be written: {', '.join(left)}.")


def guessed(guess, measured, unit: str = "") -> None:
    """Print a learner's guess next to the result, both with the unit, if there is one."""
    if guess is None:
        print("You made no guess.")
        return
    unit = f" {unit}" if unit else ""
    texts = [as_text(guess), as_text(measured)]
    if as_number(guess) is not None and as_number(measured) is not None:
        texts = [f"{as_number(value):.3g}" for value in (guess, measured)]
    print(f"You guessed {texts[0]}{unit}; it is {texts[1]}{unit}.")


def _last_cell_of(cells, name) -> str:
    """The learner's last cell that defines a function."""
    own = [
        cell
        for cell in cells
        if re.search(rf"^def {name}\(", cell, re.MULTILINE) and "@solution" not in cell
    ]
    return own[-1] if own else ""


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
