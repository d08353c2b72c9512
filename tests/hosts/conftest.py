"""Everything beyond one host, on two real hosts of this machine: `python tools/hosts.py -- python -m pytest tests/hosts`.

Outside of these hosts nothing here is collected; `make cluster-test` makes them.
"""

import os
import subprocess
import time

import pytest

from tests.faults.kernel import Notebook

FOLDER = os.environ.get("PI2ZERO_HOSTS")
collect_ignore_glob = [] if FOLDER else ["test_*.py"]
NODES = ("node1", "node2")
# ssh's and Slurm's own, this check, and the kernel's daemons of namespaces: what every node has
LOOK = "ps -eo pid=,args= | grep -v -e sshd -e 'ps -eo' -e slurm -e 'grep -v' ; ls -A /tmp /dev/shm"


def on(node: str, line: str) -> str:
    """What a line of sh prints on a node."""
    return subprocess.run(["ssh", node, line], capture_output=True, text=True, timeout=30).stdout


def left_on(node: str) -> str:
    """Processes of the kit and files in /tmp and /dev/shm of a node, in words; empty if there are none."""
    lines = [line for line in on(node, LOOK).splitlines() if line and line not in ("/tmp:", "/dev/shm:")]
    return "\n".join(lines)


def jobs() -> list[str]:
    """The numbers of Slurm's jobs."""
    return subprocess.run(["squeue", "-h", "-o", "%A"], capture_output=True, text=True, timeout=30).stdout.split()


def shown(reply) -> str:
    """All that a cell has shown, displays included, in one text."""
    return reply.text + str(reply.outputs)


@pytest.fixture
def notebook():
    """A fresh kernel on the host "login"; afterwards nothing of it may be left on any host."""
    yield from fresh()


def fresh():
    book = Notebook()
    yield book
    book.close(now=False)
    deadline = time.monotonic() + 30
    while (left := all_that_is_left()) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert left == {}


def all_that_is_left() -> dict[str, str]:
    """Of the kit, on every node and in Slurm's queue."""
    found = {node: left_on(node) for node in NODES} | {"jobs": " ".join(jobs())}
    return {where: words for where, words in found.items() if words}


@pytest.fixture(scope="module")
def shared():
    """A kernel that the tests of a file share, with four ranks on two hosts."""
    yield from fresh()


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Write the site file: site(text). Kernels that start afterwards read it."""
    monkeypatch.setenv("PI2ZERO_SITE", str(tmp_path / "site.toml"))
    return (tmp_path / "site.toml").write_text
