"""The doctor's line for a seat, and its table of a room."""

import json
import os
import subprocess
import sys
from dataclasses import asdict

import pytest

from pi2zero.doctor import seats
from pi2zero.doctor.checks import Result

WELL = [Result("Python", "ok", "3.11"), Result("MPI", "ok", "Open MPI")]
WARNED = [*WELL, Result("disk", "warning", "1 GB free", "Make room.")]
ILL = [
    *WARNED,
    Result("torch", "failed", "not there", "Run make lab."),
    Result("spawn", "failed", "no", "Run make lab."),
]


def doctor(*words):
    command = [sys.executable, "-m", "pi2zero", "doctor", *words]
    return subprocess.run(command, capture_output=True, text=True)


def write(folder, seat, results):
    checks = [asdict(result) for result in results]
    (folder / f"{seat}.json").write_text(json.dumps({"checks": checks}))


def test_the_line_of_a_seat():
    assert seats.code(WELL) == "GREEN"
    assert seats.code(WARNED) == "GREEN (look at: disk)"
    assert seats.code(ILL) == "RED: torch, spawn"


def test_a_room_in_one_table(tmp_path):
    for seat, results in (("a1", WELL), ("a2", ILL), ("a3", WARNED)):
        write(tmp_path, seat, results)
    (tmp_path / "b1.json").write_text("Killed")
    (tmp_path / "b2.json").write_text('{"checks": [{"name": "MPI"}]}')
    rows, red = seats.table(tmp_path)
    assert [row[0] for row in rows] == ["a2", "b1", "b2", "a1", "a3"] and red == 3
    assert rows[0] == ("a2", "RED: torch, spawn", "Run make lab.")
    assert "let it run there again" in rows[1][2]
    done = doctor("--seats", str(tmp_path))
    assert done.returncode == 1 and done.stdout.endswith("5 seats: 2 green, 3 red\n"), (
        done.stdout + done.stderr
    )


def test_a_seat_cannot_keep_the_table_or_write_on_the_terminal(tmp_path, monkeypatch):
    monkeypatch.setattr(seats, "MAX_BYTES", 1000)
    answers = {
        "good": [Result("MPI\x1b[2J", "failed", "", "Run\x1b]0;x\x07 make lab.")],
        "long": ILL * 100,
    }
    for seat, results in answers.items():
        write(tmp_path, seat, results)
    os.mkfifo(tmp_path / "pipe\x1b[2J.json")
    rows, red = seats.table(tmp_path)
    assert red == 3 and dict(row[:2] for row in rows) == {
        "good": "RED: MPI?[2J",
        "long": "RED: no answer",
        "pipe?[2J": "RED: no answer",
    }
    assert rows[0][2] == "Run?]0;x? make lab."


def test_an_empty_room_says_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match="At each seat: "):
        seats.table(tmp_path)
    done = doctor("--seats", str(tmp_path))
    assert done.returncode == 2 and "has no *.json" in done.stdout


def test_the_line_is_the_real_doctor_s():
    done = doctor("--quick", "--short")
    assert done.stdout.splitlines()[-1].startswith(
        ("GREEN", "RED: ")
    ) and done.returncode == done.stdout.count("RED: ")
