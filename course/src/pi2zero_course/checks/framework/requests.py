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
        self.comm, self.what, self.nbytes, self.pickled, self.obj = (
            comm,
            what,
            nbytes,
            pickled,
            None,
        )
        self.began = time.perf_counter()

    def __reduce__(self):  # of one that is over, mpi4py makes what no rank can read
        raise TypeError("a request belongs to its rank")

    def Wait(self, status=None):
        self.comm.wait_for([self], [status])
        return True

    def wait(self, status=None):
        self.comm.wait_for([self], [status])
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


class _Requests(MPI.Request):
    """What `MPI.Request` is while an answer runs: the calls that wait for several requests wait as
    `Request` does."""

    @staticmethod
    def Waitall(requests, statuses=None):
        _wait_for_all(requests, statuses)
        return True

    @staticmethod
    def waitall(requests, statuses=None):
        _wait_for_all(requests, statuses)
        return [getattr(request, "obj", None) for request in requests]

    @staticmethod
    def Waitany(requests, status=None):
        return _wait_for_one(requests, status)

    @staticmethod
    def waitany(requests, status=None):
        index = _wait_for_one(requests, status)
        return index, getattr(requests[index], "obj", None) if index >= 0 else None


def _wait_for_all(requests, statuses):
    for place, request in enumerate(requests):
        request.Wait(statuses[place] if statuses else None)


def _wait_for_one(requests, status):
    known = {
        place: request for place, request in enumerate(requests) if request != MPI.REQUEST_NULL
    }
    if not known:
        return MPI.UNDEFINED
    first = next(iter(known.values()))
    found = lambda: next(([place] for place, one in known.items() if one.complete(status)), None)  # noqa: E731
    with clock.paused():
        (place,) = first.comm.waiting.until(found, lambda: first.what)
    known[place].comm.arrived(known[place].nbytes, known[place].began)
    return place


@contextmanager
def requests_that_end():
    """mpi4py's classes cannot be changed, so its name `MPI.Request` is another class meanwhile."""
    real, MPI.Request = MPI.Request, _Requests
    try:
        yield
    finally:
        MPI.Request = real
