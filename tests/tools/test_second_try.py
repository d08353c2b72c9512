"""tools/check.py: what fails runs once more, alone; what fails twice has failed."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
from pathlib import Path

def test_good():
    pass

def test_only_alone():
    seen = Path(__file__).with_name("seen")
    before = seen.exists()
    seen.touch()
    assert before

def test_never():
    assert {value}
"""


@pytest.fixture
def check(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import check

    monkeypatch.setattr(check, "ROOT", tmp_path)
    monkeypatch.setattr(check, "CACHE", tmp_path / "cache")
    return check


def suite(tmp_path, value):
    (tmp_path / "test_some.py").write_text(TESTS.format(value=value))
    (tmp_path / "test_other.py").write_text("def test_other():\n    pass\n")
    return [sys.executable, "-m", "pytest", "-q"], [
        str(tmp_path / "test_some.py"),
        str(tmp_path / "test_other.py"),
    ]


def test_what_passes_alone_is_named_as_unsteady(check, tmp_path, capfd):
    passed, unsteady = check.tests("faults", *suite(tmp_path, True))
    assert passed and [test.split("::")[1] for test in unsteady] == ["test_only_alone"]
    first, second = re.findall(r"^(?:\d failed, )?(\d) passed", capfd.readouterr().out, re.M)
    assert (first, second) == ("3", "1"), "only what had failed runs again, whatever lies beside it"


def test_a_failed_cell_runs_its_notebook_again_and_no_other(check, tmp_path, monkeypatch):
    """A cell needs those before it; the other notebooks have passed."""
    monkeypatch.setattr(check, "first_try", lambda *of: (1, {"notebooks/b.ipynb"}))
    called = []
    monkeypatch.setattr(
        check.subprocess,
        "run",
        lambda command, **more: called.append(command) or SimpleNamespace(returncode=0),
    )
    assert check.tests("notebooks", check.STEPS["notebooks"][0], check.TESTS["notebooks"]) == (
        True,
        ["notebooks/b.ipynb"],
    )
    assert [word for word in called[0][2:] if not word.startswith("--")] == ["notebooks/b.ipynb"]


def test_what_fails_twice_has_failed(check, tmp_path):
    assert check.tests("faults", *suite(tmp_path, False)) == (False, [])


def test_many_failures_are_no_accident(check, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(check, "TOO_MANY", 1)
    assert check.tests("faults", *suite(tmp_path, False)) == (False, [])
    assert "once more" not in capfd.readouterr().out


def test_a_wrong_option_is_no_accident(check, tmp_path, capfd):
    command, places = suite(tmp_path, True)
    assert check.tests("faults", [*command, "--no-such-option"], places) == (False, [])
    assert "once more" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("asked", "runs"),
    [
        (["ranks"], ["built", "ranks"]),
        (["lint", "fast"], ["lint", "fast"]),
        (["hosts", "built"], ["hosts", "built"]),
        (
            [],
            [
                "bytecode",
                "lint",
                "labs",
                "fast",
                "built",
                "ranks",
                "faults",
                "browser",
                "notebooks",
            ],
        ),
    ],
)
def test_a_step_that_needs_horovod_waits_for_it(check, monkeypatch, asked, runs):
    """Else its tests are skipped, and nobody notices: 71 of them were, beside other work on a clean clone."""
    ran = []
    monkeypatch.setattr(
        check, "run", lambda name: ran.append(name) or check.Done(True, [], 0.0, 0.0)
    )
    monkeypatch.setattr(sys, "argv", ["check.py", *asked])
    for name in ("PYTHONDONTWRITEBYTECODE", "PI2ZERO_SCOPE"):  # main changes both
        monkeypatch.setenv(name, "kept")
    with pytest.raises(SystemExit) as done:
        check.main()
    assert ran == runs and done.value.code == 0
