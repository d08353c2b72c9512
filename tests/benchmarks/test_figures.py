"""The one page of measurements: what is kept, what it says, what got worse, and whether a second
run agrees.
"""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import figures
import pages
from figures import Figure, of


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "HERE", tmp_path)
    monkeypatch.setattr(pages, "MACHINES", tmp_path / "machines")
    monkeypatch.setattr(figures, "KEPT", tmp_path / "figures.json")
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
        "pi",
        [
            of("start", "s", [30, 10, 20], wanted=15, beside="bare imports: 9 s"),
            of("once", "GB/s", [1.234]),
        ],
        load=0.26,
    )
    found = figures.read(figures.KEPT)
    page = pages.text(found)
    assert "## How fast is π" in page and "load before 0.3" in page and "[pi.md](pi.md)" in page
    assert (
        "| start | 20 s | 10 to 30, 3 times | at most 15, **missed** | bare imports: 9 s |  |"
        in page
    )
    assert "| once | 1.23 GB/s | once |  |  |  |" in page
    pages.draw(found)
    assert (folder / "figures.png").stat().st_size > 5000


def test_a_benchmark_keeps_its_own_figures_only(folder):
    figures.keep("pi", [of("a", "s", [1])], load=0)
    figures.keep("cells", [of("b", "s", [1])], load=0)
    figures.keep("pi", [of("c", "s", [1])], load=0)
    kept = json.loads(figures.KEPT.read_text())
    assert {page: [one["what"] for one in run["figures"]] for page, run in kept.items()} == {
        "cells": ["b"],
        "pi": ["c"],
    }


@pytest.mark.parametrize(
    ("less", "value", "worse"),
    [(True, 13.3, True), (True, 13.1, False), (False, 13.3, False), (False, 7.2, True)],
)
def test_worse_is_beyond_the_spread_of_the_run_before_and_what_two_runs_differ_by(
    monkeypatch, less, value, worse
):
    monkeypatch.setattr(pages, "drift", lambda runs: 0.1)
    old = Figure("a", "s", 10, 8, 12, 5, less_is_better=less)
    new = dataclasses.replace(old, value=value)
    told = pages.compare({"pi": ({}, [old])}, {"pi": ({}, [new])})
    assert bool(told) == worse
    assert all("pi: a:" in line and "before: 10 (8 to 12)" in line for line in told)


def test_a_figure_that_was_not_there_before_is_not_worse_and_one_that_is_gone_is_named():
    none, some = {"pi": ({}, [])}, {"pi": ({}, [of("a", "s", [1])])}
    assert pages.compare(none, some) == pages.compare(some, none) == pages.gone(none, some) == []
    assert pages.gone(some, none) == ["pi: a: is no longer measured."]


def test_the_soaks_growths_are_worse_by_what_is_wanted_alone():
    """Most were 0: any growth at all is beyond a spread of nothing."""
    was, more, much = ({"soak": ({}, [of("growth", "", [value], wanted=2)])} for value in (0, 1, 3))
    assert pages.compare(was, more) == [] and len(pages.compare(was, much)) == 1


def test_the_kept_page_is_what_the_kept_figures_say():
    """And each figure's page is there."""
    here = Path(figures.__file__).parent
    assert (here / "README.md").read_text() == pages.text(figures.read(here / "figures.json"))


def on(processor, value):
    run = {
        "processor": processor,
        "date": "2026-01-02",
        "cores": 2,
        "machine": "Linux",
        "load": 0,
        "kit": "1",
    }
    return {"pi": (run, [of("a", "s", value)])}


def test_another_processor_is_named_before_anything_is_called_worse():
    told = pages.other_computers(on("Old", [1]), on("New", [2]))
    assert told == [
        "Not the same computer (pi): New, Linux; before: Old, Linux. Compare on one machine."
    ]
    assert pages.other_computers(on("Old", [1]), on("Old", [2])) == []


def test_what_two_runs_differ_by_is_measured_and_no_run_judges_itself():
    """Nine in ten of the differences between runs of one computer; two runs are judged by the
    others'.
    """
    runs = {str(number): on("Old", [1 + number / 100]) for number in range(8)} | {
        "elsewhere": on("New", [3])
    }
    assert 0.05 < pages.drift(runs) < 0.07
    assert pages.drift({"one": on("Old", [1]), "elsewhere": on("New", [3])}) == 0
    runs |= {"a": on("Third", [9, 10, 11]), "b": on("Third", [11.5]), "c": on("Third", [12])}
    told = [line for line in pages.agreements(runs) if line.startswith(("- a, then", "- b, then"))]
    assert told == [
        "- a, then b, by a spread 6% wider on each side: 1 of 1 figures agree.",
        "- a, then c, by a spread 6% wider on each side: 0 of 1 figures agree; not: a by 20%.",
        "- b, then c, by a spread 6% wider on each side: 1 of 1 figures agree.",
    ]


def test_a_figure_on_two_machines_stands_in_one_row(folder):
    (folder / "machines").mkdir()
    figures.keep("pi", [of("a", "s", [3, 4, 5]), of("b", "s", [6])], load=0)
    there = json.loads(figures.KEPT.read_text())
    there["pi"] |= {"processor": "Other", "figures": there["pi"]["figures"][1:]}
    (folder / "machines" / "other.json").write_text(json.dumps(there))
    page = pages.machines(figures.read(figures.KEPT))
    assert (
        "| pi | a | s | 4 (3 to 5) |  |  |" in page
        and "| pi | b | s | 6 (6 to 6) | 6 (6 to 6) |  |" in page
    )
    assert "- Other: other.json" in page


def test_the_kept_page_of_machines_is_what_their_figures_say():
    here = Path(figures.__file__).parent
    assert (here / "machines.md").read_text() == pages.machines(figures.read(here / "figures.json"))
