"""Interrupted, restarted, killed kernels, and two at once: no process left, none meets another."""

import contextlib
import os
import queue
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from timing import assert_within

from pi2zero.ownership import leftovers, marked_processes

from .kernel import START, WORKS, WORKS_OUTPUT, Notebook, wait_until_gone

SETUP = "%%px\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\nx = comm.rank + 5"


STOPPED = {  # the cell, what the report must say, the cell after it, what that prints
    "ranks compute": (
        "import time\nprint('on', flush=True)\nwhile True:\n    time.sleep(0.01)",
        "You interrupted the cell",
        ("%%px\nprint(x)", "[stdout:0] 5\n[stdout:1] 6\n"),
    ),
    "rank 0 in recv": (
        "print('on', flush=True)\nif comm.rank == 0:\n    comm.recv(source=1)",
        "comm.recv(source=1)",
        (f"{SETUP}\nprint(comm.allreduce(1))", WORKS_OUTPUT),
    ),
}


@pytest.mark.parametrize("name", STOPPED)
def test_the_stop_button(notebook, account, name):
    """Ranks that can be interrupted keep their variables; those that wait in MPI are replaced."""
    cell, says, (next_cell, prints) = STOPPED[name]
    assert (reply := notebook.run(START)).ok, reply.text
    notebook.run(SETUP)
    before = len(notebook.processes())
    reply = notebook.run(f"%%px\n{cell}", interrupt_after=0.5)
    after = notebook.run(next_cell)
    left = len(notebook.processes()) - before
    account("faults", f"stop button, {name}", reply.seconds - 0.5, reply.error, after.ok, left)
    assert left == 0
    assert "You interrupted the cell" in reply.text and says in reply.text
    assert after.text == prints
    assert_within(reply.seconds, 0.5 + 5)


OWN_NAME = """
import ctypes, socket
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x04000000) == 0  # CLONE_NEWUTS: only this kernel and its ranks see the name
"""
RENAMED = "killed after a new host name"


@pytest.mark.parametrize("how", ["restart", "kill", "shutdown", "killed in a hang", RENAMED])
def test_a_kernel_that_ends_leaves_nothing(notebook, account, how):
    if how == RENAMED and not notebook.run(OWN_NAME).ok:
        pytest.skip("only root may have a host name of its own")
    assert (reply := notebook.run(START)).ok, reply.text
    notebook.run(SETUP)
    owner = notebook.owner
    assert len(notebook.processes()) >= 3  # mpirun and the ranks, at least
    if how == "killed in a hang":
        notebook.client.execute("%%px\nif comm.rank == 0:\n    comm.recv(source=1)")
        time.sleep(1)
    if how == RENAMED:  # as DHCP or a VPN gives one
        assert notebook.run("socket.sethostname('dhcp-10-1-2-3')").ok
        assert notebook.run("%%px\nprint(comm.allreduce(1))").text == WORKS_OUTPUT
    start = time.monotonic()
    {"restart": notebook.restart, "shutdown": notebook.close}.get(how, notebook.kill)()
    _, left = wait_until_gone(notebook, owner, seconds=20)
    seconds = time.monotonic() - start
    account("faults", f"kernel {how}", seconds, "(the kernel is gone)", "new kernel", len(left))
    assert not left
    assert not leftovers()
    if how == "restart":
        notebook.run(START)
        assert notebook.run(f"{SETUP}\nprint(comm.allreduce(1))").text == WORKS_OUTPUT


def test_two_kernels_do_not_meet(notebook):
    other = Notebook()
    try:
        for book in (notebook, other):
            assert book.run(START).ok
            assert book.run(SETUP).ok
        theirs = {p.pid for p in other.processes()}
        assert theirs.isdisjoint(p.pid for p in notebook.processes())
        notebook.run("%%px\nimport os\nos._exit(1)")
        assert notebook.run("cluster.stop()").ok
        assert not notebook.processes()
        assert {p.pid for p in other.processes()} == theirs
        assert other.run(WORKS).text == WORKS_OUTPUT
    finally:
        other.close()


def test_stop_leaves_nothing_and_says_so_afterwards(notebook):
    assert (reply := notebook.run(START)).ok, reply.text
    assert notebook.run("cluster.stop()").ok
    assert not notebook.processes()
    assert "This cluster is stopped. Start one" in notebook.run("%%px\n1").error


def test_reset_from_a_cell_and_from_the_shell_spares_everybody_else(notebook):
    bystander = subprocess.Popen(["sleep", "60"])
    for how in ("import pi2zero; print(pi2zero.reset())", f"!{sys.executable} -m pi2zero reset"):
        notebook.run(START)
        reply = notebook.run(how)
        assert "ended" in reply.text
        left = {process.pid: process.cmdline() for process in marked_processes()}
        assert not left, f"{left}\n{reply.text}"
    assert bystander.poll() is None
    assert psutil.pid_exists(notebook.pid)
    bystander.kill()
    bystander.wait()


