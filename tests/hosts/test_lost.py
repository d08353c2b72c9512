"""A host that is lost, a kernel that is killed, a place that is none; each on a kernel of its own."""

import subprocess
import time

import pytest

from tests.hosts.conftest import NODES, left_on, shown

START = 'import pi2zero\ncluster = pi2zero.start(n=4, on=["node1:2", "node2:2"])'
SETUP = "%%px\nfrom mpi4py import MPI\nimport socket, time\ncomm = MPI.COMM_WORLD\nrank = comm.rank"
SUM = "%%px\nprint(socket.gethostname(), comm.allreduce(rank))"
SUMS = "".join(f"[stdout:{rank}] node{1 + rank // 2} 6\n" for rank in range(4))


def test_a_killed_kernel_leaves_nothing(notebook):
    assert notebook.run(START).ok
    notebook.kill()
    deadline = time.monotonic() + 30
    while any(map(left_on, NODES)) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert [left_on(node) for node in NODES] == ["", ""]


def test_a_cable_is_cut(notebook):
    """The report names the host; with the cable back, a new start works."""
    assert notebook.run(START).ok and notebook.run(SETUP).ok
    subprocess.run(["ip", "link", "set", "v-node2", "down"], check=True)
    try:
        start = time.monotonic()
        broken = notebook.run("%%px\ncomm.Barrier()\ntime.sleep(600)")
        seconds = time.monotonic() - start
    finally:
        subprocess.run(["ip", "link", "set", "v-node2", "up"], check=True)
    assert not broken.ok and "its host node2 is lost" in broken.text, broken.text
    assert seconds < 60
    time.sleep(35)  # the agent on node2 has heard nothing for 30 s: it clears away what is there
    assert left_on("node2") == ""
    assert notebook.run(START).ok and notebook.run(SETUP).ok and notebook.run(SUM).text == SUMS


@pytest.mark.parametrize(
    ("on", "says"),
    [
        ('["node9:2"]', "node9 cannot be used: ssh: Could not resolve hostname node9"),
        ('["node1:two"]', "'node1:two' is not a host with its slots. Write it as node1:2"),
        ("[]", "on=[] names no host"),
        ('"no/such/file"', "is no place"),
    ],
)
def test_a_place_that_is_none(notebook, on, says):
    reply = notebook.run(f"import pi2zero\npi2zero.start(n=2, on={on})")
    assert not reply.ok and reply.error.startswith(("PlaceError", "ClusterError")) and says in reply.text
    assert "Traceback" not in reply.text


def test_a_hostfile(notebook, tmp_path):
    (tmp_path / "hosts").write_text("# two hosts\nnode1 slots=1\nnode2 slots=1\n")
    reply = notebook.run(f"import pi2zero\npi2zero.start(n=2, on='{tmp_path}/hosts')")
    assert reply.ok and "on node1 (1) and node2 (1)" in shown(reply), shown(reply)
