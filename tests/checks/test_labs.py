"""The labs: in step with the solutions, and plain about what is still to do.
(tools/compare_notebooks.py runs the solutions.)"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from pi2zero import RankError

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(path.name for path in (ROOT / "solutions").glob("*.ipynb"))
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def labs(monkeypatch, capsys):
    """Run tools/labs.py's program here, for its imports take longer than its work; its exit status
    and what it said."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import labs as program

    def run(*options):
        monkeypatch.setattr(sys, "argv", ["labs.py", *options])
        try:
            program.main()
            status = 0
        except SystemExit as end:
            status, said = (1, f"{end}\n") if isinstance(end.code, str) else (end.code, "")
            sys.stderr.write(said)
        return status, "".join(capsys.readouterr())

    return run


def read(folder, name):
    return nbformat.read(ROOT / folder / name, as_version=4)


def tags(cell):
    return cell.metadata.get("tags", [])


@pytest.fixture
def copy(tmp_path):
    """A folder with copies of solutions/ and labs/, to be spoilt."""
    for folder in ("solutions", "labs"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    return tmp_path


def test_generating_again_changes_nothing(labs):
    status, said = labs("--check")
    assert status == 0, said
    assert f"{len(NAMES)} lab" in said


def test_an_edited_lab_is_noticed(labs, copy):
    path = copy / "labs" / NAMES[0]
    path.write_text(path.read_text().replace("raise NotImplementedError", "return 42 #", 1))
    status, said = labs("--check", "--root", str(copy))
    assert status == 1
    assert f"labs/{NAMES[0]} is out of step with solutions/{NAMES[0]}. Run: make labs" in said
    assert labs("--root", str(copy))[0] == 0
    assert labs("--check", "--root", str(copy))[0] == 0


def test_a_lab_without_solution_is_noticed(labs, copy):
    (copy / "solutions" / "99_new.ipynb").write_text((ROOT / "solutions" / NAMES[0]).read_text())
    (copy / "solutions" / NAMES[0]).unlink()
    status, said = labs("--check", "--root", str(copy))
    assert status == 1
    assert f"labs/{NAMES[0]} has no solutions/{NAMES[0]}" in said


@pytest.mark.parametrize(
    ("source", "kept_tags", "words"),
    [
        ("def f(x):\n    ### BEGIN SOLUTION\n    return x", ["task-1"], "come in pairs"),
        (
            "def f(x):\n    ### BEGIN SOLUTION\n    return x\n    ### END SOLUTION",
            [],
            "needs a tag like task-3",
        ),
        ("### BEGIN SOLUTION\nx = 1\n### END SOLUTION", ["task-1"], "stands in a function"),
        ("x = 1", [], "what should be left out?"),
    ],
    ids=["no end", "no tag", "no function", "no solution"],
)
def test_a_broken_solution_is_named(labs, tmp_path, source, kept_tags, words):
    (tmp_path / "solutions").mkdir()
    cell = nbformat.v4.new_code_cell(source, metadata={"tags": kept_tags})
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "solutions" / "07_x.ipynb")
    status, said = labs("--root", str(tmp_path))
    assert status == 1
    assert words in said and "07_x.ipynb" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("name", NAMES)
def test_the_lab_gives_nothing_away(name):
    text = (ROOT / "labs" / name).read_text()
    assert "SOLUTION" not in text and "solution-only" not in text
    code = [cell for cell in read("labs", name).cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)


@pytest.mark.parametrize("name", NAMES)
def test_every_task_is_complete(name):
    cells = read("labs", name).cells
    by_id = {cell.id: cell for cell in cells}
    numbers = sorted({tag for cell in cells for tag in tags(cell) if tag.startswith("task-")})
    assert len(numbers) >= 5
    for task in numbers:
        statement, hints, stub = (
            by_id[task].source,
            by_id[f"{task}-hints"].source,
            by_id[f"{task}-answer"].source,
        )
        assert "**Target**" in statement and "**Your answer: " in statement
        assert len(statement.split()) < 130
        assert hints.count("<details>") == hints.count("</details>") == 3
        assert len(stub.splitlines()) <= 15
        assert f'raise NotImplementedError("task {task[5:]}: write ' in stub
        assert task in tags(by_id[f"{task}-run"])
        function = re.search(r"^def (\w+)", stub, re.MULTILINE)[1]
        assert f"check.{function}({function}" in by_id[f"{task}-check"].source


def test_names_are_right_in_solved_and_unsolved_labs():
    """pyflakes' rules, over all cells of a notebook, those for the ranks included: no name is
    undefined or misspelt.

    F841 is left out: a stub gives variables that only the answer will use.
    """
    command = [sys.executable, "-m", "nbqa", "ruff", "labs", "solutions", "--isolated"]
    command += ["--nbqa-process-cells", "px", "--select", "F", "--ignore", "F841"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_unsolved_lab_runs_to_its_end_and_says_what_is_to_do(name):
    book = read("labs", name)
    for cell in book.cells:  # lab 4 measures all stages; here one of them is enough
        cell.source = cell.source.replace('"2M", "--json"]', '"2M", "--json", "--stage", "0"]')
    folder = {"metadata": {"path": str(ROOT / "labs")}}
    NotebookClient(book, timeout=300, allow_errors=True, resources=folder).execute()
    failed = {
        cell.id: output
        for cell in book.cells
        for output in cell.get("outputs", [])
        if output.output_type == "error"
    }
    tasks = sorted({tag for cell in book.cells for tag in tags(cell) if tag.startswith("task-")})
    assert sorted(failed) == sorted(f"{task}-run" for task in tasks)
    for error in failed.values():
        assert error.ename == RankError.__name__
        text = ANSI.sub("", "\n".join(error.traceback))
        who = r"ranks? \d[\d, and]*"  # all that were so far when the first had raised
        assert re.fullmatch(who + r" raised NotImplementedError: task \d: write .*", error.evalue)
        assert "The ranks kept their variables" in text
    said = {
        cell.id: "".join(o.get("text", "") for o in cell.get("outputs", [])) for cell in book.cells
    }
    for task in tasks:
        assert said[f"{task}-check"].startswith(f"[stdout:0] Task {task[5:]} is still to do. ")
