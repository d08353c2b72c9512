"""Faults inside MPI, torch and DDP: wrong types, counts, shapes, groups, a rank lost in backward.

Real engines, a real kernel. Each is reported within seconds, and the next cell works.
"""

import pytest
from timing import assert_within

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
HOROVOD = """import torch, horovod.torch as hvd
hvd.init()
net = torch.nn.Linear(4, 4)
step = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), \
named_parameters=net.named_parameters())
"""
DEEPSPEED = f"""{TORCH}import deepspeed
torch.manual_seed(0)
adam = {{"type": "Adam", "params": {{"torch_adam": True}}}}
config = {{"train_micro_batch_size_per_gpu": 1, "optimizer": adam, \
"zero_optimization": {{"stage": 1}}}}
model = torch.nn.Linear(4, 4)
net, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
"""
ZERO3 = f"""{TORCH}import deepspeed
adam = {{"type": "Adam", "params": {{"torch_adam": True}}}}
config = {{"train_micro_batch_size_per_gpu": 1, "optimizer": adam, \
"zero_optimization": {{"stage": 3, "stage3_param_persistence_threshold": 0}}}}
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))
net, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
"""
AT_MOST = 60  # s until the report, beside whatever else runs; the account has what it took
# What to run first, the cell, what the report must say
FAULTS = {
    "MPI, a message longer than its buffer": (
        "",
        "if rank == 0:\n    comm.Send(np.ones(4), dest=1)\n"
        "elif rank == 1:\n    comm.Recv(np.ones(2), source=0)",
        ["MPI_ERR_TRUNCATE: message truncated"],
    ),
    "MPI, types of different sizes": (
        "",
        "if rank == 0:\n    comm.Send(np.ones(4), dest=1)\n"
        "elif rank == 1:\n    comm.Recv(np.empty(4, 'int32'), source=0)",
        ["Rank 1 raised", "MPI_ERR_TRUNCATE: message truncated"],
    ),
    "MPI, a type that has no name": ("", "comm.Bcast(np.array([object()]))", ["KeyError"]),
    "MPI, a rank that is not there": (
        "",
        "if rank == 0:\n    comm.send(1, dest=3)",
        ["Rank 0 raised", "MPI_ERR_RANK: invalid rank"],
    ),
    "MPI, broadcasts of different lengths": (
        "",
        "comm.Bcast(np.ones(4 - rank))",
        ["MPI_ERR_TRUNCATE"],
    ),
    "gloo, shapes that differ": (
        TORCH,
        "dist.all_reduce(torch.ones(2 + rank * 1000))",
        ["died: signal SIGABRT"],
    ),
    "gloo, shapes that differ by one value": (  # the smallest one's call returns
        TORCH,
        "dist.all_reduce(torch.ones(2 + rank))",
        ["waited for each other", "dist.all_reduce(torch.ones(2 + rank))"],
    ),
    "DDP, networks whose shapes differ": (
        TORCH,
        "DistributedDataParallel(torch.nn.Linear(4, 4 + rank))",
        ["Rank 1 raised RuntimeError", "appears not to match sizes of the same param in process 0"],
    ),
    "DeepSpeed, networks whose shapes differ": (  # only the first step ends the ranks
        DEEPSPEED.replace("Linear(4, 4)", "Linear(4, 4 + rank)"),
        "net.backward(net(torch.ones(1, 4)).sum())\nnet.step()",
        ["died: signal SIGABRT"],
    ),
    "DDP, a rank is lost in backward": (
        TORCH + "net = DistributedDataParallel(torch.nn.Linear(4, 4))\n",
        "if rank == 1:\n"
        "    net.module.bias.register_hook(lambda grad: os.kill(os.getpid(), signal.SIGKILL))\n"
        "net(torch.ones(4)).sum().backward()",
        ["Rank 1 died: signal SIGKILL"],
    ),
    "Horovod, a rank is lost in backward": (
        HOROVOD,
        "if rank == 1:\n"
        "    net.bias.register_hook(lambda grad: os.kill(os.getpid(), signal.SIGKILL))\n"
        "net(torch.ones(4)).sum().backward()\nstep.step()",
        ["Rank 1 died: signal SIGKILL"],
    ),
    "DeepSpeed, a rank is lost in backward": (
        DEEPSPEED,
        "if rank == 1:\n"
        "    net.module.bias.register_hook(lambda grad: os.kill(os.getpid(), signal.SIGKILL))\n"
        "net.backward(net(torch.ones(1, 4)).sum())\nnet.step()",
        ["Rank 1 died: signal SIGKILL"],
    ),
    "ZeRO-3, one rank goes backward": (
        ZERO3,
        "loss = net(torch.ones(1, 8)).sum()\nif rank == 0:\n    net.backward(loss)",
        ["Rank 0 waited for other ranks", "cell line 3:  net.backward(loss)"],
    ),
    "torch, a stale group on the other ranks": (
        TORCH,
        "if rank == 1:\n    dist.destroy_process_group()\nme = ranks.join()",
        ["rank 1:", "me = ranks.join()", "Ranks 0 and 2 had finished the cell"],
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
    return book.run(f"{SETUP}print(comm.allreduce(rank))").text == "".join(
        f"[stdout:{rank}] 3\n" for rank in range(3)
    )


@pytest.mark.parametrize("name", FAULTS)
def test_library_fault(book, account, name):
    before, cell, says = FAULTS[name]
    assert (reply := book.run(SETUP + before)).ok, reply.text
    count = len(book.processes())
    broken = book.run(f"%%px --timeout 5\n{cell}")
    after = works(book)
    left = len(book.processes()) - count
    message = broken.error.removeprefix("RankError: ")[:75]
    account("faults", name, broken.seconds, message, after, left)
    assert broken.error.startswith("RankError"), broken.text
    for phrase in says:
        assert phrase in broken.text
    assert after and left == 0
    assert_within(broken.seconds, AT_MOST)
