"""What is shown of the ranks beside their output: a progress bar for each, and the state of them all."""

import threading
from types import SimpleNamespace

from pi2zero.cluster.api import MPICluster
from pi2zero.cluster.display import Bars


def test_bars_in_plain_text():
    text = Bars.text(
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
    assert Bars.html({1: {"progress": 0.25, "<step>": 3}}) == (
        '<div>rank 1 <progress value="0.250" aria-label="rank 1"></progress> &lt;step&gt; 3</div>'
    )


def test_what_ranks_publish_is_shown(cluster, monkeypatch):
    shown = []
    monkeypatch.setattr(Bars, "show", lambda self, published: shown.append(published))
    cluster.run("import os\nfrom ipyparallel.datapub import publish_data")
    cluster.run("publish_data({'progress': int(os.environ['OMPI_COMM_WORLD_RANK']) / 2})")
    assert shown[-1] == {rank: {"progress": rank / 2} for rank in range(cluster.n)}
    cluster.run("1 + 1")
    assert shown[-1] == {rank: {} for rank in range(cluster.n)}


def test_a_cluster_says_in_which_state_it_is():
    """Alone in a cell: a sign for who comes back to a notebook."""
    cluster = MPICluster.__new__(MPICluster)
    cluster.n, cluster._mended, cluster._mending_failed, dead = 4, threading.Event(), None, {}
    cluster._engines = SimpleNamespace(death_notes=lambda: dead)
    assert repr(cluster) == "<MPICluster: 4 ranks, being restarted>"
    cluster._mended.set()
    assert repr(cluster) == "<MPICluster: 4 ranks, ready>"
    dead[2] = "signal SIGKILL"
    assert repr(cluster) == "<MPICluster: 4 ranks, rank 2 died; the next cell says why>"
    dead.update(dict.fromkeys(range(4), "signal SIGKILL"))
    assert repr(cluster) == "<MPICluster: 4 ranks, all died; the next cell says why>"
    cluster._mending_failed = RuntimeError("their job is over")
    assert repr(cluster) == "<MPICluster: stopped>"
    cluster._engines = cluster._mending_failed = None
    assert repr(cluster) == "<MPICluster: stopped>"