SPAWN = """import sys
from mpi4py import MPI
child = MPI.COMM_SELF.Spawn(sys.executable, ["-c", {program!r}], maxprocs=2)
print("spawned")"""
MEETS, STAYS = "MPI.Comm.Get_parent().Disconnect()", "__import__('time').sleep(1000)"


def test_reset_spares_what_a_kernel_spawns_by_unless_its_children_hang(notebook):
    spawn = {
        program: SPAWN.format(program=f"from mpi4py import MPI; {program}")
        for program in (MEETS, STAYS)
    }
    ready = (
        "import os\n"
        "os.environ['OMPI_MCA_btl'] = 'self,sm,tcp'  # as notebook 02: children need TCP\n" + START
    )
    assert (reply := notebook.run(ready)).ok, reply.text
    for _ in range(2):
        assert (reply := notebook.run(f"{spawn[MEETS]}\nchild.Disconnect()")).ok, reply.text
        reply = notebook.run("print(pi2zero.reset())")
        assert "this kernel" not in reply.text
    assert "Nothing of the kit was running." in reply.text and len(notebook.processes()) == 1
    assert notebook.run(spawn[STAYS]).ok
    assert (
        "to spawn again, restart it (Kernel > Restart)."
        in notebook.run("print(pi2zero.reset())").text
    )
    assert not notebook.processes()


CHILD_MEETS = """import time
from mpi4py import MPI
parent = MPI.Comm.Get_parent()
{before}
parent.Barrier()
parent.Disconnect()"""
COMPUTES = "end = time.monotonic() + 18\nwhile time.monotonic() < end: pass"


def notes_of(notebook, cell, seconds):
    """What a cell shows in passing within some seconds; it need not end."""
    notebook.client.execute(cell)
    notes, end = [], time.monotonic() + seconds
    while time.monotonic() < end and not any("Restart" in note for note in notes):
        with contextlib.suppress(queue.Empty):
            content = notebook.client.get_iopub_msg(timeout=1)["content"]
            notes.append(content.get("data", {}).get("text/plain", ""))
    return notes


def test_a_kernel_that_waits_in_mpi_says_so_unless_a_child_computes(notebook):
    ready = (
        "import os\nos.environ['OMPI_MCA_btl'] = 'self,sm,tcp'\nimport pi2zero\npi2zero.mpi_env()"
    )
    assert (reply := notebook.run(ready)).ok, reply.text
    right = SPAWN.format(program=CHILD_MEETS.format(before=COMPUTES)) + "\nchild.Barrier()"
    assert not any("waits" in note for note in notes_of(notebook, right, 22))
    assert notebook.run("child.Disconnect()").ok
    wrong = SPAWN.format(program=CHILD_MEETS.format(before="")) + "\nchild.bcast(None, root=0)"
    (*_, note) = notes_of(notebook, wrong, 40)
    assert note == (
        "This notebook's kernel waits in bcast for its children. "
        "The stop button cannot help: Kernel → Restart (2 s)"
    )
    notebook.restart()
    assert notebook.run("print('on')").text == "on\n"


def test_ranks_that_cannot_start_say_why(notebook):
    notebook.run("import os\nos.environ['OMPI_MCA_pml'] = 'nonsense'")
    reply = notebook.run(START)
    assert "ClusterError" in reply.error
    # Open MPI's own words, not a time-out. (Its message that names the component is often lost.)
    assert "An error occurred in MPI_Init" in reply.text
    assert reply.seconds < 30
    assert not notebook.processes()


# A controller that other work keeps from the processor just when the engines want to register.
LATE_CONTROLLER = """import os, signal, threading
from pi2zero.cluster.engines import Engines
publish = Engines._publish
def late(engines):
    pid = engines.ipp.controller.pid
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(8, os.kill, (pid, signal.SIGCONT)).start()
    publish(engines)
Engines._publish = late"""


def test_a_controller_that_is_late_is_waited_for(notebook):
    assert notebook.run(LATE_CONTROLLER).ok
    assert (reply := notebook.run(START)).ok, reply.text
    assert reply.seconds > 8
    assert notebook.run(f"{SETUP}\nprint(comm.allreduce(1))").text == WORKS_OUTPUT
    notebook.run("cluster.stop()")
    assert not notebook.processes()


@pytest.mark.parametrize("n", ["0", "-1", "2.5", "'four'"])
def test_a_wrong_number_of_ranks(notebook, n):
    reply = notebook.run(f"import pi2zero\npi2zero.start(n={n})")
    assert "n is the number of ranks" in reply.error


def test_wrong_targets_and_timeouts(notebook):
    assert (reply := notebook.run(START)).ok, reply.text
    assert "there are ranks 0 to 1" in notebook.run("%%px --targets 2\n1").text
    assert "more than 0" in notebook.run("%%px --timeout 0\n1").text
    assert notebook.run("%%px --targets 1\nprint('only me')").text == "[stdout:1] only me\n"


