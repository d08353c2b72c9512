"""What a learner reads when a rank raised, died or waited for ever."""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

from ipykernel.compiler import get_file_name

from pi2zero.cluster.calls import HOLD_THE_LOCK, last_name
from pi2zero.cluster.history import History, statements
from pi2zero.mpi import name_ranks

# From these files on, a stack is the engine's own machinery, not the learner's code.
_MACHINERY = (
    "/IPython/core/interactiveshell.py",
    "/ipykernel/",
    "/ipyparallel/",
    "/asyncio/",
    "/tornado/",
)
# What a statement may call beside a reduction that holds Python's lock, and modules whose functions of that name need no rank
QUICK = {
    "print",
    "format",
    "len",
    "int",
    "float",
    "str",
    "round",
    "abs",
    "max",
    "min",
    "append",
    "item",
}
QUICK |= {"Get_rank", "Get_size", "time", "perf_counter", "monotonic"}
_ALONE = {
    "functools",
    "np",
    "numpy",
    "add",
    "multiply",
    "torch",
    "jax",
    "jnp",
    "lax",
    "tf",
    "operator",
}
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')


class RankError(RuntimeError):
    """A `%%px` cell in which a rank raised, died or waited for ever. `report` is the text that the learner sees."""

    def __init__(self, report: str, summary: str):
        super().__init__(summary)
        self.report = report

    def _render_traceback_(self):
        """IPython shows this in place of the traceback: the ranks' stacks matter, the kit's own do not."""
        return self.report.splitlines()


@dataclass(frozen=True)
class Frame:
    """One line of a stack."""

    file: str
    line: int
    function: str


@dataclass
class Outcome:
    """How a watched cell ended. Ranks are MPI ranks.

    errors: what each rank raised; dead: why a rank is gone; stuck: ranks that had not finished when the cell was ended,
    with their stacks; deaf: whether one of these did not react to an interrupt; finished: ranks that came to the end.
    """

    errors: dict[int, Exception] = field(default_factory=dict)
    dead: dict[int, str] = field(default_factory=dict)
    stuck: dict[int, list[Frame]] = field(default_factory=dict)
    deaf: bool = False
    finished: list[int] = field(default_factory=list)
    seconds_still: float = 0.0  # how long they had waited for each other, if that ended the cell
    interrupted: bool = False

    @property
    def good(self) -> bool:
        """Whether all ranks came to the end, and nobody interrupted them."""
        return not (self.errors or self.dead or self.stuck or self.interrupted)

    @property
    def restarted(self) -> bool:
        """Whether the ranks have to be restarted: one is gone, or cannot be interrupted."""
        return bool(self.dead or self.deaf)


def parse_stack(text: str) -> list[Frame]:
    """The frames that faulthandler wrote (innermost first), without the engine's machinery."""
    frames = []
    for line in text.splitlines():
        match = _FRAME.match(line)
        if not match:
            continue
        frames.append((match["file"], int(match["line"]), match["function"].strip()))
    return frames_of(frames)


def frames_of(stack) -> list[Frame]:
    """The frames of (file, line, function), innermost first, without the engine's machinery."""
    frames = []
    for file, line, function in stack:
        if function == "_modified_open":  # IPython's open(), called by the cell
            continue
        if any(part in file for part in _MACHINERY):
            break
        frames.append(Frame(file, line, function))
    return frames


class CellSources:
    """The text of the cells that ran on the ranks, by the file name that IPython gave them there."""

    def __init__(self):
        self._text: dict[str, str] = {}

    def add(self, source: str) -> None:
        """Keep the text of a cell that is about to run."""
        self._text[Path(get_file_name(source)).name] = source

    def place(self, stack) -> str:
        """The innermost frame of (file, line, function) that a person would know, as `describe` has it."""
        frames = frames_of(stack)
        known = [frame for frame in frames if Path(frame.file).name in self._text]
        return self.describe((known or frames)[0]) if frames else "no Python code"

    def reduces_at(self, frame: Frame) -> bool:
        """Whether the innermost statement around a line of a cell calls a communicator's reduction of objects, and nothing else
        that may take long: while Python's lock is held, nobody can see which of a statement's calls goes on."""
        cell = ast.Module(statements(self._text.get(Path(frame.file).name, "")), [])
        around = [
            one
            for one in ast.walk(cell)
            if isinstance(one, ast.stmt) and one.lineno <= frame.line <= one.end_lineno
        ]
        nodes = list(_of_its_own(around[-1])) if around else []
        if any(
            isinstance(node, ast.Pow | ast.Mult | ast.In) for node in nodes
        ):  # of huge integers, in a long list
            return False
        calls = [node.func for node in nodes if isinstance(node, ast.Call)]
        others = [
            one
            for one in calls
            if not (last_name(one) in HOLD_THE_LOCK and _of_a_communicator(one))
        ]
        return len(others) < len(calls) and {last_name(one) for one in others} <= QUICK

    def describe(self, frame: Frame) -> str:
        """A frame as a person would say it: the line of the cell, or the place in a file."""
        source = self._text.get(Path(frame.file).name)
        where = "" if frame.function == "<module>" else f" in {frame.function}()"
        if source is None:
            return f"{_short(frame.file)}, line {frame.line}{where}"
        lines = source.splitlines()
        blank = next(
            (at for at, line in enumerate(lines) if line.strip()), 0
        )  # IPython leaves them out before it counts
        number = frame.line + blank
        text = lines[number - 1].strip() if number <= len(lines) else ""
        return f"cell line {number}{where}:  {text}"


