"""Answers to a lab's tasks, right and wrong ones: functions, or the notebook's answer with a piece
replaced.

They are sent to real ranks as text, after the notebook's own cells that they call.
"""

import inspect
import json
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

SOLUTIONS = Path(__file__).resolve().parents[2] / "solutions"
VARIANT = "variant"  # the name that a function with a replaced piece has on the ranks


def source_of(function):
    """A function's text, without decorators, at the left margin."""
    return re.sub(
        r"^@.*?(?=^def )", "", textwrap.dedent(inspect.getsource(function)), flags=re.M | re.S
    )


@dataclass(frozen=True)
class Answer:
    """One answer. words: what the check has to say about it; empty: the check accepts it."""

    task: str
    label: str
    source: str
    call: str
    words: str = ""


class LabAnswers:
    """The answers to one lab, and the code that the ranks run before them.

    stem: the notebook's name; cells: the ids of further cells that answers call; setup: more code.
    """

    def __init__(self, stem, cells=(), setup=""):
        book = json.loads((SOLUTIONS / f"{stem}.ipynb").read_text())
        self._cells = {
            cell["id"]: "".join(cell["source"]).removeprefix("%%px\n") for cell in book["cells"]
        }
        self.answers, self._calls, self.solutions, self.numbers = [], {}, {}, {}
        for name, text in self._cells.items():
            if match := re.fullmatch(r"task-(\d)(-.+)?-answer", name):
                solution = re.sub(r"^ *### (BEGIN|END) SOLUTION\n?", "", text, flags=re.M)
                task = re.search(r"^def (\w+)", solution, flags=re.M)[1]
                self.solutions[task], self.numbers[task] = solution.rstrip() + "\n", int(match[1])
        own = [self._cells["imports"], setup, *(self._cells[name] for name in cells)]
        self.setup = "\n".join([*own, *self.solutions.values()])

    def cell(self, name):
        """The text of the notebook's cell with this id."""
        return self._cells[name]

    def call(self, task, call):
        """How the check of a task is called, where its name and one function are not all."""
        self._calls[task] = call

    def helper(self, function):
        """Decorator of a function that several answers call."""
        self.setup += "\n" + source_of(function)
        return function

    def right(self, *tasks):
        """Decorator of a right answer to these tasks."""

        def add(function):
            for task in tasks:
                self._add(task, function.__name__, source_of(function), function.__name__)
            return function

        return add

    def wrong(self, task, words):
        """Decorator of a wrong answer."""

        def add(function):
            self._add(task, function.__name__, source_of(function), function.__name__, words)
            return function

        return add

    def right_variants(self, task, *variants):
        """The solution with pieces replaced, still right. A variant: (piece, other, ...)."""
        for pieces in variants:
            self._add_variant(task, self.solutions[task], task, pieces)

    def wrong_variants(self, task, *variants, of=None):
        """An answer with pieces replaced, wrong. A variant: (piece, other, ..., words).

        of: the answer; without one, the solution.
        """
        source, name = (source_of(of), of.__name__) if of else (self.solutions[task], task)
        for *pieces, words in variants:
            self._add_variant(task, source, name, pieces, words)

    def wrong_cell(self, task, name, words):
        """A wrong answer that the notebook shows itself, in a cell that the ranks have run."""
        self._add(task, name, "", name, words)

    def _add_variant(self, task, source, name, pieces, words=""):
        source = source.replace(f"def {name}(", f"def {VARIANT}(", 1)
        for piece, other in zip(pieces[::2], pieces[1::2], strict=True):
            assert piece in source, (task, piece)
            source = source.replace(piece, other, 1)
        count = sum(answer.task == task for answer in self.answers)
        self._add(task, f"variant{count}", source, VARIANT, words)

    def _add(self, task, label, source, function, words=""):
        call = self._calls.get(task, f"{task}({{}})").format(function)
        self.answers.append(Answer(task, label, source, f"check.{call}", words))

    def with_solutions(self, without=()):
        """All answers, the notebook's own first."""
        calls = {
            task: self._calls.get(task, f"{task}({{}})").format(task) for task in self.solutions
        }
        own = [
            Answer(task, "solution", "", f"check.{call}")
            for task, call in calls.items()
            if task not in without
        ]
        return own + self.answers
