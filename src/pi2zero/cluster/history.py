"""What a notebook has done to its ranks, so that fresh ones can be brought to the same state."""

import ast
from dataclasses import dataclass, field

from IPython.core.inputtransformer2 import TransformerManager


@dataclass
class Cell:
    """A `%%px` cell that succeeded."""

    source: str
    targets: list[int] | None  # MPI ranks; None: all
    timeout: float

    def __str__(self):
        return self.source.strip().splitlines()[0]

    @property
    def names(self) -> set[str]:
        """The names that it defines at its top level."""
        return {name for statement in statements(self.source) for name in _defines(statement)}

    def fits(self, n: int) -> bool:
        """Whether a world of n ranks has its targets."""
        return self.targets is None or max(self.targets) < n

    @property
    def only_defines(self) -> bool:
        """Is it made of functions and classes alone? Then one that defines them anew takes its place.

        A decorator may do more: `@solution` (checks/blanks) looks at the function that the learner has defined before.
        """
        return all(
            isinstance(s, DEFINITION) and not s.decorator_list for s in statements(self.source)
        )


@dataclass
class Sending:
    """Variables that the notebook sent with a view. rank: to which one; None: all."""

    values: dict
    rank: int | None = None

    def __str__(self):
        return f"sends {', '.join(self.values)}"

    @property
    def names(self) -> set[str]:
        """The variables that it sets on the ranks."""
        return set(self.values)

    def fits(self, n: int) -> bool:
        """Whether a world of n ranks has the one that it was sent to."""
        return self.rank is None or self.rank < n


@dataclass
class History:
    """In the order in which things were first done."""

    entries: list[Cell | Sending] = field(default_factory=list)

    def __len__(self):
        return len(self.entries)

    @property
    def names(self) -> set[str]:
        """The variables that any of the entries sets."""
        return set().union(*(entry.names for entry in self.entries))

    @property
    def definitions(self) -> set[str]:
        """The functions and classes that its cells define."""
        return set().union(
            *(definitions(entry.source) for entry in self.entries if isinstance(entry, Cell))
        )

    def then(self, later: "History") -> "History":
        """This one's steps, then another's."""
        both = History(
            [Sending(dict(e.values), e.rank) if isinstance(e, Sending) else e for e in self.entries]
        )
        for entry in later.entries:
            both.add_cell(entry) if isinstance(entry, Cell) else both.add_sending(
                entry.values, entry.rank
            )
        return both

    def add_cell(self, cell: Cell) -> None:
        """A cell that is run again keeps its first place; a definition takes the place of those that it replaces.

        What stands between the two may call it, and has been run again after it was mended, or will be.
        """
        if not cell.source.strip() or any(_same(cell, old) for old in self.entries):
            return
        replaced = [at for at, old in enumerate(self.entries) if _replaces(cell, old)]
        self.entries.insert(replaced[0] if replaced else len(self.entries), cell)
        self.entries = [old for old in self.entries if old is cell or not _replaces(cell, old)]

    def add_sending(self, values: dict, rank: int | None) -> None:
        """The latest value of a name is the one to keep, in the place of the first: what comes after it may use it."""
        for old in self.entries:
            if isinstance(old, Sending) and old.rank == rank:
                old.values |= {name: values[name] for name in old.values.keys() & values.keys()}
                values = {name: value for name, value in values.items() if name not in old.values}
        if values:
            self.entries.append(Sending(dict(values), rank))


def _same(cell: Cell, old: Cell | Sending) -> bool:
    return isinstance(old, Cell) and (old.source, old.targets) == (cell.source, cell.targets)


def _replaces(cell: Cell, old: Cell | Sending) -> bool:
    same_ranks = isinstance(old, Cell) and (cell.targets is None or old.targets == cell.targets)
    return (
        same_ranks
        and cell.only_defines
        and old.only_defines
        and bool(old.names)
        and old.names <= cell.names
    )


def statements(source: str) -> list[ast.stmt]:
    """A cell's top level, with IPython's own syntax; nothing if it is no Python."""
    try:
        return ast.parse(TransformerManager().transform_cell(source)).body
    except SyntaxError:
        return []


DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions(source: str) -> set[str]:
    """The functions and classes that a cell defines at its top level."""
    return {statement.name for statement in statements(source) if isinstance(statement, DEFINITION)}


def _defines(statement: ast.stmt):
    if isinstance(statement, DEFINITION):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        for alias in statement.names:
            yield (alias.asname or alias.name).partition(".")[0]
    else:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
