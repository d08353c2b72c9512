"""`make update`: a correction arrives in clones whose owners have worked in them, and no line of theirs is lost."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import update

BOOK, SCRIPT = "notebooks/01.ipynb", "scripts/a.py"
TEXT = "".join(f"line {i}\n" for i in range(20))


def git(folder, *words):
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *author, *words], cwd=folder, check=True, capture_output=True)


def book(**cells):
    """A notebook's text; name=source."""
    return (
        nbformat.writes(
            new_notebook(cells=[new_code_cell(source, id=name) for name, source in cells.items()])
        )
        + "\n"
    )


def cells_of(folder):
    """{id: source} of the notebook, in its order. It must be a valid one."""
    read = nbformat.read(folder / BOOK, as_version=4)
    nbformat.validate(read)
    return {cell.id: cell.source for cell in read.cells}


@pytest.fixture
def room(tmp_path):
    """(the instructor's folder, an attendee's clone of it)."""
    ours, theirs = tmp_path / "instructor", tmp_path / "attendee"
    ours.mkdir()
    git(ours, "init", "-q", "-b", "main")
    correct(
        ours,
        {
            BOOK: book(a="a = 1", b="b = 1", c="c = 1"),
            SCRIPT: TEXT,
            "data.txt": "old\n",
            ".gitignore": "build/\n",
        },
    )
    git(tmp_path, "clone", "-q", str(ours), str(theirs))
    return ours, theirs


