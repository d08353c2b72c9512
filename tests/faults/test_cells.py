"""Whatever is typed into a `%%px` cell: the learner sees within seconds what happened, and goes on.

Real engines, a real kernel. The faults run one after another in the same notebook, as a learner
would make them.
"""

from pathlib import Path

import pytest
from timing import assert_within

from .kernel import Notebook

SETUP = (
    "%%px\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\n"
    "rank = comm.rank\nimport os, signal, sys, time"
)
SUM = "%%px\nprint(comm.allreduce(rank))"
SUM_OUTPUT = "".join(f"[stdout:{rank}] 6\n" for rank in range(4))
GLOO = "\nimport torch, torch.distributed as dist\nfrom pi2zero import ranks\nme = ranks.join()\n"
OUT_OF_MEMORY = """%%px
if rank == 3:
    import resource
    limit = 4 << 30  # bytes of address space
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    a = bytearray(limit)
comm.Barrier()
"""
OUT_OF_MEMORY_IN_C = """%%px
if rank == 3:
    import ctypes, resource
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    libc.memset(libc.malloc(8 << 30), 1, 8)  # C code that does not look \
whether malloc gave anything
comm.Barrier()
"""

AT_MOST = 5  # s until the report
# the cell, what the report must say, whether the ranks have to be restarted
FAULTS = {
    "exception, others in Barrier": (
        "%%px\nif rank == 2:\n    1 / 0\ncomm.Barrier()",
        ["Rank 2 raised ZeroDivisionError", "ranks 0, 1 and 3: cell line 3:  comm.Barrier()"],
        True,
    ),
    "exception, others in gloo all_reduce": (
        "%%px\nif rank == 1:\n    raise ValueError('bad shape')\ndist.all_reduce(torch.ones(3))",
        ["Rank 1 raised ValueError", "bad shape", "dist.all_reduce(torch.ones(3))"],
        True,
    ),
    "exception, others compute": (
        "%%px\nif rank == 0:\n    raise KeyError('lr')\nfor i in range(600):\n    time.sleep(0.1)",
        ["Rank 0 raised KeyError", "kept their variables"],
        False,
    ),
    "exception on every rank": (
        "%%px\nundefined_name",
        ["Ranks 0, 1, 2 and 3 raised NameError", "kept their variables"],
        False,
    ),
    "SIGKILL": (
        "%%px\nif rank == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\ncomm.Barrier()",
        ["Rank 1 died: signal SIGKILL"],
        True,
    ),
    "sys.exit": (
        "%%px\nif rank == 1:\n    sys.exit(3)\ncomm.Barrier()",
        ["Rank 1 left the cell by exit() or sys.exit(3)"],
        True,
    ),
    "os._exit": (
        "%%px\nif rank == 1:\n    os._exit(3)\ncomm.Barrier()",
        ["Rank 1 died", "exit code 3"],
        True,
    ),
    "MPI_Abort": (
        "%%px\nif rank == 1:\n    comm.Abort(7)\ncomm.Barrier()",
        ["Rank 1 died", "error code 7"],
        True,
    ),
    "segfault": (
        "%%px\nif rank == 1:\n    import ctypes\n    ctypes.string_at(0)\ncomm.Barrier()",
        ["Rank 1 died: signal SIGSEGV"],
        True,
    ),
    "out of memory, Python notices": (OUT_OF_MEMORY, ["Rank 3 raised MemoryError"], True),
    "out of memory, C code does not": (OUT_OF_MEMORY_IN_C, ["Rank 3 died: signal SIGSEGV"], True),
}


@pytest.fixture(scope="module")
def shared():
    book = Notebook()
    assert (reply := book.run("import pi2zero\ncluster = pi2zero.start(n=4)")).ok, reply.text
    yield book
    book.close()


