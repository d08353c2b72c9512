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


_accepted: dict[str, str] = {}  # blank -> the learner's cell that a check has accepted
_compared: dict[str, tuple[str, bool]] = {}  # a guess's name -> (what came of it, was it close?)
CLOSE = 0.1  # relative error of a guess that is close
GUESS = re.compile(r"^(\w+_guess) = .*?  # (?:.* in place of None: )?(.+)$", re.MULTILINE)


def blanks_left() -> None:
    """Print which blanks of this notebook are left and which are accepted, by the cells that were
    run in this kernel; and what came of each guess."""
    cells = get_ipython().history_manager.input_hist_raw
    matches = (re.search(r"^@solution\ndef (\w+)", cell, re.MULTILINE) for cell in cells)
    own = {match[1]: _last_cell_of(cells, match[1]) for match in matches if match}
    left = [name for name, cell in own.items() if _is_left_in(cell, name)]
    written = [name for name in own if name not in left]
    accepted = [name for name in written if _accepted.get(name) == own[name]]
    parts = [f"Blanks of this notebook: {len(own)}. {len(written)} written"]
    if accepted:
        parts.append(f": {len(accepted)} accepted ({', '.join(accepted)})")
    if waiting := [name for name in written if name not in accepted]:
        parts.append(f"{',' if accepted else ':'} {len(waiting)} not yet ({', '.join(waiting)})")
    if left:
        parts.append(f". Still to be written: {', '.join(left)}")
    print("".join(parts) + ".")
    _summarize_guesses(cells)


def _summarize_guesses(cells) -> None:
    """Print each guess next to what came, in words. Without a guess nothing is printed."""
    questions = dict(match.groups() for cell in cells for match in GUESS.finditer(cell))
    made = {questions[name]: _compared[name] for name in questions if name in _compared}
    if made:
        hits = sum(is_close for _, is_close in made.values())
        print(f"Guesses: {len(made)} of {len(questions)} questions, {hits} right or close.")
        print("\n".join(f"- {question}: {line}" for question, (line, _) in made.items()))


def _note_accepted(message: dict) -> dict:
    """Keep which answer a check has accepted, here or on the ranks: it says so with what it
    shows."""
    noted = message["content"].get("metadata", {}).get("pi2zero", {})
    history = getattr(get_ipython(), "history_manager", None)
    if history and (name := noted.get("blank")):
        _accepted[name] = _last_cell_of(history.input_hist_raw, name)
    return message


if hasattr(publisher := getattr(get_ipython(), "display_pub", None), "register_hook"):
    publisher.register_hook(_note_accepted)


def guessed(guess, measured, unit: str = "") -> None:
    """Print a learner's guess next to the result, both with the unit, if there is one. Without a
    guess nothing is printed: that is also what is stored in the notebook."""
    if guess is None:
        return
    unit = f" {unit}" if unit else ""
    texts = [as_text(guess), as_text(measured)]
    if as_number(guess) is not None and as_number(measured) is not None:
        texts = [f"{as_number(value):.3g}" for value in (guess, measured)]
    print(f"You guessed {texts[0]}{unit}; it is {texts[1]}{unit}.")
    outcome, is_close = _compare(guess, measured)
    if name := _name_of(guess):
        line = f"you guessed {texts[0]}{unit}, it is {texts[1]}{unit}: {outcome}"
        _compared[name] = line, is_close


def _compare(guess, measured) -> tuple[str, bool]:
    """How good a guess is, in words; and whether it is right or close."""
    if as_text(guess) == as_text(measured):
        return "right", True
    number, result = as_number(guess), as_number(measured)
    if number is None or result is None:
        return "not right", False
    if abs(number - result) <= CLOSE * abs(result):
        return "close", True
    words = "too low" if number < result else "too high"
    factor = max(number, result) / min(number, result) if min(number, result) > 0 else 0
    return words + f", by a factor of {factor:.2g}" * (factor >= 2), False


def _name_of(guess) -> str:
    """The name under which the cell that runs now passes a guess; "" if it is not a name."""
    shell = get_ipython()
    cell = shell.history_manager.input_hist_raw[-1] if shell else ""
    names = re.findall(r"\bguessed\((\w+),", cell)
    return next((name for name in names if shell.user_ns.get(name) is guess), "")


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
