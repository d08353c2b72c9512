"""What a learner reads when a rank raised, died or waited forever."""

import ast
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ipykernel.compiler import get_file_name
from ipyparallel.error import RemoteError
from IPython import get_ipython

from pi2zero.cluster.advice import advice_for
from pi2zero.cluster.blocking_calls import GIL_HOLDING_CALLS, last_name
from pi2zero.cluster.cell_source import statements
from pi2zero.cluster.names import NOT_DEFINED
from pi2zero.mpi import name_ranks

# From these files on, a stack is the engine's own machinery, not the learner's code.
MACHINERY = ("/IPython/core/interactiveshell.py", "/ipykernel/", "/ipyparallel/")
MACHINERY += ("/asyncio/", "/tornado/")
SHOWN_PLACES = 5  # lines of a stack
_KIT = (f"{Path(__file__).parents[1]}/", "/site-packages/pi2zero/", "/pi2zero_course/")
# What a statement may call next to a reduction that holds the GIL
NON_BLOCKING_CALLS = set(
    """print format len int float str round abs max min append item Get_rank Get_size time
    perf_counter monotonic""".split()  # noqa: SIM905 (readable)
)
# Modules whose `reduce` or `scan` needs no other rank
MODULES_WITHOUT_RANKS = set(
    "functools np numpy add multiply torch jax jnp lax tf operator".split()  # noqa: SIM905
)
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_CELL = re.compile(r"Cell(?:\x1b\[[\d;]*m|\s)*In\[(\d+)\]")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


class RankError(RuntimeError):
    """A `%%px` cell in which a rank raised, died or waited forever. `report` is what is shown."""

    def __init__(self, report: str, summary: str):
        super().__init__(summary)
        self.report = report

    def _render_traceback_(self):
        """IPython shows this instead of the traceback: the ranks' stacks matter, the kit's do
        not."""
        return self.report.splitlines()


def visible(error: RankError) -> RankError:
    """The error. Where another package shows exceptions instead of IPython (rich), the report is
    printed first: it would only show the error's last line and the kit's own frames."""
    shown_by = getattr(get_ipython(), "_showtraceback", None)
    if shown_by and shown_by.__module__.partition(".")[0] not in ("IPython", "ipykernel"):
        print(error.report, file=sys.stderr)
    return error


@dataclass(frozen=True)
class Frame:
    """One line of a stack."""

    file: str
    line: int
    function: str


@dataclass
class Outcome:
    """How a watched cell ended. Ranks are MPI ranks.

    errors: what each rank raised; dead: why a rank is gone; stuck: ranks that had not finished when
    the cell was ended, with their stacks; uninterruptible: whether one of these did not react to an
    interrupt; finished: ranks that came to the end; seconds_waited: how long they had waited for
    each other, if that ended the cell; abandoned: they waited for ranks that were done; stopped_at:
    after which step all ranks left their loop, if the stop button was pressed while they asked for
    it."""

    errors: dict[int, RemoteError] = field(default_factory=dict)
    dead: dict[int, str] = field(default_factory=dict)
    stuck: dict[int, list[Frame]] = field(default_factory=dict)
    uninterruptible: bool = False
    finished: list[int] = field(default_factory=list)
    seconds_waited: float = 0.0
    abandoned: bool = False
    interrupted: bool = False
    stopped_at: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether all ranks came to the end, and nobody interrupted them."""
        return not (self.errors or self.dead or self.stuck or self.interrupted)

    @property
    def needs_restart(self) -> bool:
        """Whether the ranks have to be restarted: one is gone, or cannot be interrupted."""
        return bool(self.dead or self.uninterruptible)


def parse_stack(text: str) -> list[Frame]:
    """The frames that faulthandler wrote, innermost first, without the engine's machinery."""
    matches = [match for line in text.splitlines() if (match := _FRAME.match(line))]
    return frames_of((m["file"], int(m["line"]), m["function"].strip()) for m in matches)


def frames_of(stack) -> list[Frame]:
    """The frames of (file, line, function), innermost first, without the engine's machinery."""
    frames = []
    for file, line, function in stack:
        if function == "_modified_open":  # IPython's open(), called by the cell
            continue
        if any(part in file for part in MACHINERY):
            break
        frames.append(Frame(file, line, function))
    return frames


