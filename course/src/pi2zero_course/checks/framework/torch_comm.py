"""torch.distributed's calls, upon which the ranks agree before they make them: so no answer can
hang in one.

TORCH_DISTRIBUTED_DEBUG=DETAIL does not serve here: a rank that makes no call is noticed only after
the whole group's time-out. Messages from rank to rank go over MPI meanwhile, which can be polled.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch
import torch._dynamo  # loaded at first use, it would take seconds of the answer's time
import torch.distributed as dist
from mpi4py import MPI
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from pi2zero_course.checks.framework.answers import CheckError, speaking_of
from pi2zero_course.checks.framework.buffers import Buffer, Offer, split, whole
from pi2zero_course.checks.framework.values import plural
from pi2zero_course.checks.framework.watched_comm import WatchedComm

# How each collective is like one of MPI: its kind, and what is sent and filled, by name and place.
# "/" marks what is split into a part for each rank; a list has a tensor for each.
_LIKE = {
    "all_reduce": ("Allreduce", ("tensor", 0), ("tensor", 0)),
    "reduce": ("Reduce", ("tensor", 0), ("tensor", 0)),
    "broadcast": ("Bcast", ("tensor", 0), ("tensor", 0)),
    "all_gather": ("Allgather", ("tensor", 1), ("tensor_list", 0)),
    "all_gather_into_tensor": ("Allgather", ("input_tensor", 1), ("output_tensor/", 0)),
    "reduce_scatter": ("Reduce_scatter", ("input_list", 1), ("output", 0)),
    "reduce_scatter_tensor": ("Reduce_scatter", ("input/", 1), ("output", 0)),
    "gather": ("Gather", ("tensor", 0), ("gather_list", 1)),
    "scatter": ("Scatter", ("scatter_list", 1), ("tensor", 0)),
    # The names of these two since torch 2.13, which warns of the former ones
    "all_gather_single": ("Allgather", ("input_tensor", 1), ("output_tensor/", 0)),
    "reduce_scatter_single": ("Reduce_scatter", ("input/", 1), ("output", 0)),
    "all_to_all": ("Alltoall", ("input_tensor_list", 1), ("output_tensor_list", 0)),
    "all_to_all_single": ("Alltoall", ("input/", 1), ("output/", 0)),
}
_OTHERS = ("barrier", "all_gather_object", "broadcast_object_list")
COLLECTIVES = [name for name in (*_LIKE, *_OTHERS) if hasattr(dist, name)]
# Where src or dst stands among the arguments.
ROOT_AT = {"broadcast": 1, "reduce": 1, "gather": 2, "scatter": 2, "broadcast_object_list": 1}


def on_torch_ranks(function, learners, seconds=None) -> list:
    """Call function(comm), which calls the learner's function, on all ranks. Returns what it
    returns on each.

    Every rank raises if one does or they would hang. seconds: after so many, the next call ends
    the answer on all ranks.
    """
    comm = _TorchComm(MPI.COMM_WORLD, seconds)
    try:
        with _watched(comm):
            return comm.run_together(speaking_of(learners, lambda comm: function(comm)), ())
    finally:
        comm.free()


class _TorchComm(WatchedComm):
    """As WatchedComm; with `seconds`, time counts and the number of calls does not."""

    def __init__(self, comm, seconds):
        super().__init__(comm)
        if seconds is not None:
            self.most = float("inf")
        self._deadline = float("inf") if seconds is None else time.monotonic() + seconds

    def __new__(cls, comm, seconds):
        return super().__new__(cls, comm)

    def agree_on_call(self, call, **given):
        if time.monotonic() > self._deadline:
            self._agree_on_state(
                "raised",
                CheckError(
                    f"the time was over long ago, and {self.name} went on. Does it look at the "
                    "clock?"
                ),
            )
        super().agree_on_call(call, **given)


@contextmanager
def _watched(comm):
    """While an answer runs, torch's names stand for calls that cannot hang."""
    messages = {"isend": _isend(comm), "irecv": _irecv(comm)}
    calls = {name: _collective(comm, name) for name in COLLECTIVES}
    calls |= messages | {
        "send": lambda tensor, dst=None, **options: messages["isend"](tensor, dst).wait(),
        "recv": lambda tensor, src=None, **options: messages["irecv"](tensor, src).wait(),
        "batch_isend_irecv": lambda ops: [each.op(each.tensor, each.peer) for each in ops],
    }
    with ExitStack() as stack:
        stack.enter_context(mock.patch.multiple(dist, **calls))
        stack.enter_context(mock.patch.multiple(distributed_c10d, **messages))  # for P2POp
        stack.enter_context(_watched_ddp(comm))
        yield


