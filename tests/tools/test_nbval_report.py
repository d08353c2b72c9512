"""The account of nbval: a broken cell is named, and what is never compared or asserted is a failure."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).resolve().parents[2]
EXEMPT = {"tags": ["nbval-ignore-output"]}


def cell(source, printed="", **metadata):
    outputs = [new_output("stream", name="stdout", text=printed)] if printed else []
    return new_code_cell(source, outputs=outputs, execution_count=1, metadata=metadata)


BOOKS = {
    "good": [
        new_markdown_cell("Text."),
        cell("print(1 + 1)", "2\n"),
        cell("x = 3\nx;"),
        cell("import time; print(time.time())", "0.0\n", **EXEMPT),
        cell("assert time.time() > 0"),
    ],
    "changed": [
        new_markdown_cell("Text."),
        cell("print(1)", "1\n"),
        cell("# sum\nprint(1 + 1)", "3\n"),
    ],
    "raises": [cell("print(1)", "1\n"), cell("1 / 0")],
    "nothing_compared": [cell("x = 1"), cell("print(x)", "1\n", **EXEMPT), cell("assert x")],
    "never_run": [new_code_cell("print(1)"), new_code_cell("assert 1 + 1 == 2")],
    "picture": [
        cell("print(1)", "1\n"),
        new_code_cell(
            "2",
            outputs=[new_output("display_data", {"image/png": "", "text/plain": "<Figure>"})],
            execution_count=1,
            metadata=EXEMPT,
        ),
    ],
    "exempted": [
        cell("print(1)", "1\n"),
        cell("print(2)", "7\n", **EXEMPT),
        cell("assert True"),
        cell("x = 1"),
    ],
    "slow": [cell("print(1)", "1\n"), cell("while True:\n    pass")],
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """What the report says of all BOOKS: exit status and text."""
    folder = tmp_path_factory.mktemp("books")
    for name, cells in BOOKS.items():
        nbformat.write(new_notebook(cells=cells), folder / f"{name}.ipynb")
    return run(folder, "--timeout", "2")


def run(*arguments):
    command = [sys.executable, "tools/nbval_report.py", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    return done.returncode, done.stdout + done.stderr


def row(text, name):
    """The numbers of a notebook's line: cells, compared, quiet, exempted, asserted, skipped, failed."""
    line = next(line for line in text.splitlines() if line.startswith(f"{name}.ipynb"))
    return [int(number) for number in line.split()[1:8]]


def test_counts(report):
    status, text = report
    assert status == 8  # some of these notebooks are wrong in themselves, whatever their cells do
    assert row(text, "good") == [4, 1, 2, 1, 1, 0, 0]
    assert row(text, "changed") == [2, 2, 0, 0, 0, 0, 1]
    assert row(text, "raises") == [2, 1, 1, 0, 0, 0, 1]
    assert row(text, "nothing_compared") == [3, 0, 2, 1, 1, 0, 0]
    assert row(text, "never_run") == [2, 0, 0, 0, 1, 2, 0]
    assert row(text, "exempted")[:5] == [4, 1, 2, 1, 0]


def test_a_broken_cell_is_named_with_its_notebook(report):
    _, text = report
    assert "BROKEN changed.ipynb, cell 3 of 3: Cell outputs differ: # sum" in text
    assert "BROKEN raises.ipynb, cell 2 of 2: Cell execution caused an exception: 1 / 0" in text
    assert "BROKEN slow.ipynb, cell 2 of 2: Timeout of 2 seconds exceeded" in text
    assert "BROKEN good" not in text


def test_what_nobody_checks_is_a_failure(report):
    _, text = report
    assert "NOT CHECKED nothing_compared.ipynb: no cell's text is compared" in text
    assert "NOT CHECKED never_run.ipynb: no cell's text is compared" in text
    assert (
        "NOT CHECKED exempted.ipynb, cell 2 of 4 is exempted, but neither it nor a neighbour asserts anything"
        in text
    )
    assert "NOT CHECKED good" not in text
    assert "NOT CHECKED picture" not in text


@pytest.mark.parametrize("name", ["nothing_compared", "exempted"])
def test_a_complaint_alone_fails(tmp_path, name):
    nbformat.write(new_notebook(cells=BOOKS[name]), tmp_path / f"{name}.ipynb")
    assert run(tmp_path)[0] == 8


def test_a_good_notebook_passes(tmp_path):
    nbformat.write(new_notebook(cells=BOOKS["good"]), tmp_path / "good.ipynb")
    status, text = run(tmp_path / "good.ipynb")
    assert status == 0, text


def test_no_such_notebook():
    status, text = run("notebooks/nowhere.ipynb")
    assert status == 1
    assert "no such notebook" in text


def test_what_measures_runs_alone(monkeypatch):
    """The notebooks that tell a learner of other work, and all that budgets.toml names are there."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import budgets

    paths = {
        f"{path.parent.name}/{path.name}": path
        for path in ROOT.glob("*/*.ipynb")
        if path.parent.name != "labs"
    }
    measure = {
        name for name, path in paths.items() if "other work disturbed this" in path.read_text()
    }
    assert measure and measure <= set(budgets.ALONE)
    assert set(paths) == set(budgets.NOTEBOOKS) >= set(budgets.ALONE)
    assert set(sorted(paths, key=budgets.turn)[: len(budgets.ALONE)]) == set(budgets.ALONE)


def until_waited_for(turn):
    """Until somebody holds this lock."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with turn.open("w") as mine:
            try:
                fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
        time.sleep(0.02)
    raise TimeoutError


def test_who_waits_to_be_alone_is_next(tmp_path, monkeypatch):
    """Not after the long notebook that another lane takes up meanwhile."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import nbval_account

    monkeypatch.setenv(nbval_account.DOOR, str(tmp_path))
    ran, first = [], nbval_account.enter(alone=False)

    def run(name, alone):
        door = nbval_account.enter(alone)
        ran.append(name)
        os.close(door)

    lanes = []
    for name, alone in (("alone", True), ("long", False)):
        lanes.append(threading.Thread(target=run, args=(name, alone), daemon=True))
        lanes[-1].start()
        until_waited_for(tmp_path / "turn")
    assert ran == []
    os.close(first)
    for lane in lanes:
        lane.join(timeout=10)
    assert ran == ["alone", "long"]
