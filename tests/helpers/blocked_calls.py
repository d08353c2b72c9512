"""`mpirun -n 2 python blocked_calls.py mpi|torch|libraries FOLDER`: calls that wait for rank 1.

On rank 0 each call runs in a thread of its own and never returns, because rank 1 only prepares what
the call needs and then sleeps. Rank 0 prints as JSON what the sampler's questions answer for each
thread: {name: "waits", "polls", or where it is}.
"""

import contextlib
import faulthandler
import functools
import json
import os
import sys
import threading
import time
import timeit
from pathlib import Path

from mpi4py import MPI

from pi2zero.cluster.blocking_calls import (
    call_of,
    files_to_read,
    polling_loop,
    waits_for_peers,
    warm_source_cache,
)

WAIT_S = 60  # for a call to be seen in its wait
world = MPI.COMM_WORLD
other = 1 - world.rank
folder = Path(sys.argv[2])


def decorated(function):
    """A decorator that says what it wraps."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def chosen_late(*functions):
    """A decorator whose call cannot be told: only its caller knows."""

    @functools.wraps(functions[0])
    def wrapper(*args, **kwargs):
        return next(iter(functions))(*args, **kwargs)

    return wrapper


class Quiet(contextlib.ContextDecorator):
    """A context that is also a decorator, as torch.no_grad."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


class Own(MPI.Intracomm):
    """A communicator that adds something to a call."""

    def Barrier(self):
        """Wait, and note it."""
        super().Barrier()
        self.passed = True


class Slotted:
    """Holds a communicator where `vars` does not show it, and privately."""

    __slots__ = ("__comm", "comm")

    def __init__(self, comm):
        self.comm, self.__comm = comm, comm

    def wait(self):
        """All ranks wait."""
        self.__comm.Barrier()


class Proxy:
    """Passes on whatever it is asked."""

    def __init__(self, comm):
        self._comm = comm

    def __getattr__(self, name):
        return getattr(self._comm, name)


class Lazy:
    """Holds a communicator as a property."""

    def __init__(self, comm):
        self._comm = comm

    @property
    def comm(self):
        """The communicator."""
        return self._comm


def calls_of_mpi() -> dict:
    """{name: a function of a communicator that rank 1 shares}."""
    import numpy as np
    from mpi4py.util import pkl5

    one = np.ones(1)

    def opened(name, prepare=lambda file: None):
        file = MPI.File.Open(world, str(folder / name), MPI.MODE_CREATE | MPI.MODE_RDWR)
        prepare(file)
        return file

    files = {name: opened(name) for name in ("read", "write", "size", "view", "close", "sync")}
    window = MPI.Win.Allocate(8, comm=world)
    return {
        "Barrier": lambda c: c.Barrier(),
        "Bcast": lambda c: c.Bcast(one, root=other),
        "bcast": lambda c: c.bcast(None, root=other),
        "recv": lambda c: c.recv(source=other),
        "Recv": lambda c: c.Recv(one, source=other),
        "ssend": lambda c: c.ssend(1, dest=other),
        "Send of much": lambda c: c.Send(np.ones(10**7), dest=other),
        "sendrecv": lambda c: c.sendrecv(1, dest=other, source=other),
        "probe": lambda c: c.probe(source=other),
        "Mprobe": lambda c: c.Mprobe(source=other),
        "Allreduce": lambda c: c.Allreduce(one, one.copy()),
        "gather": lambda c: c.gather(1, root=0),
        "Alltoall": lambda c: c.Alltoall(np.ones(2), np.ones(2)),
        "Reduce_scatter_block": lambda c: c.Reduce_scatter_block(np.ones(2), one.copy()),
        "Split": lambda c: c.Split(0),
        "Dup": lambda c: c.Dup(),
        "Create_cart": lambda c: c.Create_cart([2]),
        "Win.Fence": lambda c: window.Fence(),
        "a request's Wait": lambda c: c.Irecv(one.copy(), source=other).Wait(),
        "Waitall": lambda c: MPI.Request.Waitall([c.Irecv(one.copy(), source=other)]),
        "the last request of a list": lambda c: _last([c.irecv(source=other)]),
        "asks all requests": _ask_all,
        "File.Open": lambda c: MPI.File.Open(c, str(folder / "open"), MPI.MODE_CREATE),
        "File.Read_at_all": lambda c: files["read"].Read_at_all(0, one.copy()),
        "File.Write_ordered": lambda c: files["write"].Write_ordered(one),
        "File.Set_size": lambda c: files["size"].Set_size(100),
        "File.Set_view": lambda c: files["view"].Set_view(8),
        "File.Close": lambda c: files["close"].Close(),
        "pkl5": lambda c: pkl5.Intracomm(c).recv(source=other),
        "a decorator": lambda c: decorated(c.Barrier)(),
        "a decorator that chooses late": _by_name,
        "a context as a decorator": lambda c: Quiet()(c.Barrier)(),
        "functools.partial": lambda c: functools.partial(c.Recv, one.copy(), source=other)(),
        "getattr": lambda c: getattr(c, "Barrier")(),  # noqa: B009 (it is what is tried)
        "an item of a table": _by_table,
        "exec, without a source": lambda c: exec("c.Barrier()", {"c": c}),
        "timeit": lambda c: timeit.timeit(c.Barrier, number=1),
        "a subclass": lambda c: Own(c).Barrier(),
        "slots and a private name": lambda c: Slotted(c).wait(),
        "a slot": lambda c: Slotted(c).comm.Barrier(),
        "a proxy": lambda c: Proxy(c).Barrier(),
        "a property": lambda c: Lazy(c).comm.Barrier(),
    }


