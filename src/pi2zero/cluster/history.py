"""What a notebook has done to its ranks, so that new ranks can be brought to the same state."""

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ipyparallel.error import CompositeError, RemoteError
from IPython.core.inputtransformer2 import TransformerManager

from pi2zero.mpi import name_ranks

DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


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
        return {name for statement in statements(self.source) for name in _names_of(statement)}

    def runs_on(self, n: int) -> bool:
        """Whether a world of n ranks has its targets."""
        return self.targets is None or max(self.targets) < n

    @property
    def only_defines(self) -> bool:
        """Whether it consists of functions and classes, so that a later cell can replace it.

        A decorator may do more: `@solution` looks at the function that the learner has defined.
        """
        return all(
            isinstance(statement, DEFINITION) and not statement.decorator_list
            for statement in statements(self.source)
        )

    def replaces(self, older: "Cell | PushedVariables") -> bool:
        """Whether it defines all that an older cell defined, on the same ranks or on all."""
        return (
            isinstance(older, Cell)
            and (self.targets is None or older.targets == self.targets)
            and self.only_defines
            and older.only_defines
            and bool(older.names)
            and older.names <= self.names
        )


@dataclass
class PushedVariables:
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


@dataclass
class History:
    """The steps in the order in which they were first done."""

    entries: list[Cell | PushedVariables] = field(default_factory=list)

    def __len__(self):
        return len(self.entries)

    @property
    def names(self) -> set[str]:
        """The variables that any of the entries sets."""
        return set().union(*(entry.names for entry in self.entries))

    @property
    def definitions(self) -> set[str]:
        """The functions and classes that its cells define."""
        cells = [entry for entry in self.entries if isinstance(entry, Cell)]
        return set().union(*(definitions(cell.source) for cell in cells))

    def merged_with(self, later: "History") -> "History":
        """A history of these steps, then the later ones."""
        merged = History()
        for entry in [*self.entries, *later.entries]:
            if isinstance(entry, Cell):
                merged.add_cell(entry)
            else:
                merged.add_variables(entry.values, entry.rank)
        return merged

    def add_cell(self, cell: Cell) -> None:
        """A cell that runs again keeps its first place; a definition takes the place of the older
        one.

        The cells in between may call the function; they see its latest version in a replay.
        """
        if not cell.source.strip() or any(
            isinstance(old, Cell) and (old.source, old.targets) == (cell.source, cell.targets)
            for old in self.entries
        ):
            return
        replaced = [at for at, old in enumerate(self.entries) if cell.replaces(old)]
        self.entries.insert(replaced[0] if replaced else len(self.entries), cell)
        self.entries = [old for old in self.entries if old is cell or not cell.replaces(old)]

    def add_variables(self, values: dict, rank: int | None) -> None:
        """Keep the latest value of a name, in the place of the first: later cells may use it."""
        for old in self.entries:
            if isinstance(old, PushedVariables) and old.rank == rank:
                old.values |= {name: values[name] for name in old.values.keys() & values.keys()}
                values = {name: value for name, value in values.items() if name not in old.values}
        if values:
            self.entries.append(PushedVariables(dict(values), rank))


def statements(source: str) -> list[ast.stmt]:
    """A cell's top-level statements, with IPython's own syntax; [] if it is no Python."""
    try:
        return ast.parse(TransformerManager().transform_cell(source)).body
    except SyntaxError:
        return []


def definitions(source: str) -> set[str]:
    """The functions and classes that a cell defines at its top level."""
    return {statement.name for statement in statements(source) if isinstance(statement, DEFINITION)}


def _names_of(statement: ast.stmt):
    if isinstance(statement, DEFINITION):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        for alias in statement.names:
            yield (alias.asname or alias.name).partition(".")[0]
    else:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


class MissingVariableError(NameError):
    """A variable that some ranks do not have."""

    def _render_traceback_(self):
        return f"NameError: {self}".splitlines()


def recording_view(
    view,
    ranks: list[int],
    record: Callable[[dict, int | None], None],
    previous: Callable[[], History],
):
    """An ipyparallel view on these MPI ranks that records what it pushes.

    record(values, rank) is called after `view["x"] = 1` and `view.push(...)`; rank None: all.
    previous(): the History of ranks that are gone. A variable that the ranks lack is one sentence.
    """
    push, pull = view.push, view.pull
    ids = view.targets if isinstance(view.targets, list) else [view.targets]
    rank_of = dict(zip(ids, ranks, strict=True))

    def push_and_record(ns, targets=None, **options):
        result = push(ns, targets=targets, **options)
        for engine in targets if isinstance(targets, list | tuple) else [targets]:
            # scatter sends each rank a part of its own
            record(dict(ns), rank_of.get(engine, ranks[0] if len(ranks) == 1 else None))
        return result

    def pull_or_explain(names, *args, **options):
        try:
            return pull(names, *args, **options)
        except RemoteError as error:
            raise _missing_variable(error, rank_of, previous()) or error from None

    view.push, view.pull = push_and_record, pull_or_explain
    return view


def _missing_variable(
    error: RemoteError, rank_of: dict[int, int], previous: History
) -> MissingVariableError | None:
    """The sentence, if all that failed is a name that is not defined. rank_of: {engine id:
    rank}."""
    if isinstance(error, CompositeError):
        failures = [(name, text, info["engine_id"]) for name, text, _, info in error.elist]
    else:
        info: Any = error.engine_info
        failures = [(error.ename, error.evalue or "", info["engine_id"])]
    quoted = [text.split("'") for name, text, _ in failures if name == "NameError"]
    names = {words[1] for words in quoted if len(words) == 3}
    if len(names) != 1 or len(quoted) != len(failures):
        return None
    ranks = [rank_of[engine] for *_, engine in failures]
    (name,) = names
    advice = "Define it there first, in a %%px cell."
    if name in previous.names:
        advice = (
            "The ranks are new, and what earlier ones had is gone: "
            "cluster.replay() runs your earlier steps again."
        )
    have = "has" if len(ranks) == 1 else "have"
    return MissingVariableError(f"{name_ranks(ranks)} {have} no variable {name!r}. {advice}")