def correct(folder, files):
    """The instructor's commit; None: the file goes."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text) if text is not None else path.unlink()
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "a correction")


def written(folder):
    """All lines that are in the folder, saved copies left out."""
    paths = [
        path
        for path in folder.rglob("*")
        if path.is_file() and not {".git", "build"} & set(path.parts)
    ]
    return "\n".join(path.read_text() for path in paths)


def test_what_nobody_touched_becomes_new(room):
    ours, mine = room
    correct(ours, {BOOK: book(a="a = 2"), SCRIPT: None, "data.txt": "new\n", "more.txt": "more\n"})
    assert dict(update.update(mine)) == dict.fromkeys([BOOK, SCRIPT, "data.txt", "more.txt"], "new")
    assert (
        cells_of(mine) == {"a": "a = 2"}
        and (mine / "more.txt").read_text() == "more\n"
        and not (mine / SCRIPT).exists()
    )
    assert update.update(mine) == [] and not (mine / "build").exists()
    assert subprocess.check_output(["git", "status", "--porcelain"], cwd=mine) == b""


def test_cells_that_both_changed_stand_one_below_the_other(room):
    ours, mine = room
    edited = book(a="a = 1", own="my own cell", b="b = 'mine'", c="c = 1")
    (mine / BOOK).write_text(edited)
    correct(ours, {BOOK: book(a="a = 2", b="b = 2", c="c = 1", d="d = 2")})
    assert update.update(mine) == [(BOOK, "your changes and the correction, together")]
    assert cells_of(mine) == {
        "a": "a = 2", "own": "my own cell", "b": "b = 'mine'", "b-note": update.NOTE,
        "b-corrected": "b = 2", "c": "c = 1", "d": "d = 2",
    }  # fmt: skip
    assert [path.read_text() for path in (mine / "build" / "before_update").rglob("*.ipynb")] == [
        edited
    ]
    correct(ours, {BOOK: book(a="a = 3", b="b = 3", c="c = 1", d="d = 2")})
    update.update(mine)  # the next one meets what the first has left
    assert cells_of(mine) == {
        "a": "a = 3", "own": "my own cell", "b": "b = 'mine'", "b-note": update.NOTE,
        "b-corrected": "b = 3", "c": "c = 1", "d": "d = 2",
    }  # fmt: skip
    (mine / BOOK).write_text((mine / BOOK).read_text().replace("b = 3", "b = 'mine, too'"))
    correct(ours, {BOOK: book(a="a = 3", b="b = 4", c="c = 1", d="d = 2")})
    update.update(mine)
    assert {"b = 'mine'", "b = 'mine, too'", "b = 4"} <= set(cells_of(mine).values())


def test_a_run_notebook_keeps_its_outputs_and_edited_cells_that_are_gone(room):
    ours, mine = room
    ran = json.loads((mine / BOOK).read_text())
    ran["cells"][0]["outputs"] = [
        {"output_type": "stream", "name": "stdout", "text": ["what I saw\n"]}
    ]
    ran["cells"][1]["source"] = "b = 'mine'"
    (mine / BOOK).write_text(json.dumps(ran))
    correct(ours, {BOOK: book(a="a = 1", c="c = 2")})
    update.update(mine)
    assert cells_of(mine) == {
        "a": "a = 1",
        "b": "b = 'mine'",
        "c": "c = 2",
    } and "what I saw" in written(mine)


def test_a_cell_taken_out_stays_out_until_it_is_corrected(room):
    ours, mine = room
    (mine / BOOK).write_text(book(b="b = 1"))
    correct(ours, {BOOK: book(a="a = 1", b="b = 1", c="c = 2")})
    update.update(mine)
    assert cells_of(mine) == {"b": "b = 1", "c": "c = 2"}


def test_scripts_are_merged_by_lines_or_lie_side_by_side(room):
    ours, mine = room
    (mine / SCRIPT).write_text(TEXT.replace("line 3\n", "mine\n"))
    correct(ours, {SCRIPT: TEXT.replace("line 15\n", "theirs\n")})
    update.update(mine)
    assert (mine / SCRIPT).read_text() == TEXT.replace("line 3\n", "mine\n").replace(
        "line 15\n", "theirs\n"
    )
    correct(ours, {SCRIPT: TEXT.replace("line 3\n", "theirs, too\n")})
    assert update.update(mine) == [(SCRIPT, "yours stays; the new one is scripts/a.corrected.py")]
    assert (
        "mine\n" in (mine / SCRIPT).read_text()
        and "theirs, too" in (mine / "scripts/a.corrected.py").read_text()
    )
    (mine / "scripts/a.corrected.py").write_text("I write here, too\n")
    correct(ours, {SCRIPT: TEXT.replace("line 3\n", "theirs again\n")})
    assert update.update(mine) == [(SCRIPT, "yours stays; the new one is scripts/a.corrected2.py")]
    assert "I write here, too" in written(mine) and "theirs again" in written(mine)


@pytest.mark.parametrize(
    "broken", ["", "{}", "no JSON", '{"cells": [{"source": "mine"}]}', '{"cells": 5}', "[1]"]
)
def test_a_notebook_that_is_none_stays_and_the_new_one_lies_beside_it(room, broken):
    ours, mine = room
    (mine / BOOK).write_text(broken)
    correct(ours, {BOOK: book(a="a = 2")})
    assert update.update(mine) == [
        (BOOK, "yours stays; the new one is notebooks/01.corrected.ipynb")
    ]
    assert (mine / BOOK).read_text() == broken


def test_own_files_and_files_that_go_stay(room):
    ours, mine = room
    (mine / "more.txt").write_text("mine\n")
    (mine / "data.txt").write_text("mine, too\n")
    correct(ours, {"more.txt": "theirs\n", "data.txt": None})
    assert dict(update.update(mine)) == {
        "data.txt": "gone in the correction; yours stays",
        "more.txt": "yours stays; the new one is more.corrected.txt",
    }
    assert {"mine", "mine, too", "theirs"} <= set(written(mine).splitlines())


def test_what_stops_it_is_said_in_a_sentence_and_nothing_changes(room, tmp_path):
    ours, mine = room
    (mine / SCRIPT).write_text("mine\n")
    correct(ours, {SCRIPT: "theirs\n"})
    shutil.move(ours, tmp_path / "gone")
    with pytest.raises(
        SystemExit, match=r"could not be fetched: is there a network.*Nothing was changed"
    ):
        update.main(mine)
    shutil.move(tmp_path / "gone", ours)
    git(mine, "commit", "-q", "-a", "-m", "mine")
    with pytest.raises(SystemExit, match="commits of its own"):
        update.main(mine)
    git(mine, "branch", "--unset-upstream")
    with pytest.raises(SystemExit, match="follows no branch"):
        update.main(mine)
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    with pytest.raises(SystemExit, match="is no clone"):
        update.main(unpacked)
    assert (mine / SCRIPT).read_text() == "mine\n"


def test_it_may_be_cut_off_at_any_file_and_run_again(room, monkeypatch):
    ours, mine = room
    (mine / BOOK).write_text(book(a="a = 'mine'", b="b = 1", c="c = 1"))
    correct(ours, {BOOK: book(a="a = 2", b="b = 1", c="c = 1"), "data.txt": "new\n"})
    write, left = update.write, [1]

    def full(*words):
        if not left:
            raise OSError(28, "No space left on device")
        left.pop()
        write(*words)

    monkeypatch.setattr(update, "write", full)
    with pytest.raises(SystemExit, match=r"could not be written.*run make update again"):
        update.main(mine)
    monkeypatch.setattr(update, "write", write)
    update.update(mine)
    assert [source for source in cells_of(mine).values() if source[:1] in "abc"] == [
        "a = 'mine'",
        "a = 2",
        "b = 1",
        "c = 1",
    ]
    assert (mine / "data.txt").read_text() == "new\n"


def test_make_clean_leaves_what_an_update_has_kept(tmp_path):
    """The doctor says "make clean, then make lab" to people whose only first version may be there."""
    shutil.copyfile(Path(__file__).resolve().parents[2] / "Makefile", tmp_path / "Makefile")
    mine, made = (
        tmp_path / "build" / "before_update" / "2026" / "mine.ipynb",
        tmp_path / "build" / "screens" / "a.png",
    )
    for path in (mine, made, tmp_path / ".venv" / "pyvenv.cfg"):
        path.parent.mkdir(parents=True)
        path.write_text("")
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, capture_output=True)
    assert mine.exists() and sorted(path.name for path in (tmp_path / "build").iterdir()) == [
        "before_update"
    ]
    assert not (tmp_path / ".venv").exists()
