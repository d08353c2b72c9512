"""The minutes that notebooks, labs and the README state are those that tools/minutes.py computes."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import minutes as tool  # noqa: E402


@pytest.mark.parametrize("name", tool.books())
def test_what_is_stated_is_what_is_computed(name):
    stated = tool.STATED.search((ROOT / name).read_text())
    assert stated and stated[0] == f"**{tool.minutes(name)}", (
        "run `python tools/minutes.py --write`"
    )


def test_words_predictions_blanks_and_answers_count(tmp_path, monkeypatch):
    cells = [
        (
            "markdown",
            [],
            "word " * 600
            + "**Predict**: more? <details><summary>Hint 1</summary>"
            + "word " * 999
            + "</details>",
        ),
        ("code", ["blank"], "def f(x):\n    raise NotImplementedError"),
        (
            "code",
            ["blank-solution"],
            "@solution\ndef f(x):\n    y = x\n    # a comment\n    return y",
        ),
        (
            "code",
            [],
            "\n".join(f"x{i} = {i}" for i in range(30))
            + "\n### BEGIN SOLUTION\nz = 1\n### END SOLUTION",
        ),
        ("markdown", ["solution-only"], "word " * 999),
    ]
    book = {
        "cells": [
            {"cell_type": kind, "metadata": {"tags": tags}, "source": [text]}
            for kind, tags, text in cells
        ]
    }
    (tmp_path / "x.ipynb").write_text(json.dumps(book))
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setitem(tool.budgets.NOTEBOOKS, "x.ipynb", 120)
    found = tool.minutes("x.ipynb")
    assert round(found.read, 1) == round(602 / tool.WORDS + 30 / tool.LINES, 1)
    assert found.predict == tool.PREDICTION and found.run == 2
    assert found.write == 2 * tool.BLANK + (3 + 1) * tool.ANSWER_LINE
    assert str(found) == "20 minutes (7 to read, 2 to predict, 7 to write, 2 to run)"


def test_a_part_between_two_headings(tmp_path, monkeypatch):
    cells = [
        ("markdown", "# Title"),
        ("code", "a = 1"),
        ("markdown", "## One\n\n" + "word " * 1200),
        ("code", "b = 2"),
    ]
    cells += [
        ("markdown", "text\n\n## Two\n\n" + "word " * 2400),
        ("code", "c = 3"),
        ("code", "d = 4"),
    ]
    book = {
        "cells": [{"cell_type": kind, "metadata": {}, "source": [text]} for kind, text in cells]
    }
    (tmp_path / "x.ipynb").write_text(json.dumps(book))
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setitem(tool.budgets.NOTEBOOKS, "x.ipynb", 240)
    before, one, two = (
        tool.minutes("x.ipynb", *part) for part in ((None, "One"), ("One", "Two"), ("Two", None))
    )
    assert [part.run for part in (before, one, two)] == [1, 1, 2], (
        "a part's share of the seconds, by its code cells"
    )
    assert round(one.read) == 10 and round(two.read) == 20 and before.read < 1
    assert sum(part.read for part in (before, one, two)) == pytest.approx(
        tool.minutes("x.ipynb").read
    )
    for wrong in ("Three", "On", ""):
        with pytest.raises(ValueError, match="headings are called"):
            tool.minutes("x.ipynb", before=wrong or "two")