class CellSources:
    """The text of the cells that ran on the ranks, by the file name that IPython gave them
    there."""

    def __init__(self):
        self._text: dict[str, str] = {}
        self._number: dict[str, int] = {}  # what stands in front of the cell in the notebook
        self._latest = 0  # the number of the cell that runs

    def add(self, source: str, number: int = 0) -> None:
        """Keep the text of a cell that is about to run. number: 62 for In [62]; 0: none."""
        name = Path(get_file_name(source)).name
        self._text[name], self._number[name], self._latest = source, number, number

    def describe_stack(self, stack) -> str:
        """The innermost place of (file, line, function) that a learner knows, in words."""
        frames = frames_of(stack)
        known = [frame for frame in frames if self.is_of_cell(frame)]
        return self.describe((known or frames)[0]) if frames else "no Python code"

    def shown(self, frames: list[Frame]) -> list[str]:
        """The places of a stack that a report shows, innermost first: not the kit's own, a few
        others, and always the innermost line of a cell."""
        frames = [each for each in frames if not any(kit in each.file for kit in _KIT)] or frames
        places = frames[:SHOWN_PLACES]
        if not any(map(self.is_of_cell, places)):
            places += [frame for frame in frames if self.is_of_cell(frame)][:1]
        return [self.describe(frame) for frame in places] or ["no Python code (no stack)"]

    def is_of_cell(self, frame: Frame) -> bool:
        """Whether it is a line of a cell that ran on the ranks."""
        return Path(frame.file).name in self._text

    def describe(self, frame: Frame) -> str:
        """A frame in words: the line of this cell, or of In [62], or the place in a file."""
        source = self._text.get(Path(frame.file).name)
        where = "" if frame.function == "<module>" else f" in {frame.function}()"
        if source is None:
            return f"{'/'.join(Path(frame.file).parts[-3:])}, line {frame.line}{where}"
        lines = source.splitlines()
        # IPython leaves out empty lines at the top before it counts.
        number = frame.line + next((at for at, line in enumerate(lines) if line.strip()), 0)
        text = lines[number - 1].strip() if number <= len(lines) else ""
        cell = self._number[Path(frame.file).name]
        cell = f"In [{cell}]," if cell != self._latest else "cell"
        return f"{cell} line {number}{where}:  {text}"

    def is_gil_holding_reduction(self, frame: Frame) -> bool:
        """Whether the statement at this line of a cell reduces objects, and does nothing else that
        may take long: while the GIL is held, nobody can see which of a statement's calls goes
        on."""
        cell = ast.Module([*statements(self._text.get(Path(frame.file).name, ""))], [])
        around = [
            node
            for node in ast.walk(cell)
            if isinstance(node, ast.stmt) and node.lineno <= frame.line <= (node.end_lineno or 0)
        ]
        nodes = list(_own_nodes(around[-1])) if around else []
        # With huge integers, or in a long list, these take long.
        if any(isinstance(node, ast.Pow | ast.Mult | ast.In) for node in nodes):
            return False
        calls = [node.func for node in nodes if isinstance(node, ast.Call)]
        others = [call for call in calls if not _may_be_a_reduction(call)]
        return (
            len(others) < len(calls) and {last_name(call) for call in others} <= NON_BLOCKING_CALLS
        )


