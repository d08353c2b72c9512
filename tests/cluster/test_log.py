"""One log for each cluster: its processes write into it, and it outlives the cluster."""

import os
import re
import time

import pytest
from faults.kernel import Notebook, wait_until_gone

import pi2zero
from pi2zero import log


@pytest.fixture
def logs(tmp_path, monkeypatch, shared_clusters):
    """The folder of logs, for this test alone: a cluster of other tests would keep its log there,
    too, when a start ends it."""
    for ranks in shared_clusters:
        ranks.stop()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "pi2zero" / "logs"


def kept_log(logs):
    (file,) = logs.iterdir()
    return file.read_text()


@pytest.mark.long
def test_a_log_tells_what_happened_but_no_cell_s_text(logs, monkeypatch):
    monkeypatch.setenv("PI2ZERO_SOMETHING", "a setting")
    monkeypatch.setenv("PI2ZERO_TOKEN", "my secret")
    ranks = pi2zero.start(n=2)
    ranks.run("word = 'my secret'\nprint(word)")
    with pytest.raises(pi2zero.RankError):
        ranks.run("import os\nif os.environ['OMPI_COMM_WORLD_RANK'] == '1': os._exit(3)")
    ranks.run("1")
    ranks.stop()
    text = kept_log(logs)
    for line in (
        (
            r"INFO kernel \d+: starting 2 ranks; versions .*ipyparallel"
            r".*'PI2ZERO_SOMETHING': 'a setting'"
        ),
        r"INFO rank 1 \d+: is up on ",
        r"INFO kernel \d+: cell on ranks 0 and 1: .* s, succeeded",
        r"cell on ranks 0 and 1: .* s, rank 1 died: its process ended with exit code 3",
        r"the ranks are up again after ",
        r"INFO kernel \d+: stopping",
    ):
        assert re.search(line, text), text
    assert "my secret" not in text


@pytest.mark.long
def test_the_watchdog_keeps_the_log_of_a_kernel_that_was_killed(logs):
    book = Notebook()
    try:
        assert (reply := book.run("import pi2zero\ncluster = pi2zero.start(n=1)")).ok, reply.text
        book.kill()
        assert not wait_until_gone(book, book.owner, 20)[1]
        deadline = time.monotonic() + 10
        while not list(logs.glob("*")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        book.close()
    assert re.search(r"INFO watchdog \d+: ended [1-9]\d* processes", kept_log(logs))


def test_only_the_last_logs_are_kept(logs, tmp_path):
    for number in range(log.LAST + 2):
        run_dir = tmp_path / f"run-{number:08}"
        run_dir.mkdir()
        (run_dir / log.NAME).write_text(f"{number}\n")
        log.keep(run_dir)
    assert len(log.kept()) == log.LAST
    assert log.kept()[-1].read_text() == f"{log.LAST + 1}\n"


def test_a_full_disk_ends_nothing(tmp_path, capsys):
    log.write_to(tmp_path / "no such folder", os.fspath(tmp_path))
    log.logger.error("cannot be written")
    with log.failures("divide", ZeroDivisionError):
        1 / 0  # noqa: B018
    assert capsys.readouterr() == ("", "")
