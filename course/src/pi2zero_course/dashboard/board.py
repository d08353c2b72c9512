"""What a room's notes say: where each seat is, and where the room is stuck."""

import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from pi2zero_course.dashboard.notes import Note

MAX_SEATS = 500
MAX_BYTES = 200_000  # of a seat's file that are read: two thousand notes
MAX_TIME = 10**11  # s since 1970: the year 5138; the page could not show a later time
STUCK = 2  # wrong answers to a task, from which on a seat counts as stuck there


@dataclass
class State:
    """A seat's state in a task. began, last: times of the first and the last note, s since 1970."""

    began: int
    last: int
    wrong: int = 0
    right: bool = False

    def add(self, result: str, at: int) -> None:
        """Count a note. Wrong answers after a right one do not count."""
        self.last = at
        self.wrong += result == "not yet" and not self.right
        self.right = self.right or result == "right"

    def text(self) -> str:
        """In words, with the number of tries if there was more than one: "right (3)"."""
        tries = f" ({self.wrong + self.right})" if self.wrong else ""
        return f"right{tries}" if self.right else f"not yet{tries}" if self.wrong else "open"


@dataclass
class Board:
    """states[seat][task]; places: each seat's last task; tasks in the order of the room."""

    states: dict[int, dict[str, State]] = field(default_factory=dict)
    places: dict[int, str] = field(default_factory=dict)
    tasks: list[str] = field(default_factory=list)

    def at_work(self, task: str) -> list[State]:
        """States of the seats whose last note is of this task, and not yet right."""
        here = [states[task] for seat, states in self.states.items() if self.places[seat] == task]
        return [state for state in here if not state.right]

    def count_right(self, task: str) -> int:
        """How many seats have the task right."""
        return sum(states[task].right for states in self.states.values() if task in states)


def read(folder: Path) -> Board:
    """The board of all files SEAT.jsonl of a folder. Lines that are no notes are left out."""
    board, first = Board(), {}
    for file in sorted(folder.glob("*.jsonl"))[:MAX_SEATS]:
        for line in _lines(file):
            try:
                fields = json.loads(line)
                at = fields.pop("at")
                note = Note.read(json.dumps(fields))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                continue
            if str(note.seat) != file.stem or type(at) is not int or not 0 < at < MAX_TIME:
                continue
            states = board.states.setdefault(note.seat, {})
            states.setdefault(note.task, State(at, at)).add(note.result, at)
            board.places[note.seat] = note.task
            first[note.task] = min(at, first.get(note.task, at))
    board.tasks = sorted(first, key=lambda task: (first[task], task))
    board.states = dict(sorted(board.states.items()))
    return board


def _lines(file: Path) -> list[str]:
    """Of a regular file; links and pipes in an open folder are not followed."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        is_file = stat.S_ISREG(os.fstat(handle).st_mode)
        return os.read(handle, MAX_BYTES).decode(errors="replace").splitlines() if is_file else []
    finally:
        os.close(handle)


def stuck(board: Board, now: float) -> str:
    """One sentence: the task at which the most seats are stuck."""
    seats = len(board.states)
    if not seats:
        return "No seat has noted anything yet."
    states = {task: board.at_work(task) for task in board.tasks}
    failed = {task: sum(s.wrong >= STUCK for s in here) for task, here in states.items()}
    task = max(states, key=lambda task: (failed[task], len(states[task])))
    if not states[task]:
        return f"{seats} seats; each is right in what it did last."
    minutes = median(max(now - state.began, 0) for state in states[task]) / 60
    several = "none of them failed there twice"
    if failed[task]:
        several = f"{failed[task]} of them failed there {STUCK} times or more"
    here = len(states[task])
    return f"{here} of {seats} seats are at {task}, for {minutes:.0f} min (median); {several}."
