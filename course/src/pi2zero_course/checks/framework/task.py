"""A task: a function that the learner writes, and how an answer to it is judged.

A lab's task and a notebook's blank differ only in what is said around the verdict. Modules of
checks are tables of them; a notebook calls `check.NAME(NAME)`.
"""

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from html import escape
from typing import ClassVar

from IPython import get_ipython
from IPython.display import display

from pi2zero_course.checks.framework.answers import (
    CheckError,
    TaskNotDoneError,
    call_answer,
    count_steps,
    global_names,
    globals_of,
    lending,
    name_of,
)
from pi2zero_course.checks.framework.values import TOLERANCE, is_same, join_words, show
from pi2zero_course.dashboard.notes import note, noted


@dataclass(kw_only=True)
class Task:
    """How answers to one task are judged, in one of four ways.

    - reference(*case) -> the right result of each case. mistakes: {sentence: a function that makes
      the mistake, or the factor by which it is off}; the first that gives the answer's result is
      named.
    - judge_case(function, *case) raises CheckError.
    - judge(function, *others) -> what was verified, or None; raises CheckError.
    - on_ranks: an OnRanks, for an answer that communicates; with `cases`.

    no_loop: a small and a large case, for which an answer takes the same steps of Python.
    lent: values for names of its notebook, such as `comm`, while the answer runs.
    verified: what a right answer is told; {ranks} stands for the numbers of ranks that were tried.
    """

    name: str
    verified: str = ""
    cases: Sequence[tuple] = ()
    reference: Callable | None = None
    mistakes: Mapping[str, Callable | float] = field(default_factory=dict)
    tolerance: float = TOLERANCE
    same: Callable = is_same
    judge_case: Callable | None = None
    judge: Callable | None = None
    on_ranks: Callable | None = None
    no_loop: tuple[tuple, tuple] | None = None
    lent: Mapping[str, object] = field(default_factory=dict)

    def __call__(self, function, *others) -> None:
        """Check an answer. others: further functions of the notebook that the judge wants."""
        if not callable(function):
            raise CheckError(self._no_function(function))
        if not self._begin(function):
            return
        try:
            with noted(self.note_name, speaks()):
                verified = self.verify(function, *others)
        except TaskNotDoneError as missing:
            self._still_to_do(missing)
            return
        except CheckError as wrong:
            raise CheckError(self._not_right(str(wrong).rstrip())) from None
        self._accept(function, verified)

    def verify(self, function, *others) -> str:
        """What was verified. Raises CheckError, or TaskNotDoneError for a function that is not
        written."""
        if self.judge:
            return self.judge(function, *others) or self.verified
        if self.lent:
            function = lending(function, **self.lent)
        if self.on_ranks:
            sizes = self.on_ranks(function, self.cases)
            return self.verified.replace("{ranks}", join_words(sizes))
        self._alone(self._judge_cases, function)
        return self.verified

    def _judge_cases(self, function) -> None:
        if not self.judge_case:
            compare(function, self.reference, self.cases, self.mistakes, self.tolerance, self.same)
        for case in self.cases if self.judge_case else ():
            self.judge_case(function, *case)
        if self.no_loop:
            refuse_loop(function, *self.no_loop)

    def _alone(self, run, *args) -> None:
        """Run what needs no other ranks."""
        run(*args)

    @property
    def note_name(self) -> str:
        """What the dashboard calls the task."""
        return self.name

    def _no_function(self, value) -> str:
        raise NotImplementedError

    def _begin(self, function) -> bool:
        """Whether there is something to check."""
        return True

    def _still_to_do(self, missing: TaskNotDoneError) -> None:
        raise CheckError(self._not_right(str(missing))) from None

    def _not_right(self, why: str) -> str:
        raise NotImplementedError

    def _accept(self, function, verified: str) -> None:
        raise NotImplementedError


@dataclass(kw_only=True)
class LabTask(Task):
    """A numbered task of a lab (1 to 7). The check is called by every rank; rank 0 speaks."""

    numbers: ClassVar[dict[int, set[int]]] = {}  # lab -> those of its tasks

    lab: int
    number: int

    def __post_init__(self):
        self.numbers.setdefault(self.lab, set()).add(self.number)

    @property
    def note_name(self) -> str:
        return f"lab {self.lab}, task {self.number}"

    def _alone(self, run, *args) -> None:
        from pi2zero_course.checks.framework.agree import agree

        agree(run, *args)

    def _no_function(self, value) -> str:
        return (
            f"Task {self.number}: give the check your function itself, not its result; it got "
            f"{value!r}.\nWrite the function's name without brackets."
        )

    def _still_to_do(self, missing: TaskNotDoneError) -> None:
        """Say so. It is no error: a lab without answers runs from top to bottom."""
        other = missing.task not in (None, self.number)
        needs = f"needs the function of task {missing.task}, which " if other else ""
        say(f"Task {self.number} {needs}is still to do. {missing}")

    def _not_right(self, why: str) -> str:
        return f"Task {self.number} is not right yet.\n{why}"

    def _accept(self, function, verified: str) -> None:
        place = f"{self.number} of {len(self.numbers[self.lab])}"
        say_right(f"Task {self.number} is right ({place}).", verified, "\n")


