"""What replay would do again: cells in their first order, without definitions that were replaced; the latest values sent."""

import pytest

from pi2zero.cluster.history import Cell, History, Sending


def history(*steps):
    """From cells (a source, or a source and its targets) and dicts that were sent (to all, or to a rank)."""
    made = History()
    for step in steps:
        what, where = step if isinstance(step, tuple) else (step, None)
        if isinstance(what, dict):
            made.add_sending(what, where)
        else:
            made.add_cell(Cell(what, where, 30.0))
    return made


def told(made):
    return [str(entry) for entry in made.entries]


def test_a_cell_run_again_keeps_its_first_place():
    assert told(history("a = 1", "b = 2", "a = 1")) == ["a = 1", "b = 2"]


def test_the_same_cell_on_other_ranks_is_another():
    assert len(history(("y = 2", [0]), ("y = 2", [1]))) == 2


def test_a_definition_that_was_replaced_goes():
    steps = "def f(): return 1", "x = f()", "def f(): return 2"
    assert told(history(*steps)) == ["def f(): return 2", "x = f()"], (
        "in its place: what comes after it may call it"
    )


@pytest.mark.parametrize(
    "later",
    [("def f(): return 2", [0]), "def g(): return 2", "f = 3 if 0 else f", "import numpy as np"],
    ids=["on one rank only", "another name", "no definition", "an import"],
)
def test_a_definition_that_is_still_needed_stays(later):
    made = history("def f(): return 1\ndef h(): return f()", later)
    assert told(made)[0] == "def f(): return 1"


def test_a_cell_that_does_more_than_define_stays():
    assert len(history("def f(): return 1\nx = f()", "def f(): return 2")) == 2


def test_a_decorated_definition_does_more_than_define():
    """The kit's answer to a blank looks at the learner's: so it comes after it, also when that is written again."""
    blank, mine, kits = (
        "def f(): raise NotImplementedError",
        "def f(): return 1",
        "@solution\ndef f(): return 2",
    )
    assert told(history(blank, "check.f(f)", kits, mine)) == [mine, "check.f(f)", "@solution"]


def test_only_the_latest_value_that_was_sent_is_kept():
    made = history({"a": 1, "b": 2}, {"a": 3}, ({"a": 4}, 1))
    assert made.entries == [Sending({"a": 3, "b": 2}), Sending({"a": 4}, 1)]


def test_empty_cells_and_cells_of_magics():
    made = history("", "  \n", "!ls", "%time x = 1", "def broken(:")
    assert told(made) == ["!ls", "%time x = 1", "def broken(:"]


def test_names():
    cells = (
        "import numpy as np, os.path\nfrom a import b as c",
        "for i in (1,): x, y = 1, 2",
        "class K: z = 1",
    )
    assert history(*cells, {"sent": 1}).names == {"np", "os", "c", "i", "x", "y", "K", "sent"}


def test_one_after_the_other():
    first, second = (
        history("a = 1", "def f(): return 1"),
        history("a = 1", "def f(): return 2", {"x": 1}),
    )
    assert told(first.then(second)) == ["a = 1", "def f(): return 2", "sends x"] and len(first) == 2