def _last(requests):
    requests[-1].wait()


def _by_name(comm):
    wait = chosen_late(comm.Barrier)
    wait()


def _by_table(comm):
    table = {"wait": comm.Barrier}
    table["wait"]()


def _ask_all(comm):
    requests = [comm.irecv(source=other) for _ in range(2)]
    while not all(request.Test() for request in requests):
        time.sleep(0.01)


def calls_of_torch() -> dict:
    """The same of a process group of torch."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as checkpoint
    import torch.distributed.nn.functional as differentiable
    from torch.distributed import _functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=world.rank, world_size=2)
    one = torch.ones(1)
    mesh = init_device_mesh("cpu", (2,))
    sharded = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
    ddp = DistributedDataParallel(torch.nn.Linear(2, 2), process_group=dist.new_group())
    fsdp = fully_shard(torch.nn.Linear(2, 2), mesh=init_device_mesh("cpu", (2,)))
    parameter = torch.nn.Parameter(torch.ones(4))
    parameter.grad = torch.ones(4)
    zero1 = ZeroRedundancyOptimizer([parameter], torch.optim.SGD, lr=0.1)
    calls = {
        "barrier": lambda g: dist.barrier(g),
        "monitored_barrier": lambda g: dist.monitored_barrier(g),
        "all_reduce": lambda g: dist.all_reduce(one.clone(), group=g),
        "broadcast": lambda g: dist.broadcast(one.clone(), src=1, group=g),
        "dist.recv": lambda g: dist.recv(one.clone(), src=1, group=g),
        "all_gather_into_tensor": lambda g: dist.all_gather_into_tensor(
            torch.ones(2), one, group=g
        ),
        "reduce_scatter": lambda g: dist.reduce_scatter(one.clone(), [one, one], group=g),
        "all_to_all_single": lambda g: dist.all_to_all_single(
            torch.ones(2), torch.ones(2), group=g
        ),
        "gather_object": lambda g: dist.gather_object(1, [None, None], dst=0, group=g),
        "scatter_object_list": lambda g: dist.scatter_object_list([None], None, src=1, group=g),
        "recv_object_list": lambda g: dist.recv_object_list([None], src=1, group=g),
        "batch_isend_irecv": lambda g: _last(
            dist.batch_isend_irecv([dist.P2POp(dist.irecv, one.clone(), 1, g)])
        ),
        "new_group": lambda g: dist.new_group([0, 1]),
        "all_gather_object": lambda g: dist.all_gather_object([None, None], 1, group=g),
        "broadcast_object_list": lambda g: dist.broadcast_object_list([None], src=1, group=g),
        "irecv(...).wait()": lambda g: dist.irecv(one.clone(), src=1, group=g).wait(),
        "all_reduce(async_op=True).wait()": lambda g: dist.all_reduce(
            one.clone(), group=g, async_op=True
        ).wait(),
        "a work in a list": lambda g: _last([dist.irecv(one.clone(), src=1, group=g)]),
        "store.get": lambda g: store.get("nobody sets this"),
        "a store that a function returns": lambda g: dist.distributed_c10d._get_default_store().get(
            "nor this"
        ),
        "store.wait": lambda g: store.wait(["nor that"]),
        "a TCPStore that waits for its workers": lambda g: dist.TCPStore("127.0.0.1", 0, 2, True),
        "no_grad as a decorator": lambda g: torch.no_grad()(store.get)("never set"),
        "functional all_reduce": lambda g: functional.all_reduce(one, "sum", g) + 1,
        "wait_tensor": lambda g: functional.wait_tensor(
            torch.ops._c10d_functional.all_reduce(one, "sum", g.group_name)
        ),
        "functional all_gather_tensor": lambda g: functional.all_gather_tensor(one, 0, g) + 1,
        "dist.nn's all_reduce": lambda g: differentiable.all_reduce(one, group=g),
        "dist.nn's all_gather": lambda g: differentiable.all_gather(one, group=g),
        "DTensor.full_tensor": lambda g: sharded.full_tensor(),
        "DTensor.redistribute": lambda g: sharded.redistribute(mesh, [Replicate()]).to_local() + 1,
        "FSDP2's forward": lambda g: fsdp(torch.ones(2)),
        "ZeroRedundancyOptimizer.step": lambda g: zero1.step(),
        "checkpoint.save": lambda g: checkpoint.save(
            {"one": one}, checkpoint_id=folder / "checkpoint", process_group=g
        ),
        "DDP's backward": lambda g: ddp(torch.ones(2)).sum().backward(),
        "DDP's construction": lambda g: DistributedDataParallel(
            torch.nn.Linear(2, 2), process_group=g
        ),
    }
    return calls


def calls_of_libraries() -> dict:
    """The same of DeepSpeed, transformers, accelerate and Horovod."""
    calls = calls_of_torch()
    import torch

    os.environ.update(RANK=str(world.rank), WORLD_SIZE="2", LOCAL_RANK=str(world.rank))
    import accelerate
    import deepspeed
    from transformers import Trainer, TrainingArguments

    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    }
    engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)
    accelerator = accelerate.Accelerator(cpu=True)
    arguments = TrainingArguments(
        output_dir=str(folder / "trainer"), use_cpu=True, report_to=[], ddp_backend="gloo"
    )

    def gathered(_):
        with deepspeed.zero.GatheredParameters(list(net.parameters())):
            pass

    calls = {
        "deepspeed.comm.all_reduce": lambda g: deepspeed.comm.all_reduce(torch.ones(1), group=g),
        "deepspeed.comm.barrier": lambda g: deepspeed.comm.barrier(g),
        "ZeRO-3's forward": lambda g: engine(torch.ones(1, 8)),
        "ZeRO-3's GatheredParameters": gathered,
        "accelerator.wait_for_everyone": lambda g: accelerator.wait_for_everyone(),
        "accelerator.gather": lambda g: accelerator.gather(torch.ones(1)),
        "accelerator.reduce": lambda g: accelerator.reduce(torch.ones(1)),
        "accelerate's broadcast_object_list": lambda g: accelerate.utils.broadcast_object_list(
            [1], from_process=1
        ),
        "transformers, main_process_first": lambda g: _enter(
            arguments.main_process_first(local=False)
        ),
        "transformers, a Trainer's gather": lambda g: Trainer(
            torch.nn.Linear(1, 1), arguments
        )._nested_gather(torch.ones(1)),
    }
    with contextlib.suppress(ImportError):
        import horovod.torch as hvd

        hvd.init()
        calls |= {
            "hvd.allreduce": lambda g: hvd.allreduce(torch.ones(1), name="a"),
            "hvd.synchronize": lambda g: hvd.synchronize(
                hvd.allgather_async(torch.ones(1), name="b")
            ),
            "hvd.broadcast_object": lambda g: hvd.broadcast_object(1, root_rank=1, name="c"),
        }
    return calls


def _enter(context):
    with context:
        pass


def answer(thread: threading.Thread, spins: bool) -> str:
    """What the sampler would find of this thread: "waits", "polls", or the place."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return "has returned"
    for file in files_to_read(frame):
        warm_source_cache(file)
    call = call_of(frame)
    if waits_for_peers(frame, call, float(spins)):
        return "waits"
    if polling_loop(frame):
        return "polls"
    return f"{call.text or 'no call'} in {frame.f_code.co_filename}:{frame.f_lineno}"


