"""What lab 7's checks share: a communicator that counts all-reduces, and arrays held beside one process's."""

from contextlib import contextmanager

import numpy as np
from mpi4py import MPI

from pi2zero_course.checks.framework.base import CheckFailed, as_text, hint, name_of, named
from pi2zero_course.checks.framework.collective import WatchedComm, on_ranks

TOLERANCE = 1e-9  # in float64, beside one process
REDUCES = {"allreduce", "Allreduce", "Iallreduce"}


class CountedComm(WatchedComm):
    """Notes its collective calls by name. Ranks that add up arrays of different shapes would hang or abort: they are told so."""

    def __init__(self, comm):
        super().__init__(comm)
        self.calls, self._shape = [], ""

    def meet(self, call):
        self.calls.append(call)
        super().meet(call + self._shape)

    def allreduce(self, sendobj, op=MPI.SUM):
        with self._of(sendobj):
            return super().allreduce(sendobj, op)

    def Allreduce(self, sendbuf, recvbuf, op=MPI.SUM):
        with self._of(recvbuf):
            return super().Allreduce(sendbuf, recvbuf, op)

    def Iallreduce(self, sendbuf, recvbuf, op=MPI.SUM):
        with self._of(recvbuf):
            return super().Iallreduce(sendbuf, recvbuf, op)

    @contextmanager
    def _of(self, data):
        self._shape = (
            f" of shape {tuple(data.shape)}"
            if hasattr(data, "shape")
            else f" of a {type(data).__name__}"
        )
        try:
            yield
        finally:
            self._shape = ""


def random(*shape, seed):
    """The same numbers on every rank."""
    return np.random.default_rng(seed).normal(size=shape)


def try_layer(layer, arguments, judge, names, reduces=None):
    """Let layer(comm, ...) -> (y, back), then back(g), run on 4, 3, 2 and 1 ranks. Returns these numbers.

    arguments(rank, size): (what follows comm, g). judge(size, rank, y, gradients); names: of back's gradients.
    reduces: the all-reduces that are due (forward, backward), None for any calls.
    """

    def run(comm, inputs, g):
        y, back = _pair(layer, layer(comm, *inputs))
        forward, gradients = len(comm.calls), back(g)
        return {
            "y": y,
            "gradients": gradients,
            "calls": (comm.calls[:forward], comm.calls[forward:]),
        }

    def judge_all(size, results):
        for rank, result in enumerate(results):
            judge(size, rank, result["y"], _several(result["gradients"], names))
        for way, due, calls in zip(
            ("forward", "backward"), reduces or (), results[0]["calls"], strict=False
        ):
            if size > 1 and (len(calls) != due or set(calls) - REDUCES):
                made = " and ".join(calls) or "no collective call"
                raise CheckFailed(f"{way}, each rank makes {made}; the target is {_counted(due)}.")

    return on_ranks(named(layer, run), arguments, judge_all, watch=CountedComm)


def _counted(due):
    return "one all-reduce" if due else "none: each rank has all that it needs"


def _pair(layer, result):
    if isinstance(result, tuple | list) and len(result) == 2 and callable(result[1]):
        return result
    what = "None. Is the `return` missing?" if result is None else f"{type(result).__name__}."
    raise CheckFailed(
        f"{name_of(layer)} returned {what} Two things are due: y, and the function `back` itself, without brackets."
    )


def _several(gradients, names):
    if isinstance(gradients, tuple | list) and len(gradients) == len(names):
        return gradients
    raise CheckFailed(
        f"back returned {type(gradients).__name__}; {len(names)} gradients are due, of {', '.join(names)}."
    )


def as_array(what, mine, shape):
    """An answer's array of that shape."""
    if mine is None:
        raise CheckFailed(f"{what} is None. Is a `return` missing?")
    try:
        array = np.asarray(mine, dtype=float)
    except (TypeError, ValueError):
        raise CheckFailed(f"{what} is {type(mine).__name__}; an array is due.") from None
    if array.shape != shape:
        raise CheckFailed(f"{what} has the shape {array.shape}; {shape} is due.")
    return array


def judge_array(what, mine, due, mistakes=()):
    """An answer's array beside one process's part. mistakes: (value, hint)."""
    mine = as_array(what, mine, due.shape)
    if _same(mine, due):
        return
    at = tuple(
        int(place) for place in np.argwhere(~np.isclose(mine, due, rtol=0, atol=TOLERANCE))[0]
    )
    why = hint(mine, mistakes, same=_same)
    raise CheckFailed(
        f"{what} has {as_text(mine[at])} at {at}; one process has {as_text(due[at])}.\n{why}"
    )


def _same(mine, due):
    return mine.shape == due.shape and np.allclose(mine, due, rtol=0, atol=TOLERANCE)
