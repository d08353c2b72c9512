"""What a report says: which lines of a stack, who waited, what to do about an error's own words."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from ipykernel.compiler import get_file_name

from pi2zero.cluster import report
from pi2zero.cluster.advice import advice_for
from pi2zero.cluster.report import CellSources, Frame, Outcome, RankError, _describe_stuck

CELL = "x = 1\ntrain(x)\n"


@pytest.fixture
def sources():
    sources = CellSources()
    sources.add(CELL)
    return sources


def in_cell(line, function="<module>"):
    return Frame(f"/tmp/ipykernel_7/{Path(get_file_name(CELL)).name}", line, function)


def deep_stack(depth=30):
    library = [Frame("/lib/torch/nn/modules/module.py", line, "call") for line in range(depth)]
    return [*library, in_cell(2), Frame("/lib/runner.py", 1, "run")]


def test_the_innermost_line_of_a_cell_is_shown_whatever_lies_above_it(sources):
    places = sources.shown(deep_stack())
    assert len(places) == 6 and places[-1] == "cell line 2:  train(x)"
    assert places[0] == "nn/modules/module.py, line 0 in call()"


def test_the_kits_own_frames_are_not_shown(sources):
    kit = Frame("/env/site-packages/pi2zero/cluster/capped_stream.py", 67, "_divert")
    course = Frame("/w/course/src/pi2zero_course/checks/framework/waiting.py", 38, "until")
    assert sources.shown([kit, course, in_cell(2)]) == ["cell line 2:  train(x)"]
    own = Frame("/home/me/pi2zero/scripts/train.py", 3, "step")  # a clone may have this name
    assert sources.shown([own])[0].startswith("pi2zero/scripts/train.py, line 3")


def test_one_waiting_rank_is_not_said_to_wait_for_each_other(sources):
    alone = Outcome(stuck={0: [in_cell(2)]}, finished=[1, 2], seconds_waited=3.2, abandoned=True)
    text = _describe_stuck(alone, sources)
    assert text.splitlines() == [
        "Rank 0 waited for other ranks for 3 s; no rank was left that could come. It is here:",
        "  rank 0: cell line 2:  train(x)",
        "Ranks 1 and 2 had finished the cell.",
    ]
    pair = Outcome(stuck={0: [in_cell(2)], 1: [in_cell(1)]}, seconds_waited=30.0)
    assert _describe_stuck(pair, sources).startswith("These ranks waited for each other for 30 s")


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("MPI_ERR_ARG: invalid argument of some other kind", ["2,147,483,647", "in parts"]),
        ("[gloo/device.cc:151] Unable to find address for: ib0", ["GLOO_SOCKET_IFNAME", "lo"]),
        ("MPI_ERR_TRUNCATE: message truncated", []),
    ],
)
def test_what_an_error_does_not_say_itself(message, says):
    advice = " ".join(advice_for(message))
    assert all(word in advice for word in says) and bool(advice) == bool(says)


def error_of_rich():
    """Stands for what rich puts into the shell."""


@pytest.mark.parametrize("replaced", [True, False])
def test_a_report_is_seen_also_where_another_package_shows_errors(monkeypatch, capsys, replaced):
    """As `rich.traceback.install()` does; `_render_traceback_` is IPython's own."""
    from IPython.core.interactiveshell import InteractiveShell

    shown_by = error_of_rich if replaced else InteractiveShell._showtraceback
    shell = SimpleNamespace(_showtraceback=shown_by)
    monkeypatch.setattr(report, "get_ipython", lambda: shell)
    error = RankError("Rank 1 died.\nAll ranks are being restarted.", "rank 1 died")
    assert report.visible(error) is error
    assert ("are being restarted" in capsys.readouterr().err) == replaced
