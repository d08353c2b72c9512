"""A seat's side of the room at a glance: to agree, to leave, and the note that a check makes. Without consent nothing is noted.

A note is a seat's number, a task and how the check ended. It goes where the attendee has agreed to: a folder or an address.
"""

import json
import os
import re
import secrets
import stat
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

HOURS = 12  # that a consent lasts: a day of a workshop
SECONDS = 2.0  # that a check waits for the room
REST = 60.0  # s without a further try, after the room has not answered
SEATS = 99_999
RESULTS = ("right", "not yet", "open")
TASKS = re.compile(r"(lab \d, )?task \d{1,2}|blank \w{1,40}")
LABS = [
    "pi",
    "allreduce",
    "data_parallel",
    "zero_memory",
    "summarization",
    "pipeline",
    "tensor_and_space",
]

_tried_in_vain = float("-inf")


@dataclass(frozen=True)
class Note:
    """What a check tells of itself. There are no other fields: nobody's name, code, time or machine."""

    seat: int
    task: str
    result: str

    @classmethod
    def read(cls, text: str | bytes) -> "Note":
        """Raises ValueError for whatever is not a note."""
        try:
            note = cls(**json.loads(text))
            fits = (
                type(note.seat) is int
                and 1 <= note.seat <= SEATS
                and note.result in RESULTS
                and TASKS.fullmatch(note.task)
            )
        except (TypeError, RecursionError) as error:
            raise ValueError("not a note") from error
        if not fits:
            raise ValueError("not a note")
        return note

    def text(self) -> str:
        """As one line of JSON, which `read` takes."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Consent:
    """To note results as this seat, at a folder or an address, until a time (s since 1970)."""

    where: str
    seat: int
    until: float


def join_room(where: str, seat: int | None = None, agree: bool = False) -> None:
    """Show what each check would note, and where; with agree=True, let it, for twelve hours.

    where: the folder or the address that the instructor names. seat: the number at your place; without one, a number by chance.
    """
    where, seat = checked(where, seat)
    call = f'pi2zero_course.join_room("{where}", seat={seat}, agree=True)'
    if not agree:
        print(f"Nothing is noted yet. {_what_leaves(where, seat)}\nTo agree:  {call}")
        return
    path().parent.mkdir(parents=True, exist_ok=True)
    consent = Consent(where, seat, time.time() + HOURS * 3600)
    path().write_text(json.dumps(asdict(consent)))
    print(f"Agreed. {_what_leaves(where, seat)}\nTo stop:  pi2zero_course.leave_room()")


def leave_room() -> None:
    """Note nothing from now on."""
    path().unlink(missing_ok=True)
    print(
        "No check notes anything from now on. What was noted before is the instructor's to remove."
    )


def _what_leaves(where: str, seat: int) -> str:
    """What is noted, to the letter."""
    note = Note(seat, "lab 1, task 2", "not yet")
    if is_address(where):
        line = note.text()
        known = "The machine there sees your machine's address, as every web server does; the kit does not keep it."
        known += " What is sent is not encrypted." * where.startswith("http:")
    else:
        line = _dated(note)
        known = f"The file {seat}.jsonl there belongs to your account: who looks into the folder itself can see whose it is."
    return (
        f"For {HOURS} hours each check of a lab's task or of a blank notes one line at\n    {where}\nsuch as\n    {line}\n"
        f"result: {', '.join(RESULTS)}. There is no name in it, and nothing that you wrote. {known}"
    )


@contextmanager
def noted(task: str, speaks: bool = True):
    """Around a check: how it ends is noted, if there is consent. speaks: whether this process does so, one of several ranks.

    AssertionError: not yet; NotImplementedError: open, the answer is still to be written. Any other exception is no result.
    """
    result = None
    try:
        yield
        result = "right"
    except AssertionError:
        result = "not yet"
        raise
    except NotImplementedError:
        result = "open"
        raise
    finally:
        if speaks and result:
            note(task, result)


def task_name(judge, number: int) -> str:
    """'lab 1, task 2', by the folder that a check's judge stands in."""
    folder = (judge.__module__.split(".") + [""] * 3)[2]
    return f"lab {LABS.index(folder) + 1}, task {number}" if folder in LABS else f"task {number}"


