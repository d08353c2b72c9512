"""What a room's notes say: which seat is where, and where the room is stuck. Pure functions of a folder's files."""

import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from pi2zero_course.dashboard.notes import Note

MOST = 500  # seats
LONGEST = 200_000  # bytes of a seat's file that are read: two thousand notes
LATEST = (
    10**11
)  # s since 1970: the year 5138. A later note is none, and would stop the page that shows its time
STUCK = 2  # wrong answers to a task, after which a seat counts as stuck there


@dataclass
class State:
    """How a seat stands with a task. began, last: s since 1970, of the first and of the last note."""

    began: int
    last: int
    wrong: int = 0
    right: bool = False

    def add(self, result: str, at: int) -> None:
        """Count a note: its result, and when it came (s since 1970). What is wrong after it was right does not count."""
        self.last = at
        self.wrong += result == "not yet" and not self.right
        self.right = self.right or result == "right"

    def text(self) -> str:
        """In words, with the number of tries where it took more than one: "right (3)"."""
        tries = f" ({self.wrong + self.right})" if self.wrong else ""
        return f"right{tries}" if self.right else f"not yet{tries}" if self.wrong else "open"


@dataclass
class Board:
    """states[seat][task]; places: the task that a seat noted last; tasks in the order in which the room came to them."""

    states: dict[int, dict[str, State]] = field(default_factory=dict)
    places: dict[int, str] = field(default_factory=dict)
    tasks: list[str] = field(default_factory=list)

    def at_work(self, task: str) -> list[State]:
        """Of all seats whose last note is of this task, and not yet right: how they stand with it."""
        here = [states[task] for seat, states in self.states.items() if self.places[seat] == task]
        return [state for state in here if not state.right]

    def through(self, task: str) -> int:
        """How many seats have the task right."""
        return sum(states[task].right for states in self.states.values() if task in states)


def read(folder: Path) -> Board:
    """The board of all files SEAT.jsonl of a folder. Lines that are no notes are left out, whoever wrote them."""
    board, first = Board(), {}
    for file in sorted(folder.glob("*.jsonl"))[:MOST]:
        for line in _lines(file):
            try:
                told = json.loads(line)
                at = told.pop("at")
                note = Note.read(json.dumps(told))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                continue
            if str(note.seat) != file.stem or type(at) is not int or not 0 < at < LATEST:
                continue
            states = board.states.setdefault(note.seat, {})
            states.setdefault(note.task, State(at, at)).add(note.result, at)
            board.places[note.seat] = note.task
            first[note.task] = min(at, first.get(note.task, at))
    board.tasks = sorted(first, key=lambda task: (first[task], task))
    board.states = dict(sorted(board.states.items()))
    return board


def _lines(file: Path) -> list[str]:
    """Of a regular file: a link or a pipe that somebody has laid there is not followed."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        regular = stat.S_ISREG(os.fstat(handle).st_mode)
        return os.read(handle, LONGEST).decode(errors="replace").splitlines() if regular else []
    finally:
        os.close(handle)


def stuck(board: Board, now: float) -> str:
    """One sentence: where the most seats do not get on."""
    seats = len(board.states)
    if not seats:
        return "No seat has noted anything yet."
    tasks = {task: board.at_work(task) for task in board.tasks}
    task, here = max(
        tasks.items(),
        key=lambda item: (sum(state.wrong >= STUCK for state in item[1]), len(item[1])),
    )
    if not here:
        return f"{seats} seats; each is right in what it did last."
    minutes = median(max(now - state.began, 0) for state in here) / 60
    failed = sum(state.wrong >= STUCK for state in here)
    several = (
        f"{failed} of them failed there {STUCK} times or more"
        if failed
        else "none of them failed there twice"
    )
    return f"{len(here)} of {seats} seats are at {task}, for {minutes:.0f} min (median); {several}."
