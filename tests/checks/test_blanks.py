"""The notebooks' blanks, guesses and folded outputs: each is complete, checks that need no ranks
know right from wrong."""

import ast
import contextlib
import importlib
import re
import sys
import tempfile
from collections import Counter
from itertools import pairwise

import nbformat
import numpy as np
import pytest
import torch
from blank_mistakes import RIGHT, WRONG
from notebook_blanks import BLANKS, BOOKS, PARTS, ROOT, TAUGHT, code, tags

from pi2zero_course.checks import blanks
from pi2zero_course.checks.framework.answers import CheckError
from pi2zero_course.checks.framework.task import is_left, result_of

sys.path.insert(0, str(ROOT / "tools"))
import notebooks

ANSI = re.compile(r"\x1b\[[0-9;]*m")
IN_KERNEL = [blank for blank in BLANKS if not blank.on_ranks]


def answers(blanks, table):
    """Arguments of parametrize: (blank, *what the table says of an answer to it)."""
    return [
        pytest.param(blank, *entry, id=f"{blank}-{i}")
        for blank in blanks
        for i, entry in enumerate(table.get(blank.name, ()))
    ]


def replaced(blank, piece, other):
    assert piece in blank.kits, (blank, piece)
    return blank.kits.replace(piece, other, 1)


def check_of(blank):
    """The check of a blank."""
    module = importlib.import_module(f"pi2zero_course.checks.blanks.{blank.module}")
    return getattr(module, blank.name)


# Blanks whose checks compare values: they name their mistakes themselves.
TABLES = [blank for blank in BLANKS if check_of(blank).reference]


def check(blank, source):
    """Define an answer from its text, and check it."""
    names = {
        "np": np,
        "torch": torch,
        "pairwise": pairwise,
        "re": re,
        "Counter": Counter,
        "FREE": 0,
        "largest": len,
    }
    names |= {"sentences": None, "rouge1": None, "words": None}  # the check lends them
    exec(source, names)
    check_of(blank)(names[blank.name])


@pytest.mark.parametrize("book", TAUGHT)
def test_a_taught_notebook_has_blanks_and_says_which_are_left(book):
    cells = BOOKS[book].cells
    assert 3 <= sum("blank" in tags(cell) for cell in cells) <= 4
    last = max(at for at, cell in enumerate(cells) if "blank-solution" in tags(cell))
    assert any(cell.source == "blanks_left()" for cell in cells[last:])


@pytest.mark.parametrize("blank", BLANKS, ids=repr)
def test_a_blank_is_complete(blank):
    stub, asked, kits = blank.cells
    assert [part in tags(cell) for part, cell in zip(PARTS, blank.cells, strict=True)] == [True] * 3
    head, _, end = code(stub).partition("    raise NotImplementedError(")
    assert end.count("\n") == 0, "the blank ends with its raise"
    assert ast.get_docstring(ast.parse(code(stub)).body[0]), "it says what the function has to do"
    given = [line for line in head.splitlines() if '"""' not in line]
    assert [line for line in blank.kits.splitlines() if line in given] == given, (
        "the answer begins as the blank does"
    )
    (function,) = ast.parse(blank.kits).body
    docstring = ast.get_docstring(function) is not None
    body = function.end_lineno - function.lineno - docstring - (len(given) - 1)
    assert 2 <= body <= 8, f"{body} lines to write"
    assert code(asked) == f"check.{blank.name}({blank.name})"
    assert code(kits).startswith("@solution\ndef ") and kits.metadata.jupyter.source_hidden
    assert len({cell.source.startswith("%%px\n") for cell in blank.cells}) == 1


def test_every_blank_has_known_mistakes():
    names = [blank.name for blank in BLANKS]
    mistakes = {blank.name: check_of(blank).mistakes for blank in TABLES} | WRONG
    assert len(names) == len(set(names)) and set(names) == set(mistakes)
    assert all(len(mistakes[name]) >= 2 for name in names)
    assert set(names) == set(RIGHT) | {blank.name for blank in TABLES}


@pytest.mark.parametrize("blank", IN_KERNEL, ids=repr)
def test_the_kits_answer_is_right(blank, capsys):
    check(blank, blank.kits)
    said = capsys.readouterr().out
    assert re.fullmatch(rf"{blank.name} is right\. \S.+\.\n", said), said  # and what was verified