def note(task: str, result: str) -> None:
    """Note it, if there is consent, and say so. No check fails by it; a room that does not answer is left alone for a minute."""
    global _tried_in_vain
    consent = agreed()
    if consent is None or time.monotonic() - _tried_in_vain < REST:
        return
    told = Note(consent.seat, task, result)
    try:
        send(told, consent.where)
    except (OSError, ValueError):
        _tried_in_vain = time.monotonic()
        print(
            f"(The room does not answer at {consent.where}: nothing was noted. Your answer is judged all the same.)"
        )
    else:
        print(f"(Noted for the room: seat {told.seat}, {told.task}, {told.result}.)")


def agreed() -> Consent | None:
    """What the attendee has agreed to, if it still holds."""
    try:
        consent = Consent(**json.loads(path().read_text()))
        checked(consent.where, consent.seat)
        return consent if (now := time.time()) < consent.until <= now + HOURS * 3600 else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def send(note: Note, where: str) -> None:
    """Raises OSError or ValueError if it does not arrive."""
    if is_address(where):
        _post(note, where)
    else:
        append(note, Path(where))


def append(note: Note, folder: Path) -> None:
    """Write a line at the end of the seat's file, never through a link that somebody has laid there."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open(folder / f"{note.seat}.jsonl", flags, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError("not a file")
        if os.fstat(file).st_uid == os.getuid():
            os.fchmod(file, 0o644)  # whatever the umask: the instructor reads it
        os.write(file, f"{_dated(note)}\n".encode())
    finally:
        os.close(file)


def _dated(note: Note) -> str:
    """A line of a seat's file: the note and the second at which it came."""
    return json.dumps(asdict(note) | {"at": int(time.time())})


def _post(note: Note, where: str) -> None:
    """To that machine directly: no proxy, no redirection, no header that tells of this one."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    address = urlsplit(where)
    connect = HTTPSConnection if address.scheme == "https" else HTTPConnection
    connection = connect(address.hostname, address.port, timeout=SECONDS)
    try:
        connection.request("POST", address.path, note.text(), {"Content-Type": "application/json"})
        if (status := connection.getresponse().status) != 204:
            raise OSError(f"it answers {status}")
    except HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


def checked(where: str, seat: int | None) -> tuple[str, int]:
    """Raises ValueError, which says what is wrong."""
    if seat is None:
        seat = 10_000 + secrets.randbelow(SEATS - 10_000)
    if type(seat) is not int or not 1 <= seat <= SEATS:
        raise ValueError(f"seat is a number from 1 to {SEATS}, not a name; it is {seat!r}.")
    if is_address(where):
        address = urlsplit(where)
        if (
            not (address.hostname and re.fullmatch(r"/[\w/-]+", address.path))
            or address.query
            or '"' in where
        ):
            raise ValueError(
                f"{where} is not the address of a room: it is like http://192.0.2.7:8900/k7q2m."
            )
        address.port  # noqa: B018  (raises ValueError if it is none)
    elif not (
        isinstance(where, str)
        and where.startswith("/")
        and Path(where).is_dir()
        and os.access(where, os.W_OK | os.X_OK)
    ):
        raise ValueError(
            f"{where!r} is neither a folder here that you may write to, from / on, nor an address of http."
        )
    return where, seat


def is_address(where: str) -> bool:
    """Whether notes go over the network: http or https; else to a folder."""
    return isinstance(where, str) and where.startswith(("http://", "https://"))


def path() -> Path:
    """Where the consent lies: in the home, so that ranks on other hosts find it, too."""
    return Path(os.environ.get("PI2ZERO_ROOM") or Path.home() / ".config/pi2zero/room.json")