def _collective(comm, name: str) -> Callable:
    real = getattr(dist, name)

    def call(*args, **options):
        comm.used = True
        what, at = f"dist.{name}", ROOT_AT.get(name, len(args))
        comm.calls.append(what)
        root = options.get("src", options.get("dst", args[at] if len(args) > at else None)) or 0
        if root and name in ROOT_AT:
            what += f" with root {root}"
        group = options.get("group")
        if name in _LIKE and (group is None or dist.get_world_size(group) == comm.size):
            kind, *parts = _LIKE[name]
            is_root = comm.rank == root if name in ("gather", "scatter") else None
            sends, room = (_buffer(what, part, args, options, comm.size, is_root) for part in parts)
            comm.agree_on_call(what, kind=kind, root=root, offer=Offer(sends, room))
        else:
            comm.agree_on_call(what)
        return real(*args, **options)

    return call


def _buffer(call, part, args, options, size, is_root) -> Buffer | None:
    """What a call sends or fills. Raises CheckError for what torch would refuse on this rank
    only. is_root: None where all ranks do the same."""
    name, at = part
    is_split, name = name.endswith("/"), name.rstrip("/")
    value = options.get(name, args[at] if len(args) > at else None)
    tensors = value if isinstance(value, list | tuple) else [value]
    if is_root is not None and name.endswith("list"):
        if (value is None) == is_root:
            raise CheckError(f"{call}: the root alone gives {name}; on the other ranks it is None.")
        if value is None:
            return None
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise CheckError(f"{call} takes tensors, and you give it {type(value).__name__!r}.")
    if tensors[0] is value:
        return split(value, size, call) if is_split else whole(value, size)
    if len(tensors) != size:
        raise CheckError(
            f"{call} takes a list with one tensor for each of {plural(size, 'rank')}; yours has "
            f"{len(tensors)}."
        )
    counts = tuple(tensor.numel() for tensor in tensors)
    return whole(tensors[0], size)._replace(counts=counts, split=True)


class _Work:
    """A message on its way, as `dist.isend` and `dist.irecv` return it. tensor: what to fill, from
    the bytes in `room`; source: the rank it comes from."""

    def __init__(self, request, what, tensor=None, room=None, source=None):
        self._request, self._tensor, self._room, self._source = request, tensor, room, source
        self._status, self._over = MPI.Status(), False
        request.what = what

    def wait(self, timeout=None):
        if not self._over:
            self._request.Wait(self._status)
            self._end()
        return True if self._tensor is None else self._source

    def is_completed(self):
        if not self._over and self._request.complete(self._status):
            self._end()
        return self._over

    def _end(self):
        self._over = True
        if self._tensor is None:
            return
        if self._status.Get_count(MPI.BYTE) != self._room.nbytes:
            raise CheckError(
                f"the message {self._request.what[3:]} has {self._status.Get_count(MPI.BYTE):,} "
                f"bytes; the tensor that should receive it has {self._room.nbytes:,}."
            )
        with torch.no_grad():
            values = torch.from_numpy(self._room).view(self._tensor.dtype)
            self._tensor.copy_(values.view(self._tensor.shape))


def _isend(comm):
    def isend(tensor, dst=None, group=None, tag=0, **options):
        return _Work(comm.Isend(_bytes_of(tensor), dst), f"in dist.isend to rank {dst}")

    return isend


def _irecv(comm):
    def irecv(tensor, src=None, group=None, tag=0, **options):
        room, source = _bytes_of(torch.empty_like(tensor)), MPI.ANY_SOURCE if src is None else src
        what = f"in dist.irecv from {'any rank' if src is None else f'rank {src}'}"
        return _Work(comm.Irecv(room, source), what, tensor, room, src)

    return irecv


def _bytes_of(tensor):
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


@contextmanager
def _watched_ddp(comm):
    """DistributedDataParallel talks to the other ranks in C++: so the ranks agree upon making it,
    upon its forward, and upon each all-reduce of its backward."""
    real = {
        name: getattr(DistributedDataParallel, name)
        for name in ("__init__", "forward", "register_comm_hook")
    }
    hooks = {}

    def begin(self, *args, **options):
        comm.agree_on_call("DistributedDataParallel")
        real["__init__"](self, *args, **options)
        real["register_comm_hook"](self, self, reduce)

    def forward(self, *args, **options):
        comm.agree_on_call("the model wrapped in DistributedDataParallel")
        return real["forward"](self, *args, **options)

    def register(self, state, hook):
        hooks[self] = (state, hook)

    def reduce(ddp, bucket):
        if bucket.buffer().is_cpu:  # else this is not the thread that may call MPI
            comm.agree_on_call("backward, in which DistributedDataParallel averages the gradients")
        state, hook = hooks.get(ddp, (None, _mean))
        return hook(state, bucket)

    changed = {"__init__": begin, "forward": forward, "register_comm_hook": register}
    with mock.patch.multiple(DistributedDataParallel, **changed):
        yield


def _mean(state, bucket):
    """What DistributedDataParallel does without a hook."""
    mean = bucket.buffer().div_(dist.get_world_size())
    work = distributed_c10d.all_reduce(mean, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])
