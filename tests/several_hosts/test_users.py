"""Ordinary users on these hosts: all works for one, a second one gets nothing, and nobody's ranks
meet another's.
"""

import json
import os
import pwd
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.several_hosts.conftest import (
    NODES,
    SETUP,
    START,
    SUM,
    SUMS,
    Book,
    nothing_is_left,
    on,
    out,
)

ROOT = Path(__file__).resolve().parents[2]
# Reads a cell a line, as JSON; says a line for each, as JSON: what it printed, or its error.
PERSON = """
import contextlib, io, json, sys
names = {}
for line in sys.stdin:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            exec(json.loads(line), names)
        except Exception as error:
            print(f"{type(error).__name__}: {error}", getattr(error, "report", ""))
    print(json.dumps(said.getvalue()), flush=True)
"""
TORCH = "import torch, torch.distributed as dist\nfrom pi2zero import ranks\nme = ranks.join()"
TORCH_SUM = "y = torch.ones(1)\ndist.all_reduce(y)\nprint(y.item())"
TORCH_SUMS = "".join(f"[stdout:{rank}] 4.0\n" for rank in range(4))


def environment(name):
    """What a user's programs start with."""
    person = pwd.getpwnam(name)
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PI2ZERO_MARK", "OMPI", "PRTE"))
    }
    return kept | {
        "HOME": person.pw_dir,
        "USER": name,
        "LOGNAME": name,
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def as_user(name):
    """Popen's options for a process of that user."""
    return {
        "user": name,
        "group": name,
        "extra_groups": [],
        "cwd": ROOT,
        "env": environment(name),
        "text": True,
    }


@pytest.fixture(autouse=True, scope="module")
def readable():
    done = subprocess.run(
        [sys.executable, "-c", "import pi2zero"], capture_output=True, **as_user("alice")
    )
    if done.returncode:
        pytest.skip("an ordinary user cannot read this clone or its environment")


class Person:
    """A user's Python on the host "login"."""

    def __init__(self, name):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([sys.executable, "-c", PERSON], **pipes, **as_user(name))

    def run(self, code) -> str:
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def cell(self, source) -> str:
        """A %%px cell."""
        return self.run(f"cluster.run({source.removeprefix('%%px')!r})")

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


@pytest.fixture
def people():
    """alice and bob, each with a Python; afterwards nothing is left of them."""
    two = [Person("alice"), Person("bob")]
    yield two
    for one in two:
        one.close()
    assert nothing_is_left() == {}


@pytest.mark.parametrize(
    "tests",
    [
        ["tests/several_hosts/test_ssh.py", "-k", "one_world or torch or stacks"],
        ["tests/several_hosts/test_lost.py", "-k", "killed_kernel"],
        ["tests/several_hosts/test_slurm.py", "-k", "notebooks_cell or requeued"],
    ],
    ids=["ssh", "killed kernel", "Slurm"],
)
def test_an_ordinary_user_starts_as_root_does(tests):
    """The same tests, run by alice."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, capture_output=True, timeout=300, **as_user("alice"))
    assert (
        done.returncode == 0
        and re.search(r"\d passed", done.stdout)
        and "skipped" not in done.stdout
    ), done.stdout


def test_two_users_on_the_same_hosts_do_not_meet(people):
    for one in people:
        one.run(START)
        one.cell(SETUP)
        one.cell(TORCH)
    for one in people:
        assert one.cell(SUM) == SUMS and one.cell(TORCH_SUM) == TORCH_SUMS
    alice, bob = people
    bob.cell("import os\nos._exit(1)")
    for end in (START, "pi2zero.reset()", "cluster.stop()"):
        bob.run(end)
        assert alice.cell(SUM) == SUMS and alice.cell(TORCH_SUM) == TORCH_SUMS


def attempt(node, name, **options):
    """What bob gets on a node: tests/helpers/intruder.py."""
    words = [
        sys.executable,
        str(ROOT / "tests/helpers/intruder.py"),
        str(pwd.getpwnam("bob").pw_uid),
        name,
        f"'{json.dumps(options)}'",
    ]
    said = on(node, f"cd {ROOT}; {' '.join(words)}")
    return json.loads(said)


def may_filter() -> bool:
    """Whether an ordinary user may attach a packet filter to a socket. Some kernels refuse it."""
    program = """
import os, socket
from pi2zero.hosts.port_filter import restrict_listeners
server = socket.create_server(("", 0))
assert restrict_listeners(os.getpid()) == 1
"""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, **as_user("alice")).returncode == 0


def listening(node):
    """[address, port, program] of all that alice's processes listen on at a node."""
    its = set(on(node, "ps -u alice -o pid=").split())
    found = []
    for line in on(node, "ss -Hltnp4").splitlines():
        address, pid = line.split()[3], re.search(r'\("([^"]+)",pid=(\d+)', line)
        if pid and pid[2] in its:
            host, _, port = address.rpartition(":")
            found.append([host, int(port), pid[1]])
    return found


def test_a_second_user_on_the_ranks_hosts_gets_nothing(people):
    """Of processes, files, and daemons.

    The ranks' own ports take whoever is on their hosts; nonsense there changes nothing.
    """
    alice, _ = people
    alice.run(START)
    alice.cell(SETUP)
    alice.cell(TORCH)
    for node in NODES:
        pids = [int(pid) for pid in on(node, "ps -u alice -o pid=").split()]
        files = on(node, "find /tmp /dev/shm -user alice").split()
        assert len(pids) >= 5 and any("pi2zero-run@" in file for file in files), (
            "ranks, their nannies, a daemon; files"
        )
        assert len(attempt(node, "look", pids=pids)) == 1, "its own"
        assert len(attempt(node, "kill", pids=pids)) == 1, "its own"
        assert attempt(node, "remove", paths=files) == []
        ports = listening(node)
        # What a daemon has on loopback is PMIx's, by which ranks reach it: it takes the connection
        # and asks who it is.
        daemons = [
            ("127.0.0.1", port)
            for host, port, program in ports
            if program.startswith("prted") and host == "0.0.0.0"
        ]
        assert daemons and (attempt(node, "knock", ports=daemons) == [] or not may_filter())
        attempt(
            node,
            "knock",
            ports=[("127.0.0.1" if host == "0.0.0.0" else host, port) for host, port, _ in ports],
        )
        assert alice.cell(SUM) == SUMS and alice.cell(TORCH_SUM) == TORCH_SUMS


def test_two_jobs_on_the_same_nodes_do_not_meet(site):
    """Each has a core of both nodes."""
    site('on = "slurm"\nnodes = 2\nranks_per_node = 1\n')
    books = [Book(), Book()]
    for book in books:
        assert book.run("import pi2zero\ncluster = pi2zero.start(n=2)").ok and book.run(SETUP).ok
    assert len(out("squeue", "-h", "-t", "RUNNING", "-o", "%A").split()) == 2
    sums = "".join(f"[stdout:{rank}] node{rank + 1} 1\n" for rank in range(2))
    assert [book.run(SUM).text for book in books] == [sums, sums]
    assert books[0].run("cluster.stop()").ok
    assert books[1].run(SUM).text == sums
    for book in books:
        book.close(now=False)
    assert nothing_is_left() == {}
