"""Which steps a replay does, and with which bodies, on a pretended rank."""

from types import SimpleNamespace

import pytest

from pi2zero.cluster import replay
from pi2zero.cluster.history import Cell, History
from pi2zero.cluster.report import Outcome


class OneRank:
    """What a replay needs of a cluster; the rank is a dict."""

    n = 1

    def __init__(self):
        self.history, self.names, self.kept = History(), {}, {}

    @property
    def view(self):
        return SimpleNamespace(push=self.names.update, apply_sync=self.apply)

    def apply(self, function, *arguments):
        if function is replay.keep_values:
            self.kept = {name: self.names[name] for name in arguments[0] if name in self.names}
        else:
            self.names.update(self.kept)

    def run(self, *cells):
        for source in cells:
            exec(source, self.names)
            self.history.add_cell(Cell(source, None, 30.0))

    def send(self, **values):
        self.names.update(values)
        self.history.add_variables(values, None)

    def run_unrecorded(self, cell, source, groupby):
        try:
            exec(source, self.names)
        except Exception as error:
            told = SimpleNamespace(ename=type(error).__name__, evalue=str(error))
            return Outcome(errors={0: told})
        return Outcome()

    def restart(self, hung=""):
        if hung:
            self.history.suspect(Cell(hung, None, 30.0), hung=True)
        self.history.lose()
        self.names = {}

    def replay(self, stop=None):
        replay.Replay(self, self.history, stop).run()


@pytest.fixture
def rank():
    rank = OneRank()
    rank.run("def f(): return 'old'", "x = f()")
    rank.send(a="old", b="old")
    return rank


def test_a_suspect_stays_away_until_it_is_written_again(rank, capsys):
    rank.run("def f(): return 'suspect'")
    for _ in range(2):
        rank.restart(hung="f()")
        rank.replay()
        rank.run("x = f()")
        assert rank.names["x"] == "old"
    assert "4 `def f(): return 'suspect'` (a cell that used it hung" in capsys.readouterr().out
    rank.run("def f(): return 'right'", "x = f()")
    rank.restart()
    rank.replay()
    assert rank.names["x"] == "right" and "Left out" not in capsys.readouterr().out


def test_what_was_told_anew_wins_now_and_later(rank):
    rank.restart()
    rank.run("def f(): return 'new'")
    rank.send(a="new")
    for _ in range(2):
        rank.replay()
        assert [rank.names[name] for name in "xab"] == ["new", "new", "old"]
        assert rank.names["f"]() == "new"
        rank.restart()


def test_a_replay_goes_on_where_one_has_ended(rank, capsys):
    rank.restart()
    rank.replay(stop=2)
    assert "x" in rank.names and "a" not in rank.names
    capsys.readouterr()
    rank.replay()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("✓ 3  sends a, b") and lines[1].startswith("Replayed 1 of 1")


def test_what_fails_is_tried_again_and_the_rest_is_done(rank, capsys):
    rank.run("import json\ny = json.loads(text) if 'text' in dir() else 1", "z = 1")
    rank.restart()
    rank.names["text"] = "no JSON"
    rank.replay()
    assert "✗ 4  import json  (JSONDecodeError: " in capsys.readouterr().out
    assert "z" in rank.names
    rank.names["text"] = "2"
    rank.replay()
    assert rank.names["y"] == 2
