"""Requests of non-blocking messages, which are waited for without a chance to hang."""

import time
from contextlib import contextmanager

from mpi4py import MPI

from pi2zero_course.checks.framework.answers import CheckError
from pi2zero_course.checks.framework.clock import clock


class Request(MPI.Request):
    """A request of `Messages`, whose waiting cannot hang. nbytes: of what is received, None for
    what is sent."""

    def __new__(cls, request, comm, what, nbytes, pickled):
        return super().__new__(cls, request)

    def __init__(self, request, comm, what, nbytes, pickled):
        self.comm, self.what, self.nbytes, self.pickled = comm, what, nbytes, pickled
        self.obj, self.began = None, time.perf_counter()

    def __reduce__(self):  # of one that is over, mpi4py makes what no rank can read
        raise TypeError("a request belongs to its rank")

    def Wait(self, status=None):
        wait_for_all([self], [status])
        return True

    def wait(self, status=None):
        wait_for_all([self], [status])
        return self.obj

    def complete(self, status=None) -> bool:
        """Whether it is complete by now; then obj is what a lower-case call received, and nbytes
        how long it was on its way."""
        try:
            if not self.pickled:
                return self.Test(status)
            status = status or MPI.Status()
            flag, obj = self.test(status)
        except MPI.Exception as error:
            if error.Get_error_class() == MPI.ERR_TRUNCATE:
                raise CheckError(
                    "a message is longer than the array that should receive it: the sender sends "
                    "one chunk, the receiver expects another."
                ) from None
            raise
        if flag and obj is not None:  # once: a request that is complete says None
            self.obj, self.nbytes = obj, None if self.nbytes is None else status.Get_count(MPI.BYTE)
        return flag


def wait_for_all(requests, statuses=None) -> None:
    """Wait until all are complete. Requests that are not `Request`s wait as in MPI."""
    left = []
    for request, status in zip(requests, statuses or [None] * len(requests), strict=True):
        if not isinstance(request, Request):
            request.Wait(status)
        elif request != MPI.REQUEST_NULL:
            left.append((request, status))
    pending = [request for request, _ in left]

    def done():
        left[:] = [(request, status) for request, status in left if not request.complete(status)]
        return not left

    if pending:
        with clock.paused():
            pending[0].comm.waiting.until(done, lambda: left[-1][0].what)
    for request in pending:
        request.comm.arrived(request.nbytes, request.began)


def _wait_for_one(requests, status):
    """The index of the first that is complete."""
    pending = {i: request for i, request in enumerate(requests) if request != MPI.REQUEST_NULL}
    if not pending:
        return MPI.UNDEFINED
    first = next(iter(pending.values()))

    def complete():
        # Only one may be completed: the others are asked for later.
        return next(([i] for i, request in pending.items() if request.complete(status)), None)

    with clock.paused():
        (index,) = first.comm.waiting.until(complete, lambda: first.what)
    first.comm.arrived(pending[index].nbytes, pending[index].began)
    return index


class _Requests(MPI.Request):
    """What `MPI.Request` is while an answer runs: the calls that wait for several requests wait as
    `Request` does."""

    @staticmethod
    def Waitall(requests, statuses=None):
        wait_for_all(requests, statuses)
        return True

    @staticmethod
    def waitall(requests, statuses=None):
        wait_for_all(requests, statuses)
        return [getattr(request, "obj", None) for request in requests]

    @staticmethod
    def Waitany(requests, status=None):
        return _wait_for_one(requests, status)

    @staticmethod
    def waitany(requests, status=None):
        index = _wait_for_one(requests, status)
        return index, getattr(requests[index], "obj", None) if index >= 0 else None


@contextmanager
def requests_that_end():
    """mpi4py's classes cannot be changed: so `MPI.Request` names another class for a while."""
    real, MPI.Request = MPI.Request, _Requests
    try:
        yield
    finally:
        MPI.Request = real
