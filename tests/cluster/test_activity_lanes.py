"""What each rank has done, as a line, as lanes, and as data for the status bar."""

import re

import pytest

from pi2zero.cluster.activity_lanes import COLOURS, ActivityLanes
from pi2zero.cluster.activity_sampler import Sample


def sample(state, seconds=0.0, method="", line=1):
    return Sample(1, state, seconds, method, [("cell", line, "<module>")])


@pytest.fixture
def lanes():
    """Ten seconds of four ranks: the last one computes, two wait for it, one ends after 4 s."""
    shown = ActivityLanes([0, 1, 2, 3], lambda stack: f"cell line {stack[0][1]}:  f(<x>)")
    assert shown.text() == "0 s: ranks 0, 1, 2 and 3 compute"
    for tenth in range(5, 101, 5):
        now, others = tenth / 10, {}
        if now >= 2:  # they have waited since 1.5 s
            others = dict.fromkeys((1, 2), sample("waits", now - 1.5, "Barrier", 7))
        samples = {0: sample("rests"), 3: sample("runs", line=4 if now < 9 else 5), **others}
        shown.note(now, samples, [1, 2, 3] if now >= 4 else [0, 1, 2, 3])
    return shown


def test_one_line_says_what_each_rank_does_and_where(lanes):
    assert lanes.text() == (
        "10 s: rank 0 is done; ranks 1 and 2 wait in Barrier, cell line 7: f(<x>); "
        "rank 3 computes, cell line 5: f(<x>)"
    )
    assert lanes.bundle()["text/plain"] == lanes.text()


def test_the_status_bar_gets_the_same(lanes):
    status = lanes.status()
    assert status["status"] == "4 ranks, 10 s: 1 is done, 2 wait in Barrier, 1 computes"
    assert not status["ended"] and status["seconds"] == 10
    assert status["ranks"][1] == {
        "rank": 1,
        "does": "waits",
        "seconds": 8.5,
        "where": "in Barrier, cell line 7: f(<x>)",
    }


def test_the_summary_says_who_waited(lanes):
    lanes.end(10.0, {})
    assert (
        lanes.summary() == lanes.status(ended=True)["status"] == "10.0 s; ranks 1 and 2 waited 85 %"
    )
    lanes.end(10.0, {3: "signal SIGKILL"})
    assert lanes.summary() == "10.0 s; rank 3 died; ranks 1 and 2 waited 85 %"
    assert ActivityLanes([0], str).summary() == "0.0 s; no rank waited for others"


def test_the_lanes_have_the_colours_and_hover_says_line_and_call(lanes):
    html = lanes.html(ended=False)
    rows = re.split(r'<div style="display:flex', html)[1:]
    drawn = [re.findall(r"flex:([\d.]+) 0 0;background:(#\w+)", row) for row in rows]
    assert drawn[1] == [("1.50", COLOURS["computes"]), ("8.50", COLOURS["waits"])]
    assert drawn[0][-1] == ("6.00", COLOURS["done"])
    assert 'title="rank 1, 1.5 to 10.0 s: waits in Barrier, cell line 7: f(&lt;x&gt;)"' in rows[1]
    lanes.end(10.0, {2: "gone"})
    assert lanes.html(ended=True).startswith("<details") and "<summary>10.0 s; " in lanes.html(True)


def test_a_long_cell_of_many_ranks_stays_small():
    lanes = ActivityLanes(list(range(64)), lambda stack: f"cell line {stack[0][1]}")
    for at in range(400):
        states = {rank: sample(("waits", "runs")[(at + rank) % 2]) for rank in range(64)}
        lanes.note(at / 2, states, list(range(64)))
    assert len(lanes.html(False)) < 150_000
    assert len(lanes.text()) < 400
    shares = [int(share) for share in re.findall(r"waited (\d+) %", lanes.summary())]
    assert all(45 <= share <= 55 for share in shares) and shares
