"""What the kit uses of other packages without their promise, where no other test would notice.

reports/compatibility.md lists all such names, and the tests that notice when they are gone.
"""

import asyncio
import contextlib
import inspect
import sys
import time
from pathlib import Path

import ipyparallel
import psutil
import pytest
from ipyparallel.client.magics import ParallelMagics
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic_arguments import parse_argstring

import pi2zero
from pi2zero.cluster import magics
from pi2zero.cluster.blocking_calls import AUTOGRAD_FILES, MPI_WAITS, WAITING_FILES
from pi2zero.cluster.engines import drop_ipyparallel_caches
from pi2zero.cluster.safe_ast import builds_ast

SITE_PACKAGES = Path(psutil.__file__).parents[1]


def test_the_files_in_which_ranks_wait_are_there():
    horovod = (SITE_PACKAGES / "horovod").exists()
    files = [f for f in WAITING_FILES + AUTOGRAD_FILES if horovod or "horovod" not in f]
    assert not [file for file in files if not (SITE_PACKAGES / file.strip("/")).exists()]


def test_mpi4py_has_the_calls_that_wait():
    from mpi4py import MPI

    names = {name for kind in vars(MPI).values() if isinstance(kind, type) for name in dir(kind)}
    assert names >= MPI_WAITS


def test_ipython_parses_a_cell_where_the_sampler_looks():
    seen = []

    def profile(frame, event, function):
        if event == "c_call" and function is compile:
            seen.append(builds_ast(frame))

    shell = InteractiveShell()
    sys.setprofile(profile)
    try:
        shell.run_cell("x = 1")
    finally:
        sys.setprofile(None)
    assert True in seen
    assert shell.user_ns["open"].__code__.co_name == "_modified_open"


def test_an_option_of_px_that_is_new_must_be_done_or_refused():
    ours = magics.RankMagics(InteractiveShell(), None)
    known = {"block", "stream", "targets", "set_verbose", "groupby", "save_name", "local"}
    known |= {"progress_after_seconds", "signal_on_interrupt"}
    assert {*vars(parse_argstring(ParallelMagics.cell_px, ""))} == known
    assert {*vars(parse_argstring(ours.cell_px, ""))} == known | {"timeout"}


def test_settings_of_the_controller_and_the_engines():
    """An unknown one would be ignored in silence."""
    from ipyparallel.controller.heartmonitor import HeartMonitor
    from ipyparallel.engine.app import IPEngine
    from jupyter_client.session import Session

    for kind, names in {
        HeartMonitor: {"period", "max_heartmonitor_misses"},
        IPEngine: {"wait_for_url_file", "timeout", "max_heartbeat_misses"},
        Session: {"key"},
        ipyparallel.Cluster: {"load_profile", "delay", "send_engines_connection_env"},
    }.items():
        assert names <= kind.class_traits().keys()


def test_an_engine_calls_the_nanny_that_the_kit_has_forked():
    from ipyparallel.engine import app, nanny

    assert "start_nanny" in app.IPEngine.start_nanny.__code__.co_names
    assert app.start_nanny is nanny.start_nanny
    (given,) = [name for name in nanny.main.__code__.co_consts if name == "pipe"]
    assert given in inspect.signature(nanny.KernelNanny).parameters


def test_the_thread_of_ipyparallel_s_cluster_is_ended():
    cluster = ipyparallel.Cluster(n=1)

    async def within_a_loop():
        with contextlib.suppress(ValueError):  # nothing was started, but the thread is there
            cluster.stop_engines_sync()

    asyncio.run(within_a_loop())
    thread = cluster._async_thread
    assert thread.is_alive()
    drop_ipyparallel_caches(cluster)
    assert not thread.is_alive()


def test_ipython_forgets_the_magics_of_an_earlier_start():
    shell = InteractiveShell()
    before = len(shell.configurables)
    for cluster in (None, "first", "second"):
        magics.register(shell, cluster)
    assert len(shell.configurables) == before + 1
    assert magics.cluster_of(shell) == "second"


@pytest.fixture(scope="module")
def two():
    """Two ranks that need not stay whole."""
    ranks = pi2zero.start(n=2)
    yield ranks
    ranks.stop()


@pytest.mark.long
def test_a_rank_is_busy_until_it_has_answered(two):
    result = two.send("import time\ntime.sleep(0.5)", [1])
    assert [two._engines.is_busy(rank) for rank in (0, 1)] == [False, True]
    result.get(10)
    deadline = time.monotonic() + 5
    while two._engines.is_busy(1):
        assert time.monotonic() < deadline


@pytest.mark.long
def test_no_cell_is_left_out_after_an_error(two):
    for _ in range(20):
        sent = [two.send(source, [0, 1]) for source in ("x = 0", "1 / 0", "x = 1")]
        assert [result.status for result in sent[2].get(10)] == ["ok", "ok"]
    assert two.view["x"] == [1, 1]


@pytest.mark.long
def test_the_error_of_a_cell_on_one_rank(two):
    """ipyparallel does not split its result."""
    with pytest.raises(pi2zero.RankError, match=r"^rank 1 raised ZeroDivisionError: division"):
        two.run("1 / 0", [1])
