"""Everything beyond one host, on two real hosts of this machine: `python tools/hosts.py -- python
-m pytest tests/several_hosts`.

Outside of these hosts nothing here is collected; `make cluster-test` makes them. PI2ZERO_FAULTS=all
takes every case of the tables of reports/hangs.md; without it some stand for the others.
"""

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from fault_tables import TWO_HOSTS, rows

pytest.register_assert_rewrite("tests.faults")

from pi2zero.ownership import leftovers, run_dirs  # noqa: E402
from tests.faults.kernel import Notebook  # noqa: E402

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDER = os.environ.get("PI2ZERO_HOSTS")
collect_ignore_glob = [] if FOLDER else ["test_*.py"]
ALL = os.environ.get("PI2ZERO_FAULTS") in ("all", "full")
# The cases that stand for the others of their table: MPI, torch, the processes' own ends, what the
# agents and Slurm do;
# each notebook one way, and each way for two notebooks
SHORT = {
    "test_every_cell_does_on_two_hosts_what_it_did_on_one": [
        "00_start_here by slurm",
        "02_mpi_pi by ssh",
        "06_ddp by slurm",
        "09_zero by ssh",
    ],
    "test_ends": [
        "a ring that all receive first",
        "a loop that asks for a message",
        "DDP, one rank has no batch left",
    ],
    "test_lives": ["others wait in recv for one that sleeps", "all-reduce after all-reduce"],
    "test_fault": ["exception, others in Barrier", "SIGKILL", "exception on every rank"],
    "test_a_host_is_lost": ["a cable is cut"],
    "test_a_job_that_ends_is_told": ["a job is cancelled", "a job is requeued"],
    "test_what_waits_for_files_lives": ["reads a page of a mapped file"],
    "test_library_fault": ["DDP, a rank is lost in backward"],
    "test_a_kernel_that_ends_leaves_nothing": ["kill", "killed in a hang"],
    "test_the_stop_button": ["rank 0 in recv"],
}
NODES = ("node1", "node2")
STATE = re.compile(r"JobState=(\w+)")
BEFORE = {"PENDING", "RUNNING", "COMPLETING", "REQUEUED"}  # of a job that is not over
AS_ROOT = {
    f"{family}_ALLOW_RUN_AS_ROOT{more}": "1"
    for family in ("OMPI", "PRTE")
    for more in ("", "_CONFIRM")
}
START = 'import pi2zero\ncluster = pi2zero.start(n=4, on=["node1:2", "node2:2"])'
SETUP = (
    "%%px\nfrom mpi4py import MPI\nimport os, socket, time\ncomm = MPI.COMM_WORLD\nrank = comm.rank"
)
SUM = "%%px\nprint(socket.gethostname(), comm.allreduce(rank))"
SUMS = "".join(f"[stdout:{rank}] node{1 + rank // 2} 6\n" for rank in range(4))
# ssh's and Slurm's own, this check, and the kernel's daemons of namespaces: what every node has
# Torch keeps its cache, torchrun an empty folder (elastic/multiprocessing/api.py of torch 2.13
# makes it, nobody removes it).
EVERYWHERE = ("/tmp:", "/dev/shm:", "torchinductor_root", "torchelastic_")
if ROOT.is_relative_to("/tmp"):
    EVERYWHERE += (ROOT.parts[2],)
LOOK = "ps -eo pid=,args= | grep -v -e sshd -e 'ps -eo' -e slurm -e 'grep -v' ; ls -A /tmp /dev/shm"


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if ALL or not stood_for(item)]


def stood_for(item) -> bool:
    """Whether other cases of its table stand for this one."""
    test = getattr(item, "originalname", "")
    cases = item.callspec.params.values() if hasattr(item, "callspec") else []
    return item.path.parent == HERE and test in SHORT and not set(cases) & set(SHORT[test])


def on(node: str, line: str) -> str:
    """What a line of sh prints on a node."""
    return subprocess.run(["ssh", node, line], capture_output=True, text=True, timeout=30).stdout


def left_on(node: str) -> str:
    """Processes of the kit and files in /tmp and /dev/shm of a node, in words."""
    lines = filter(None, on(node, LOOK).splitlines())
    return "\n".join(line for line in lines if not line.startswith(EVERYWHERE))


def jobs() -> list[str]:
    """The numbers of Slurm's jobs."""
    return out("squeue", "-h", "-o", "%A").split()