@pytest.mark.parametrize(("blank", "piece", "other"), answers(IN_KERNEL, RIGHT))
def test_another_right_answer_is_right(blank, piece, other, capsys):
    check(blank, replaced(blank, piece, other))
    assert capsys.readouterr().out.startswith(f"{blank.name} is right. ")


@pytest.mark.parametrize(("blank", "piece", "other", "words"), answers(IN_KERNEL, WRONG))
def test_a_wrong_answer_is_told_its_mistake(blank, piece, other, words):
    with pytest.raises(CheckError) as refused:
        check(blank, replaced(blank, piece, other))
    assert str(refused.value).startswith(f"{blank.name} is not right yet.\n")
    assert words in str(refused.value)


@pytest.mark.parametrize("blank", TABLES, ids=repr)
def test_each_mistake_is_named_in_its_own_words(blank):
    """In the first case that it gets wrong, it may give the same value as one that is asked
    before."""
    task = check_of(blank)
    for sentence, wrong in task.mistakes.items():
        with pytest.raises(CheckError, match=re.escape(sentence)):
            task.verify(lambda *case, wrong=wrong: result_of(wrong, task.reference, case))


@pytest.mark.parametrize(
    ("cell", "left"),
    [
        ('%%px\ndef f(x):\n    raise NotImplementedError("your line")', True),
        ('def f(x):\n    return x\n    raise NotImplementedError("your line")', False),
        (
            'def f(x):\n    if x:\n        return x\n    raise NotImplementedError("your line")',
            True,
        ),
        (
            "def f(x):\n    def inner():\n"
            '        raise NotImplementedError("your line")\n\n    return inner()',
            True,
        ),
        ("def f(x):\n    return x  # raise NotImplementedError stood here", False),
        ('def f(x):\n    return (x\n    raise NotImplementedError("your line")', True),
    ],
)
def test_a_blank_is_left_as_long_as_it_comes_to_its_raise(cell, left, monkeypatch, capsys):
    from types import SimpleNamespace

    cells = [cell, "@solution\ndef f(x):\n    return x"]
    ipython = SimpleNamespace(history_manager=SimpleNamespace(input_hist_raw=cells))
    monkeypatch.setattr(blanks, "get_ipython", lambda: ipython)
    blanks.blanks_left()
    said = "0 written. Still to be written: f." if left else "1 written: 1 not yet (f)."
    assert capsys.readouterr().out == f"Blanks of this notebook: 1. {said}\n"
    with contextlib.suppress(SyntaxError):
        exec(cell.removeprefix("%%px\n"), names := {})
        assert is_left(names["f"]) == left


@pytest.mark.parametrize("book", BOOKS)
def test_the_output_under_a_predict_is_folded_and_no_other_and_long_ones_stand_in_a_box(book):
    due = [cell.id for cell in notebooks.to_fold(BOOKS[book])]
    folded = [
        cell.id
        for cell in BOOKS[book].cells
        if cell.metadata.get("jupyter", {}).get("outputs_hidden")
    ]
    assert folded == due, f"python tools/notebooks.py --fold notebooks/{book}.ipynb"
    asked = any(
        notebooks.PREDICT.search(cell.source)
        for cell in BOOKS[book].cells
        if cell.cell_type == "markdown"
    )
    assert bool(due) == asked
    boxed = [cell.id for cell in BOOKS[book].cells if cell.metadata.get("scrolled")]
    assert boxed == [cell.id for cell in BOOKS[book].cells if notebooks.is_long(cell)], (
        "the same command"
    )


@pytest.mark.parametrize("book", TAUGHT)
def test_every_guess_comes_back(book):
    cells = BOOKS[book].cells
    places = [at for at, cell in enumerate(cells) if "guess" in tags(cell)]
    assert 1 <= len(places) <= 5
    for at in places:
        name = re.fullmatch(r"(\w+_guess) = None  # .+", cells[at].source)[1]
        assert sum(f"guessed({name}, " in cell.source for cell in cells[at:]) == 1
        assert notebooks.PREDICT.search(cells[at - 1].source), "a guess is asked for by a Predict"


