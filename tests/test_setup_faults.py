"""More that is in the way of the set-up: a proxy, an index that does not answer, a read-only checkout and odd path."""

import os
import socket
import subprocess

import pytest
from test_setup import copy, in_copy, python_of, run_setup, sentences, want, wheels  # noqa: F401  (fixtures)

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
        pytest.param("index-url = http://127.0.0.1:{mute}/simple\nretries = 0\ntimeout = 1", id="an index that never answers"),
    ],
)
def test_an_index_that_cannot_be_reached(copy, mute, conf):  # noqa: F811
    assert "a package index could not be reached" in sentences(in_copy(copy, conf=conf.format(mute=mute)))


def test_a_read_only_checkout(tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(tmp_path)]
    if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        assert "you may not write" in sentences(run_setup(tmp_path))
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


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