def main(kind: str) -> None:
    """Prepare on both ranks, wait on rank 0, print the answers."""
    calls = {"mpi": calls_of_mpi, "torch": calls_of_torch, "libraries": calls_of_libraries}[kind]()
    if kind == "mpi":
        places = [world.Dup() for _ in calls]
    else:
        import torch.distributed as dist

        places = [dist.new_group() for _ in calls]
    world.Barrier()
    if world.rank == 1:
        time.sleep(1000)  # until rank 0 ends both

    def run(call, place):
        # Whatever it raises is said by the answer: the thread has returned.
        with contextlib.suppress(Exception):
            call(place)

    threads = {
        name: threading.Thread(target=run, args=(call, place), daemon=True)
        for (name, call), place in zip(calls.items(), places, strict=True)
    }
    answers, deadline = dict.fromkeys(threads, ""), time.monotonic() + WAIT_S
    for name, thread in threads.items():
        thread.start()
        while answers[name] not in ("waits", "polls") and time.monotonic() < deadline:
            time.sleep(0.05)
            answers[name] = answer(thread, kind == "mpi")
            if answers[name] == "has returned":
                break
    time.sleep(0.3)
    again = {name: answer(thread, kind == "mpi") for name, thread in threads.items()}
    print("ANSWERS", json.dumps(again), flush=True)
    world.Abort(0)


if __name__ == "__main__":
    faulthandler.dump_traceback_later(120, exit=True)  # a call that holds the GIL
    main(sys.argv[1])
