"""Which source of stories is in use; no long wait without a network. All servers are local."""

import contextlib
import http.server
import os
import socket
import subprocess
import sys
import threading
import time

import datasets
import huggingface_hub
import pytest
from huggingface_hub import constants
from small_hub import Hub, tables

from pi2zero_course.summarization import data
from pi2zero_course.summarization.data import dailymail, news

FEW = {"train": 6, "validation": 2, "test": 2}
PROGRAM = """
import socket, time
look_up = socket.getaddrinfo
def loopback_only(host, *rest, **more):
    if {silent}:
        time.sleep(60)
    if host not in (None, "localhost", "127.0.0.1"):
        raise socket.gaierror(f"{{host}} is not on loopback")
    return look_up(host, *rest, **more)
socket.getaddrinfo = loopback_only
start = time.monotonic()
from pi2zero_course.summarization import data
stories = data.load({source!r}, counts={{"train": 5}})
print(stories.name, [len(stories.splits[split]) for split in data.SPLITS], \
round(time.monotonic() - start, 2), sep="|")
print(stories.splits["train"].column_names, stories.splits["test"][1])
"""


@pytest.fixture
def no_cache(tmp_path, monkeypatch):
    """Nothing is in the cache, no setting of this machine holds, and HTTP clients are new."""
    for name in list(os.environ):
        if name.upper().endswith(("_PROXY", "_OFFLINE", "_DAILYMAIL")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "no cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    huggingface_hub.close_session()
    yield
    huggingface_hub.close_session()


def run(home, endpoint, source="auto", silent=False, **settings):
    """The program's output, in its own process: the libraries read their settings at import."""
    env = {
        name: value
        for name, value in os.environ.items()
        if "proxy" not in name.lower() and name[:3] not in ("HF_", "PI2")
    }
    env |= {"HF_HOME": str(home), "HF_ENDPOINT": endpoint, **settings}
    program = PROGRAM.format(source=source, silent=silent)
    return subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60
    )


def test_real_set_from_the_hub_then_from_the_cache(tmp_path):
    with Hub(tables()) as hub:
        first = run(tmp_path, hub.url)
        assert first.returncode == 0, first.stderr
        assert f"CNN/DailyMail is loaded from {hub.url}: 0.8 GB, once." in first.stdout
        assert "cnn_dailymail|[5, 4, 4]|" in first.stdout
        row = {"id": "test1", "article": "test 1 .", "highlights": "One .\nTwo ."}
        assert first.stdout.splitlines()[-1] == f"['id', 'article', 'highlights'] {row}"
        assert any("/3.0.0/train-00000-of-00001.parquet" in request for request in hub.requests)
        asked = len(hub.requests)
        assert (
            "from the cache of `datasets`" in run(tmp_path, hub.url).stdout
            and len(hub.requests) == asked
        )
    for lock in tmp_path.rglob("*.lock"):
        lock.unlink()
    for settings in ({}, {"HF_HUB_OFFLINE": "1"}):
        offline = run(tmp_path, hub.url, "real", **settings)
        assert offline.returncode == 0, offline.stderr
        assert "CNN/DailyMail 3.0.0 is in use, from the cache of `datasets`" in offline.stdout
        assert "cnn_dailymail|[5, 4, 4]|" in offline.stdout and not offline.stderr
        assert offline.stdout.splitlines()[-1] == first.stdout.splitlines()[-1]
        assert not list(tmp_path.rglob("*.lock")), "the cache may be another's, and read-only"
    next(tmp_path.rglob("*-test.arrow")).unlink()
    damaged = run(tmp_path, hub.url, HF_HUB_OFFLINE="1")
    assert "not CNN/DailyMail: the cache has no complete copy, and HF_" in damaged.stdout
    assert "embedded|[5, 500, 500]|" in damaged.stdout and not damaged.stderr


def test_a_resolver_that_never_answers(tmp_path):
    """Not even at the end of the process is there a wait for it."""
    start = time.monotonic()
    done = run(tmp_path, "http://hub.invalid", silent=True)
    assert done.returncode == 0, done.stderr
    assert "not CNN/DailyMail: no answer from the hub in 3 s (http://hub.invalid)." in done.stdout
    name, sizes, seconds = done.stdout.splitlines()[-2].split("|")
    assert (name, sizes) == ("embedded", "[5, 500, 500]") and float(
        seconds
    ) < 40  # of the 60 s that the resolver sleeps
    assert time.monotonic() - start < 50


@contextlib.contextmanager
def refusing():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    yield port


