"""What must end: communication that cannot complete. Real ranks, in MPI, gloo, DDP and Horovod."""

import os
import time

import pytest

from .kernel import Notebook

TIMEOUT = 20 if os.environ.get("PI2ZERO_FAULTS") == "full" else 2
SETUP = """%%px
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank = comm.rank
import time
import numpy as np
"""
TORCH = "import torch, torch.distributed as dist\nfrom pi2zero import ranks\nme = ranks.join()\n"
DDP = TORCH + (
    "from torch.nn.parallel import DistributedDataParallel\n"
    "net = DistributedDataParallel(torch.nn.Linear(4, 4))\n"
    "net(torch.ones(4)).sum().backward()\n"
)
HOROVOD = "import torch, horovod.torch as hvd\nhvd.init()\n"

# What to run first, the cell, what the report must say
ENDED = {
    "collective that one rank left out": (
        "",
        "if rank != 1:\n    comm.Barrier()",
        ["cell line 2:  comm.Barrier()", "Rank 1 had finished the cell"],
    ),
    "a reduction of objects on a new communicator": (  # mpi4py holds Python's lock there
        "team = comm.Split(0)\n",
        "if rank == 0:\n    print(f'{team.allreduce(1)} in all')",
        ["rank 0: cell line 2:  print("],
    ),
    "two different collectives": (
        "",
        "if rank == 0:\n    comm.bcast(1)\n    comm.gather(1, root=1)\n"
        "else:\n    comm.bcast(None)\n    comm.Barrier()",
        ["comm.Barrier()"],
    ),
    "recv without send": (
        "",
        "if rank == 0:\n    comm.recv(source=1)",
        ["rank 0: cell line 2:  comm.recv(source=1)"],
    ),
    "recv with another tag": (
        "",
        "if rank == 0:\n    comm.send(1, dest=1, tag=3)\n"
        "elif rank == 1:\n    comm.recv(source=0, tag=4)",
        ["rank 1: cell line 4:  comm.recv(source=0, tag=4)"],
    ),
    "a pair that both send first": (
        "",
        "x = np.ones(10**6)\n"
        "if rank < 2:\n    comm.Send(x, dest=1 - rank)\n    comm.Recv(x, source=1 - rank)",
        ["ranks 0 and 1: cell line 3:  comm.Send(x, dest=1 - rank)"],
    ),
    "a ring that all receive first": ("", "comm.recv(source=rank - 1)", ["ranks 0, 1 and 2"]),
    "a request that never completes": (
        "",
        "r = comm.irecv(source=2)\nif rank == 0:\n    r.wait()",
        ["rank 0: cell line 3:  r.wait()"],
    ),
    "Waitall without a sender": (
        "",
        "if rank == 0:\n    MPI.Request.Waitall([comm.Irecv(np.ones(1), 1)])",
        ["MPI.Request.Waitall"],
    ),
    "a rank left in the middle of a loop": (
        "",
        "for step in range(10):\n    if rank == 2 and step == 5: break\n    comm.allreduce(step)",
        ["ranks 0 and 1: cell line 3:  comm.allreduce(step)", "Rank 2 had finished the cell"],
    ),
    "a loop that asks for a message": (
        "",
        "if rank == 0:\n    while not comm.iprobe(source=1): pass",
        ["while not comm.iprobe(source=1)"],
    ),
    "a loop that tests and sleeps": (
        "",
        "r = comm.irecv(source=2)\nif rank == 0:\n"
        "    while not r.test()[0]:\n        time.sleep(0.01)",
        ["rank 0: cell line"],
    ),
    "one waits, others ask": (
        "",
        "if rank == 0:\n    comm.Barrier()\nelse:\n    while not comm.iprobe(): time.sleep(0.1)",
        ["rank 0: cell line 2:  comm.Barrier()"],
    ),
    "gloo, one rank left out": (
        TORCH,
        "if rank != 1:\n    dist.all_reduce(torch.ones(3))",
        ["dist.all_reduce(torch.ones(3))"],
    ),
    "gloo, different calls": (
        TORCH,
        "if rank == 0:\n    dist.recv(torch.ones(1), src=1)\nelse:\n    dist.barrier()",
        ["dist.recv(torch.ones(1), src=1)", "dist.barrier()"],
    ),
    "MPI here, gloo there": (
        TORCH,
        "comm.Barrier() if rank == 0 else dist.all_reduce(torch.ones(3))",
        ["dist.all_reduce"],
    ),
    "DDP, one rank has no batch left": (
        DDP,
        "if rank != 0:\n    net(torch.ones(4)).sum().backward()",
        ["backward()"],
    ),
    "MPI-IO, one rank does not open": (
        "path = comm.bcast(__import__('tempfile').mktemp())\n",
        "if rank != 1:\n    MPI.File.Open(comm, path, MPI.MODE_CREATE | MPI.MODE_WRONLY)",
        ["MPI.File.Open(comm, path", "Rank 1 had finished the cell"],
    ),
    "MPI-IO, one rank closes": (
        "path = comm.bcast(__import__('tempfile').mktemp())\n"
        "file = MPI.File.Open(comm, path, MPI.MODE_CREATE | MPI.MODE_RDWR)\n",
        "x = np.ones(10)\nfile.Read_at_all(0, x) if rank != 2 else file.Close()",
        ["file.Read_at_all(0, x) if rank != 2 else file.Close()", "ranks 0, 1 and 2"],
    ),
    "a store's key that no rank sets": (
        TORCH,
        "if rank == 0:\n    dist.distributed_c10d._get_default_store().get('never')",
        ["_get_default_store().get('never')"],
    ),
    "a DTensor gathered by one rank": (
        TORCH + "from torch.distributed.device_mesh import init_device_mesh\n"
        "from torch.distributed.tensor import Shard, distribute_tensor\n"
        "t = distribute_tensor(torch.ones(4), init_device_mesh('cpu', (3,)), [Shard(0)])\n",
        "if rank == 0:\n    t.full_tensor()",
        ["called from cell line 2:  t.full_tensor()"],
    ),
    "behind a decorator, without a source": (
        "import functools\n"
        "def twice(function):\n    @functools.wraps(function)\n    def wrapper(*args):\n"
        "        return function(*args), function(*args)\n    return wrapper\n",
        "if rank == 0:\n    exec('twice(comm.Barrier)()')",
        ["waited for other ranks"],
    ),
    "Horovod, one rank left out": (
        HOROVOD,
        "if rank != 1:\n    hvd.allreduce(torch.ones(3), name='a')",
        ["hvd.allreduce"],
    ),
    "Horovod, different names": (
        HOROVOD,
        "hvd.allreduce(torch.ones(3), name=f'of rank {rank}')",
        ["hvd.allreduce"],
    ),
}