def test_a_stop_button_while_ranks_restart_is_only_a_pause(notebook):
    assert (reply := notebook.run(START)).ok, reply.text
    assert "died" in notebook.run("%%px\nimport os\nos._exit(1)").error
    hurry = "print('on', flush=True)\nget_ipython().run_cell_magic('px', '', 'print(1)')"
    assert "KeyboardInterrupt" in notebook.run(hurry, interrupt_after=0.2).error
    after = notebook.run(f"{SETUP}\nprint(comm.allreduce(1))")
    assert after.text == WORKS_OUTPUT
    assert notebook.run("cluster.stop()").ok
    assert not notebook.processes()


def test_a_start_that_was_interrupted_leaves_nothing(notebook):
    notebook.run("import pi2zero\npi2zero.start")  # the imports
    early = "print('on', flush=True)\ncluster = pi2zero.start(n=2)"
    for moment in (0.1, 0.5, 0.9):
        reply = notebook.run(early, interrupt_after=moment)
        assert "The start of 2 ranks was stopped, and nothing of it is left." in reply.text
        assert reply.text.count("\n") < 4  # no traceback
        assert not notebook.processes()
    assert (reply := notebook.run(START)).ok, reply.text
    assert notebook.run(f"{SETUP}\nprint(comm.allreduce(1))").text == WORKS_OUTPUT
    notebook.run("cluster.stop()")
    assert not notebook.processes()


def test_a_wrong_start_leaves_the_running_cluster_alone(notebook):
    assert (reply := notebook.run(START)).ok, reply.text
    notebook.run(SETUP)
    assert "n is the number of ranks" in notebook.run("pi2zero.start(n=0)").error
    assert notebook.run("%%px\nprint(x)").text == "[stdout:0] 5\n[stdout:1] 6\n"


def test_stop_spares_what_else_the_kernel_started(notebook):
    notebook.run(f"{START}\nimport subprocess\nmine = subprocess.Popen(['sleep', '60'])")
    notebook.run("cluster.stop()\npi2zero.start(n=1).stop()")
    assert notebook.run("assert mine.poll() is None").ok
    assert [p.name() for p in notebook.processes()] == ["sleep"]
    notebook.run("mine.kill(); mine.wait()")


def test_one_watchdog_for_many_starts(notebook):
    for _ in range(2):
        notebook.run(START)
    lines = [p.info["cmdline"] or [] for p in psutil.process_iter(["cmdline"])]
    assert len([line for line in lines if line[-1:] == [notebook.owner]]) == 1


def test_a_view_tells_of_a_death_too(notebook):
    assert (reply := notebook.run(START)).ok, reply.text
    notebook.run(
        "import os, signal\nos.kill(cluster.info[1]['pid'], signal.SIGKILL)\n"
        "import time; time.sleep(0.5)"
    )
    says = "<MPICluster: 2 ranks, rank 1 died; the next cell says why>"
    assert says in notebook.run("print(cluster)").text
    assert "rank 1 died: signal SIGKILL" in notebook.run("cluster.view['x'] = 1").error
    assert notebook.run("cluster.view['x'] = 1\nprint(cluster[1]['x'])").text.endswith("1\n")


def test_replay_runs_a_cell_again_for_each_of_its_targets(notebook):
    assert (reply := notebook.run(START)).ok, reply.text
    notebook.run("%%px --targets 0\ny = 2")
    notebook.run("%%px --targets 1\ny = 2")
    notebook.run("%%px\n")
    notebook.run("%%px\nimport os\nos._exit(1)")
    assert "Replayed 2 of 2" in notebook.run("cluster.replay()").text
    assert notebook.run("%%px\nprint(y)").text == "[stdout:0] 2\n[stdout:1] 2\n"


@pytest.fixture
def new_kernel(tmp_path):
    """A kernel that starts as those of the course do."""
    settings = tmp_path / "profile_default"
    settings.mkdir()
    shutil.copy(Path(__file__).parents[2] / "course" / "ipython_config.py", settings)
    book = Notebook(env=dict(os.environ, IPYTHONDIR=str(tmp_path)))
    yield book
    book.close()


def test_a_kernel_without_ranks_says_what_to_do(new_kernel):
    for cell in ("%%px\nprint(1)", " %%px --timeout 3\nprint(1)"):
        text = new_kernel.run(cell).text
        assert text.startswith("UsageError: There are no ranks in this kernel yet"), text
    assert (
        "pi2zero is not there in this kernel yet"
        in new_kernel.run("cluster = pi2zero.start(n=4)").text
    )
    failing = "import os\nos.environ['OMPI_MCA_pml'] = 'none'\nimport pi2zero\npi2zero.start(n=1)"
    assert not new_kernel.run(failing).ok
    failed = new_kernel.run("%%px\nprint(1)").text
    assert failed.startswith("UsageError: There are no ranks: pi2zero.start failed")
    assert len(failed.splitlines()) == 1
    new_kernel.run(f"del os.environ['OMPI_MCA_pml']\n{START}")
    assert new_kernel.run("%%px\nprint('on')").text == "[stdout:0] on\n[stdout:1] on\n"
