"""The one page of measurements: what is kept, what it says, and what got worse."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
import figures
from figures import Figure, of


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "HERE", tmp_path)
    monkeypatch.setattr(figures, "KEPT", tmp_path / "figures.json")
    monkeypatch.setattr(figures, "ASIDE", tmp_path / "build" / "before.json")
    (tmp_path / "pi.md").write_text("# How fast is π\n")
    return tmp_path


def test_a_figure_is_the_median_of_its_repeats():
    figure = of("start", "s", [3, 1, 2], wanted=2)
    assert (figure.value, figure.low, figure.high, figure.repeats) == (2, 1, 3, 3)
    assert figure.reached()
    assert not of("start", "s", [3], wanted=2).reached()
    assert of("efficiency", "of 1", [0.96], less_is_better=False, wanted=0.95).reached()
    assert of("start", "s", [3]).reached() is None


def test_the_page_says_all_of_it(folder):
    figures.keep(
        "pi", [of("start", "s", [30, 10, 20], wanted=15, beside="bare imports: 9 s"), of("once", "GB/s", [1.234])], load=0.26
    )
    found = figures.read(figures.KEPT)
    page = figures.text(found)
    assert "## How fast is π" in page and "load before 0.3" in page and "[pi.md](pi.md)" in page
    assert "| start | 20 s | 10 to 30, 3 times | at most 15, **missed** | bare imports: 9 s |" in page
    assert "| once | 1.23 GB/s | once |  |  |" in page
    figures.draw(found)
    assert (folder / "figures.png").stat().st_size > 5000


def test_a_benchmark_keeps_its_own_figures_only(folder):
    figures.keep("pi", [of("a", "s", [1])], load=0)
    figures.keep("cells", [of("b", "s", [1])], load=0)
    figures.keep("pi", [of("c", "s", [1])], load=0)
    kept = json.loads(figures.KEPT.read_text())
    assert {page: [one["what"] for one in run["figures"]] for page, run in kept.items()} == {"cells": ["b"], "pi": ["c"]}


@pytest.mark.parametrize(
    ("less", "value", "worse"), [(True, 13, True), (True, 11.9, False), (False, 13, False), (False, 7, True)]
)
def test_worse_is_beyond_the_spread_of_the_run_before(less, value, worse):
    old = Figure("a", "s", 10, 8, 12, 5, less_is_better=less)
    new = dataclasses.replace(old, value=value)
    told = figures.compare({"pi": ({}, [old])}, {"pi": ({}, [new])})
    assert bool(told) == worse
    assert all("pi: a:" in line and "before: 10 (8 to 12)" in line for line in told)


def test_a_figure_that_was_not_there_before_is_not_worse():
    assert figures.compare({"pi": ({}, [])}, {"pi": ({}, [of("a", "s", [1])])}) == []


def test_the_kept_page_is_what_the_kept_figures_say():
    """And each figure's page is there."""
    here = Path(figures.__file__).parent
    assert (here / "README.md").read_text() == figures.text(figures.read(here / "figures.json"))


def test_every_kept_figure_has_something_beside_it():
    """A published number, or what the machine can do: alone a number says little."""
    kept = json.loads(figures.KEPT.read_text())
    assert kept and not [one["what"] for run in kept.values() for one in run["figures"] if not one["beside"]]


def test_a_run_is_kept_with_what_it_ran_on(folder):
    figures.keep("pi", [of("start", "s", [1])], load=0)
    run = json.loads(figures.KEPT.read_text())["pi"]
    assert run["versions"]["torch"] == figures.version("torch") and run["memory"].endswith("GiB") and run["kit"] is not None
    assert f"torch {run['versions']['torch']}" in figures.with_what(run) and run["processor"] in figures.with_what(run)


def on(processor, value):
    return {
        "pi": ({"processor": processor, "date": "2026-01-02", "cores": 2, "machine": "Linux", "load": 0}, [of("a", "s", value)])
    }


def test_another_processor_is_named_before_anything_is_called_worse():
    told = figures.other_processors(on("Old", [1]), on("New", [2]))
    assert told == ["Not the same processor: New; before: Old. Compare on one machine."]
    assert figures.other_processors(on("Old", [1]), on("Old", [2])) == []


def test_two_runs_on_one_processor_say_how_far_they_agree():
    runs = {"one": on("Old", [1, 2]), "two": on("Old", [2, 3]), "three": on("Old", [4, 5]), "elsewhere": on("New", [1])}
    assert figures.agreements(runs) == [
        "- one and two, the same processor: the spreads of 1 of 1 figures overlap.",
        "- one and three, the same processor: the spreads of 0 of 1 figures overlap; the others differ, most of all a by 200%.",
        "- two and three, the same processor: the spreads of 0 of 1 figures overlap; the others differ, most of all a by 80%.",
    ]


def test_a_figure_on_two_machines_stands_in_one_row(folder, monkeypatch):
    monkeypatch.setattr(figures, "MACHINES", folder / "machines")
    figures.MACHINES.mkdir()
    figures.keep("pi", [of("a", "s", [3, 4, 5]), of("b", "s", [6])], load=0)
    there = json.loads(figures.KEPT.read_text())
    there["pi"] |= {"processor": "Other", "figures": there["pi"]["figures"][1:]}
    (figures.MACHINES / "other.json").write_text(json.dumps(there))
    page = figures.machines(figures.read(figures.KEPT))
    assert "| pi | a | s | 4 (3 to 5) |  |  |" in page and "| pi | b | s | 6 (6 to 6) | 6 (6 to 6) |  |" in page
    assert "- Other: other.json" in page


def test_the_kept_page_of_machines_is_what_their_figures_say():
    here = Path(figures.__file__).parent
    assert (here / "machines.md").read_text() == figures.machines(figures.read(here / "figures.json"))
