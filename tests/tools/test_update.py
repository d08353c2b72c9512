"""`make update`: a correction arrives in clones that people have worked in; no line is lost."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
import update
from nbformat.v4 import new_code_cell, new_notebook

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


def test_unchanged_files_become_new(room):
    ours, mine = room
    correct(ours, {BOOK: book(a="a = 2"), "data.txt": None, "new/b.txt": "new\n"})
    report = dict(update.update(mine))
    assert report == {BOOK: "new", "data.txt": "removed", "new/b.txt": "new"}
    assert cells_of(mine) == {"a": "a = 2"} and not (mine / "data.txt").exists()
    assert update.update(mine) == []


def test_cells_of_both_stay_in_one_notebook_with_your_outputs(room):
    ours, mine = room
    own = nbformat.reads(book(a="a = 1", mine="x = 1", b="b = 1", c="c = 1"), as_version=4)
    own.cells[0].outputs = [nbformat.v4.new_output("stream", text="mine\n")]
    own.cells[0].execution_count = 7
    (mine / BOOK).write_text(nbformat.writes(own))
    correct(ours, {BOOK: book(a="a = 1", b="b = 1", c="c = 2", d="d = 1")})
    [(_, said)] = update.update(mine)
    assert said == "your changes and the correction, together"
    assert cells_of(mine) == {
        "a": "a = 1",
        "mine": "x = 1",
        "b": "b = 1",
        "c": "c = 2",
        "d": "d = 1",
    }
    assert "mine" in (mine / BOOK).read_text()
    assert [*(mine / "build" / "before_update").rglob("01.ipynb")]


@pytest.mark.parametrize(
    ("name", "yours", "new"),
    [
        (BOOK, book(a="a = 'mine'"), book(a="a = 2")),
        (BOOK, "{no notebook", book(a="a = 2")),
        (SCRIPT, TEXT.replace("line 3\n", "mine\n"), TEXT.replace("line 3\n", "theirs\n")),
        ("new.txt", "mine\n", "theirs\n"),
    ],
)
def test_where_both_changed_the_same_lines_the_new_file_lies_next_to_yours(room, name, yours, new):
    ours, mine = room
    (mine / name).write_text(yours)
    correct(ours, {name: new})
    [(_, said)] = update.update(mine)
    corrected = mine / Path(name).with_suffix(f".corrected{Path(name).suffix}")
    assert str(corrected.relative_to(mine)) in said and corrected.read_text() == new
    assert (mine / name).read_text() == yours


def test_a_script_gets_both_changes_and_a_removed_one_stays(room):
    ours, mine = room
    (mine / SCRIPT).write_text(TEXT.replace("line 3\n", "mine\n"))
    correct(ours, {SCRIPT: TEXT.replace("line 15\n", "theirs\n")})
    update.main(mine)
    assert {"mine", "theirs"} <= set((mine / SCRIPT).read_text().splitlines())
    correct(ours, {SCRIPT: None})
    assert dict(update.update(mine)) == {SCRIPT: "gone in the correction; yours stays"}
    assert "mine" in (mine / SCRIPT).read_text()


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


def test_a_clone_of_another_user_names_its_owner(room, monkeypatch):
    """Made with sudo, or a mount of a container: git refuses to work in it."""
    _, mine = room
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own tests use it
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)  # it may trust all folders
    monkeypatch.setattr(update.os, "getuid", lambda: 54321)
    owner = re.escape(update.user_name(mine.stat().st_uid))
    with pytest.raises(SystemExit, match=rf"belongs to {owner}, not to you \(user 54321\)"):
        update.main(mine)


def test_it_may_be_cut_off_at_any_file_and_run_again(room, monkeypatch):
    ours, mine = room
    (mine / BOOK).write_text(book(a="a = 'mine'", b="b = 1", c="c = 1"))
    correct(ours, {BOOK: book(a="a = 1", b="b = 1", c="c = 2"), "data.txt": "new\n"})
    write, writes_left = update.write, [1]

    def fill_disk(*arguments):
        if not writes_left:
            raise OSError(28, "No space left on device")
        writes_left.pop()
        write(*arguments)

    monkeypatch.setattr(update, "write", fill_disk)
    with pytest.raises(SystemExit, match=r"could not be written.*run make update again"):
        update.main(mine)
    monkeypatch.setattr(update, "write", write)
    update.update(mine)
    assert cells_of(mine) == {"a": "a = 'mine'", "b": "b = 1", "c": "c = 2"}
    assert (mine / "data.txt").read_text() == "new\n"


def test_make_clean_leaves_what_an_update_has_kept(tmp_path):
    """People whose only first version is there may be told to run make clean."""
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