def said_in_a_kernel(sources):
    """What cells say that run one after the other in a real kernel."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    with tempfile.TemporaryDirectory() as sockets:
        client = notebooks.Client(book, timeout=120, allow_errors=True)
        client.sockets = sockets
        client.execute()
    return [
        ANSI.sub(
            "",
            "".join(
                o.get("text")
                or o.get("data", {}).get("text/plain")
                or "\n".join(o.get("traceback", []))
                for o in cell.outputs
            ),
        )
        for cell in book.cells
    ]


@pytest.mark.long
def test_an_answer_that_is_accepted_on_a_rank_counts_in_the_kernel():
    blank = next(blank for blank in BLANKS if blank.name == "partial_pi")
    _, asked, kits = (cell.source for cell in blank.cells)
    said = said_in_a_kernel(
        [
            "import pi2zero\ncluster = pi2zero.start(n=1)\n"
            "from pi2zero_course.checks.blanks import blanks_left",
            "%%px\nimport numpy as np\n"
            "from pi2zero_course.checks.blanks import solution, pi_on_ranks as check",
            f"%%px\n{blank.kits}",
            asked,
            kits,
            "blanks_left()",
            f"%%px\n{blank.kits}    # another one",
            "blanks_left()",
        ]
    )
    assert said[3].startswith("partial_pi is right. "), "without the label of its rank"
    assert said[4] == "[stdout:0] Your partial_pi is used from here on.\n"
    assert said[5] == "Blanks of this notebook: 1. 1 written: 1 accepted (partial_pi).\n"
    assert said[7] == "Blanks of this notebook: 1. 1 written: 1 not yet (partial_pi).\n"


@pytest.mark.long
def test_left_right_wrong_and_misspelt_in_a_kernel():
    """Notebook 01's first blank in a real kernel, filled in four ways, and a guess."""
    blank = next(blank for blank in BLANKS if blank.name == "pi_array")
    stub, asked, kits = (cell.source for cell in blank.cells)
    written = blank.kits + "\n"
    ways = [
        stub,
        written,
        written.replace("x * x + y * y", "x + y"),
        written.replace("return float(", "return float(("),
    ]
    sources = [
        "import numpy as np\nfrom pi2zero_course.checks.blanks import blanks_left, guessed, "
        "solution, pi as check"
    ]
    sources += [source for way in ways for source in (way, asked, kits, "blanks_left()")]
    sources += [
        "guessed(None, 793)",
        "guessed(800, 793, 'darts')",
        "guessed('many', 793)",
        "check.pi_array(pi_array(10))",
        "inside_guess = 800  # your number in place of None: how many of the 1,000?",
        "guessed(inside_guess, 793, 'darts')",
        "loop_guess = 10  # seconds\nguessed(loop_guess, 52.4, 's')\nskipped_guess = None  # why?",
        "blanks_left()",
    ]
    said = said_in_a_kernel(sources)
    left, right, wrong, misspelt, (none, number, word, called), (*_, guesses) = (
        said[at : at + 4] for at in range(1, len(said), 4)
    )
    kits = "The kit's pi_array is used from here on"
    assert left[1].startswith("pi_array is still to be written.") and left[2:] == [
        f"{kits}.\n",
        "Blanks of this notebook: 1. 0 written. Still to be written: pi_array.\n",
    ]
    assert (
        right[1].startswith("pi_array is right.")
        and right[2] == "Your pi_array is used from here on.\n"
    )
    assert right[3] == "Blanks of this notebook: 1. 1 written: 1 accepted (pi_array).\n"
    assert wrong[3] == "Blanks of this notebook: 1. 1 written: 1 not yet (pi_array).\n"
    assert "a triangle" in wrong[1] and "Traceback" not in wrong[1]
    assert wrong[2] == f"{kits}, because the check has not accepted yours.\n"
    assert "SyntaxError" in misspelt[0] and misspelt[2] == f"{kits}.\n"
    assert misspelt[1].startswith("pi_array is the kit's now.")
    assert (none, number, word) == (
        "",
        "You guessed 800 darts; it is 793 darts.\n",
        "You guessed 'many'; it is 793.\n",
    )
    assert "without brackets" in called
    assert guesses.splitlines()[1:] == [
        "Guesses: 2 of 3 questions, 1 right or close.",
        "- how many of the 1,000?: you guessed 800 darts, it is 793 darts: close",
        "- seconds: you guessed 10 s, it is 52.4 s: too low, by a factor of 5.2",
    ]


@pytest.mark.parametrize(
    ("guess", "measured", "outcome"),
    [
        (6, 6, ("right", True)),
        ("reduce", "gather", ("not right", False)),
        ("many", 6, ("not right", False)),
        (5.5, 6, ("close", True)),
        (5, 6, ("too low", False)),
        (0, 6, ("too low", False)),
        (12, 6, ("too high, by a factor of 2", False)),
    ],
)
def test_a_guess_is_compared_in_words(guess, measured, outcome):
    assert blanks._compare(guess, measured) == outcome