@dataclass(kw_only=True)
class Blank(Task):
    """A function that a taught notebook leaves to the learner. If it is left, the notebook goes on
    with the kit's."""

    accepted: ClassVar[list] = []  # learners' functions that checks have accepted
    kits: ClassVar[list] = []  # the kit's own functions

    @property
    def note_name(self) -> str:
        return f"blank {self.name}"

    def _no_function(self, value) -> str:
        return f"Give the check your function itself, without brackets; it got {value!r}."

    def _begin(self, function) -> bool:
        if any(function is kits for kits in self.kits):
            say(
                f"{self.name} is the kit's now. To check your own, run its cell first; if that "
                "shows an error, fix it there."
            )
            return False
        if is_left(function):
            if speaks():
                note(self.note_name, "open")
            say(
                f"{self.name} is still to be written. The next cell brings the kit's, so that the "
                "notebook goes on."
            )
            return False
        return True

    def _not_right(self, why: str) -> str:
        return (
            f"{self.name} is not right yet.\n{why}\nFix it, or go on: the next cell has the kit's."
        )

    def _accept(self, function, verified: str) -> None:
        self.accepted.append(function)
        say_right(f"{self.name} is right.", verified, blank=self.name)


def blank(judge: Callable) -> Blank:
    """Decorator: the blank that has this judge and its name."""
    return wraps(judge)(Blank(name=judge.__name__, judge=judge))


def lab_task(lab: int, number: int) -> Callable:
    """Decorator: the lab's task that has this judge and its name."""
    return lambda judge: wraps(judge)(
        LabTask(name=judge.__name__, judge=judge, lab=lab, number=number)
    )


def refuse_loop(function, small: tuple, large: tuple) -> None:
    """Raise CheckError if an answer takes more steps of Python for the larger of two cases."""
    if count_steps(function, *large) > count_steps(function, *small) + 100:
        raise CheckError(
            "Right, but it goes through a loop of Python's, number by number. One NumPy call works "
            "on all of them."
        )


def compare(function, reference, cases, mistakes=None, tolerance=TOLERANCE, same=is_same) -> None:
    """Call an answer with each case of arguments. Raises CheckError if a result is not the
    reference's."""
    for case in cases:
        value, due = call_answer(function, *copy.deepcopy(case)), reference(*copy.deepcopy(case))
        if same(value, due, tolerance):
            continue
        hints = (
            sentence
            for sentence, wrong in (mistakes or {}).items()
            if same(value, result_of(wrong, reference, case), tolerance)
        )
        why = "Is the `return` missing?" if value is None else next(hints, "")
        arguments = ", ".join(map(show, case))
        raise CheckError(
            f"{name_of(function)}({arguments}) gives {show(value)}; it has to be "
            f"{show(due)}.\n{why}"
        )


def result_of(wrong: Callable | float, reference: Callable, case: tuple):
    """What a mistake makes of a case. wrong: a function, or a factor of the right result."""
    if callable(wrong):
        return wrong(*copy.deepcopy(case))
    return wrong * reference(*copy.deepcopy(case))


def is_left(function) -> bool:
    """Does a function, or its code, still come to its `raise NotImplementedError`?"""
    return "NotImplementedError" in global_names(function)


def solution(kits: Callable) -> Callable:
    """Decorator of the kit's function for a blank: the learner's if that is right, else this
    one."""
    name = kits.__name__
    own = globals_of(kits).get(name)
    if any(own is function for function in Blank.accepted):
        say(f"Your {name} is used from here on.")
        return own
    left = own is None or is_left(own) or any(own is function for function in Blank.kits)
    why = "" if left else ", because the check has not accepted yours"
    say(f"The kit's {name} is used from here on{why}.")
    Blank.kits.append(kits)
    return kits


def say_right(title: str, verified: str, between=" ", **noted) -> None:
    """Show once, in green, that an answer is right; what was verified is folded where that can be.

    noted: what the notebook's kernel is told with it.
    """
    if not speaks():
        return
    text = f"{title}{between}{verified}"
    if get_ipython() is None:
        print(text)
        return
    style = "color: var(--jp-success-color1, #388e3c); overflow-wrap: anywhere"
    html = f'<details><summary style="{style}">✓ {escape(title)}</summary>{escape(verified)}'
    display(
        {"text/plain": text, "text/html": f"{html}</details>"},
        metadata={"pi2zero": {"unlabelled": True, **noted}},
        raw=True,
    )


def say(text: str) -> None:
    """Print it once."""
    if speaks():
        print(text)


def speaks() -> bool:
    """Is this the process that prints? Where there are ranks, rank 0 does."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is None or not mpi.Is_initialized() or mpi.COMM_WORLD.rank == 0
