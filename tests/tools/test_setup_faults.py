"""More that is in the way of the set-up: networks, disks, caches, odd paths, and who presses Ctrl-C at any moment."""

import contextlib
import functools
import http.server
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from mounts import mounted
from test_setup import (  # noqa: F401  (fixtures)
    copy,
    in_copy,
    only_these,
    python_of,
    run_setup,
    sentences,
    small_wheel,
    start_setup,
    want,
    wheels,
)

pytestmark = pytest.mark.long


@pytest.fixture
def mute():
    """The port of a server that takes who comes and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    "conf",
    [
        pytest.param("proxy = http://127.0.0.1:9\nretries = 0", id="a proxy that refuses"),
        pytest.param(
            "index-url = http://127.0.0.1:{mute}/simple\nretries = 0\ntimeout = 1",
            id="an index that never answers",
        ),
    ],
)
def test_an_index_that_cannot_be_reached(copy, mute, conf):  # noqa: F811
    assert "a package index could not be reached" in sentences(
        in_copy(copy, conf=conf.format(mute=mute))
    )


class Slow(http.server.SimpleHTTPRequestHandler):
    """A server that sends 100 kB a second, and nothing for 4 s in the middle of a file."""

    def copyfile(self, source, outputfile):
        sent = 0
        while piece := source.read(20_000):
            outputfile.write(piece)
            time.sleep(4 if sent == 100_000 else 0.2)
            sent += len(piece)

    def log_message(self, *words):
        pass


def test_a_slow_network(copy, wheels):  # noqa: F811
    index = copy / "simple" / "alpha"
    index.mkdir(parents=True)
    want(
        copy,
        "uv",
        "setuptools",
        also=small_wheel(index, "alpha", "#" + random.Random(0).randbytes(150_000).hex()),
    )
    (index / "index.html").write_text(
        '<a href="alpha-1.0-py3-none-any.whl">alpha-1.0-py3-none-any.whl</a>'
    )
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Slow, directory=copy)
    ) as server:
        threading.Thread(target=server.serve_forever).start()
        address = f"http://127.0.0.1:{server.server_port}/simple"
        done = in_copy(copy, conf=f"index-url = {address}\nfind-links = {wheels}")
        server.shutdown()
    assert "The environment is ready" in done.stdout, (
        done.stderr + (copy / "venv" / "set-up.log").read_text()
    )
    python_of(copy, "import alpha")


def test_a_read_only_checkout(copy):  # noqa: F811
    """As on a shared disk that only its owner may change: nothing of it can be written, by root neither."""
    (folder := copy.parent / "read-only").mkdir()
    with mounted(folder, "mode=755") as again:
        shutil.copytree(copy, folder, dirs_exist_ok=True)
        again("ro")
        assert "you may not write" in sentences(
            done := run_setup(folder, script=folder / "tools" / "setup.py")
        )
    assert "[1/4]" not in done.stdout


def test_a_disk_from_which_no_program_runs(tmp_path):
    """Without a look before, 196 packages come, and then no library can be loaded."""
    with mounted(tmp_path, "noexec"):
        assert "can be run: it is mounted noexec" in sentences(done := run_setup(tmp_path))
    assert "[2/4]" not in done.stdout


# The file system's size, and what there is room for; alpha is 40 MB
FULL = {
    "at its first file": "4k",
    "while the environment is made": "6m",
    "while uv comes": "40m",
    "while packages come": "80m",
}


@pytest.mark.parametrize("step", FULL)
def test_a_full_disk(copy, wheels, step):  # noqa: F811
    """It says so, whatever it was about to write; with room, it goes on."""
    (copy / "venv").mkdir()
    (copy / "folder").mkdir()
    want(copy, "uv", "setuptools", also=small_wheel(copy / "folder", "alpha", "#" * 40_000_000))
    conf = f"no-index = true\nfind-links =\n  {wheels}\n  {copy / 'folder'}"
    with mounted(copy / "venv", f"size={FULL[step]}") as again:
        said = sentences(done := in_copy(copy, "--need-gb", "0", conf=conf))
        assert "the disk is full" in said
        if step != "while uv comes":  # pip goes on without uv, as far as there is room
            assert ("[3/4]" in done.stdout) == (step == "while packages come")
        again("size=400m")
        done = in_copy(copy, "--need-gb", "0", conf=conf)
        assert "The environment is ready" in done.stdout, done.stderr
        python_of(copy, "import alpha, pi2zero")


def test_a_full_disk_at_the_last_step(copy, wheels):  # noqa: F811
    """Somebody else's file takes the rest when all packages are there, and the kit itself is about to come."""
    (copy / "venv").mkdir()
    conf = f"no-index = true\nfind-links = {wheels}"
    with mounted(copy / "venv", "size=100m"):
        command = [
            sys.executable,
            copy / "tools" / "setup.py",
            "--venv",
            copy / "venv",
            "--need-gb",
            "0",
        ]
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=only_these(copy, conf), **piped) as process:
            assert any(line.startswith("[4/4]") for line in process.stdout)
            with (
                contextlib.suppress(OSError),
                (other := copy / "venv" / "other").open("wb", buffering=0) as file,
            ):
                while file.write(bytes(100_000)):
                    pass
            rest, said = process.communicate(timeout=60)
        assert process.returncode == 1 and "the disk is full" in said and "Traceback" not in said, (
            rest + said
        )
        other.unlink()
        assert (
            "The environment is ready"
            in (done := in_copy(copy, "--need-gb", "0", conf=conf)).stdout
        ), done.stderr
        python_of(copy, "import psutil, pi2zero")