@contextlib.contextmanager
def silent():
    """A server that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = []
        threading.Thread(target=lambda: kept.append(server.accept()), daemon=True).start()
        yield server.getsockname()[1]
        for connection, _ in kept:
            connection.close()


@contextlib.contextmanager
def portal():
    """A server that is not a hub: a hotel's log-in page."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (refusing, "cannot be reached"),
        (silent, "no answer from the hub in 3 s"),
        (portal, "answers, but not as the hub does (status 200"),
    ],
)
def test_offline_is_known_within_seconds(server, reason, no_cache, monkeypatch):
    said = []
    with server() as port:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
        start = time.monotonic()
        stories = data.load(counts=FEW, say=said.append)
        assert (
            time.monotonic() - start < 20
        )  # it waits for 3 s, and the machine may be busy; a firewall's silence lasts minutes
    assert stories.name == "embedded" and said == [stories.why]
    assert reason in stories.why and f"127.0.0.1:{port}" in stories.why
    assert {split: len(rows) for split, rows in stories.splits.items()} == FEW


def test_real_offline_says_what_to_do(no_cache, monkeypatch):
    with refusing() as port:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
        with pytest.raises(
            OSError,
            match=r"cannot be reached .* Expected: .* in the cache .*HF_ENDPOINT .* load\('emb",
        ):
            data.load("real", say=print)


def test_a_hub_that_answers_without_the_files(no_cache, monkeypatch, tmp_path):
    with Hub({}) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            hub.url + "/{repo_id}/resolve/{revision}/{filename}",
        )
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        stories = data.load(counts=FEW, say=lambda text: None)
    assert (
        stories.name == "embedded" and "the hub answers, but the download failed (" in stories.why
    )


def test_a_cache_that_cannot_be_read(no_cache, monkeypatch, tmp_path):
    """As root every folder can be read, so its name is too long."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / ("x" * 300))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    why = data.load(counts=FEW, say=lambda text: None).why
    assert "xxx cannot be read (File name too long), and HF_HUB_OFFLINE forbids" in why


@pytest.mark.parametrize("setting", ["HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"])
def test_offline_settings_hold_without_a_question(setting, no_cache, monkeypatch):
    monkeypatch.setenv(setting, "1")
    monkeypatch.setattr(dailymail, "unreachable", lambda: pytest.fail("the hub was asked"))
    assert (
        f"the cache has no complete copy, and {setting} forbids"
        in data.load(counts=FEW, say=lambda text: None).why
    )
    with pytest.raises(OSError, match=setting):
        data.load("real")


def test_no_download_asks_nobody(no_cache, monkeypatch):
    monkeypatch.setattr(dailymail, "unreachable", lambda: pytest.fail("the hub was asked"))
    assert data.load(download=False, counts=FEW, say=lambda text: None).name == "embedded"
    with pytest.raises(OSError, match="downloads are switched off"):
        data.load("real", download=False)


def test_the_question_goes_through_a_proxy(no_cache, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://hub.invalid")
    with Hub({}) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert dailymail.unreachable() is None
    assert proxy.requests == [
        "HEAD http://hub.invalid/datasets/abisee/cnn_dailymail/resolve/main/README.md"
    ]


def test_embedded(capsys):
    stories = data.load("embedded", counts=FEW, seed=3)
    assert stories.splits["test"].to_list() == news.stories("test", 2, seed=3)
    assert stories.splits["train"].column_names == ["id", "article", "highlights"]
    assert stories.name == "embedded" and not stories.skipped
    assert capsys.readouterr().out == "The kit's own generated stories are in use, as you asked.\n"


def test_a_draw_is_the_same_each_time_and_in_order():
    rows = datasets.Dataset.from_list([{"id": i} for i in range(50)])
    drawn = dailymail.draw(rows, 9, seed=1)["id"]
    assert list(drawn) == sorted(drawn) and len(set(drawn)) == 9 and list(drawn) != list(range(9))
    assert (
        list(drawn)
        == list(dailymail.draw(rows, 9, seed=1)["id"])
        != list(dailymail.draw(rows, 9, seed=2)["id"])
    )
    assert len(dailymail.draw(rows, 99, seed=1)) == len(dailymail.draw(rows, None, seed=1)) == 50


@pytest.mark.parametrize("counts", [{"training": 3}, {"train": 0}, {"train": True}, {"train": 2.5}])
def test_counts_that_make_no_sense(counts):
    with pytest.raises(ValueError, match=r"no split|whole number"):
        data.load("embedded", counts=counts)