def _own_nodes(node: ast.AST):
    """The nodes of a statement without those of the statements inside of it: of a loop, its
    head."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _own_nodes(child)


def _may_be_a_reduction(function: ast.expr) -> bool:
    """`comm.reduce` may be one of a communicator; `reduce` and `np.add.reduce` are not."""
    owner = function.value if isinstance(function, ast.Attribute) else None
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    of_communicator = owner is not None and getattr(owner, "id", "") not in MODULES_WITHOUT_RANKS
    return last_name(function) in GIL_HOLDING_CALLS and of_communicator


def make_report(
    outcome: Outcome,
    sources: CellSources,
    size: int,
    advice: str,
    explain: Callable[[set[str]], str],
) -> RankError:
    """The report as an exception, ready to be raised.

    advice: how to have the variables again, if ranks are gone. explain(names): why the ranks do not
    have these.
    """
    if outcome.stopped_at and not (outcome.errors or outcome.dead or outcome.stuck):
        text = f"Stopped at step {outcome.stopped_at}; the ranks and their variables are there."
        return RankError(text, text)
    parts, summaries = [], []
    for why in dict.fromkeys(outcome.dead.values()):
        ranks = name_ranks([rank for rank, reason in outcome.dead.items() if reason == why])
        summaries.append(f"{ranks} died: {why}")
        parts.append(f"{ranks.capitalize()} died: {why}.")
    for ranks, error in _group_ranks(outcome.errors):
        names = name_ranks(ranks)
        if error.ename == "SystemExit":
            summaries.append(f"{names} left the cell by exit() or sys.exit({error.evalue})")
            parts.append(f"{summaries[-1].capitalize()}: the rest of it was not run. Ranks stay.")
            continue
        summaries.append(f"{names} raised {error.ename}: {error.evalue}")
        parts.append(f"{names.capitalize()} raised {error.ename}:\n{_traceback(error)}")
        parts += advice_for(str(error.evalue))
    if outcome.interrupted:
        summaries.append("interrupted")
        parts.append("You interrupted the cell; it has ended on the ranks, too.")
    if outcome.stuck:
        if outcome.seconds_waited:
            summaries.append(f"{name_ranks(outcome.stuck)} waited forever")
        parts.append(_describe_stuck(outcome, sources))
    parts.append(_consequence(outcome, size, advice, explain))
    return RankError("\n".join(parts), "; ".join(summaries))


def _describe_stuck(outcome: Outcome, sources: CellSources) -> str:
    lines = [_head_of_stuck(outcome)]
    for ranks, frames in _group_ranks(outcome.stuck):
        first, *callers = sources.shown(frames)
        lines.append(f"  {name_ranks(ranks)}: {first}")
        lines += [f"      called from {place}" for place in callers]
    if outcome.seconds_waited and outcome.finished:
        lines.append(f"{name_ranks(outcome.finished).capitalize()} had finished the cell.")
    return "\n".join(lines)


def _head_of_stuck(outcome: Outcome) -> str:
    ranks, seconds = list(outcome.stuck), outcome.seconds_waited
    if seconds and len(ranks) == 1:
        return (
            f"{name_ranks(ranks).capitalize()} waited for other ranks for {seconds:.0f} s; "
            "no rank was left that could come. It is here:"
        )
    if seconds:
        return (
            f"These ranks waited for each other for {seconds:.0f} s; "
            "no rank was left that could come. They are here:"
        )
    if len(ranks) == 1:
        return "Meanwhile this rank had not finished. It was here:"
    return "Meanwhile these ranks had not finished. They were here:"


def _consequence(
    outcome: Outcome, size: int, advice: str, explain: Callable[[set[str]], str]
) -> str:
    # Also names that a lab's check missed in an answer, and tells in a sentence of its own.
    errors = outcome.errors.values()
    undefined = {name for error in errors for name in NOT_DEFINED.findall(str(error.evalue))}
    if outcome.needs_restart:
        text = (
            f"All {size} ranks are being restarted (about 5 s): the next %%px cell works, "
            f"but their variables are gone.{advice}"
        )
    elif undefined and (why := explain(undefined)):
        text = why
    else:
        text = "The ranks kept their variables."
        text += " Fix the cell and run it again." * (not outcome.interrupted)
    alone = len(outcome.stuck) == 1 and outcome.finished
    if outcome.seconds_waited and not (outcome.abandoned or alone):
        text += "\nIf they only needed more time, give them more seconds: %%px --timeout 300"
    return text


def _traceback(error) -> str:
    """IPython's traceback, in words that fit the notebook.

    The cell that failed has the highest number. Left out are mpi4py's compiled frames, which have
    no lines to show, and those of comprehensions, for which IPython shows another line's text; the
    frame around them has the right one."""
    text = error.traceback or f"{error.ename}: {error.evalue}"
    text = text if isinstance(text, str) else "\n".join(text)
    last = max((int(number) for number in _CELL.findall(text)), default=0)
    text = _CELL.sub(lambda m: "this cell" if int(m[1]) == last else f"In [{m[1]}]", text)
    blocks = text.split("\n\n")
    return "\n\n".join(
        block for block in blocks if not _is_noise(_COLOUR.sub("", block).split("\n")[0])
    )


def _is_noise(header: str) -> bool:
    compiled = re.match(r".*mpi4py/MPI\.src/\w+\.p[yx][xi]:", header)
    return bool(compiled or re.search(r"in .*<(list|dict|set)comp>", header))


def _group_ranks(by_rank: dict) -> list[tuple[list[int], Any]]:
    """Group ranks with the same error or stack; the first rank's value stands for the group."""
    groups: dict[str, tuple[list[int], Any]] = {}
    for rank, value in sorted(by_rank.items()):
        if isinstance(value, list):
            # Engines name the same cell after their own pid: compare the last part of the file
            # name.
            key = str([(Path(f.file).name, f.line, f.function) for f in value])
        else:
            key = f"{value.ename}: {value.evalue}"
        groups.setdefault(key, ([], value))[0].append(rank)
    return list(groups.values())
