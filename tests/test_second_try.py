"""tools/check.py: what fails runs once more, alone; what fails twice has failed."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
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
    return [sys.executable, "-m", "pytest", "-q", str(tmp_path / "test_some.py")]


def test_what_passes_alone_is_named_as_unsteady(check, tmp_path, capfd):
    passed, unsteady = check.tests("faults", suite(tmp_path, True))
    assert passed and [test.split("::")[1] for test in unsteady] == ["test_only_alone"]
    assert "1 passed" in capfd.readouterr().out, "only what had failed"


def test_what_fails_twice_has_failed(check, tmp_path):
    assert check.tests("faults", suite(tmp_path, False)) == (False, [])


def test_many_failures_are_no_accident(check, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(check, "TOO_MANY", 1)
    assert check.tests("faults", suite(tmp_path, False)) == (False, [])
    assert "once more" not in capfd.readouterr().out


def test_a_wrong_option_is_no_accident(check, tmp_path, capfd):
    assert check.tests("faults", [*suite(tmp_path, True)[:-1], "--no-such-option", "tests"]) == (False, [])
    assert "once more" not in capfd.readouterr().out