@pytest.mark.parametrize("name", FAULTS)
def test_fault(shared, account, name):
    cell, says, restarts = FAULTS[name]
    assert (reply := shared.run(SETUP + GLOO if "gloo" in name else SETUP)).ok, reply.text
    before = len(shared.processes())
    broken = shared.run(cell)
    after = shared.run(SUM if not restarts else f"{SETUP}\nprint(comm.allreduce(rank))")
    left = len(shared.processes()) - before  # the fresh ranks are as many as the former ones were
    message = broken.error.removeprefix("RankError: ")[:75]
    account("faults", name, broken.seconds, message, after.text == SUM_OUTPUT, left)
    assert left == 0
    assert not broken.ok
    assert broken.error.startswith("RankError")
    for phrase in says:
        assert phrase in broken.text
    assert ("being restarted" in broken.text) == restarts
    assert after.text == SUM_OUTPUT
    assert_within(broken.seconds, AT_MOST * shared.patience)


def test_failing_ranks_output_is_not_lost(shared):
    shared.run(SETUP)
    broken = shared.run("%%px\nprint('before', rank)\nif rank == 2:\n    raise RuntimeError('x')")
    assert "".join(f"[stdout:{rank}] before {rank}\n" for rank in range(4)) in broken.text


def test_replay_brings_the_variables_back(shared):
    shared.run("import pi2zero\ncluster = pi2zero.start(n=3)")
    sent = "cluster.view['power'] = 2\ncluster[2]['power'] = 3"
    for cell in (SETUP, sent, "%%px\nsquare = rank**power", "%%px --targets 1\nsquare = -1"):
        assert shared.run(cell).ok
    assert (
        "cluster.replay() runs your 5 earlier steps again" in shared.run("%%px\nos._exit(1)").text
    )
    gone = shared.run("%%px\nprint(square)")
    assert "raised NameError" in gone.error
    assert (
        "square is missing because the ranks are new" in gone.text
        and "cluster.replay()" in gone.text
    )
    told = shared.run("cluster.replay()").text
    assert "Replayed 5 of 5" in told and "left out" not in told.lower()
    assert shared.run("%%px\nprint(square)").text == "[stdout:0] 0\n[stdout:1] -1\n[stdout:2] 8\n"


def test_a_rank_that_dies_between_two_cells(shared):
    shared.run("import pi2zero\ncluster = pi2zero.start(n=2)")
    shared.run(
        "import os, psutil\npsutil.Process(cluster.info[1]['pid']).kill()\npsutil.wait_procs([], 1)"
    )
    report = shared.run("%%px\nprint('on')")
    assert "Rank 1 died: signal SIGKILL" in report.text
    assert shared.run("%%px\nprint('on')").text == "[stdout:0] on\n[stdout:1] on\n"


def passing(reply):
    """The texts that a person who watches the cell saw in passing."""
    return [
        content["data"].get("text/plain", "")
        for kind, content in reply.outputs
        if kind.endswith("display_data")
    ]


def test_output_is_live_from_all_ranks_and_comes_in_their_order(shared):
    shared.run("import pi2zero\ncluster = pi2zero.start(n=3)")
    shared.run(SETUP)
    cell = (
        "%%px\nfor i in range(3):\n"
        "    print(f'{i} of rank {rank}', flush=True)\n    time.sleep(1 + (rank == 0))"
    )
    reply = shared.run(cell, watched=True)
    in_order = "".join(
        f"[stdout:{rank}] {i} of rank {rank}\n" for rank in range(3) for i in range(3)
    )
    assert reply.text == shared.run(cell).text == in_order
    live = [text for text in passing(reply) if text.startswith("[stdout")]
    assert any("[stdout:0] 1" in text and "[stdout:2] 2 of rank 2" in text for text in live)
    for text in live:
        assert [line for line in in_order.splitlines() if line in text] == text.splitlines()
    streams = [content["text"] for kind, content in reply.outputs if kind == "stream"]
    assert streams[0] == "[stdout:0] 0 of rank 0\n", "rank 0's first line came at once"


