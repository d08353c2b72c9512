"""Whatever is typed into a `%%px` cell: the learner sees within seconds what happened, and can go on.

Real engines, a real kernel. The faults run one after another in the same notebook, as a learner would make them.
"""

import pytest

from .kernel import Notebook

SETUP = "%%px\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\nrank = comm.rank\nimport os, signal, sys, time"
SUM = "%%px\nprint(comm.allreduce(rank))"
SUM_OUTPUT = "".join(f"[stdout:{rank}] 6\n" for rank in range(4))
GLOO = """
import tempfile, torch, torch.distributed as dist
path = comm.bcast(f"{tempfile.mkdtemp()}/meeting" if rank == 0 else None)
dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=comm.size)
"""
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
    libc.memset(libc.malloc(8 << 30), 1, 8)  # C code that does not look whether malloc gave anything
comm.Barrier()
"""

# name, cell, seconds until the report at most, what it must say, whether the ranks have to be restarted
FAULTS = [
    (
        "exception, others in Barrier",
        "%%px\nif rank == 2:\n    1 / 0\ncomm.Barrier()",
        5,
        ["Rank 2 raised ZeroDivisionError", "ranks 0, 1 and 3: cell line 3:  comm.Barrier()"],
        True,
    ),
    (
        "exception, others in gloo all_reduce",
        "%%px\nif rank == 1:\n    raise ValueError('bad shape')\ndist.all_reduce(torch.ones(3))",
        5,
        ["Rank 1 raised ValueError", "bad shape", "dist.all_reduce(torch.ones(3))"],
        True,
    ),
    (
        "exception, others compute",
        "%%px\nif rank == 0:\n    raise KeyError('lr')\nfor i in range(600):\n    time.sleep(0.1)",
        5,
        ["Rank 0 raised KeyError", "kept their variables"],
        False,
    ),
    (
        "exception on every rank",
        "%%px\nundefined_name",
        5,
        ["Ranks 0, 1, 2 and 3 raised NameError", "kept their variables"],
        False,
    ),
    (
        "SIGKILL",
        "%%px\nif rank == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\ncomm.Barrier()",
        5,
        ["Rank 1 died: signal SIGKILL"],
        True,
    ),
    ("sys.exit", "%%px\nif rank == 1:\n    sys.exit(3)\ncomm.Barrier()", 5, ["Rank 1 raised SystemExit"], True),
    ("os._exit", "%%px\nif rank == 1:\n    os._exit(3)\ncomm.Barrier()", 5, ["Rank 1 died", "exit code 3"], True),
    ("MPI_Abort", "%%px\nif rank == 1:\n    comm.Abort(7)\ncomm.Barrier()", 5, ["Rank 1 died", "error code 7"], True),
    (
        "segfault",
        "%%px\nif rank == 1:\n    import ctypes\n    ctypes.string_at(0)\ncomm.Barrier()",
        5,
        ["Rank 1 died: signal SIGSEGV"],
        True,
    ),
    ("out of memory, Python notices", OUT_OF_MEMORY, 5, ["Rank 3 raised MemoryError"], True),
    ("out of memory, C code does not", OUT_OF_MEMORY_IN_C, 5, ["Rank 3 died: signal SIGSEGV"], True),
]


@pytest.fixture(scope="module")
def shared():
    book = Notebook()
    assert (reply := book.run("import pi2zero\ncluster = pi2zero.start(n=4)")).ok, reply.text
    yield book
    book.close()


@pytest.mark.parametrize("name, cell, at_most, says, restarts", FAULTS, ids=[fault[0] for fault in FAULTS])
def test_fault(shared, account, name, cell, at_most, says, restarts):
    assert (reply := shared.run(SETUP + GLOO if "gloo" in name else SETUP)).ok, reply.text
    before = len(shared.processes())
    broken = shared.run(cell)
    after = shared.run(SUM if not restarts else f"{SETUP}\nprint(comm.allreduce(rank))")
    left = len(shared.processes()) - before  # the fresh ranks are as many as the former ones were
    message = broken.error.removeprefix("RankError: ")[:75]
    account("faults", name, f"{broken.seconds:.1f} s", message, "works" if after.text == SUM_OUTPUT else "fails", str(left))
    assert left == 0
    assert not broken.ok
    assert broken.error.startswith("RankError")
    for phrase in says:
        assert phrase in broken.text
    assert ("being restarted" in broken.text) == restarts
    assert after.text == SUM_OUTPUT
    assert broken.seconds <= at_most


def test_failing_ranks_output_is_not_lost(shared):
    shared.run(SETUP)
    broken = shared.run("%%px\nprint('before', rank)\nif rank == 2:\n    raise RuntimeError('x')")
    assert "".join(f"[stdout:{rank}] before {rank}\n" for rank in range(4)) in broken.text


def test_replay_brings_the_variables_back(shared):
    shared.run("import pi2zero\ncluster = pi2zero.start(n=3)")
    sent = "cluster.view['power'] = 2\ncluster[2]['power'] = 3"
    for cell in (SETUP, sent, "%%px\nsquare = rank**power", "%%px --targets 1\nsquare = -1"):
        assert shared.run(cell).ok
    assert "cluster.replay() runs your 5 earlier steps again" in shared.run("%%px\nos._exit(1)").text
    gone = shared.run("%%px\nprint(square)")
    assert "raised NameError" in gone.error
    assert "square is missing because the ranks are new" in gone.text and "cluster.replay()" in gone.text
    assert shared.run("cluster.replay()").ok
    assert shared.run("%%px\nprint(square)").text == "[stdout:0] 0\n[stdout:1] -1\n[stdout:2] 8\n"


def test_a_rank_that_dies_between_two_cells(shared):
    shared.run("import pi2zero\ncluster = pi2zero.start(n=2)")
    shared.run("import os, psutil\npsutil.Process(cluster.info[1]['pid']).kill()\npsutil.wait_procs([], 1)")
    report = shared.run("%%px\nprint('on')")
    assert "Rank 1 died: signal SIGKILL" in report.text
    assert shared.run("%%px\nprint('on')").text == "[stdout:0] on\n[stdout:1] on\n"