def shown(reply) -> str:
    """All that a cell has shown, displays included, in one text."""
    return reply.text + str(reply.outputs)


def out(*words) -> str:
    """What a program prints."""
    return subprocess.run(
        words, capture_output=True, text=True, timeout=60, env=somebody_s()
    ).stdout.strip()


def somebody_s() -> dict[str, str]:
    """The environment of a job that is not the kit's. Slurm would make TMPDIR on the nodes."""
    return {name: value for name, value in os.environ.items() if name != "TMPDIR"}


def sbatch(*words) -> str:
    """Submit a job from the clone; its number."""
    command = ["sbatch", "--parsable", *map(str, words)]
    env = somebody_s() | AS_ROOT
    return subprocess.check_output(command, cwd=ROOT, env=env, timeout=60, text=True).strip()


def batch(*words):
    """Submit a job, and wait until it is over."""
    over(sbatch(*words), words[words.index("-o") + 1])


def over(job, said):
    """Wait until a job is over.

    (`sbatch --wait` looks seldom, and does not see a requeued job's end.) said: what it prints.
    """
    wait_for(lambda: not set(STATE.findall(out("scontrol", "show", "job", job))) & BEFORE, said)


def wait_for(true, said, patience=240):
    deadline = time.monotonic() + patience
    while not true():
        assert time.monotonic() < deadline, f"{out('squeue')}\n{Path(said).read_text()}"
        time.sleep(0.5)


def power(node: str, state: str) -> None:
    """ "off": the host is gone at once; "on": it boots."""
    subprocess.run(
        [sys.executable, "tools/hosts.py", "--", "power", node, state], check=True, timeout=60
    )


class Book(Notebook):
    """A kernel on the host "login", with ranks on the others."""

    patience = 4

    def processes(self) -> list:
        """What this kernel has started here, and all that there is on the nodes, files included."""
        return [
            *super().processes(),
            *(line for node in NODES for line in left_on(node).splitlines()),
        ]


@pytest.fixture
def notebook():
    """A fresh kernel on the host "login"; afterwards nothing of it may be left on any host."""
    yield from fresh()


def fresh(first=None):
    """first: a cell that has to work."""
    book = Book()
    if first:
        assert (reply := book.run(first)).ok, reply.text
    yield book
    if book.manager.has_kernel:  # else a test has shut it down
        book.close(now=False)
    assert nothing_is_left() == {}


def nothing_is_left(patience=30.0) -> dict[str, str]:
    """What is left of the kit on every node and in Slurm's queue, once there is nothing, or after
    so many seconds.
    """
    deadline = time.monotonic() + patience
    while (left := all_that_is_left()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return left


def all_that_is_left() -> dict[str, str]:
    """On the nodes; here, on the kernels' host: the kit's processes (not the kernels) and folders;
    and in the queue.
    """
    here = [str(folder) for folder in run_dirs()]
    for process in leftovers():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile, or is a zombie
            here.append(" ".join(process.cmdline()))
    found = {node: left_on(node) for node in NODES} | {
        "login": "\n".join(here),
        "jobs": " ".join(jobs()),
    }
    return {where: words for where, words in found.items() if words}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Write the site file: site(text). Kernels that start afterwards read it."""
    monkeypatch.setenv("PI2ZERO_SITE", str(tmp_path / "site.toml"))
    return (tmp_path / "site.toml").write_text


@pytest.fixture
def fast():
    """A second network of these hosts, 10.78.0.0/24; its interfaces are called "fast"."""
    add = (
        "ip link add link {} name fast type macvlan mode bridge"
        " && ip addr add 10.78.0.{}/24 dev fast && ip link set fast up"
    )
    hosts = {"sh -c": ("br0", 1), "ssh node1": ("eth0", 11), "ssh node2": ("eth0", 12)}
    for way, place in hosts.items():
        subprocess.run([*way.split(), add.format(*place)], check=True)
    yield "fast"
    for way in hosts:
        subprocess.run([*way.split(), "ip link del fast"], check=True)


@pytest.fixture
def account():
    """Call it with the name of a table and a row of it: those of tests/faults have a twin for two
    hosts.
    """
    return lambda table, *row: rows[table if table == "lost" else table + TWO_HOSTS].append(
        tuple(map(str, row))
    )