def test_output_is_capped_and_the_rest_is_in_a_file(shared):
    reply = shared.run("%%px --targets 1\nfor i in range(10_000): print(i)")
    lines = reply.text.splitlines()
    assert lines[0] == "[stdout:1] 0" and len(lines) <= 2000 // 3 + 2
    name = lines[-1].partition("the rest is in ")[2].partition(" (")[0]
    kept = Path(name).read_text().split()
    assert kept[0] == str(len(lines) - 1) and kept[-1] == "9999", (
        "nothing is lost between the page and the file"
    )
    assert Path(name).stat().st_mode & 0o077 == 0 or Path(name).parent.stat().st_mode & 0o077 == 0
    assert shared.run("%%px --targets 1\nprint('on')").text == "[stdout:1] on\n", (
        "the next cell begins anew"
    )


def test_top_level_await(shared):
    cell = (
        "%%px\nimport asyncio\nasync def twice(x):\n"
        "    await asyncio.sleep(0.05)\n    return 2 * x\nprint(await twice(rank))"
    )
    assert shared.run(cell).text == "[stdout:0] 0\n[stdout:1] 2\n[stdout:2] 4\n"


def test_a_variable_that_ranks_do_not_have_is_one_sentence(shared):
    shared.run("%%px --targets 1\nlonely = 1")
    reply = shared.run("cluster.view['lonely']")
    assert reply.error.endswith(
        "ranks 0 and 2 have no variable 'lonely'. Define it there first, in a %%px cell."
    )
    assert len(reply.text.splitlines()) == 1
    assert "rank 2 has no variable" in shared.run("cluster[2]['lonely']").error


def test_a_traceback_speaks_of_this_cell_and_shows_the_right_lines(shared):
    shared.run("%%px\ndef inverse(x):\n    return [1 / i for i in range(x)]")
    earlier = shared.run("print(len(In) - 2)").text.strip()
    text = shared.run("%%px\nprint('first')\ninverse(3)").text
    assert "this cell, line 2" in text and f"In [{earlier}], line 2" in text
    assert "Cell In[" not in text
    assert "listcomp" not in text and "---> 2     return [1 / i for i in range(x)]" in text.replace(
        "----> 2", "---> 2"
    )


@pytest.mark.parametrize("leave", ["exit()", "quit()", "import sys; sys.exit(3)"])
def test_exit_ends_the_cell_on_the_ranks_and_no_rank(shared, leave):
    assert shared.run("%%px\nkept = 1").ok
    left = shared.run(f"%%px\nprint('on')\n{leave}\nkept = 2")
    assert " left the cell by exit() or sys.exit(" in left.error
    assert "The ranks kept their variables" in left.text and "To exit" not in left.text
    assert len([line for line in left.text.splitlines() if "[stdout" not in line]) <= 3, left.text
    assert "[stdout:2] 1\n" in shared.run("%%px\nprint(kept)").text


@pytest.mark.parametrize(
    "cell, says",
    {
        "x = input('n? ')": "A rank has no keyboard, so input() cannot ask",
        "import getpass; getpass.getpass()": "A rank has no keyboard, so getpass() cannot ask",
        "breakpoint()": "There is no debugger on a rank",
        "import pdb; pdb.set_trace()": "There is no debugger on a rank",
        "%debug": "There is no debugger on a rank",
    }.items(),
)
def test_what_a_rank_cannot_do_is_refused_in_a_sentence(shared, cell, says):
    refused = shared.run(f"%%px\n{cell}")
    assert says in refused.text and not refused.ok
    assert len(refused.text.splitlines()) <= 4, refused.text


