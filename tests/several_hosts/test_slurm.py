"""Ranks on the nodes of a Slurm job: the notebook's own, or the one that the kernel is in."""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from timing import assert_within

from pi2zero.ownership import SCOPE
from tests.several_hosts.conftest import (
    NODES,
    SETUP,
    SUM,
    SUMS,
    batch,
    fresh,
    jobs,
    nothing_is_left,
    on,
    out,
    power,
    shown,
    somebody_s,
    wait_for,
)

TWO_NODES = 'on = "slurm"\nnodes = 2\nranks_per_node = 2\n'
START = "import pi2zero\ncluster = pi2zero.start(n=4)"
NEXT = "the next start has another job"


@pytest.fixture
def slurm(site):
    """The site file sends ranks to Slurm; a fresh kernel; afterwards no job and nothing else is
    left.
    """
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


ENDS = {  # what ends it, what is said
    "a job is cancelled": (lambda job: out("scancel", job), "somebody cancelled it (scancel)"),
    "a job is out of time": (
        lambda job: out("scontrol", "update", f"JobId={job}", "TimeLimit=0:01"),
        "its time was over",
    ),
    "a job is preempted": (
        lambda job: out(
            "sbatch", "-p", "urgent", "-N2", "--exclusive", "--wrap", "sleep 3", "-o", "/dev/null"
        ),
        "another job took its nodes (preempted)",
    ),
    "a job is requeued": (
        lambda job: out("scontrol", "requeue", job),
        "it was put back into the queue (requeued)",
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_job_that_ends_is_told(slurm, site, account, name):
    ends, says = ENDS[name]
    if "requeued" in name:
        site(TWO_NODES + 'options = ["--requeue"]\n')
    assert slurm.run(START).ok and slurm.run(SETUP).ok
    threading.Timer(2, ends, jobs()).start()
    broken = slurm.run("%%px\ncomm.Barrier()\ntime.sleep(300)")
    left = nothing_is_left(60)
    account("lost", name, f"{broken.seconds - 2:.0f} s", says, NEXT, left or "nothing")
    assert not broken.ok and "Slurm ended job" in broken.text and says in broken.text, broken.text
    assert left == {}
    again = slurm.run(START, timeout=120)
    assert again.ok and slurm.run(SETUP).ok and slurm.run(SUM).text == SUMS, again.text


def test_a_rank_that_dies_in_a_job_is_told_at_once(slurm):
    """Slurm is asked whether it was the job's end, not waited for."""
    assert slurm.run(START).ok and slurm.run(SETUP).ok
    broken = slurm.run("%%px\nif rank == 2:\n    os._exit(3)\ncomm.Barrier()")
    assert re.search(
        r"Rank 2 died: its process |Ranks 2 and 3 died: one of them first", broken.text
    ), broken.text
    assert_within(broken.seconds, 4)
    assert slurm.run(SETUP).ok and slurm.run(SUM).text == SUMS and len(jobs()) == 1


def test_a_node_of_a_job_is_lost(slurm, account):
    """Slurm or the kit sees it first, as their patience has it."""
    assert slurm.run(START).ok and slurm.run(SETUP).ok
    power("node2", "off")
    try:
        broken = slurm.run("%%px\ncomm.Barrier()\ntime.sleep(600)")
        stopped = slurm.run("cluster.stop()")
    finally:
        power("node2", "on")
    left = nothing_is_left(60)
    says = ("its host node2 is lost", "Slurm lost one of its nodes")
    said = "; ".join(words for words in says if words in broken.text)
    account(
        "lost",
        "a job's node loses its power",
        f"{broken.seconds:.0f} s",
        said,
        NEXT,
        left or "nothing",
    )
    assert not broken.ok and said and broken.seconds < 60 and stopped.ok, broken.text
    assert left == {}
    again = slurm.run(START, timeout=120)
    assert again.ok and slurm.run(SETUP).ok and slurm.run(SUM).text == SUMS, again.text


def test_a_full_queue_is_seen_and_waited_for(slurm, account):
    """Another job has the nodes: the cell says why it waits, and goes on when they are free."""
    other = out(
        "sbatch", "--parsable", "-N2", "--exclusive", "--wrap", "sleep 60", "-o", "/dev/null"
    )
    threading.Timer(6, out, ["scancel", other]).start()
    reply = slurm.run(START)
    says = re.search(
        r"waiting for Slurm's job \d+, place 1 of those that wait \(Resources\)", shown(reply)
    )
    account(
        "lost",
        "the queue is full",
        "at once",
        says and says[0],
        "goes on when the nodes are free",
        "nothing",
    )
    assert reply.ok and says, shown(reply)
    assert slurm.run(SETUP).ok and slurm.run(SUM).text == SUMS


@pytest.fixture
def no_more_jobs(slurm):
    """Slurm has as many jobs as it takes. Call it: Slurm takes more again."""
    conf = Path(os.environ["SLURM_CONF"])
    usual = conf.read_text()
    out("sbatch", "--wait", "--wrap", "true", "-o", "/dev/null")  # it remembers one at least

    def restart(text):
        conf.write_text(text)
        out("scontrol", "shutdown", "slurmctld")
        wait_for(
            lambda: not conf.with_name("slurmctld.pid").exists(), conf
        )  # it has saved what it knows
        subprocess.run(
            ["slurmctld"],
            check=True,
            env={name: value for name, value in somebody_s().items() if name != SCOPE},
        )
        wait_for(lambda: "UP" in out("scontrol", "ping"), conf)

    remembered = len(out("scontrol", "-o", "show", "jobs").splitlines())
    restart(f"{usual}MaxJobCount={remembered + 1}\n")
    yield lambda: restart(usual)
    restart(usual)


def test_slurm_takes_no_more_jobs(slurm, account, no_more_jobs):
    """sbatch tries again by itself, for two minutes: the cell says so, the stop button ends it, and
    with room it goes on.
    """
    threading.Timer(6, slurm.manager.interrupt_kernel).start()
    stopped = slurm.run(START)
    assert not stopped.ok and "StartInterrupted" in stopped.error and stopped.seconds < 15, (
        stopped.text
    )
    says = "waiting for Slurm, which takes no more jobs just now"
    assert says in shown(stopped) and jobs() == []
    threading.Timer(6, no_more_jobs).start()
    reply = slurm.run(START, timeout=120)
    account(
        "lost",
        "Slurm takes no more jobs",
        "at once",
        says,
        "goes on when Slurm takes jobs again",
        "nothing",
    )
    assert reply.ok and says in shown(reply), shown(reply)
    assert slurm.run(SETUP).ok and slurm.run(SUM).text == SUMS


def test_an_interrupt_takes_the_job_back(slurm):
    other = out(
        "sbatch", "--parsable", "-N2", "--exclusive", "--wrap", "sleep 60", "-o", "/dev/null"
    )
    try:
        time.sleep(1)
        threading.Timer(3, slurm.manager.interrupt_kernel).start()
        reply = slurm.run(START)
        assert not reply.ok and "StartInterrupted" in reply.error, reply.text
        time.sleep(1)
        assert jobs() == [other]
    finally:
        out("scancel", other)


def test_a_killed_kernel_takes_its_job_with_it(slurm, account):
    assert slurm.run(START).ok
    start = time.monotonic()
    slurm.kill()
    left = nothing_is_left()
    seconds = f"{time.monotonic() - start:.0f} s"
    account(
        "lost",
        "the kernel of a job's ranks is killed",
        seconds,
        "(the kernel is gone)",
        "",
        left or "nothing",
    )
    assert left == {}


INSIDE = """import pi2zero, subprocess
c = pi2zero.start(n=2)
c.run("import os, socket\\nfrom mpi4py import MPI\\n"
      "print(socket.gethostname(), MPI.COMM_WORLD.allreduce(1), os.environ.get('PI2ZERO_ADDRESS'))")
print("jobs:", subprocess.run(["squeue", "-h", "-o", "%A"], \
capture_output=True, text=True).stdout.split())
c.stop()
"""


@pytest.mark.parametrize(
    ("shape", "place", "says"),
    [
        # a task that has its whole node is one slot, not one for each core
        (
            ["-N2", "--ntasks-per-node=1", "--exclusive"],
            " on node1 (1) and node2 (1)",
            "node2 2 10.78.0.12",
        ),
        (["-N1", "-n2"], " on this machine", "node1 2 None"),
    ],
)
def test_a_kernel_inside_of_a_job_spans_it_whatever_the_site_file_says(
    monkeypatch, fast, shape, place, says
):
    """It asks for no job of its own, and takes the interface that the site file names."""
    home = os.environ["PI2ZERO_HOSTS"]
    monkeypatch.setenv("PI2ZERO_SITE", f"{home}/site.toml")  # the nodes read it, too
    Path(home, "site.toml").write_text(f'{TWO_NODES}interface = "{fast}"\n')
    Path(home, "inside.py").write_text(INSIDE)
    batch(*shape, "-o", f"{home}/inside.out", "--wrap", f"{sys.executable} {home}/inside.py")
    text = Path(home, "inside.out").read_text()
    assert f"2 ranks are up{place} (" in text and f"[stdout:1] {says}\n" in text, text
    assert re.search(r"^jobs: \['\d+'\]$", text, re.M), text


MODULE = """module() {
  [ "$2" = cuda ] || { echo "Module '$2' is not known." >&2; return 1; }
  export LD_LIBRARY_PATH=/cuda
}
"""
PREPARED = """on = "slurm"
nodes = 2
ranks_per_node = 1
options = ["--exclusive"]
lines = ["export X=7 PATH=$PATH:/extra"]
scratch = "/dev/shm"
"""


def test_modules_lines_and_scratch_are_the_ranks_and_whole_nodes_are_slots(slurm, site):
    Path("/etc/profile.d/modules.sh").write_text(MODULE)  # these hosts' own /etc
    site(PREPARED + 'modules = ["none"]\n')
    refused = slurm.run("import pi2zero\ncluster = pi2zero.start(n=2)")
    assert not refused.ok and "Module 'none' is not known." in refused.text, refused.text
    assert "The site file's modules were not loaded on node1: none" in refused.text, refused.text
    assert nothing_is_left() == {}
    site(PREPARED + 'modules = ["cuda"]\n')
    reply = slurm.run("cluster = pi2zero.start(n=2)")
    assert "2 ranks are up on node1 (1) and node2 (1)" in shown(reply), shown(reply)
    cell = (
        "%%px\nfrom os import environ as e\n"
        "print(e['X'], e['TMPDIR'], e['LD_LIBRARY_PATH'][-5:], e['PATH'][-7:])"
    )
    text = slurm.run(cell).text
    assert text == "".join(f"[stdout:{rank}] 7 /dev/shm /cuda :/extra\n" for rank in range(2))


def test_worlds_of_one_are_refused():
    """srun without a PMI that Open MPI knows starts four programs that do not know each other."""
    program = "from pi2zero import ranks; ranks.join()"
    words = ["srun", "-N2", "-n4", "--mpi=none", sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=somebody_s())
    assert (
        done.returncode
        and "srun has started 4 tasks, and each is an MPI world of its own" in done.stderr
    ), done.stderr
    # srun ended the others when the first had failed: they could not remove their files.
    for node in NODES:
        on(node, "rm -rf /tmp/ompi.* /dev/shm/sm_segment.*")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('on = "slurm"\npartition = "none"\n', "Slurm refused the job: "),
        ('on = "slurm"\nnodes = 1\nranks_per_node = 2\n', "4 ranks do not fit"),
    ],
)
def test_a_site_file_that_is_wrong(site, text, says):
    site(text)
    done = subprocess.run(
        [sys.executable, "-m", "pi2zero", "site"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and says in done.stdout and "Traceback" not in done.stderr, (
        done.stdout + done.stderr
    )
