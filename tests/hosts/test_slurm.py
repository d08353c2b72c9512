"""Ranks on the nodes of a Slurm job: asked for by the notebook, or the job that the kernel is in."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.hosts.conftest import fresh, jobs, shown

SETUP = "%%px\nfrom mpi4py import MPI\nimport socket, time\ncomm = MPI.COMM_WORLD\nrank = comm.rank"
SUM = "%%px\nprint(socket.gethostname(), comm.allreduce(rank))"
SUMS = "".join(f"[stdout:{rank}] node{1 + rank // 2} 6\n" for rank in range(4))
TWO_NODES = 'on = "slurm"\nnodes = 2\nranks_per_node = 2\n'
START = "import pi2zero\ncluster = pi2zero.start(n=4)"


def out(*words):
    return subprocess.run(words, capture_output=True, text=True, timeout=30).stdout.strip()


@pytest.fixture
def slurm(site):
    """The site file sends ranks to Slurm; a fresh kernel; afterwards no job and nothing else is left."""
    site(TWO_NODES)
    yield from fresh()


def test_the_notebooks_cell_as_it_is(slurm):
    reply = slurm.run(START)
    assert reply.ok and "4 ranks are up on node1 (2) and node2 (2)" in shown(reply), shown(reply)
    assert slurm.run(SETUP).ok and slurm.run(SUM).text == SUMS
    assert len(jobs()) == 1
    broken = slurm.run("%%px --timeout 3\nif rank != 3:\n    comm.Barrier()")
    assert "ranks 0, 1 and 2: cell line 2:  comm.Barrier()" in broken.text
    assert slurm.run(SETUP).ok and slurm.run(SUM).text == SUMS, "fresh ranks in the same job"
    assert len(jobs()) == 1
    assert slurm.run("cluster.stop()").ok
    assert out("squeue", "-h", "-t", "RUNNING,PENDING") == ""


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        (lambda job: out("scancel", job), "somebody cancelled it (scancel)"),
        (lambda job: out("scontrol", "update", f"JobId={job}", "TimeLimit=0:01"), "its time was over"),
        (lambda job: out("sbatch", "-p", "urgent", "-N2", "--exclusive", "--wrap", "sleep 3", "-o", "/dev/null"), "preempted"),
    ],
    ids=["cancelled", "out of time", "preempted"],
)
def test_a_job_that_ends_is_told(slurm, ends, says):
    assert slurm.run(START).ok and slurm.run(SETUP).ok
    ends(*jobs())
    broken = slurm.run("%%px\ncomm.Barrier()\ntime.sleep(300)")
    assert not broken.ok and says in broken.text, broken.text
    again = slurm.run(START, timeout=120)
    assert again.ok, again.text


def test_the_queue_is_seen_and_an_interrupt_takes_the_job_back(slurm):
    """Another job has the nodes: the cell says why it waits; the stop button cancels."""
    other = out("sbatch", "--parsable", "-N2", "--exclusive", "--wrap", "sleep 60", "-o", "/dev/null")
    try:
        time.sleep(1)
        button = threading.Timer(5, slurm.manager.interrupt_kernel)
        button.start()
        reply = slurm.run(START)
        assert not reply.ok and "KeyboardInterrupt" in reply.error, reply.text
        assert "waits, place 1 of those that wait (Resources)" in shown(reply), shown(reply)
        time.sleep(1)
        assert jobs() == [other]
    finally:
        out("scancel", other)


def test_a_killed_kernel_takes_its_job_with_it(slurm):
    assert slurm.run(START).ok
    slurm.kill()
    deadline = time.monotonic() + 30
    while jobs() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert jobs() == []


def test_a_kernel_inside_of_a_job_spans_its_nodes():
    program = "import pi2zero\nc = pi2zero.start(n=4)\nc.run('from mpi4py import MPI, rc\\nimport socket\\n"
    program += "print(socket.gethostname(), MPI.COMM_WORLD.allreduce(1))')\nc.stop()\n"
    home = out("sh", "-c", "echo $PI2ZERO_HOSTS")
    words = ["-N2", "--ntasks-per-node=2", "--wait", "-o", f"{home}/inside.out", "--wrap", f"{sys.executable} {home}/inside.py"]
    Path(home, "inside.py").write_text(program)
    subprocess.run(["sbatch", *words], check=True, timeout=120, capture_output=True)
    text = Path(home, "inside.out").read_text()
    assert "4 ranks are up on node1 (2) and node2 (2)" in text, text
    assert "[stdout:3] node2 4" in text


def test_worlds_of_one_are_refused():
    """srun without a PMI that Open MPI knows starts four programs that know nothing of each other."""
    program = "from pi2zero import ranks; ranks.join()"
    words = ["srun", "-N2", "-n4", "--mpi=none", sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode and "srun has started 4 tasks, and each is an MPI world of its own" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('on = "slurm"\npartition = "none"\n', "Slurm refused the job: "),
        ('on = "slurm"\nnodes = 1\nranks_per_node = 2\n', "4 ranks do not fit"),
        ('on = "slurm"\nnodez = 1\n', "'nodez' is not known. Known: on, partition"),
        ('on = "slurm"\nnodes = "two"\n', "nodes has to be a whole number from 1 up"),
        ("on = slurm\n", "is not TOML"),
    ],
)
def test_a_site_file_that_is_wrong(site, text, says):
    site(text)
    done = subprocess.run([sys.executable, "-m", "pi2zero", "site"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and says in done.stdout and "Traceback" not in done.stderr, done.stdout + done.stderr
