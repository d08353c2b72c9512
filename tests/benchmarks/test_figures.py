"""The one page of measurements: what is stored, what it says, and what got worse."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import figures
import pages
from figures import Figure, of

BENCHMARKS = figures.HERE


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "HERE", tmp_path)
    monkeypatch.setattr(pages, "MACHINES", tmp_path / "machines")
    monkeypatch.setattr(figures, "STORED", tmp_path / "figures.json")
    (tmp_path / "pi.md").write_text("# How fast is π\n")
    return tmp_path


def test_a_figure_is_the_median_of_its_repeats():
    figure = of("start", "s", [3, 1, 2], wanted=2)
    assert (figure.value, figure.low, figure.high, figure.repeats) == (2, 1, 3, 3)
    assert figure.reached()
    assert not of("start", "s", [3], wanted=2).reached()
    assert of("efficiency", "of 1", [0.96], less_is_better=False, wanted=0.95).reached()
    assert of("start", "s", [3]).reached() is None


def test_the_page_has_every_figure(folder):
    start = of("start", "s", [30, 10, 20], wanted=15, reference="bare imports: 9 s")
    figures.keep("pi", [start, of("once", "GB/s", [1.234])], load=0.26)
    runs = figures.read(figures.STORED)
    page = pages.text(runs)
    assert "## How fast is π" in page and "load before 0.3" in page and "[pi.md](pi.md)" in page
    row = "| start | 20 s | 10 to 30, 3 times | at most 15, **missed** | bare imports: 9 s |  |"
    assert row in page and "| once | 1.23 GB/s | once |  |  |  |" in page
    pages.draw(runs)
    assert (folder / "figures.png").stat().st_size > 5000


def test_a_benchmark_replaces_its_own_figures_only(folder):
    for page, name in (("pi", "a"), ("cells", "b"), ("pi", "c")):
        figures.keep(page, [of(name, "s", [1])], load=0)
    stored = json.loads(figures.STORED.read_text())
    names = {page: [figure["what"] for figure in run["figures"]] for page, run in stored.items()}
    assert names == {"cells": ["b"], "pi": ["c"]}


@pytest.mark.parametrize(
    ("less", "value", "worse"),
    [(True, 13.8, True), (True, 13.6, False), (False, 13.8, False), (False, 6.9, True)],
)
def test_worse_is_outside_the_old_spread_and_the_drift_between_runs(less, value, worse):
    old = Figure("a", "s", 10, 8, 12, 5, less_is_better=less)
    new = dataclasses.replace(old, value=value)
    lines = list(pages.compare({"pi": ({}, [old])}, {"pi": ({}, [new])}))
    assert lines == [f"pi: a: {value} s; before: 10 (8 to 12)."] * worse


def test_only_a_figure_that_is_gone_is_named():
    none, one = {"pi": ({}, [])}, {"pi": ({}, [of("a", "s", [1])])}
    assert not list(pages.compare(none, one))
    assert list(pages.compare(one, none)) == ["pi: a: is no longer measured."]


def test_growths_of_the_soak_are_worse_only_outside_their_bound():
    was, more, much = ({"soak": ({}, [of("growth", "", [value], wanted=2)])} for value in (0, 1, 3))
    assert not list(pages.compare(was, more)) and len(list(pages.compare(was, much))) == 1


def test_a_figure_from_two_machines_has_one_row(folder):
    (folder / "machines").mkdir()
    figures.keep("pi", [of("a", "s", [3, 4, 5]), of("b", "s", [6])], load=0)
    stored = json.loads(figures.STORED.read_text())
    stored["pi"] |= {"processor": "Other", "figures": stored["pi"]["figures"][1:]}
    (folder / "machines" / "other.json").write_text(json.dumps(stored))
    page = pages.machines(figures.read(figures.STORED))
    assert "| pi | a | s | 4 (3 to 5) |  |  |" in page
    assert "| pi | b | s | 6 (6 to 6) | 6 (6 to 6) |  |" in page and "- other.json: " in page


def test_the_stored_pages_show_the_stored_figures():
    runs = figures.read(BENCHMARKS / "figures.json")
    assert (BENCHMARKS / "README.md").read_text() == pages.text(runs)
    assert (BENCHMARKS / "machines.md").read_text() == pages.machines(runs)


def test_every_benchmark_can_be_imported():
    """Most take minutes to run; a name that is gone elsewhere is found here."""
    names = [path.stem for path in BENCHMARKS.glob("bench*.py") if path.stem != "bench_room"]
    code = f"import {', '.join([*names, 'peers', 'zero_worker'])}"
    done = subprocess.run([sys.executable, "-c", code], cwd=BENCHMARKS, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
