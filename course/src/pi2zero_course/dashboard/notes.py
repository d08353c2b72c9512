"""The attendee's side: to agree, to leave, and the note of a check. Without consent there is none.

A note is a seat's number, a task and how the check ended. It goes where the attendee agreed to: a
folder or an address.
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

from pi2zero_course.dashboard import progress

CONSENT_S = 12 * 3600  # a day of a workshop
TIMEOUT_S = 2.0  # that a check waits for the room
RETRY_S = 60.0  # without a further try, after the room has not answered
MAX_SEAT = 99_999
RESULTS = ("right", "not yet", "open")
TASKS = re.compile(r"(lab \d, )?task \d{1,2}|blank \w{1,40}")

_last_failure = float("-inf")


@dataclass(frozen=True)
class Note:
    """All that a check tells: no name, no code, no time, no machine."""

    seat: int
    task: str
    result: str

    @classmethod
    def read(cls, text: str | bytes) -> "Note":
        """Raises ValueError for anything that is not a note."""
        try:
            note = cls(**json.loads(text))
            is_seat = type(note.seat) is int and 1 <= note.seat <= MAX_SEAT
            if is_seat and note.result in RESULTS and TASKS.fullmatch(note.task):
                return note
        except (TypeError, RecursionError):
            pass
        raise ValueError("not a note")

    def text(self) -> str:
        """One line of JSON, which `read` takes."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Consent:
    """To note results as this seat, in a folder or at an address, until a time (s since 1970)."""

    where: str
    seat: int
    until: float


def join_room(where: str, seat: int | None = None, agree: bool = False) -> None:
    """Show what each check would note, and where; with agree=True, let it, for twelve hours.

    where: the folder or the address that the instructor names. seat: the number at your place;
    None: a random number. Raises ValueError for anything else.
    """
    where, seat = _checked(where, seat)
    if not agree:
        call = f'pi2zero_course.join_room("{where}", seat={seat}, agree=True)'
        print(f"Nothing is noted yet. {_what_leaves(where, seat)}\nTo agree:  {call}")
        return
    consent_path().parent.mkdir(parents=True, exist_ok=True)
    consent_path().write_text(json.dumps(asdict(Consent(where, seat, time.time() + CONSENT_S))))
    print(f"Agreed. {_what_leaves(where, seat)}\nTo stop:  pi2zero_course.leave_room()")


def leave_room() -> None:
    """Note nothing from now on."""
    consent_path().unlink(missing_ok=True)
    print("No check notes anything from now on. The instructor can remove earlier notes.")


def _what_leaves(where: str, seat: int) -> str:
    """What is noted, to the letter."""
    note = Note(seat, "lab 1, task 2", "not yet")
    line = note.text() if _is_address(where) else _dated(note)
    known = (
        f"The file {seat}.jsonl there belongs to your account: "
        "anyone who looks into the folder can see whose it is."
    )
    if _is_address(where):
        known = (
            "The machine there sees your machine's address, as every web server does; "
            "the kit does not keep it."
            + " What is sent is not encrypted."
            * where.startswith("http:")
        )
    return (
        f"For {CONSENT_S // 3600} hours each check of a lab's task or of a blank notes one line at"
        f"\n    {where}\nsuch as\n    {line}\nresult: {', '.join(RESULTS)}. "
        f"There is no name in it, and nothing that you wrote. {known}"
    )


@contextmanager
def noted(task: str, speaks: bool = True):
    """Around a check: note how it ends, if there is consent.

    speaks: whether this process notes it, one of several ranks. AssertionError: not yet;
    NotImplementedError: open. Any other exception is no result.
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


def note(task: str, result: str) -> None:
    """Note it, if there is consent, and say so. No check fails by it.

    A right answer counts as progress on this machine, with or without consent. A room that does
    not answer gets no note for a minute.
    """
    global _last_failure
    if result == "right":
        progress.record(task)
    consent = current_consent()
    if consent is None or time.monotonic() - _last_failure < RETRY_S:
        return
    try:
        send(Note(consent.seat, task, result), consent.where)
    except (OSError, ValueError):
        _last_failure = time.monotonic()
        print(
            f"(The room does not answer at {consent.where}: nothing was noted. "
            "Your answer is judged anyway.)"
        )
    else:
        print(f"(Noted for the room: seat {consent.seat}, {task}, {result}.)")


def current_consent() -> Consent | None:
    """What the attendee agreed to, if it is still valid."""
    try:
        consent = Consent(**json.loads(consent_path().read_text()))
        _checked(consent.where, consent.seat)
        return consent if 0 < consent.until - time.time() <= CONSENT_S else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def send(note: Note, where: str) -> None:
    """Raises OSError or ValueError if it does not arrive."""
    if _is_address(where):
        _post(note, where)
    else:
        append(note, Path(where))


def append(note: Note, folder: Path) -> None:
    """Write a line at the end of the seat's file, never through a link or into a pipe."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open(folder / f"{note.seat}.jsonl", flags, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError("not a file")
        if os.fstat(file).st_uid == os.getuid():
            os.fchmod(file, 0o644)  # for the instructor, whatever the umask
        os.write(file, f"{_dated(note)}\n".encode())
    finally:
        os.close(file)


def _dated(note: Note) -> str:
    """A line of a seat's file: the note and its time in s."""
    return json.dumps(asdict(note) | {"at": int(time.time())})


def _post(note: Note, where: str) -> None:
    """To that machine directly: no proxy, no redirection, no header that tells of this one."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    address = urlsplit(where)
    connect = HTTPSConnection if address.scheme == "https" else HTTPConnection
    connection = connect(address.hostname, address.port, timeout=TIMEOUT_S)
    try:
        connection.request("POST", address.path, note.text(), {"Content-Type": "application/json"})
        if (status := connection.getresponse().status) != 204:
            raise OSError(f"it answers {status}")
    except HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


def _checked(where: str, seat: int | None) -> tuple[str, int]:
    """The two, with a number for None. Raises ValueError, which says what is wrong."""
    if seat is None:
        seat = 10_000 + secrets.randbelow(MAX_SEAT - 10_000)
    if type(seat) is not int or not 1 <= seat <= MAX_SEAT:
        raise ValueError(f"seat is a number from 1 to {MAX_SEAT}, not a name; it is {seat!r}.")
    if _is_address(where):
        address = urlsplit(where)
        is_room = address.hostname and re.fullmatch(r"/[\w/-]+", address.path)
        if not is_room or address.query or '"' in where:
            raise ValueError(
                f"{where} is not the address of a room: it is like http://192.0.2.7:8900/k7q2m."
            )
        address.port  # noqa: B018  (raises ValueError if it is no number)
        return where, seat
    is_path = isinstance(where, str) and where.startswith("/")
    if not is_path or not Path(where).is_dir() or not os.access(where, os.W_OK | os.X_OK):
        raise ValueError(
            f"{where!r} is neither a folder here that you may write to, from / on, "
            "nor an address of http."
        )
    return where, seat


def _is_address(where: str) -> bool:
    """Whether notes go over the network: http or https; else to a folder."""
    return isinstance(where, str) and where.startswith(("http://", "https://"))


def consent_path() -> Path:
    """The consent's file: in the home folder, so that ranks on other hosts find it, too."""
    return Path(os.environ.get("PI2ZERO_ROOM") or Path.home() / ".config/pi2zero/room.json")