def _of_its_own(node):
    """The nodes of a statement without those of the statements inside of it: of a loop, its head."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _of_its_own(child)


def _of_a_communicator(function) -> bool:
    """`comm.reduce` may be; `reduce`, `functools.reduce` and `np.add.reduce` are not."""
    owner = function.value if isinstance(function, ast.Attribute) else None
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    return owner is not None and getattr(owner, "id", "") not in _ALONE


def render(outcome: Outcome, sources: CellSources, size: int, lost: History) -> RankError:
    """The report as an exception, ready to be raised. lost: what `replay` would do again, because these ranks are new."""
    parts, summaries = [], []
    for why in dict.fromkeys(outcome.dead.values()):
        ranks = name_ranks([rank for rank, reason in outcome.dead.items() if reason == why])
        summaries.append(f"{ranks} died: {why}")
        parts.append(f"{_capital(ranks)} died: {why}.")
    for ranks, error in _alike(outcome.errors):
        summaries.append(f"{name_ranks(ranks)} raised {error.ename}: {error.evalue}")
        parts.append(f"{_capital(name_ranks(ranks))} raised {error.ename}:\n{_traceback(error)}")
    if outcome.interrupted:
        summaries.append("interrupted")
        parts.append("You interrupted the cell; it has ended on the ranks, too.")
    if outcome.stuck:
        if outcome.seconds_still:
            summaries.append(f"{name_ranks(outcome.stuck)} waited for ever")
        parts.append(_stuck(outcome, sources))
    parts.append(_consequence(outcome, size, lost))
    return RankError("\n".join(parts), "; ".join(summaries))


def _stuck(outcome: Outcome, sources: CellSources) -> str:
    if outcome.seconds_still:
        head = f"These ranks waited for each other for {outcome.seconds_still:.0f} s; nobody was left who could come. They are here:"
    else:
        head = "Meanwhile these ranks had not finished. They were here:"
    lines = [head]
    for ranks, frames in _alike(outcome.stuck):
        lines.append(
            f"  {name_ranks(ranks)}: {sources.describe(frames[0]) if frames else 'no Python code (no stack)'}"
        )
        lines += [f"      called from {sources.describe(frame)}" for frame in frames[1:5]]
    if outcome.seconds_still and outcome.finished:
        lines.append(f"  {name_ranks(outcome.finished)}: finished the cell")
    return "\n".join(lines)


def _consequence(outcome: Outcome, size: int, lost: History) -> str:
    again = f"cluster.replay() runs your {len(lost)} earlier step{'s' * (len(lost) > 1)} again."
    missing = sorted(_missing_names(outcome) & lost.names)
    if outcome.restarted:
        text = f"All {size} ranks are being restarted (about 5 s): the next %%px cell works, but their variables are gone."
        text += f"\n{again}" * bool(len(lost))
    elif missing:
        are = "is" if len(missing) == 1 else "are"
        text = f"{' and '.join(missing)} {are} missing because the ranks are new: what earlier ones had is gone.\n{again}"
    else:
        text = "The ranks kept their variables." + " Mend the cell and run it again." * (
            not outcome.interrupted
        )
    if outcome.seconds_still:
        text += "\nIf they only needed more time, give them more seconds: %%px --timeout 300"
    return text


def _missing_names(outcome: Outcome) -> set[str]:
    """Also those that a lab's check met in an answer, and that it tells in its own sentence."""
    return {
        name for error in outcome.errors.values() for name in _NOT_DEFINED.findall(error.evalue)
    }


_NOT_DEFINED = re.compile(r"name '(\w+)' is not defined")
_CELL = re.compile(r"Cell(?:\x1b\[[\d;]*m|\s)*In\[(\d+)\]")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


def _traceback(error) -> str:
    """IPython's traceback, in words that fit the notebook.

    The ranks count their cells for themselves, so the notebook's number is another: the cell that failed is the ranks' last.
    Left out: mpi4py's compiled frames, which have no lines to show, and those of comprehensions, for which IPython shows
    another line's text; the frame around them has the right one.
    """
    text = error.traceback or f"{error.ename}: {error.evalue}"
    text = text if isinstance(text, str) else "\n".join(text)
    last = max((int(number) for number in _CELL.findall(text)), default=0)
    text = _CELL.sub(
        lambda found: "this cell" if int(found[1]) == last else "an earlier cell", text
    )
    return "\n\n".join(
        block
        for block in text.split("\n\n")
        if not _is_noise(_COLOUR.sub("", block).split("\n")[0])
    )


def _is_noise(header: str) -> bool:
    return bool(
        re.match(r".*mpi4py/MPI\.src/\w+\.p[yx][xi]:", header)
        or re.search(r"in .*<(list|dict|set)comp>", header)
    )


def _alike(by_rank: dict) -> list[tuple[list[int], object]]:
    """Group ranks that have the same error or the same stack; the first rank's value stands for the group."""
    groups: dict[str, tuple[list[int], object]] = {}
    for rank, value in sorted(by_rank.items()):
        # Engines name the same cell after their own pid: compare the last part of the file's name.
        frames = isinstance(value, list) and [
            (Path(f.file).name, f.line, f.function) for f in value
        ]
        key = str(frames) if frames is not False else f"{value.ename}: {value.evalue}"
        groups.setdefault(key, ([], value))[0].append(rank)
    return list(groups.values())


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _short(file: str) -> str:
    return "/".join(Path(file).parts[-3:])
