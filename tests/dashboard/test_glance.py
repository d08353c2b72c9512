"""The room at a glance: nothing without consent, only what was shown; thirty seats at once."""

import contextlib
import http.client
import importlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import pi2zero_course
from pi2zero_course.checks.framework.task import LabTask
from pi2zero_course.dashboard import board, notes, page

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "slides"))

import pdf  # noqa: E402


@pytest.fixture
def consent(tmp_path, monkeypatch):
    """Where this test's consent lies."""
    monkeypatch.setenv("PI2ZERO_ROOM", str(tmp_path / "config" / "room.json"))
    monkeypatch.setattr(notes, "_last_failure", float("-inf"))
    return tmp_path / "config" / "room.json"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "room"
    made.mkdir()
    return made


@contextlib.contextmanager
def running(folder, takes=True):
    """A room on loopback: (address for notes, address of the page)."""
    server = page.Room(folder, "127.0.0.1", 0, takes)
    threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
    begin = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield f"{begin}/{server.secrets['notes']}", f"{begin}/{server.secrets['page']}"
    finally:
        server.shutdown()
        server.server_close()


def ask(address, method="GET", body=None):
    """(status, text)"""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    with contextlib.closing(connection):
        connection.request(method, parts.path, body)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()


def checked(task, *errors):
    """As many checks of a task as there are errors (None: it is right)."""
    for error in errors:
        with contextlib.suppress(Exception), notes.noted(task):
            if error:
                raise error


# --- consent ---


def test_without_consent_nothing_is_noted(consent, folder, monkeypatch, capsys):
    monkeypatch.setattr(notes, "send", lambda *_: pytest.fail("it was sent"))
    checked("lab 1, task 1", AssertionError(), None)
    pi2zero_course.join_room(str(folder), seat=7)  # that only shows it
    checked("lab 1, task 1", AssertionError(), None)
    assert (
        "Nothing is noted yet" in capsys.readouterr().out
        and not consent.exists()
        and not list(folder.iterdir())
    )


