"""Faults in the hands of MPI, torch and DDP: wrong types, counts, shapes and groups, a rank lost in backward, NaN.

Real engines, a real kernel. Each is reported within seconds, and the next cell works.
"""

import pytest

from .kernel import Notebook

SETUP = """%%px
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank = comm.rank
import os, signal
import numpy as np
"""
TORCH = """import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from pi2zero import ranks
me = ranks.join()
"""
AT_MOST = 60  # s until the report, beside whatever else runs; the account has what it took
# What to run first, the cell, what the report must say
FAULTS = {
    "MPI, a message longer than its buffer": (
        "",
        "if rank == 0:\n    comm.Send(np.ones(4), dest=1)\nelif rank == 1:\n    comm.Recv(np.ones(2), source=0)",
        ["MPI_ERR_TRUNCATE: message truncated"],
    ),
    "MPI, a type that has no name": ("", "comm.Bcast(np.array([object()]))", ["KeyError"]),
    "MPI, a rank that is not there": (
        "",
        "if rank == 0:\n    comm.send(1, dest=3)",
        ["Rank 0 raised", "MPI_ERR_RANK: invalid rank"],
    ),
    "MPI, broadcasts of different lengths": ("", "comm.Bcast(np.ones(4 - rank))", ["MPI_ERR_TRUNCATE"]),
    "gloo, shapes that differ": (TORCH, "dist.all_reduce(torch.ones(2 + rank * 1000))", ["died: signal SIGABRT"]),
    "DDP, a rank is lost in backward": (
        TORCH + "net = DistributedDataParallel(torch.nn.Linear(4, 4))\n",
        "if rank == 1:\n    net.module.bias.register_hook(lambda grad: os.kill(os.getpid(), signal.SIGKILL))\n"
        "net(torch.ones(4)).sum().backward()",
        ["Rank 1 died: signal SIGKILL"],
    ),
    "torch, a stale group on the other ranks": (
        TORCH,
        "if rank == 1:\n    dist.destroy_process_group()\nme = ranks.join()",
        ["rank 1:", "me = ranks.join()", "ranks 0 and 2: finished the cell"],
    ),
    "torch, a second group over the first": (
        TORCH,
        "dist.init_process_group('gloo')",
        ["trying to initialize the default process group twice"],
    ),
}


@pytest.fixture(scope="module")
def book():
    book = Notebook()
    assert (reply := book.run("import pi2zero\ncluster = pi2zero.start(n=3)")).ok, reply.text
    yield book
    book.close()


def works(book):
    return book.run(f"{SETUP}print(comm.allreduce(rank))").text == "".join(f"[stdout:{rank}] 3\n" for rank in range(3))


@pytest.mark.parametrize("name", FAULTS)
def test_library_fault(book, account, name):
    before, cell, says = FAULTS[name]
    assert (reply := book.run(SETUP + before)).ok, reply.text
    count = len(book.processes())
    broken = book.run(f"%%px --timeout 5\n{cell}")
    after = works(book)
    left = len(book.processes()) - count
    message = broken.error.removeprefix("RankError: ")[:75]
    account("faults", name, f"{broken.seconds:.1f} s", message, "works" if after else "fails", str(left))
    assert broken.error.startswith("RankError"), broken.text
    for phrase in says:
        assert phrase in broken.text
    assert after and left == 0
    assert broken.seconds <= AT_MOST


def test_nan_on_one_rank_is_everybodys_and_ends_nothing(book):
    """Nothing raises: an all-reduce hands NaN on, and every rank can see it."""
    model = f"{SETUP}{TORCH}torch.manual_seed(0)\nnet = DistributedDataParallel(torch.nn.Linear(4, 4))\n"
    assert (reply := book.run(model + "step = torch.optim.SGD(net.parameters(), lr=0.1)")).ok, reply.text
    spoilt = "%%px\nx = torch.full((4,), float('nan') if rank == 1 else 1.0)\nnet(x).sum().backward()\nstep.step()"
    assert (reply := book.run(spoilt)).ok, reply.text
    seen = book.run("%%px\nprint(bool(torch.isnan(net.module.weight).all()))")
    assert seen.text == "".join(f"[stdout:{rank}] True\n" for rank in range(3))
    assert works(book)
