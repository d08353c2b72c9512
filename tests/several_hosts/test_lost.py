"""A host or its network that is lost, a kernel that is killed, a place that is none; each on a
kernel of its own.
"""

import subprocess
import tempfile
import time

import pytest

from tests.several_hosts.conftest import (
    SETUP,
    START,
    SUM,
    SUMS,
    fresh,
    nothing_is_left,
    power,
    shown,
)

ONE = 'cluster = pi2zero.start(n=2, on=["node1:2"])'  # on the host that is left


def cable(state):
    subprocess.run(["ip", "link", "set", "v-node2", state], check=True)


LOST = {
    "a host's power is cut": (lambda: power("node2", "off"), lambda: power("node2", "on")),
    "a host stands still, its network answers": (
        lambda: power("node2", "freeze"),
        lambda: power("node2", "thaw"),
    ),
    "a cable is cut": (lambda: cable("down"), lambda: cable("up")),
}


@pytest.mark.parametrize("name", LOST)
def test_a_host_is_lost(notebook, account, name):
    """The report names the host; the other one works at once, and both as soon as it is back."""
    take, give_back = LOST[name]
    assert notebook.run(START).ok and notebook.run(SETUP).ok
    take()
    try:
        start = time.monotonic()
        broken = notebook.run("%%px\ncomm.Barrier()\ntime.sleep(600)")
        seconds = time.monotonic() - start
        says = "its host node2 is lost: it has not answered for 15 s"
        assert not broken.ok and f"Ranks 2 and 3 died: {says}" in broken.text, broken.text
        one = notebook.run(ONE)
        assert (
            one.ok
            and notebook.run(f"{SETUP}\nprint(comm.allreduce(1))").text
            == "[stdout:0] 2\n[stdout:1] 2\n"
        ), one.text
        assert notebook.run("cluster.stop()").ok
    finally:
        give_back()
    left = nothing_is_left(
        60
    )  # the agent there has heard nothing for 30 s: it clears away what is there
    account(
        "lost",
        name,
        f"{seconds:.0f} s",
        says,
        "works on the other; with the host back, on both",
        left or "nothing",
    )
    assert left == {} and seconds < 60
    assert notebook.run(START).ok and notebook.run(SETUP).ok and notebook.run(SUM).text == SUMS


def test_a_killed_kernel_leaves_nothing(notebook, account):
    assert notebook.run(START).ok
    start = time.monotonic()
    notebook.kill()
    left = nothing_is_left()
    account(
        "lost",
        "the kernel is killed",
        f"{time.monotonic() - start:.0f} s",
        "(the kernel is gone)",
        "",
        left or "nothing",
    )
    assert left == {}


@pytest.mark.parametrize(
    ("on", "says"),
    [
        ('["node9:2"]', "node9 has no address that this machine reaches"),
        ('"no/such/file"', "is no place"),
    ],
)
def test_a_place_that_is_none(notebook, on, says):
    reply = notebook.run(f"import pi2zero\npi2zero.start(n=2, on={on})")
    assert (
        not reply.ok
        and reply.error.startswith(("PlaceError", "ClusterError"))
        and says in reply.text
    )
    assert "Traceback" not in reply.text


def test_a_hostfile(notebook, tmp_path):
    (tmp_path / "hosts").write_text("# two hosts\nnode1 slots=1\nnode2 slots=1\n")
    reply = notebook.run(f"import pi2zero\npi2zero.start(n=2, on='{tmp_path}/hosts')")
    assert reply.ok and "on node1 (1) and node2 (1)" in shown(reply), shown(reply)


def test_the_hosts_need_not_have_this_machine_s_temporary_folder(site, monkeypatch):
    """Sites set TMPDIR on a login node to what only it has. It is not made on the nodes, either."""
    site('on = "slurm"\nnodes = 2\nranks_per_node = 2\n')
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        for book in fresh(START):
            for start in (START, f"{START.partition(', on')[0]})"):
                assert book.run(start).ok and book.run(SETUP).ok and book.run(SUM).text == SUMS
    assert nothing_is_left() == {}


def test_more_ranks_than_slots_are_dealt_out_and_bound_to_nothing(notebook):
    """Two cores a host and five ranks on each: none is kept from a core, and a host's local ranks
    count from 0.
    """
    reply = notebook.run('import pi2zero\ncluster = pi2zero.start(n=10, on=["node1:2", "node2:2"])')
    assert reply.ok and "on node1 (5) and node2 (5)" in shown(reply), shown(reply)
    cell = (
        "print(socket.gethostname(), os.environ['LOCAL_RANK'],"
        " len(os.sched_getaffinity(0)) == os.cpu_count())"
    )
    text = notebook.run(f"{SETUP}\n{cell}").text
    assert text == "".join(
        f"[stdout:{rank}] node{1 + rank // 5} {rank % 5} True\n" for rank in range(10)
    )
