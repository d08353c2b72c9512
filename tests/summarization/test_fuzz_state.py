"""What the kit itself has written, and strangers may have changed: consents, notes of a room, seats, the builder's note,
a checkpoint's progress, tables of stories. As in test_fuzz.py, each reader reads it or says in a sentence what is wrong.
"""

import json
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from pyarrow import parquet
from test_fuzz import LINES, TRIES, files, fuzz, read

from pi2zero.deepspeed_support import checkpoints
from pi2zero.doctor import seats
from pi2zero.native_build import builder
from pi2zero_course.dashboard import board, notes, page
from pi2zero_course.summarization import data

DEEP = b"[" * 100_000
CONSENT = json.dumps({"where": "http://192.0.2.7:8900/k7q2m", "seat": 7, "until": 10**10}, indent=0)
NOTES = [
    {"seat": 7, "task": "lab 1, task 2", "result": result, "at": 1_790_000_000}
    for result in notes.RESULTS
]
NOTED = "\n".join(json.dumps(note) for note in NOTES)
FAR = NOTED.replace("1790000000", "1" * 400).encode()
SEAT = json.dumps(
    {"checks": [{"name": "disk", "status": "failed", "detail": "full", "remedy": "Make room."}]},
    indent=0,
)
BUILT = json.dumps(["ready", "", "horovod-0123456789abcdef"], indent=0)
PROGRESS = json.dumps({"step": 12, "epoch": 1}, indent=0)
CSV = 'id,article,highlights\na,"One ship.\nTwo.",One.\nb,Three ships.,Two.\n'


@fuzz
@given(text=files(CONSENT))
@example(text=DEEP)
@example(text=CONSENT.replace("10000000000", "1" * 400).encode())
def test_consents(tmp_path, text):
    (tmp_path / "room.json").write_bytes(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PI2ZERO_ROOM", str(tmp_path / "room.json"))
        found = read(notes.agreed)
    assert found is None or 1 <= found.seat <= notes.SEATS


@fuzz
@given(text=files(NOTED))
@example(text=DEEP)
@example(text=FAR)
def test_notes_of_a_room(tmp_path, text):
    (tmp_path / "7.jsonl").write_bytes(text)
    found = board.read(tmp_path)
    assert board.stuck(found, 1.8e9) and page.room(found, 1.8e9)


@fuzz
@given(text=files(SEAT))
@example(text=DEEP)
@example(text=SEAT.replace('"full"', "1").replace('"Make room."', "[]").encode())
def test_seats(tmp_path, text):
    (tmp_path / "7.json").write_bytes(text)
    rows, red = seats.table(tmp_path)
    assert len(rows) == 1 and red == rows[0][1].startswith("RED")


@fuzz
@given(text=files(BUILT))
@example(text=DEEP)
def test_the_outcome_of_a_build(tmp_path, text):
    (tmp_path / "horovod.json").write_bytes(text)
    with mock.patch.object(builder, "folder", lambda: tmp_path):
        assert builder.status_of(builder.PARTS["horovod"]).state == "pending"


@fuzz
@given(text=files(PROGRESS))
@example(text=DEEP)
@example(text=PROGRESS.replace("12", "1" * 400).encode())
def test_progress_of_a_checkpoint(tmp_path, text):
    (tmp_path / "progress.json").write_bytes(text)
    errors = ValueError, UnicodeDecodeError, json.JSONDecodeError
    found = read(lambda: checkpoints.read_progress(tmp_path / "progress.json"), *errors)
    assert found is None or found["step"] >= 0


def stories(path):
    """All stories of a file that could be read."""
    found = read(lambda: data.load(path, say=lambda line: None), ValueError)
    for part in found.splits.values() if found else ():
        assert all(isinstance(story["article"], str) and story["article"] for story in part)


fewer = settings(fuzz, max_examples=TRIES // 4)  # the datasets library takes a while for a table


@fewer
@given(text=files(CSV))
def test_csv(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("stories") / "stories.csv"
    path.write_bytes(text)
    stories(path)


@fewer
@given(text=files("[" + ",\n".join(LINES.splitlines()) + "]"))
@example(text=DEEP)
def test_arrays(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("stories") / "stories.json"
    path.write_bytes(text)
    stories(path)


@fewer
@given(text=files("\n" * 12))
def test_parquet(tmp_path_factory, text):
    """A good table in which bytes are changed: Arrow reads it, and may not crash."""
    path = tmp_path_factory.mktemp("stories") / "stories.parquet"
    parquet.write_table(
        pa.table({"article": ["One ship. Two."] * 9, "highlights": ["One."] * 9}),
        path,
        compression="none",
    )
    whole = path.read_bytes()
    at = sum(text) % len(whole)
    path.write_bytes(whole[:at] + text[:8] + whole[at + min(len(text), 8) :])
    stories(path)