def test_a_name_that_lives_on_the_other_side_is_said_so(shared):
    shared.run("%%px\nfrom math import *\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD")
    shared.run("%%px --targets 1\nlonely = 1")
    for cell, says in {
        "print(comm.rank)": "`comm` is on the ranks: begin the cell with %%px",
        "def f(): return sqrt(2)\nf()": "`sqrt` is on the ranks: begin the cell with %%px",
        "lonely": "`lonely` is on rank 1: begin the cell with %%px",
    }.items():
        reply = shared.run(cell)
        assert reply.error.startswith("NameError") and says in reply.text
    assert " on the ranks" not in shared.run("nowhere").text
    shared.run("def partial_pi(): return 1\nn = 3")
    call = "from pi2zero_course.checks.framework.answers import call_answer\n"
    for cell, says in {
        "print(partial_pi())": "`partial_pi` is defined in this notebook, not on the ranks: begin",
        f"{call}call_answer(lambda: partial_pi())": "`partial_pi` is defined in this notebook",
        "print(n)": 'not on the ranks: send it, cluster.view["n"] = n, or define it in a %%px cell',
    }.items():
        assert says in shared.run(f"%%px\n{cell}").text
    answer = "def mine(): return comm.rank\n"
    assert "`comm` is on the ranks" in shared.run(f"{answer}{call}call_answer(mine)").text


def test_px_begins_with_a_blank_or_under_autopx(shared):
    assert shared.run(" %%px --targets 1\nprint('on')").text == "[stdout:1] on\n"
    shared.run("%autopx")
    try:
        assert shared.run("%%px --targets 1\nprint('on')").text == "[stdout:1] on\n"
        assert "[stdout:2] all" in shared.run("print('all')").text
    finally:
        shared.run("%autopx")


def test_after_a_restart_the_wait_counts_and_replay_knows_what_to_do(shared):
    shared.run("import pi2zero\ncluster = pi2zero.start(n=2)")
    for cell in (
        SETUP,
        "%%px\ndef f(): return 1",
        "%%px\ndef f(): return 2",
        "%%px\nx = f()",
        "%%px\ny = 3",
    ):
        assert shared.run(cell).ok
    shared.run("%%px\nos._exit(1)")
    missing = shared.run("%%px\nprint(x, f())", watched=True)
    assert any("Waiting for 2 fresh ranks" in text for text in passing(missing))
    assert "x is missing because the ranks are new" in missing.text
    read = shared.run("cluster.view['x']").error
    assert (
        "no variable 'x'. The ranks are new, and what earlier ones had is gone: cluster.replay()"
        in read
    )
    checked = shared.run(
        "%%px\nfrom pi2zero_course.checks.framework.answers import call_answer\n"
        "def mine(): return x\ncall_answer(mine)"
    )
    assert (
        "CheckError" in checked.error and "x is missing because the ranks are new" in checked.text
    )
    told = shared.run("cluster.replay(stop=3)").text.splitlines()
    assert [line.partition("  (")[0] for line in told[1:3]] == [
        "✓ 2  def f(): return 2",
        "✓ 3  x = f()",
    ], "the first f was replaced"
    assert told[-1].startswith("Replayed 3 of 4, ")
    assert shared.run("%%px\nprint(x)").text == "[stdout:0] 2\n[stdout:1] 2\n"
    assert "y is missing because the ranks are new" in shared.run("%%px\nprint(y)").text
    shared.run("cluster = pi2zero.start(n=2)")
    anew = shared.run("%%px\nprint(x)")
    assert "x is missing because the ranks are new" in anew.text and "cluster.replay()" in anew.text
    assert shared.run("cluster.replay()").ok and shared.run("%%px\nprint(x)").ok
    shared.run("cluster.stop()")
    assert "This cluster is stopped" in shared.run("cluster.replay()").error


def test_replay_knows_what_was_lost_in_more_than_one_restart(shared):
    shared.run("import pi2zero\ncluster = pi2zero.start(n=2)")
    shared.run(SETUP)
    shared.run("%%px\nfirst = 1")
    for cell in (
        "%%px\nimport os\nos._exit(1)",
        "%%px\nsecond = 2",
        "%%px\nimport os\nos._exit(1)",
    ):
        shared.run(cell)
    assert shared.run("cluster.replay()").ok
    assert shared.run("%%px\nprint(first + second)").text == "[stdout:0] 3\n[stdout:1] 3\n"
