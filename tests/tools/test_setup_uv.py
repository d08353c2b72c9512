"""What uv is told: pip's settings, and which build of torch."""

import functools
import http.server
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from pi2zero.doctor.table import patience

ROOT = Path(__file__).parents[2]

CONF = """[global]
index-url = https://mirror.example/simple
timeout = 7.5
cert = /etc/site.pem
[install]
extra-index-url =
    https://one.example/simple
    https://two.example/simple
trusted-host = one.example two.example
find-links = /wheels
"""


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """setup_uv, and what pip of this environment says of its settings: of CONF and of variables."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    import setup_uv

    def ask(conf="", **variables):
        (tmp_path / "pip.conf").write_text(conf)
        env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PIP_", "UV_"))
        }
        env |= {
            "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"),
            "XDG_CONFIG_DIRS": str(tmp_path),
            "HOME": str(tmp_path),
        } | variables
        found = setup_uv.pip_settings(sys.executable, env)
        return found, setup_uv.uv_environment(found, env)

    return ask


def test_uv_gets_what_pip_is_told(settings, tmp_path):
    links = f"/none {tmp_path} https://wheels.example/all"
    _, env = settings(
        CONF, PIP_PROXY="http://proxy.example:3128", PIP_FIND_LINKS=links, PIP_NO_INDEX="no"
    )
    assert env["UV_DEFAULT_INDEX"] == "https://mirror.example/simple"
    assert env["UV_INDEX"] == "https://one.example/simple https://two.example/simple"
    assert env["UV_INSECURE_HOST"] == "one.example two.example"
    expected = f"{tmp_path},https://wheels.example/all"  # a variable stands above a file; as pip, no folder that is not there
    assert env["UV_FIND_LINKS"] == expected
    assert (env["UV_HTTP_TIMEOUT"], env["SSL_CERT_FILE"]) == ("7", "/etc/site.pem")
    assert env["HTTPS_PROXY"] == env["ALL_PROXY"] == "http://proxy.example:3128"
    assert (
        env["UV_INDEX_STRATEGY"] == "unsafe-best-match" and "UV_NO_INDEX" not in env
    )  # the best of all indexes, as pip
    assert settings(PIP_NO_INDEX="1", PIP_NO_CACHE_DIR="true")[1]["UV_NO_CACHE"] == "1"


def test_what_is_said_to_uv_itself_wins_unless_it_leads_elsewhere(settings):
    _, env = settings(
        CONF,
        UV_DEFAULT_INDEX="https://mine.example/simple",
        UV_SYSTEM_PYTHON="1",
        VIRTUAL_ENV="/elsewhere",
    )
    assert env["UV_DEFAULT_INDEX"] == "https://mine.example/simple"
    assert not {"UV_SYSTEM_PYTHON", "VIRTUAL_ENV"} & env.keys()


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """setup_packages.Packages of this environment, as a user has it who has set nothing but these variables."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    import setup_packages

    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with (tmp_path / "lock").open("w") as lock:
        yield lambda: setup_packages.Packages(sys.prefix, str(tmp_path / "log"), lock)


@pytest.fixture
def pytorch(monkeypatch, tmp_path):
    """A server in the place of PyTorch's own index."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    import setup_uv

    (tmp_path / "cpu" / "torch").mkdir(parents=True)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(setup_uv, "PYTORCH", f"http://127.0.0.1:{server.server_port}/")
        yield server
        server.shutdown()


def with_gpu(monkeypatch, folder, listed):
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\necho '{listed}'\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_the_build_of_torch_follows_the_machine(packages, pytorch, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert packages().torch() == (["--torch-backend", "cpu"], False)
    with_gpu(monkeypatch, tmp_path, "No devices were found")
    assert packages().torch() == (["--torch-backend", "cpu"], False)
    with_gpu(monkeypatch, tmp_path, "GPU 0: NVIDIA H200 (UUID: GPU-0)")
    assert packages().torch() == (["--torch-backend", "auto"], True)
    monkeypatch.setenv("UV_TORCH_BACKEND", "cu126")
    assert packages().torch() == (["--torch-backend", "cu126"], True)


def test_who_cannot_reach_pytorch_gets_what_pip_is_set_to(packages, pytorch, monkeypatch, tmp_path):
    """PyPI's torch carries CUDA and asks for more disk; who has set an index or a folder decides."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert packages().torch() == ([], False)
    monkeypatch.delenv("PIP_NO_INDEX")
    pytorch.shutdown()
    pytorch.server_close()
    begin = time.monotonic()
    assert packages().torch() == ([], sys.platform.startswith("linux"))
    assert time.monotonic() - begin < 6 * patience()
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert packages().torch() == ([], False)


def test_options_for_another_python_do_not_reach_pip(packages, monkeypatch):
    for name in ("PYTHONPATH", "PIP_TARGET", "PIP_PREFIX"):
        monkeypatch.setenv(name, "/elsewhere")
    monkeypatch.setenv("PIP_USER", "1")
    assert not {"PYTHONPATH", "PIP_TARGET", "PIP_PREFIX"} & packages().env.keys()
    assert packages().env["PIP_USER"] == "0"


def test_another_torch_than_the_one_that_is_asked_for_is_not_taken(
    packages, pytorch, monkeypatch, capsys
):
    """A login node without a GPU makes the environment for nodes that have one: PyPI's build may not suit their driver."""
    monkeypatch.setenv("UV_TORCH_BACKEND", "cu126")
    asked = packages()
    tried = []
    monkeypatch.setattr(
        asked, "install", lambda words, **_: tried.append(words)
    )  # it cannot be had
    with pytest.raises(SystemExit):
        asked.install_torch("torch==2.0", asked.torch()[0], "requirements.txt")
    assert (
        len(tried) == 1
        and "torch for UV_TORCH_BACKEND=cu126 cannot be had here" in capsys.readouterr().err
    )
