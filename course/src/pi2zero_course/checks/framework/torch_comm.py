"""torch.distributed's calls, upon which the ranks agree before they make them: so no answer can
hang in one.

TORCH_DISTRIBUTED_DEBUG=DETAIL does not serve here: a rank that makes no call is noticed only after
the whole group's time-out.
"""

import time
from contextlib import contextmanager

import torch
import torch._dynamo  # loaded at first use, it would take seconds of the answer's time
import torch.distributed as dist
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel

from pi2zero_course.checks.framework.answers import CheckError, speaking_of
from pi2zero_course.checks.framework.values import plural
from pi2zero_course.checks.framework.watched_comm import WatchedComm

COLLECTIVES = """all_reduce reduce broadcast all_gather all_gather_into_tensor reduce_scatter
reduce_scatter_tensor gather scatter barrier all_to_all all_to_all_single all_gather_object
broadcast_object_list""".split()  # noqa: SIM905 - easier to read
# Where src or dst stands among the arguments.
ROOT_AT = {"broadcast": 1, "reduce": 1, "gather": 2, "scatter": 2, "broadcast_object_list": 1}


def on_torch_ranks(function, learners, sizes=False, seconds=None) -> list:
    """Call function(comm), which calls the learner's function, on all ranks. Returns what it
    returns on each.

    Every rank raises if one does or they would hang. sizes: the ranks also agree upon how many
    values a call's first tensor
    has. seconds: after so many, the next call ends the answer on all ranks.
    """
    comm = _TorchComm(MPI.COMM_WORLD, seconds)
    try:
        with _watched(comm, sizes), _watched_ddp(comm):
            return comm.run_together(speaking_of(learners, lambda comm: function(comm)), ())
    finally:
        comm.free()


class _TorchComm(WatchedComm):
    """As WatchedComm; with `seconds`, time counts and the number of calls does not."""

    def __init__(self, comm, seconds):
        super().__init__(comm)
        self.called = []  # names of torch's collectives, one for each call
        if seconds is not None:
            self.most = float("inf")
        self._deadline = float("inf") if seconds is None else time.monotonic() + seconds

    def __new__(cls, comm, seconds):
        return super().__new__(cls, comm)

    def agree_on_call(self, call):
        if time.monotonic() > self._deadline:
            self._agree_on_state(
                "raised",
                CheckError(
                    f"the time was over long ago, and {self.name} went on. Does it look at the "
                    "clock?"
                ),
            )
        super().agree_on_call(call)


@contextmanager
def _watched(comm, sizes):
    def watch(name, real):
        def call(*args, **options):
            comm.used = True
            comm.called.append(name)
            what, at = f"dist.{name}", ROOT_AT.get(name, len(args))
            root = options.get("src", options.get("dst", args[at] if len(args) > at else None))
            if root and name in ROOT_AT:
                what += f" with root {root}"
            tensors = [value for value in args if isinstance(value, torch.Tensor)]
            if sizes and tensors:
                what += f" with {plural(tensors[0].numel(), 'value')}"
            comm.agree_on_call(what)
            return real(*args, **options)

        return call

    real = {name: getattr(dist, name) for name in COLLECTIVES}
    for name, function in real.items():
        setattr(dist, name, watch(name, function))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(dist, name, function)


@contextmanager
def _watched_ddp(comm):
    """DistributedDataParallel talks to the other ranks in C++: so the ranks agree upon making it,
    and upon its forward."""
    real = {name: getattr(DistributedDataParallel, name) for name in ("__init__", "forward")}

    def watch(what, real):
        def call(self, *args, **options):
            comm.agree_on_call(what)
            return real(self, *args, **options)

        return call

    DistributedDataParallel.__init__ = watch("DistributedDataParallel", real["__init__"])
    DistributedDataParallel.forward = watch(
        "the model wrapped in DistributedDataParallel", real["forward"]
    )
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(DistributedDataParallel, name, function)