def test_a_home_without_space(copy, wheels):  # noqa: F811
    """uv's cache would be there."""
    (home := copy / "home").mkdir()
    with mounted(home, "size=200k"):
        done = in_copy(copy, conf=f"no-index = true\nfind-links = {wheels}", HOME=str(home))
    assert done.returncode == 0, done.stderr + (copy / "venv" / "set-up.log").read_text()
    assert "uv's cache (in your home folder, mostly) has no space: without it, then." in done.stdout
    python_of(copy, "import psutil, pi2zero")


def test_a_cache_of_packages_that_is_cut(copy, wheels):  # noqa: F811
    """uv trusts what it has unpacked once: a disk that failed, or a machine that went off, can have cut it."""
    conf = f"no-index = true\nfind-links = {wheels}"
    assert in_copy(copy, conf=conf).returncode == 0
    (module,) = (copy / ".cache" / "uv").rglob("psutil/__init__.py")
    module.write_bytes(module.read_bytes()[:20_000])
    shutil.rmtree(copy / "venv")
    done = in_copy(copy, conf=conf)
    assert (
        done.returncode == 0
        and "uv's cache is damaged, some packages came cut: without it, then." in done.stdout
    )
    python_of(copy, "import psutil, pi2zero")


def test_a_wheel_that_is_not_what_it_lists(copy, wheels):  # noqa: F811
    """Not a full disk, though something is short here, too: the package is named."""
    (copy / "folder").mkdir()
    want(copy, "uv", "setuptools", also=small_wheel(copy / "folder", "alpha", "#" * 100, short=20))
    said = sentences(
        in_copy(copy, conf=f"no-index = true\nfind-links =\n  {wheels}\n  {copy / 'folder'}")
    )
    assert "of alpha-1.0 is not what the package lists" in said and "disk is full" not in said


def test_interrupted(copy):  # noqa: F811
    """As Ctrl-C does it: the whole group gets the signal."""
    process = start_setup(copy, stderr=subprocess.PIPE, start_new_session=True)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1 and "you interrupted it" in error and "Traceback" not in error


def test_interrupted_at_random_moments(copy, wheels):  # noqa: F811
    """Ctrl-C and kills, five times, each after another while; what the next one finds is never in its way."""
    chance, command = (
        random.Random(16),
        [sys.executable, copy / "tools" / "setup.py", "--venv", copy / "venv"],
    )
    env = only_these(copy, conf := f"no-index = true\nfind-links = {wheels}")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    for how in (signal.SIGINT, signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGINT):
        process = subprocess.Popen(command, env=env, start_new_session=True, **pipes)
        process.stdout.readline()
        time.sleep(chance.uniform(0, 7))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        _, error = process.communicate(timeout=60)
        assert process.returncode in (0, -how) or (
            "you interrupted it" in error and "Traceback" not in error
        ), error
    done = in_copy(copy, conf=conf)
    assert done.returncode == 0, done.stderr + (copy / "venv" / "set-up.log").read_text()
    python_of(copy, "import psutil, pi2zero")


def test_half_of_pip_that_a_kill_has_left(copy, wheels):  # noqa: F811
    """Its metadata are there, some of its files are not, and ensurepip would leave it so."""
    subprocess.run([sys.executable, "-m", "venv", copy / "venv"], check=True)
    (record,) = (copy / "venv").glob("lib/python3*/site-packages/pip-*.dist-info/RECORD")
    record.unlink()
    shutil.rmtree(record.parents[1] / "pip" / "_vendor" / "packaging")
    done = in_copy(copy, conf=f"no-index = true\nfind-links = {wheels}")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    python_of(copy, "import psutil, pi2zero, pip._internal.cli.main")


def test_a_path_with_spaces_umlauts_and_quotes(copy, wheels):  # noqa: F811
    there = copy.with_name("Größe ' und π")
    copy.rename(there)
    want(there, "setuptools", "psutil")
    conf = f"no-index = true\nfind-links = {wheels}"
    done = in_copy(there, conf=conf)
    assert done.returncode == 0, done.stderr + (there / "venv" / "set-up.log").read_text()
    assert "The environment is ready" in done.stdout
    assert python_of(there, "import pi2zero; print(pi2zero.__file__)").startswith(str(there))
    assert in_copy(there, conf=conf).stdout == "", "nothing left to do"