@pytest.fixture(scope="module")
def ranks():
    book = Notebook()
    assert (reply := book.run("import pi2zero\ncluster = pi2zero.start(n=3)")).ok, reply.text
    yield book
    book.close()


def settled(ranks, count):
    """The number of processes once it is `count`, or after 5 s: an ssh that asked may be ending."""
    deadline = time.monotonic() + 5
    while (found := len(ranks.processes())) != count and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


@pytest.mark.parametrize("name", ENDED)
def test_ends(ranks, account, name):
    before, cell, says = ENDED[name]
    if "Horovod" in name:
        pytest.importorskip("horovod.torch.mpi_lib_v2", reason="Horovod is not there")
    assert (reply := ranks.run(SETUP + before)).ok, reply.text
    count = len(ranks.processes())
    broken = ranks.run(f"%%px --timeout {TIMEOUT}\n{cell}")
    after = ranks.run(f"{SETUP}print(comm.allreduce(rank))")
    message = broken.error.removeprefix("RankError: ")[:60]
    account("ended", name, broken.seconds, message, after.ok)
    assert broken.error.startswith("RankError") and "waited forever" in broken.error, broken.text
    for phrase in says:
        assert phrase in broken.text
    assert after.text == "".join(f"[stdout:{rank}] 3\n" for rank in range(3))
    assert settled(ranks, count) == count
    patience = (
        4 if "objects" in name or "names" in name else 1
    )  # what may be on its way gets more time
    assert broken.seconds < patience * TIMEOUT + 20 * ranks.patience


def test_ranks_that_are_done_will_not_come(ranks):
    """Seconds, not the time-out, if no thread and no process of the others may come."""
    assert ranks.run(SETUP).ok
    alone = ranks.run("%%px\nif rank == 0:\n    comm.recv(source=1)")
    assert "Rank 0 waited for other ranks" in alone.text and "had finished the cell" in alone.text
    assert "--timeout" not in alone.text, "more time would not help"
    assert ranks.run(SETUP).ok
    left_out = ranks.run("%%px\nif rank != 1:\n    comm.Barrier()")
    assert "These ranks waited for each other" in left_out.text
    assert max(alone.seconds, left_out.seconds) < 10 + 10 * ranks.patience


LATE = """%%px
import threading
def late():
    time.sleep(7)
    comm.send("late", dest=0)
if rank == 1:
    threading.Thread(target=late).start()
elif rank == 0:
    print(comm.recv(source=1))
"""


def test_a_thread_of_a_rank_that_is_done_may_come(ranks):
    assert ranks.run(SETUP).ok
    assert ranks.run(LATE).text == "[stdout:0] late\n"
