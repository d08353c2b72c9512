"""Do again on fresh ranks what the notebook did to the ranks before them."""

from __future__ import annotations

import itertools
import re
import time
from typing import TYPE_CHECKING

from pi2zero.cluster.cell_source import (
    definitions,
    is_check,
    is_install,
    is_kits_answer,
    statements,
    without,
)
from pi2zero.cluster.display import TransientText
from pi2zero.cluster.engines import ClusterError
from pi2zero.cluster.history import Cell, History, PushedVariables, names_on
from pi2zero.cluster.report import Outcome, RankError

if TYPE_CHECKING:
    from pi2zero.cluster.mpi_cluster import MPICluster

WIDTH = 80  # characters of a step's title, and of what it raised
HIDDEN = "hidden"  # the order of the output in which it is not shown, see `show_grouped`
CHECK, INSTALL = "checks are not repeated", "it is installed"
YOURS, ANEW = "yours is used", "told anew since the ranks are new"
OTHER_RANKS, HUNG = "for other ranks", "it hung, or a rank died in it, last time"
SUSPECT = "a cell that used it hung or lost a rank"
# What is left out for these reasons is not missing: the ranks have it, or do without it.
HARMLESS = {CHECK, INSTALL, YOURS, ANEW}


class Replay:
    """One call of `cluster.replay`. stop: the number of the last step to do; None: all."""

    def __init__(self, cluster: MPICluster, history: History, stop: int | None):
        self.cluster, self.history, self.stop = cluster, history, stop
        again = not history.lost  # all that these ranks have done
        self.steps = [
            (number, step)
            for number, step in enumerate(history.entries, start=1)
            if again or step.lost
        ]
        self.told = [] if again else history.told
        # The step that is being done, after the one before it: (number, step)
        self.current = self.former = self.steps[0]

    def run(self) -> None:
        """Do the steps, a line for each; what fails or cannot be done is left out and listed."""
        start, transient, done = time.monotonic(), TransientText(), 0
        told_names = set().union(*(step.names for step in self.told))
        if told_names:
            self.cluster.view.apply_sync(keep_values, sorted(told_names))
        try:
            for number, step in self._to_do():
                self.former, self.current = self.current, (number, step)
                transient.show(f"replay, step {number} of {self.steps[-1][0]}: {self.title(step)}")
                done += self._do(number, step)
                if told_names & step.names:
                    self.cluster.view.apply_sync(restore_values)
        finally:
            transient.clear()
        print(f"Replayed {done} of {len(self.steps)}, {time.monotonic() - start:.1f} s.", end="")
        print(self._left_out())

    def fail(self, outcome: Outcome, suspects: set[str], in_a_step: bool) -> str:
        """Note that a step has ended the ranks; what to do next.

        suspects: definitions that it used, of which one is to blame. in_a_step: if not, a rank was
        gone when the current step began."""
        number, step = self.current if in_a_step else self.former
        text = f"It was step {number} of the replay, `{self.title(step)}`."
        if not outcome.interrupted:
            step.hung = not suspects
            without = " and ".join(sorted(suspects)) or "it"
            text += f" The next cluster.replay() leaves {without} out."
        if number > 1:
            text += f" cluster.replay(stop={number - 1}) does the steps before it."
        return text

    @staticmethod
    def title(step: Cell | PushedVariables) -> str:
        """A step in one short line."""
        return _shorten(str(step))

    def _to_do(self):
        return [pair for pair in self.steps if self.stop is None or pair[0] <= self.stop]

    def _do(self, number: int, step: Cell | PushedVariables) -> bool:
        """Do a step and print its line. Returns whether it has succeeded."""
        what, why = self._what_to_do(step)
        mark, note, start = "–", f"left out: {why}", time.monotonic()
        if what:
            error = self._error_of(step, what)
            mark = "✗" if error else "✓"
            note = error or f"{time.monotonic() - start:.1f} s" + f"; left out: {why}" * bool(why)
            why = error or why * (why not in HARMLESS)
        if mark == "✓" or why in HARMLESS:
            step.done()
        if mark == "✓" and isinstance(step, Cell):
            parts = definitions(step.source).items()
            defined = {name for name, part in parts if not self._why_not(step, part)}
            self.history.note_success(step, defined)
        step.left_out = why
        width = len(str(self.steps[-1][0]))
        print(f"{mark} {number:>{width}}  {self.title(step)}  ({note})")
        return mark == "✓"

    def _what_to_do(self, step: Cell | PushedVariables) -> tuple[str | dict, str]:
        """What is left of a step to be done again; and, if that is nothing, why."""
        if not step.runs_on(self.cluster.n):
            return "", OTHER_RANKS
        if step.hung:
            return "", HUNG
        if isinstance(step, PushedVariables):
            new = names_on(self.told, None if step.rank is None else [step.rank]) & step.names
            return {name: step.values[name] for name in step.names - new}, ANEW * bool(new)
        dropped = {s: why for s in statements(step.source) if (why := self._why_not(step, s))}
        if not dropped:
            return step.source, ""
        return without(step.source, dropped), "; ".join(dict.fromkeys(dropped.values()))

    def _why_not(self, cell: Cell, statement) -> str:
        """Why a statement of a cell is not run again; "" if it is."""
        if is_check(statement):
            return CHECK
        if is_install(statement):
            return INSTALL
        name = getattr(statement, "name", "")
        if name not in cell.definitions:
            return ""
        if name in names_on(self.told, cell.targets):
            return ANEW
        if name in cell.suspects:
            return f"{SUSPECT}{self._used_instead(cell, name)}"
        if is_kits_answer(statement) and self._is_accepted(name, before=cell):
            return YOURS
        return ""

    def _used_instead(self, cell: Cell, name: str) -> str:
        """Which other definition of a name is used, because this one is left out."""
        others = [
            number
            for number, step in enumerate(self.history.entries, start=1)
            if isinstance(step, Cell) and name in step.definitions - step.suspects
        ]
        return f"; {name} of step {others[-1]} is used" if others else ""

    def _is_accepted(self, name: str, before: Cell) -> bool:
        """Whether a step before this one defines an answer that a check has accepted."""
        earlier = itertools.takewhile(lambda step: step is not before, self.history.entries)
        return any(isinstance(step, Cell) and name in step.accepted for step in earlier)

    def _error_of(self, step: Cell | PushedVariables, what) -> str:
        """Do what is left of a step. Returns what it raised, in a line; "" if nothing."""
        if isinstance(step, Cell):
            outcome = self.cluster.run_unrecorded(step, what, HIDDEN)
            errors = {f"{error.ename}: {error.evalue}" for error in outcome.errors.values()}
            return _shorten("; ".join(sorted(errors)))
        try:
            cluster = self.cluster
            view = cluster.view if step.rank is None else cluster[step.rank]
            view.push(what)
        except (ClusterError, RankError):
            raise
        except Exception as error:  # such as a value that cannot be sent
            return _shorten(f"{type(error).__name__}: {error}")
        return ""

    def _left_out(self) -> str:
        """Left out: 3 `check.f(f)`, 7 `check.g(g)` (checks are not repeated); 12 `x = y` (...)."""
        by_reason: dict[str, list[str]] = {}
        for number, step in self._to_do():
            if step.left_out:
                reason = step.left_out.partition(":")[0]  # of an error, its kind
                by_reason.setdefault(reason, []).append(f"{number} `{self.title(step)}`")
        texts = [f"{', '.join(steps)} ({reason})" for reason, steps in by_reason.items()]
        return f" Left out: {'; '.join(texts)}." if texts else ""


def _shorten(text: str) -> str:
    line = re.sub(r"\s+", " ", text)
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


def keep_values(names: list[str]) -> None:
    """On a rank: keep what it was told since it is new."""
    from IPython import get_ipython

    shell = get_ipython()
    shell.values_to_keep = {n: shell.user_ns[n] for n in names if n in shell.user_ns}


def restore_values() -> None:
    """On a rank: what it was told since it is new wins over what a replay has set."""
    from IPython import get_ipython

    shell = get_ipython()
    shell.user_ns.update(shell.values_to_keep)
