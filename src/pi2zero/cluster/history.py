"""What a notebook has done to its ranks, so that new ranks can be brought to the same state."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from pi2zero.cluster.cell_source import (
    DEFINITION,
    definitions,
    is_check,
    is_kits_answer,
    is_left,
    names_used_to_define,
    set_names,
    statements,
    used_names,
)


@dataclass(kw_only=True, eq=False)
class Step:
    """lost: the ranks that it was done on are gone. left_out: why the last replay did without it.
    hung: it hung, or a rank died in it, when it was done last."""

    lost: bool = False
    left_out: str = ""
    hung: bool = False
    is_suspect = False

    def done(self) -> None:
        """It has succeeded on the ranks that there are."""
        self.lost, self.hung, self.left_out = False, False, ""


@dataclass(eq=False)
class Cell(Step):
    """A `%%px` cell that succeeded.

    Of its definitions: with which other cells have succeeded (proven), in which of them a cell hung
    or a rank died (suspects), and which of them a check has accepted."""

    source: str
    targets: list[int] | None  # MPI ranks; None: all
    timeout: float
    number: int = 0  # 62 for In [62]
    proven: set[str] = field(default_factory=set)
    suspects: set[str] = field(default_factory=set)
    accepted: set[str] = field(default_factory=set)

    def __str__(self):
        lines = self.source.strip().splitlines()
        decorators = sum(1 for _ in itertools.takewhile(lambda line: line.startswith("@"), lines))
        return " ".join(lines[: decorators + 1])

    @property
    def names(self) -> set[str]:
        """The names that it sets at its top level."""
        return set().union(*map(set_names, statements(self.source)))

    @property
    def definitions(self) -> set[str]:
        """The functions and classes that it defines."""
        return set(definitions(self.source))

    def runs_on(self, n: int) -> bool:
        """Whether a world of n ranks has its targets."""
        return self.targets is None or max(self.targets) < n

    def covers(self, targets: list[int] | None) -> bool:
        """Whether it ran on all of these ranks."""
        return self.targets is None or (targets is not None and set(targets) <= set(self.targets))

    @property
    def is_suspect(self) -> bool:
        """Whether nothing is left of it without its suspects."""
        return bool(self.suspects) and self.only_defines and self.definitions <= self.suspects

    @property
    def only_defines(self) -> bool:
        """Whether it consists of functions and classes, so that a later cell can replace it.

        A decorator may do more: `@solution` looks at the function that the learner has defined.
        """
        return all(
            isinstance(statement, DEFINITION) and not statement.decorator_list
            for statement in statements(self.source)
        )

    def replaces(self, older: Step) -> bool:
        """Whether it defines all that an older cell defined, on the same ranks or on all."""
        return (
            isinstance(older, Cell)
            and older is not self
            and self.covers(older.targets)
            and older.only_defines
            and bool(older.definitions)
            and older.definitions <= self.definitions
        )


@dataclass
class PushedVariables(Step):
    """Variables that the notebook sent with a view. rank: to which one; None: all."""

    values: dict
    rank: int | None = None

    def __str__(self):
        return f"sends {', '.join(self.values)}"

    @property
    def names(self) -> set[str]:
        """The variables that it sets on the ranks."""
        return set(self.values)

    def runs_on(self, n: int) -> bool:
        """Whether a world of n ranks has the rank that it was sent to."""
        return self.rank is None or self.rank < n

    def covers(self, targets: list[int] | None) -> bool:
        """Whether it was sent to all of these ranks."""
        return self.rank is None or targets == [self.rank]


@dataclass
class History:
    """The steps in the order in which a replay does them again."""

    entries: list[Cell | PushedVariables] = field(default_factory=list)
    is_of_another_cluster: bool = False  # what is lost was done to the cluster before
    # Which cell has defined a name on these ranks
    _definers: dict[str, Cell] = field(default_factory=dict)

    @property
    def lost(self) -> list[Cell | PushedVariables]:
        """The steps that these ranks do not know of."""
        return [entry for entry in self.entries if entry.lost]

    @property
    def lost_names(self) -> set[str]:
        """What the ranks before these had, and a replay can bring back."""
        return set().union(*(step.names for step in self.lost if not step.left_out))

    @property
    def told(self) -> list[Cell | PushedVariables]:
        """The steps that were done on these ranks."""
        return [entry for entry in self.entries if not entry.lost]

    @property
    def definitions(self) -> set[str]:
        """The functions and classes that its cells define."""
        cells = [entry for entry in self.entries if isinstance(entry, Cell)]
        return set().union(*(cell.definitions for cell in cells))

    def lose(self) -> None:
        """The ranks are gone. Steps of another cluster count until this one has its own."""
        if self.is_of_another_cluster and self.told:
            self.entries, self.is_of_another_cluster = self.told, False
        self._definers = {}
        for entry in self.entries:
            entry.lost, entry.left_out = True, ""

    def add_cell(self, cell: Cell) -> None:
        """Note a cell that has succeeded. One that runs again keeps its first place.

        A definition comes last, until another cell has succeeded with it. Then it takes the place
        of the older ones: cells in between that call it see its proven version in a replay."""
        if not cell.source.strip():
            return
        cell = self._known(cell)
        if cell.definitions and all(isinstance(s, DEFINITION) for s in statements(cell.source)):
            self.entries = [
                old for old in self.entries if not cell.replaces(old) or getattr(old, "proven", ())
            ]
        self.note_success(cell, cell.definitions)

    def note_success(self, cell: Cell, defined: set[str]) -> None:
        """Note that a cell has succeeded on these ranks, now or in a replay.

        defined: those of its definitions that it has made there."""
        self._definers |= dict.fromkeys(defined, cell)
        for name, definer in _definitions_used_by(cell, self._definers).items():
            if cell.covers(definer.targets):
                definer.proven.add(name)
                definer.suspects.discard(name)
                self._move_to_the_older_ones_place(definer)
        for name in _checked_names(cell.source) & self._definers.keys():
            definer = self._definers[name]
            answer = definitions(definer.source)[name]
            if not is_kits_answer(answer) and not is_left(answer):
                definer.accepted.add(name)

    def _known(self, cell: Cell) -> Cell:
        """The cell, or the entry of an earlier run of it, as done on these ranks."""
        for old in self.entries:
            if isinstance(old, Cell) and (old.source, old.targets) == (cell.source, cell.targets):
                old.done()
                old.timeout, old.number, old.suspects = cell.timeout, cell.number, set()
                return old
        self.entries.append(cell)
        return cell

    def _move_to_the_older_ones_place(self, cell: Cell) -> None:
        at = next(i for i, entry in enumerate([*self.entries, cell]) if entry is cell)
        older = [i for i, entry in enumerate(self.entries[:at]) if cell.replaces(entry)]
        if not older or not cell.only_defines or not cell.definitions <= cell.proven:
            return
        needs = set().union(*map(names_used_to_define, statements(cell.source)))
        between = self.entries[older[0] + 1 : at]
        if needs & set().union(*(entry.names for entry in between)):
            return  # it cannot be made at that place
        self.entries.remove(cell)
        self.entries[older[0]] = cell
        self.entries = [entry for i, entry in enumerate(self.entries) if i not in older[1:]]

    def suspect(self, cell: Cell, hung: bool) -> set[str]:
        """Note a cell that hung or in which a rank died: what it used and no cell has succeeded
        with is not brought back. Returns these names. hung: without any, the cell itself is not."""
        own = dict.fromkeys(cell.definitions, cell)
        used = _definitions_used_by(cell, self._definers | own)
        suspects = [
            (name, definer)
            for name, definer in used.items()
            if name not in definer.proven and not is_kits_answer(definitions(definer.source)[name])
        ]
        for name, definer in suspects:
            definer.suspects.add(name)
        for old in self.entries:
            if hung and not suspects and isinstance(old, Cell) and old.source == cell.source:
                old.hung = True
        return {name for name, _ in suspects}

    def add_variables(self, values: dict, rank: int | None) -> None:
        """Keep the latest value of a name, in the place of the first: later cells may use it."""
        values = dict(values)
        for at, old in reversed(list(enumerate(self.entries))):
            if isinstance(old, PushedVariables) and old.rank == rank:
                again = {name: values.pop(name) for name in old.values.keys() & values.keys()}
                if again and old.lost:  # the others in it are still lost
                    old.values = {n: v for n, v in old.values.items() if n not in again}
                    self.entries[at : at + 1] = [old] * bool(old.values) + [
                        PushedVariables(again, rank)
                    ]
                else:
                    old.values |= again
        if values:
            self.entries.append(PushedVariables(values, rank))


def names_on(steps: Iterable[Cell | PushedVariables], targets: list[int] | None) -> set[str]:
    """The names that steps have set on all of these ranks."""
    return set().union(*(step.names for step in steps if step.covers(targets)))


def _definitions_used_by(cell: Cell, definers: dict[str, Cell]) -> dict[str, Cell]:
    """The definitions that run when a cell runs, and the cells that they are in."""
    parts = [part for part in statements(cell.source) if not isinstance(part, DEFINITION)]
    names, found = set().union(*map(used_names, parts)), {}
    while names:
        name = names.pop()
        if (definer := definers.get(name)) and name not in found:
            found[name] = definer
            names |= used_names(definitions(definer.source)[name]) - found.keys()
    return found


def _checked_names(source: str) -> set[str]:
    """The answers that a cell has given to a check."""
    return set().union(*(used_names(part) for part in statements(source) if is_check(part)))
