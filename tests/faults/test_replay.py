"""`cluster.replay()` can be trusted: it brings back what worked, and says what it leaves out."""

import pytest

from .kernel import Notebook

pytestmark = pytest.mark.long

SETUP = "%%px\nfrom mpi4py import MPI\nimport os\ncomm = MPI.COMM_WORLD\nrank = comm.rank"
RIGHT = "%%px\ndef f(): return comm.allreduce(1)"
WRONG = "%%px\ndef f():\n    if rank == 0: return comm.allreduce(1)"
USE = "%%px --timeout 3\nprint(f())"
DIE = "%%px\nos._exit(1)"


@pytest.fixture(scope="module")
def book():
    book = Notebook()
    yield book
    book.close()


@pytest.fixture
def shared(book):
    """The kernel, with fresh ranks that have run SETUP and nothing else."""
    assert (reply := book.run("import pi2zero\ncluster = pi2zero.start(n=3)")).ok, reply.text
    assert book.run(SETUP).ok
    return book


def on_all(text):
    return "".join(f"[stdout:{rank}] {text}\n" for rank in range(3))


def replay(shared, arguments=""):
    """The lines that a replay prints: mark, number and title of each step, and the summary."""
    reply = shared.run(f"cluster.replay({arguments})")
    assert reply.ok, reply.text
    return [line.rpartition("  (")[0] or line for line in reply.text.splitlines()]


def test_a_definition_with_which_a_cell_hung_is_not_brought_back(shared):
    assert shared.run(RIGHT).ok and shared.run(USE).text == on_all(3)
    assert shared.run(WRONG).ok
    hang = shared.run(USE)
    assert "cluster.replay() runs your 3 earlier steps again" in hang.text
    *steps, summary = replay(shared)
    assert [step[:4] for step in steps] == ["✓ 1 ", "✓ 2 ", "✓ 3 ", "– 4 "]
    assert summary.startswith("Replayed 3 of 4, ") and summary.endswith(
        "Left out: 4 `def f():` (a cell that used it hung or lost a rank; f of step 2 is used)."
    )
    for _ in range(2):
        assert shared.run(USE).text == on_all(3), "the body with which something succeeded"
        shared.run(DIE)
        assert shared.run("cluster.replay()").ok


def test_what_new_ranks_were_told_wins(shared):
    for cell in (
        RIGHT,
        USE,
        "%%px\nx, y = 1, 2",
        "cluster.view['sent'] = 1",
        "%%px\ndef g(): return 1\nz = g()",
        WRONG,
        USE,  # hangs
        "%%px\ndef f(): return 'new'",
        "%%px\nx = 'new'",
        "%%px\ndef g(): return 'new'",
        "cluster.view['sent'] = 'new'",
    ):
        shared.run(cell)
    text = shared.run("cluster.replay()").text
    assert "2 `def f(): return comm.allreduce(1)`" in text and "(told anew since" in text
    assert "[stdout:" not in text, "what the steps print is not shown again"
    show = "%%px\nprint(f(), x, y, g(), sent)"
    assert shared.run(show).text == on_all("new new 2 new new")
    shared.run(DIE)
    assert shared.run("cluster.replay()").ok
    assert shared.run(show).text == on_all("new new 2 new new"), "also in the next replay"


def test_a_step_that_fails_does_not_end_the_rest(shared, tmp_path):
    (marker := tmp_path / "marker").touch()
    for cell in (f"%%px\na = open({str(marker)!r}).name", "%%px\nb = a", "%%px\nc = 3", DIE):
        shared.run(cell)
    marker.unlink()
    reply = shared.run("cluster.replay()")
    assert "✗ 2  a = open(" in reply.text and "(FileNotFoundError: " in reply.text
    assert "`b = a` (NameError)" in reply.text and "Replayed 2 of 4, " in reply.text
    assert shared.run("%%px\nprint(c)").text == on_all(3)
    missing = shared.run("%%px\nprint(a)").text
    assert "`a` comes from step 2, " in missing and "cluster.replay()" not in missing


