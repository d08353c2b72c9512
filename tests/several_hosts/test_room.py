"""A room on a cluster: the hub on the login node, each person's server a Slurm job of theirs."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.several_hosts.conftest import jobs, on

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "hub"), str(ROOT / "tools")]
LIMITS = [
    "--SlurmSpawner.req_nprocs=2",
    "--SlurmSpawner.req_memory=2G",
    "--SlurmSpawner.req_runtime=10",
]
RANKS = """import os, socket, pi2zero
cluster = pi2zero.start(n=4)
cluster.run("import os, socket\\nfrom mpi4py import MPI\\n\
print(socket.gethostname(), os.getuid(), MPI.COMM_WORLD.allreduce(1))")
cluster.stop()
print(os.environ["SLURM_JOB_ID"])"""


@pytest.fixture(scope="module")
def people():
    """Two attendees whose servers run, each with a notebook open; afterwards neither jobs nor
    processes are left.
    """
    if (
        not Path(sys.executable).with_name("jupyterhub").exists()
        or not (ROOT / "hub" / "node_modules").exists()
    ):
        pytest.skip("the hub is not installed (make hub CONFIG=install)")
    import room

    import hub

    if wrong := hub.find_obstacle("slurm"):
        pytest.skip(wrong)
    with room.make_users(2) as passwords:
        with room.run_hub("slurm", *LIMITS) as (address, *_):
            found = room.attendees(address, passwords)
            for one in found:
                one.log_in()
                one.open_lab(240)
                one.take_token()
                one.open_notebook("notebooks/02_mpi_pi.ipynb")
            yield found
            for one in found:
                one.stop()
        deadline = time.monotonic() + 30
        while jobs() and time.monotonic() < deadline:
            time.sleep(0.5)
        assert jobs() == [] and room.leftovers(passwords) == []


def test_each_person_works_in_a_job_of_their_own_on_a_node(people):
    places = set()
    for one in people:
        text, error = one.run(RANKS)
        assert not error, error
        uid = subprocess.run(
            ["id", "-u", one.name], capture_output=True, text=True, check=True
        ).stdout.strip()
        ranks, job = re.findall(r"\[stdout:\d\] (node\d) (\d+) (\d)", text), text.split()[-1]
        assert len(ranks) == 4 and {(who, size) for _, who, size in ranks} == {(uid, "4")}, text
        owner = subprocess.run(
            ["squeue", "-h", "-j", job, "-o", "%u %l"], capture_output=True, text=True
        ).stdout
        assert owner.split() == [one.name, "10:00"]
        places |= {host for host, *_ in ranks}
    assert places == {"node1", "node2"}, "each job got a node"


def test_limits_are_the_job_s(people):
    text, error = people[0].run(
        "import resource\nprint(resource.getrlimit(resource.RLIMIT_NPROC)[0])"
    )
    assert (text, error) == ("1000\n", "")


def test_on_the_node_a_server_wants_its_person_s_token(people):
    """Asked from another host, by whoever knows the port."""
    owner, other = people
    listening = [
        (node, line.split()[3])
        for node in ("node1", "node2")
        for line in on(node, "ss -Hltn").splitlines()
    ]
    ports = {(node, address.rpartition(":")[2]) for node, address in listening} - {
        ("node1", "22"),
        ("node2", "22"),
    }
    answers = {who: {files(owner, *port, who.headers) for port in ports} for who in people}
    assert "200" in answers[owner], "it is there"
    assert answers[other] <= {"000", "403", "404"}
    assert {files(owner, *port, {}) for port in ports} <= {"000", "403", "404"}


def files(owner, node, port, headers):
    """The answer of a port of a node to who asks for the owner's files."""
    url = f"http://{node}:{port}/user/{owner.name}/api/contents"
    words = [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]
    return subprocess.run(
        ["curl", "-s", "-m", "5", "-o", "/dev/null", "-w", "%{http_code}", *words, url],
        capture_output=True,
        text=True,
    ).stdout
