"""How far the built parts are: read by whoever wants to know, written by the builder only."""

import contextlib
import fcntl
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from pi2zero.built.known import parts
from pi2zero.built.parts import Part, folder


class NotBuilt(ImportError):
    """A part is not there, because its build failed."""

    def _render_traceback_(self):
        """IPython shows this in place of the traceback."""
        return [str(self)]


@dataclass(frozen=True)
class State:
    """state: ready, building, waiting (for its turn, or for somebody to start the builder) or failed."""

    part: Part
    state: str
    share: float = 0.0
    left: float | None = None  # s, roughly
    why: str = ""
    remedy: str = ""
    otherwise: bool = (
        False  # it is ready, and today it would be made with another compiler or other options
    )

    def wanted(self, again: bool = False) -> bool:
        """Whether the builder has something to do. again: somebody asks for it."""
        return self.state in ("building", "waiting") or (
            again and (self.state == "failed" or self.otherwise)
        )

    def __str__(self) -> str:
        title = self.part.title
        if self.state == "building":
            return f"{title}: {100 * self.share:.0f} %, about {about(self.left)} more"
        if self.state == "failed":
            return f"{title}: could not be built: {self.why}"
        return f"{title}: " + (
            "ready" if self.state == "ready" else "waiting for its turn to be built"
        )


def about(seconds: float) -> str:
    """90 s, 4 min: as exact as an estimate may be."""
    return f"{max(10, round(seconds, -1)):.0f} s" if seconds < 150 else f"{seconds / 60:.0f} min"


def states() -> list[State]:
    """How far each part of this environment is."""
    return [of(part) for part in parts().values()]


def of(part: Part) -> State:
    """How far a part is. What was made of something else than is here now, or is no longer there, has to be made."""
    told, made_of = Note(part).read(), part.made_of()
    same = told.get("made_of") == made_of
    if (
        told.get("state") == "ready"
        and told["runs_with"] == part.runs_with()
        and part.is_installed()
    ):
        return State(part, "ready", share=1.0, otherwise=not same)
    if told.get("state") == "failed" and same:
        return State(part, "failed", why=told["why"], remedy=told["remedy"])
    if told.get("state") == "building" and same and is_alive():
        return State(
            part,
            "building",
            share=told["share"],
            left=max(1.0, told["left"] - (time.time() - told["time"])),
        )
    return State(
        part, "waiting"
    )  # for its turn; or it was interrupted, or what is there does not fit any more


class Note:
    """The file in which the builder says how far a part is."""

    def __init__(self, part: Part):
        self.part = part
        self.file = folder() / f"{part.name}.json"
        self.is_first = not self.file.exists()
        self.begin, self.first = time.time(), None
        self.made = {"made_of": part.made_of(), "runs_with": part.runs_with()}

    def read(self) -> dict:
        """What it says; empty if there is no such file, or half of one."""
        try:
            told = json.loads(self.file.read_text())
        except (OSError, ValueError, RecursionError):
            return {}
        return told if _is_note(told) else {}

    def write(self, state: str, share: float = 0.0, **more) -> None:
        """Replace what was said; a reader sees the old or the new."""
        told = {
            "state": state,
            "share": share,
            "left": self.left(share),
            "time": time.time(),
            **more,
            **self.made,
        }
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(told))
        new.replace(self.file)

    def left(self, share: float) -> float:
        """Seconds to go, from the pace of this try; before it has one, from what is typical."""
        self.first = share if self.first is None else self.first
        took, done = time.time() - self.begin, share - self.first
        if done < 0.05:
            return max(10.0, self.part.typical * (1 - share) - took)
        return took * (1 - share) / done


def _is_note(told: object) -> bool:
    """Whether that is what `Note.write` writes."""
    if not isinstance(told, dict) or not {"state", "made_of", "runs_with"} <= told.keys():
        return False
    if told["state"] == "failed" and not all(
        isinstance(told.get(name), str) for name in ("why", "remedy")
    ):
        return False
    return all(type(told.get(name)) in (int, float) for name in ("share", "left", "time"))


# --- one builder at a time --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def lock():
    """Be the builder. Gives False if there is one already."""
    with (folder() / "lock").open("w") as file:
        for _ in range(20):  # whoever asks is_alive() holds it for a moment
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield True
                return
            time.sleep(0.1)
        yield False


def is_alive() -> bool:
    """Whether a builder is at work."""
    try:
        with (folder() / "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def waited():
    """The file that whoever waits touches again and again."""
    return folder() / "waited"


def is_waited_for() -> bool:
    """Whether somebody waits for a part now: the file has been touched in the last 3 s."""
    with contextlib.suppress(OSError):
        return time.time() - waited().stat().st_mtime < 3
    return False


def can_be_built() -> bool:
    """In the environment that the set-up has made, or where `python -m pi2zero built` was asked for once (conda).

    Elsewhere somebody else looks after what is installed; what is missing there is missed when it is imported.
    """
    ours = (Path(sys.prefix) / "pi2zero-set-up").exists() or folder().exists()
    return ours and os.access(sys.prefix, os.W_OK)
