"""What the start of a cluster rests on, on real controllers."""

import contextlib
import json
import threading
import time
from pathlib import Path

import psutil
import pytest

from pi2zero import ownership
from pi2zero.cluster import engines


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The cluster's private folder, known before it starts."""
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setattr(ownership, "make_run_dir", lambda within: tmp_path / "run")
    return tmp_path / "run"


def controllers():
    """ipyparallel's controllers that this process has started."""
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if "ipyparallel.controller" in child.cmdline()
    ]


@pytest.mark.long
def test_ranks_never_see_half_an_address(folder):
    read, ended = [], threading.Event()

    def look():
        while not ended.wait(
            0.001
        ):  # often, but not without rest: this process has the ranks to wait for, too
            if (folder / "controller.json").exists():
                read.append(json.loads((folder / "controller.json").read_text()))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        started = engines.Engines(1, lambda what: None)
        mode = (folder / "controller.json").stat().st_mode & 0o777
        started.stop()
    finally:
        ended.set()
        looking.join()
    assert mode == 0o600 and len(read) > 1 and all(one == read[0] for one in read)
    assert read[0].keys() >= {"key", "interface", "registration"}


def test_a_controller_that_ends_says_why(folder):
    ended, others = (
        [],
        {process.pid for process in controllers()},
    )  # of ranks that an earlier file's tests have left running

    def end_it():
        deadline = time.monotonic() + 60
        while not ended and time.monotonic() < deadline:
            with contextlib.suppress(psutil.Error):  # it has not become a controller yet
                ended.extend(process for process in controllers() if process.pid not in others)
        for process in ended:
            process.kill()

    ending = threading.Thread(target=end_it)
    ending.start()
    with pytest.raises(engines.ClusterError, match=r"controller did not start\. It said:"):
        engines.Engines(1, lambda what: None)
    ending.join()
    assert len(ended) == 1 and not ended[0].is_running() and not folder.exists()


def test_output_that_comes_after_the_answer_is_shown(cluster, capsys):
    """Output is sent apart from answers and may be late. Here its process rests for 2 s."""
    controller = cluster._engines.ipp.controller
    port = int(json.loads(Path(controller.connection_files["engine"]).read_text())["iopub"])
    children = psutil.Process(controller.pid).children(recursive=True)
    (relay,) = [
        child
        for child in children
        if port in {one.laddr.port for one in child.net_connections() if one.status == "LISTEN"}
    ]
    relay.suspend()
    goes_on = threading.Timer(2, relay.resume)
    goes_on.start()
    cluster.run("print('here')")
    goes_on.join()
    assert capsys.readouterr().out == "".join(
        f"[stdout:{rank}] here\n" for rank in range(cluster.n)
    )
