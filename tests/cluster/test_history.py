"""What replay does again: cells in their first order, the latest definitions, the latest values."""

import pytest

from pi2zero.cluster.history import Cell, History, PushedVariables, names_on


def history(*steps):
    """From cells (a source, or source and targets) and dicts that were sent (to all, or a rank)."""
    made = History()
    for step in steps:
        what, where = step if isinstance(step, tuple) else (step, None)
        if isinstance(what, dict):
            made.add_variables(what, where)
        else:
            made.add_cell(Cell(what, where, 30.0))
    return made


def steps_of(made):
    return [str(entry) for entry in made.entries]


@pytest.mark.parametrize(
    ("cells", "steps"),
    {
        "a cell that runs again keeps its first place": (
            ["a = 1", "b = 2", "a = 1"],
            ["a = 1", "b = 2"],
        ),
        "the same cell on other ranks is a second step": (
            [("y = 2", [0]), ("y = 2", [1])],
            ["y = 2", "y = 2"],
        ),
        "a definition comes last until a cell has succeeded with it": (
            ["def f(): return 1", "x = f()", "def f(): return 2"],
            ["def f(): return 1", "x = f()", "def f(): return 2"],
        ),
        "then it takes the place of the older one": (
            ["def f(): return 1", "x = f()", "def f(): return 2", "x = f()"],
            ["def f(): return 2", "x = f()"],
        ),
        "not if it cannot be made there": (
            ["def f(): return 1", "x = f()", "N = 3", "def f(n=N): return n", "x = f()"],
            ["def f(): return 1", "x = f()", "N = 3", "def f(n=N): return n"],
        ),
        "a definition that nothing has used is replaced where it stands": (
            ["def f(): return 1", "y = 1", "def f(): return 2"],
            ["y = 1", "def f(): return 2"],
        ),
        "a call in another definition, or on some of the ranks, proves nothing": (
            ["def f(): return 1", "def g(): return f()", ("x = f()", [0]), "def f(): return 2"],
            ["def g(): return f()", "x = f()", "def f(): return 2"],
        ),
        "a magic uses what it names": (
            ["def f(): return 1", "%time f()", "def f(): return 2"],
            ["def f(): return 1", "%time f()", "def f(): return 2"],
        ),
        "a cell that does more than define stays": (
            ["def f(): return 1\nx = f()", "def f(): return 2"],
            ["def f(): return 1", "def f(): return 2"],
        ),
        "the kit's answer to a blank has no need of one that is left": (
            ["def f(): raise NotImplementedError", "@solution\ndef f(): return 2", "f()"],
            ["@solution def f(): return 2", "f()"],
        ),
        "empty cells are left out, others need not be Python": (
            ["", "  \n", "!ls", "%time x = 1", "def broken(:"],
            ["!ls", "%time x = 1", "def broken(:"],
        ),
        "the latest value of a variable": (
            [{"a": 1, "b": 2}, {"a": 3}, ({"a": 4}, 1)],
            ["sends a, b", "sends a"],
        ),
    }.values(),
)
def test_steps(cells, steps):
    assert steps_of(history(*cells)) == steps


@pytest.mark.parametrize(
    "later",
    [("def f(): return 2", [0]), "def g(): return 2", "f = 3 if 0 else f", "import numpy as np"],
    ids=["on one rank only", "another name", "no definition", "an import"],
)
def test_a_definition_that_is_still_needed_stays(later):
    made = history("def f(): return 1\ndef h(): return f()", later)
    assert steps_of(made)[0] == "def f(): return 1"


def test_values():
    made = history({"a": 1, "b": 2}, {"a": 3}, ({"a": 4}, 1))
    assert made.entries == [PushedVariables({"a": 3, "b": 2}), PushedVariables({"a": 4}, 1)]


def test_names():
    cells = (
        "import numpy as np, os.path\nfrom a import b as c",
        "for i in (1,): x, y = 1, 2",
        "class K: z = 1",
    )
    names = names_on(history(*cells, {"sent": 1}, ("there = 1", [2])).entries, [0, 1])
    assert names == {"np", "os", "c", "i", "x", "y", "K", "sent"}


def suspects_of(made, cell, hung=True):
    return made.suspect(Cell(cell, None, 30.0), hung)


def test_suspects_are_what_a_cell_used_and_nothing_has_succeeded_with():
    made = history(
        "def proven(): pass\ndef new(): return inner()",
        "def inner(): pass\nclass Unused: pass",
        "proven()",
        "@solution\ndef kits(): pass",
    )
    assert suspects_of(made, "proven(); new(); kits(); print(1)") == {"new", "inner"}
    assert [getattr(entry, "suspects", None) for entry in made.entries] == [
        {"new"},
        {"inner"},
        set(),
        set(),
    ]
    assert not any(entry.hung for entry in made.entries)
    made.add_cell(Cell("new()", None, 30.0))
    assert not any(entry.suspects for entry in made.entries), "it works: nothing is suspect"
    assert suspects_of(made, "proven()") == set() and made.entries[2].hung
    made.add_cell(Cell("proven()", None, 30.0))
    assert not made.entries[2].hung


def test_after_a_replay_a_cell_proves_the_older_body_and_not_the_suspect():
    made = history("def f(): return 1", "f()", "def f(): hang()")
    assert suspects_of(made, "f()") == {"f"}
    made.lose()
    made.note_success(made.entries[0], {"f"})  # a replay
    made.add_cell(Cell("f()", None, 30.0))
    assert [entry.suspects for entry in made.entries] == [set(), set(), {"f"}]


def test_what_was_sent_again_to_new_ranks_is_not_lost():
    made = history({"a": 1, "b": 2}, "c = a")
    made.lose()
    made.add_variables({"a": 3}, None)
    assert [(str(entry), entry.lost) for entry in made.entries] == [
        ("sends b", True),
        ("sends a", False),
        ("c = a", True),
    ]


def test_steps_of_another_cluster_count_until_this_one_has_its_own():
    made = history("a = 1")
    made.lose()
    made.is_of_another_cluster = True
    made.lose()
    assert steps_of(made) == ["a = 1"]
    made.add_cell(Cell("b = 2", None, 30.0))
    made.lose()
    assert steps_of(made) == ["b = 2"] and made.lost == made.entries