def test_what_is_sent_is_what_was_shown(consent, capsys):
    """Every byte that leaves, as a stranger's server sees it."""
    heard = []

    class Stranger(page.Handler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            heard.append((self.requestline, dict(self.headers), body))
            self._reply(204)

    server = page.ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    where = f"http://127.0.0.1:{server.server_address[1]}/k7q2m"
    try:
        pi2zero_course.join_room(where, seat=7)
        shown = capsys.readouterr().out
        exec(
            re.search(r"To agree:  (.*)", shown)[1], {"pi2zero_course": pi2zero_course}
        )  # the line that it gives to copy
        checked("lab 1, task 2", AssertionError("of your code"), None)
    finally:
        server.shutdown()
        server.server_close()
    [(line, headers, body), (*_, last)] = heard
    assert f"    {body}\n" in shown and f"    {where}\n" in shown
    assert line == "POST /k7q2m HTTP/1.1" and json.loads(last)["result"] == "right"
    assert set(headers) == {"Host", "Accept-Encoding", "Content-Type", "Content-Length"}
    assert "(Noted for the room: seat 7, lab 1, task 2, right.)" in capsys.readouterr().out


def test_a_folder_gets_what_was_shown_and_the_instructor_can_read_it(consent, folder, capsys):
    pi2zero_course.join_room(str(folder), seat=7, agree=True)
    shown = capsys.readouterr().out
    before = os.umask(0o077)
    try:
        checked("lab 1, task 2", AssertionError())
    finally:
        os.umask(before)
    line = (folder / "7.jsonl").read_text()
    assert re.sub(r"\d{6,}", "N", line.strip()) in re.sub(r"\d{6,}", "N", shown)
    assert (folder / "7.jsonl").stat().st_mode & 0o777 == 0o644


def test_leaving_and_the_end_of_the_day(consent, folder, capsys):
    def noted():
        checked("task 1", None)
        return len((folder / "7.jsonl").read_text().splitlines())

    pi2zero_course.join_room(str(folder), seat=7, agree=True)
    assert noted() == 1
    pi2zero_course.leave_room()
    assert noted() == 1
    pi2zero_course.leave_room()  # once more: no error
    pi2zero_course.join_room(str(folder), seat=7, agree=True)
    assert noted() == 2
    told = json.loads(consent.read_text())
    assert 0 < told["until"] - time.time() <= 12 * 3600
    for wrong in (
        {"until": time.time() - 1},
        {"until": time.time() + 1e6},
        {"where": "elsewhere"},
        {"seat": "Ada"},
        {"more": 1},
    ):
        consent.write_text(json.dumps(told | wrong))
        assert noted() == 2, wrong
    for broken in ("", "{", "[]", "null", '{"where": 1, "seat": 1, "until": 9e99}'):
        consent.write_text(broken)
        assert noted() == 2, broken


@pytest.mark.parametrize("seat", ["Ada", "7", 0, 100_000, 1.5, True])
def test_a_seat_is_a_number(seat, folder):
    with pytest.raises(ValueError, match="not a name"):
        notes.join_room(str(folder), seat=seat)


@pytest.mark.parametrize(
    "where",
    ["room", "/no/such/folder", "ftp://a/b", "http://a/", "http://a:b/c", "http://a/c?d", 7],
)
def test_a_place_is_a_folder_or_an_address(where):
    with pytest.raises(ValueError, match=r"neither a folder|not the address|[Pp]ort"):
        notes.join_room(where)


def test_a_seat_without_a_number_gets_one(folder, capsys):
    for _ in range(2):
        notes.join_room(str(folder))
    first, second = re.findall(r"To agree: .*seat=(\d{5}),", capsys.readouterr().out)
    assert first != second


@pytest.mark.parametrize(
    "result, raised",
    [("not yet", AssertionError), ("open", NotImplementedError), (None, KeyboardInterrupt)],
)
def test_how_a_check_ends(result, raised, consent, folder):
    notes.join_room(str(folder), seat=7, agree=True)
    with pytest.raises(raised), notes.noted("task 1"):
        raise raised
    with pytest.raises(raised), notes.noted("task 1", speaks=False):  # another rank
        raise raised
    lines = (folder / "7.jsonl").read_text().splitlines() if result else []
    assert [json.loads(line)["result"] for line in lines] == [result] * bool(result)


def test_a_room_that_is_gone_stops_no_check(consent, capsys):
    notes.join_room("http://127.0.0.1:9/k7q2m", seat=7, agree=True)
    for _ in range(3):
        with notes.noted("task 1"):
            pass
    assert capsys.readouterr().out.count("does not answer") == 1, "once per minute"


CHECK = """
import pi2zero_course
from pi2zero_course.checks.blanks.engines import three_numbers
from pi2zero_course.checks.pi import count_inside
def largest(*_): raise NotImplementedError
for check, answer in ((count_inside, largest), (count_inside, lambda *_: 3), \
(three_numbers, lambda *_: 3)):
    try:
        check(answer)
    except (AssertionError, NotImplementedError):
        pass
"""


def test_real_checks_note_themselves(consent, folder):
    """A lab's and a notebook's, in a process of their own."""
    notes.join_room(str(folder), seat=7, agree=True)
    done = subprocess.run(
        [sys.executable, "-c", CHECK], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in (folder / "7.jsonl").read_text().splitlines()]
    assert [(note["task"], note["result"]) for note in told] == [
        ("lab 1, task 1", "open"),
        ("lab 1, task 1", "not yet"),
        ("blank three_numbers", "not yet"),
    ]
    assert done.stdout.count("(Noted for the room: seat 7, ") == 3


def test_tasks_have_the_numbers_of_their_labs():
    for path in sorted((ROOT / "solutions").glob("*.ipynb")):
        number, _, name = path.stem.partition("_")
        module = importlib.import_module(f"pi2zero_course.checks.{name}")
        tasks = [task for task in vars(module).values() if isinstance(task, LabTask)]
        assert len(tasks) >= 5 and {task.lab for task in tasks} == {int(number)}
        assert len({task.number for task in tasks}) == len(tasks)


# --- what the room takes ---

GOOD = {"seat": 7, "task": "lab 1, task 2", "result": "right"}
NO_NOTES = [
    *(GOOD | {"seat": seat} for seat in ("Ada", True, 0, 1e3, 10**6)),
    *(GOOD | {"task": task} for task in ("Ada", "<b>", 1, "", "blank " + "a" * 500)),
    *(GOOD | {"result": result} for result in ("sent", [])),
    *(GOOD | {"name": "Ada"}, {}, [], None, "[" * 400, "\x00"),
]


@pytest.mark.parametrize("body", NO_NOTES, ids=range(len(NO_NOTES)))
def test_what_is_no_note_is_not_taken(body, folder):
    text = body if isinstance(body, str) else json.dumps(body)
    with running(folder) as (address, _):
        assert ask(address, "POST", text)[0] == 400
        assert ask(address, "POST", json.dumps(GOOD))[0] == 204, "and it goes on"
    assert [file.name for file in folder.glob("*.jsonl")] == ["7.jsonl"]
    (folder / "7.jsonl").write_text(text)  # nor read, where everybody may write
    assert board.read(folder) == board.Board()


def test_who_does_not_know_the_word_gets_nothing(folder):
    with running(folder) as (address, shown):
        begin = address.rpartition("/")[0]
        for other in (f"{begin}/", f"{begin}/room", address, f"{address}/room", f"{shown}x"):
            assert ask(other)[0] == 404, other
        for other in (f"{begin}/", f"{address}x", shown):
            assert ask(other, "POST", json.dumps(GOOD))[0] == 404, other
    with running(folder, takes=False) as (address, shown):
        assert ask(address, "POST", json.dumps(GOOD))[0] == 404, "only who listens takes notes"
        assert ask(shown)[0] == 200
    assert not list(folder.glob("*.jsonl"))


def test_a_room_is_the_same_when_it_is_started_again(folder):
    paths = []
    for _ in range(2):
        with running(folder) as addresses:
            paths.append([urlsplit(address).path for address in addresses])
    assert paths[0] == paths[1] and (folder / ".words.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("laid", ["open to others", "a link", "a pipe"])
def test_words_that_somebody_else_may_have_laid_are_not_taken(tmp_path, laid):
    file, other = tmp_path / ".words.json", tmp_path / "other"
    if laid == "a pipe":
        os.mkfifo(file, 0o600)
    elif laid == "a link":
        file.symlink_to(other)
    else:
        file.write_text('{"notes": "known", "page": "known"}')
        file.chmod(0o644)
    with pytest.raises(PermissionError, match="is not yours alone"):
        page.url_secrets(tmp_path)
    assert not other.exists()


def test_nobody_fills_the_disk(folder, monkeypatch):
    monkeypatch.setattr(page, "MAX_NOTES", 1)
    monkeypatch.setattr(board, "MAX_SEATS", 3)
    with running(folder) as (address, _):
        same = [ask(address, "POST", json.dumps(GOOD))[0] for _ in range(4)]
        others = [
            ask(address, "POST", json.dumps(GOOD | {"seat": seat}))[0] for seat in range(1, 5)
        ]
    assert same == [204, 204, 400, 400] and others == [204, 204, 400, 400]


def test_links_and_pipes_in_an_open_folder_are_left_alone(folder, tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine\n")
    (folder / "7.jsonl").symlink_to(mine)
    os.mkfifo(folder / "8.jsonl")
    (folder / "9.jsonl").mkdir()
    for seat in (7, 8, 9):
        with pytest.raises(OSError):
            notes.append(notes.Note(seat, "task 1", "right"), folder)
    mine.write_text(json.dumps(GOOD | {"at": 1}))
    assert board.read(folder) == board.Board() and mine.read_text().startswith("{")


# --- what the page says ---


def write(folder, *told):
    """Notes: (seat, task, result, at)."""
    for seat, task, result, at in told:
        with (folder / f"{seat}.jsonl").open("a") as file:
            file.write(json.dumps({"seat": seat, "task": task, "result": result, "at": at}) + "\n")


def test_states_and_places(folder):
    write(
        folder,
        (1, "task 1", "open", 10),
        (1, "task 1", "not yet", 20),
        (1, "task 1", "right", 30),
        (1, "task 1", "not yet", 35),
    )
    write(
        folder,
        (1, "task 2", "not yet", 40),
        (1, "task 2", "not yet", 50),
        (2, "task 1", "right", 60),
        (3, "task 2", "open", 5),
    )
    shown = board.read(folder)
    assert shown.tasks == ["task 2", "task 1"], "in the order in which the room came to them"
    texts = {
        seat: {task: state.text() for task, state in states.items()}
        for seat, states in shown.states.items()
    }
    assert texts == {
        1: {"task 1": "right (2)", "task 2": "not yet (2)"},
        2: {"task 1": "right"},
        3: {"task 2": "open"},
    }
    assert [shown.places[seat] for seat in (1, 2, 3)] == ["task 2", "task 1", "task 2"]
    assert shown.count_right("task 1") == 2 and len(shown.at_work("task 2")) == 2


def test_where_the_room_is_stuck(folder):
    def said():
        return board.stuck(board.read(folder), now=600)

    assert said() == "No seat has noted anything yet."
    write(folder, *[(seat, "task 1", "right", 10) for seat in range(1, 9)])
    assert said() == "8 seats; each is right in what it did last."
    write(folder, *[(seat, "task 2", "open", 300) for seat in range(1, 5)])
    assert (
        said() == "4 of 8 seats are at task 2, for 5 min (median); none of them failed there twice."
    )
    write(folder, *[(seat, "task 3", "not yet", 480 + i) for seat in (5, 6) for i in range(2)])
    assert (
        said()
        == "2 of 8 seats are at task 3, for 2 min (median); 2 of them failed there 2 times or more."
    )


# --- thirty seats ---

SEAT = """
import random, sys, time
from pi2zero_course.dashboard import notes
where, seat = sys.argv[1], int(sys.argv[2])
notes.join_room(where, seat=seat, agree=True)
for task in range(1, 1 + seat % 6 + 1):
    for result in ["not yet"] * (1 + seat % 3) + ["right"] * (task < seat % 6 + 1):
        try:
            with notes.noted(f"lab 1, task {task}"):
                if result == "not yet":
                    raise AssertionError
        except AssertionError:
            pass
"""
SEATS = range(1, 31)


def seats_at_once(where, tmp_path):
    """Thirty processes, each with a consent of its own."""
    command = [sys.executable, "-c", SEAT, where]
    env = [os.environ | {"PI2ZERO_ROOM": str(tmp_path / f"consent-{seat}.json")} for seat in SEATS]
    seats = [
        subprocess.Popen([*command, str(seat)], env=env[i], stdout=subprocess.PIPE)
        for i, seat in enumerate(SEATS)
    ]
    return [seat.communicate(timeout=120)[0].decode() for seat in seats]


def due(seat):
    """{task: text} of what SEAT does."""
    wrong = 1 + seat % 3
    through = {f"lab 1, task {task}": f"right ({wrong + 1})" for task in range(1, seat % 6 + 1)}
    return through | {f"lab 1, task {seat % 6 + 1}": f"not yet ({wrong})"}


@pytest.fixture
def program(tmp_path):
    """A function that starts `pi2zero_course room`; (what to tell attendees, the page)."""
    started = []

    def start(folder, *options):
        command = [
            sys.executable,
            "-m",
            "pi2zero_course",
            "room",
            str(folder),
            "--port",
            "0",
            *options,
        ]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        said = [started[-1].stdout.readline() for _ in range(3)]
        return re.search(r'join_room\("(.*)", ', said[0])[1], said[1].split()[-1]

    yield start
    for process in started:
        process.send_signal(2)
        assert process.wait(timeout=20) == 0


@pytest.mark.parametrize("way", ["address", "folder"])
def test_thirty_seats_at_once(way, program, tmp_path):
    folder = tmp_path / "room"
    where, shown = program(folder, *["--listen", "127.0.0.1"] * (way == "address"))
    assert folder.stat().st_mode & 0o7777 == (0o700 if way == "address" else 0o1733)
    assert where.startswith("http") == (way == "address")
    outputs = seats_at_once(where, tmp_path)
    assert not [text for text in outputs if "does not answer" in text]
    found = board.read(folder).states
    assert {
        seat: {task: state.text() for task, state in states.items()}
        for seat, states in found.items()
    } == {seat: due(seat) for seat in SEATS}
    rows = re.findall(r'<tr><th scope="row">(\d+)</th>(.*?)</tr>', ask(shown)[1])
    assert [int(seat) for seat, _ in rows] == list(SEATS)
    for seat, cells in rows:
        assert [text for text in re.findall(r"<td[^>]*>([^<]+)</td>", cells)[:-1]] == list(
            due(int(seat)).values()
        )


def test_a_room_everywhere_is_refused(tmp_path, capsys):
    assert page.serve(tmp_path / "room", "0.0.0.0", 0) == 2
    assert (
        "no address that attendees can type" in capsys.readouterr().out
        and not (tmp_path / "room").exists()
    )


def browser_missing():
    try:
        pdf.find_browser()
    except pdf.NoBrowserError as missing:
        return str(missing)
    return ""


@pytest.mark.skipif(bool(browser_missing()), reason=browser_missing() or "there is a browser")
def test_the_page_is_live(folder):
    """As the instructor sees it; the picture is kept."""
    now = int(time.time())
    for seat in SEATS:
        for task, text in due(seat).items():
            write(folder, *[(seat, task, "not yet", now - 60 * seat)] * (1 + seat % 3))
            write(folder, *[(seat, task, "right", now - 60 * seat)] * text.startswith("right"))
    with running(folder) as (address, shown), pdf.browser_page(1400, 1100) as tab:
        tab.goto(shown)
        assert tab.locator("tbody tr").count() == 2 + len(SEATS)
        cell = tab.locator("tr", has=tab.get_by_role("rowheader", name="7", exact=True)).locator(
            "td.right"
        )
        before = cell.count()
        assert ask(address, "POST", json.dumps(GOOD | {"task": "lab 1, task 6"}))[0] == 204
        tab.wait_for_function(
            "count => [...document.querySelectorAll('tr')].find(r => r.cells[0].innerText == '7')"
            ".querySelectorAll('.right').length > count",
            arg=before,
            timeout=15_000,
        )
        (ROOT / "build" / "screens").mkdir(parents=True, exist_ok=True)
        tab.screenshot(path=ROOT / "build" / "screens" / "room.png")
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_page_begins_again_at_once_at_the_same_port(folder):
    """Its last connections keep the port in TIME_WAIT for a minute; the seats' consent names it."""
    with running(folder) as (_, address):
        assert ask(address)[0] == 200
    port = urlsplit(address).port
    page.Room(folder, "127.0.0.1", port, takes=True).server_close()
