"""What is shown of the ranks next to their output: a progress bar for each."""

from types import SimpleNamespace

import psutil
import pytest

from pi2zero.cluster import display
from pi2zero.cluster.display import RankBars


def test_bars_in_plain_text():
    text = RankBars.text(
        {
            0: {"progress": 0.5, "step": 10, "loss": 1.23456, "tokens/s": 24321.0},
            3: {"progress": 1.2, "step": 20},
        }
    )
    assert text.splitlines() == [
        "rank 0 [###############...............] step 10, loss 1.23, tokens/s 24,321",
        "rank 3 [##############################] step 20",
    ]


def test_bars_as_html():
    assert RankBars.html({1: {"progress": 0.25, "<step>": 3}}) == (
        '<div>rank 1 <progress value="0.250" aria-label="rank 1"></progress> &lt;step&gt; 3</div>'
    )


def test_what_ranks_publish_is_shown(cluster, monkeypatch):
    shown = []
    monkeypatch.setattr(RankBars, "show", lambda self, published: shown.append(published))
    cluster.run("import os\nfrom ipyparallel.datapub import publish_data")
    cluster.run("publish_data({'progress': int(os.environ['OMPI_COMM_WORLD_RANK']) / 2})")
    assert shown[-1] == {rank: {"progress": rank / 2} for rank in range(cluster.n)}
    cluster.run("1 + 1")
    assert shown[-1] == {rank: {} for rank in range(cluster.n)}


LAB, CONSOLE = ["python", "-m", "jupyterlab"], ["/bin/python", "/bin/jupyter-console"]


@pytest.mark.parametrize(
    "request_, parent, watched",
    [
        ({"code": "%%px", "allow_stdin": True}, LAB, True),
        ({"code": "%%px", "allow_stdin": False}, ["python", "-m", "nbclient"], False),
        ({"code": "%%px", "allow_stdin": True}, CONSOLE, False),
        ({"comm_id": "of a widget's callback"}, LAB, True),
        (None, LAB, False),  # a terminal's IPython
    ],
)
def test_who_can_see_what_is_replaced(monkeypatch, request_, parent, watched):
    kernel = SimpleNamespace(get_parent=lambda channel: {"content": request_})
    shell = SimpleNamespace(kernel=kernel if request_ else None)
    monkeypatch.setattr(display, "get_ipython", lambda: shell)
    monkeypatch.setattr(psutil.Process, "parent", lambda _: SimpleNamespace(cmdline=lambda: parent))
    display._parent_is_a_console.cache_clear()
    assert display.is_watched() == watched
    assert display.is_px_cell() == ("code" in (request_ or {}))
    display._parent_is_a_console.cache_clear()


@pytest.mark.parametrize(("parent", "printed"), [(CONSOLE, "2 ranks are up\n"), (LAB, "")])
def test_a_console_prints_a_status_line_s_end(monkeypatch, capsys, parent, printed):
    shell, shown = SimpleNamespace(kernel=None), []
    monkeypatch.setattr(display, "get_ipython", lambda: shell)
    monkeypatch.setattr(display.LiveDisplay, "show", lambda _, bundle: shown.append(bundle))
    monkeypatch.setattr(psutil.Process, "parent", lambda _: SimpleNamespace(cmdline=lambda: parent))
    display._parent_is_a_console.cache_clear()
    status = display.StatusLine("Starting 2 ranks")
    status("the controller")
    status.done("2 ranks are up")
    assert capsys.readouterr().out == printed and len(shown) == 2 * (not printed)
    display._parent_is_a_console.cache_clear()