def test_a_step_that_ends_a_replay_is_named_and_left_out_of_the_next(shared, tmp_path):
    marker = tmp_path / "marker"
    hangs = f"if os.path.exists({str(marker)!r}) and rank == 0: comm.Barrier()"
    for cell in ("%%px\na = 1", f"%%px --timeout 3\n{hangs}", "%%px\nb = 2", DIE):
        shared.run(cell)
    marker.touch()
    report = shared.run("cluster.replay()")
    assert not report.ok and "Rank 0 waited for other ranks for" in report.text
    assert f"It was step 3 of the replay, `{hangs[:60]}" in report.text
    assert "cluster.replay(stop=2) does the steps before it" in report.text
    assert "earlier steps again" not in report.text, "the same advice is not given twice"
    assert len(replay(shared, "stop=2")) == 3
    *steps, summary = replay(shared)
    assert [step[:3] for step in steps] == ["– 3", "✓ 4"] and "it hung" in summary
    assert shared.run("%%px\nprint(a + b)").text == on_all(3)


CHECKS = "%%px\nfrom pi2zero_course.checks.blanks import solution, collectives_on_ranks as check"
BLANK = "%%px\ndef naive_allreduce(comm, x):\n    raise NotImplementedError"
CHECK = "%%px\ncheck.naive_allreduce(naive_allreduce)"
KITS = """%%px
@solution
def naive_allreduce(comm, x):
    x[:] = comm.allreduce(x)
"""
SUM = """%%px
import numpy as np
x = np.array([1.0])
naive_allreduce(comm, x)
assert x[0] == comm.size
"""


def test_checks_are_not_repeated_and_the_accepted_answer_is_bound(shared):
    for cell in (CHECKS, BLANK, CHECK, KITS, SUM):
        assert (reply := shared.run(cell)).ok, reply.text
    assert shared.run("%%px\ndef naive_allreduce(comm, x): os._exit(3)").ok
    assert "died" in shared.run(CHECK).text
    *steps, summary = replay(shared)
    assert [step[0] for step in steps] == list("✓✓✓–✓✓–"), steps
    assert "4 `check.naive_allreduce(naive_allreduce)` (checks are not repeated)" in summary
    who = "%%px\nimport inspect\nprint(inspect.getsource(naive_allreduce).splitlines()[-1].strip())"
    assert shared.run(who).text == on_all("x[:] = comm.allreduce(x)"), "the kit's"
    mine = (
        "%%px\ndef naive_allreduce(comm, x):\n    parts = comm.gather(x)\n"
        "    if comm.rank == 0: x[:] = sum(parts)\n    comm.Bcast(x)"
    )
    assert shared.run(mine).ok
    assert (checked := shared.run(CHECK)).ok, checked.text
    shared.run(DIE)
    *_, summary = replay(shared)
    assert "`@solution def naive_allreduce(comm, x):` (yours is used)" in summary
    assert shared.run(who).text == on_all("comm.Bcast(x)"), "the accepted one"


def test_packages_are_installed_once_and_not_again_in_a_replay(shared):
    install = "!pip install --help"  # ends with 0 and installs nothing
    told = shared.run(f"%%px\nprint('before')\n{install}\npackage = rank").text
    assert "[stdout:0] Usage:" in told.replace("   ", "") and "[stdout:1] Usage" not in told
    assert "Installed once" in told and on_all("before") in told
    shared.run("%%px\n%pip install --help")
    shared.run(DIE)
    reply = shared.run("cluster.replay()")
    assert "Replayed 2 of 2" in reply.text and "Usage" not in reply.text
    assert shared.run("%%px\nprint(package)").text == "".join(
        f"[stdout:{rank}] {rank}\n" for rank in range(3)
    )
