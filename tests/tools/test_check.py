"""The test runner: a second try for what failed, and notebooks compared cell by cell."""

import os
import re
import subprocess
import sys
from pathlib import Path

import check
import failure_log
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
from pathlib import Path

def test_good():
    pass

def test_only_alone():
    seen = Path(__file__).with_name("seen")
    before = seen.exists()
    seen.touch()
    assert before, "not seen yet"

def test_last():
    assert {last}
"""


@pytest.fixture
def run_tests(monkeypatch, tmp_path):
    """Run a small suite; last: what its last test asserts."""
    monkeypatch.setattr(check, "ROOT", tmp_path)
    monkeypatch.setattr(check, "RESULTS", tmp_path / "results")

    def run(last, *options):
        (tmp_path / "test_some.py").write_text(TESTS.format(last=last))
        command = [*check.PYTEST[:3], *options]
        return check.run_tests("some", [[*command, "."]], [*command, "-n0"])

    return run


def test_what_passes_only_at_the_second_try_is_named_with_its_first_error(run_tests, capfd):
    result = run_tests(True)
    [(name, error)] = result.unsteady.items()
    assert result.passed and name.endswith("::test_only_alone")
    assert error == "AssertionError: not seen yet" and result.counts["passed"] == 2
    assert check.summarize("test", {"some": result}, 60) == 0
    assert "UNSTEADY" in (said := capfd.readouterr().out) and "1 passed" in said


def test_what_fails_twice_has_failed(run_tests, capfd):
    result = run_tests(False)
    assert not result.passed and check.summarize("all", {"some": result}, 60) == 1
    assert "make test-all: FAILED in some" in capfd.readouterr().out


def test_a_failed_cell_runs_its_notebook_again_and_no_other(monkeypatch):
    """A cell needs those before it, and those after it fail with it."""
    commands = []
    errors = {f"notebooks/b.ipynb::Cell {number}": f"error {number}" for number in range(3, 30)}

    def run_pytest(name, command, shown=True):
        commands.append(command)
        return (0, {}) if len(commands) > 1 else (1, {"errors": errors, "outcomes": {}})

    monkeypatch.setattr(check, "run_pytest", run_pytest)
    result = check.run_tests("notebooks", [["first"]], ["again"])
    assert result.passed and result.unsteady == {"notebooks/b.ipynb": "error 3"}
    assert commands == [["first"], ["again", "notebooks/b.ipynb"]]


def test_more_than_two_that_pass_only_alone_fail_the_run(capfd):
    result = check.Result(True, {"passed": 9}, {f"test_{i}": "late" for i in range(3)})
    assert check.summarize("rest", {"tests": result}, 60) == 1
    assert "make test-rest: FAILED in unsteady tests" in capfd.readouterr().out


def test_many_failures_and_wrong_options_get_no_second_try(run_tests, monkeypatch, capfd):
    assert not run_tests(True, "--no-such-option").passed
    monkeypatch.setattr(check, "MAX_RETRIED", 1)
    assert not run_tests(False).passed
    assert "a second time" not in capfd.readouterr().out


def test_the_files_that_make_the_tiers_are_there(request):
    """Otherwise a renamed file leaves `make test` and nobody notices."""
    conftest = request.config.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py"))
    assert [
        path for path in (*conftest.CORE, *conftest.LONG) if not (ROOT / "tests" / path).exists()
    ] == []


def test_the_two_tiers_have_every_notebook_once():
    books = {str(path.relative_to(ROOT)) for path in ROOT.glob("*/*.ipynb")}
    books = {book for book in books if not book.startswith("labs/")}
    assert {*check.SHORT_WAY, *check.OTHERS} == books
    assert len(check.SHORT_WAY) + len(check.OTHERS) == len(books)


def cell(source, printed="", **metadata):
    outputs = [new_output("stream", text=printed)] if printed else []
    return new_code_cell(source, outputs=outputs, execution_count=1, metadata=metadata)


DISTURBED = 'assert 1 > 2, "other work disturbed this: measure once more"'
BOOKS = {
    "good": [new_markdown_cell("Text."), cell("print(1 + 1)", "2\n"), cell("x = 3\nx;")],
    "changed": [cell("print(1)", "1\n"), cell("# sum\nprint(1 + 1)", "3\n")],
    "raises": [cell("print(1)", "1\n"), cell("1 / 0")],
    "slow": [cell("print(1)", "1\n"), cell("while True:\n    pass")],
    "timed": [cell(f"for i in range(2):\n    {DISTURBED}\nprint(i)", "1\n")],
}


@pytest.mark.parametrize(
    ("timing", "failed"), [("0", ["changed 1", "raises 1", "slow 1"]), ("1", ["timed 0"])]
)
def test_a_broken_cell_is_named_with_its_notebook(tmp_path, monkeypatch, timing, failed):
    monkeypatch.setenv("PI2ZERO_TIMING", timing)
    monkeypatch.delenv(failure_log.LOG, raising=False)  # of the run that this test belongs to
    for name, cells in BOOKS.items():
        if timing == "0" or name in ("good", "timed"):
            nbformat.write(new_notebook(cells=cells), tmp_path / f"{name}.ipynb")
    command = [sys.executable, "tools/compare_notebooks.py", "--timeout=2", "-rf", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    names = [name.split("/")[-1] for name in done.stdout.splitlines() if name.startswith("FAILED")]
    assert sorted(name.split(" - ")[0] for name in names) == [
        name.replace(" ", ".ipynb::Cell ") for name in failed
    ], done.stdout + done.stderr
    assert done.returncode == 1
    assert ("other work disturbed this" in done.stdout.splitlines()[-1]) == (timing == "0")


def test_no_such_notebook():
    command = [sys.executable, "tools/compare_notebooks.py", "notebooks/nowhere.ipynb"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "no such notebook" in done.stderr


@pytest.mark.parametrize(
    ("minute", "last"), [(0, ["make test-rest", "make cluster-test"]), (80, []), (87, [])]
)
def test_ci_fails_when_a_target_fails_and_begins_nothing_that_it_cannot_end(tmp_path, minute, last):
    """`timeout` refuses a negative time: a late CI reported tests as failed that had not run."""
    stubs = {
        "id": "echo 1000",
        "make": "echo make $1; [ $1 != test-rest ]",
        "timeout": 'echo "limit $3"; [ "$3" -ge 60 ] || exit 125; shift 3; exec "$@"',
    }
    for name, body in stubs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SECONDS": str(60 * minute)}
    done = subprocess.run([ROOT / ".ci" / "run"], capture_output=True, text=True, env=env)
    assert done.returncode == 1 and "FAILED: test-rest" in done.stdout, done.stdout + done.stderr
    assert re.findall(r"^make \S+$", done.stdout, re.M) == ["make test", "make test-rest", *last]
    assert ("NOT RUN" in done.stdout) == (not last)
