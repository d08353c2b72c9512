"""Run an answer that sends messages, on real ranks, without a chance to hang, and count what each rank sends.

Every blocking call is made of MPI's non-blocking ones and waited for with a deadline. Every send is synchronous: it ends when
the message is received, as MPI does it for long messages. So a ring that hangs for long arrays only, hangs here for all.
"""

import os
import pickle
import time

import numpy as np
from mpi4py import MPI

from pi2zero.checks.framework.base import CheckFailed, TaskNotDone, answer
from pi2zero.mpi import name_ranks

WAIT = 5.0  # s that a rank waits for one message before it counts as stuck
# ruff: noqa: SIM905 - words are easier to read than lists of quoted words
_COLLECTIVES = """allgather Allgather Allgatherv allreduce Allreduce alltoall Alltoall Alltoallv bcast Bcast exscan Exscan gather
Gather Gatherv reduce Reduce Reduce_scatter Reduce_scatter_block scan Scan scatter Scatter Scatterv barrier Iallreduce Iallgather
Ireduce Ibcast Igather Iscatter Ireduce_scatter Ireduce_scatter_block Ibarrier""".split()
_COMMUNICATORS = "Dup Split Clone Create_cart Create Create_group Split_type Idup".split()
_OTHER_MESSAGES = "isend irecv issend ssend bsend ibsend Bsend Ibsend Rsend Irsend Isendrecv Send_init Recv_init".split()


class _Stuck(BaseException):
    """This rank waited too long. No learner's `except Exception` shall catch it."""


class _Request(MPI.Request):
    """A request of Isend or Irecv whose Wait has a deadline. nbytes: of what is received, None for what is sent."""

    def __new__(cls, request, comm, what, nbytes):
        return super().__new__(cls, request)

    def __init__(self, request, comm, what, nbytes):
        self.comm, self.what, self.nbytes = comm, what, nbytes

    def Wait(self, status=None):
        self.comm._wait([self])
        return True

    wait = Wait


class MessageComm(MPI.Intracomm):
    """A communicator for messages from rank to rank; collective calls are refused, except Barrier.

    sent, messages, targets: bytes this rank sent, in how many messages, to which ranks. only: names of the calls that are
    allowed, None for all. alpha (s), beta (s per byte): what each message takes at least; late: s more, by message number.
    """

    used = True  # the judges themselves ask what was sent

    def __new__(cls, comm, **options):
        return super().__new__(cls, comm)

    def __init__(self, comm, only=None, alpha=0.0, beta=0.0, late=None):
        self._side = comm.Dup()  # where the ranks talk about what happened
        self._pending = []
        self._only, self._alpha, self._beta, self._late = only, alpha, beta, late or {}
        self.sent = self.messages = self.received = 0
        self.targets = set()

    def together(self, function, args) -> list:
        """Call function(self, *args) on every rank. Returns a dict a rank: result, args (as they are then), sent, ...

        Raises, on all ranks alike, TaskNotDone, or CheckFailed if a rank raised, was stuck, or messages were left over.
        """
        result = None
        try:
            result = answer(function, self, *args)
            state = ("returned", "")
        except _Stuck as stuck:
            state = ("waits", str(stuck))
        except (CheckFailed, TaskNotDone) as error:
            state = ("raised", error)
        states = self._side.allgather(state)
        lost = self._side.allreduce(self._drain())
        if any(kind != "returned" for kind, _ in states):
            raise _account(states)
        if lost:
            raise CheckFailed(f"{lost} message{'s were' if lost > 1 else ' was'} sent and never received.")
        mine = {"sent": self.sent, "messages": self.messages, "targets": sorted(self.targets)}
        return self._side.allgather({"result": result, "args": args, **mine})

    def free(self) -> None:
        self._side.Free()

    def Isend(self, buf, dest, tag=0):
        return self._start("Isend", buf, dest, tag)

    Issend = Isend

    def Irecv(self, buf, source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG):
        return self._start("Irecv", buf, source, tag)

    def Send(self, buf, dest, tag=0):
        self._wait([self._start("Send", buf, dest, tag)])

    Ssend = Send

    def Recv(self, buf, source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=None):
        self._wait([self._start("Recv", buf, source, tag)])

    def Sendrecv(self, sendbuf, dest, sendtag=0, recvbuf=None, source=MPI.ANY_SOURCE, recvtag=MPI.ANY_TAG, status=None):
        self._allow("Sendrecv")
        into = self._start("Recv", recvbuf, source, recvtag, within="Sendrecv")
        self._wait([self._start("Send", sendbuf, dest, sendtag, within="Sendrecv"), into])

    def Sendrecv_replace(self, buf, dest, sendtag=0, source=MPI.ANY_SOURCE, recvtag=MPI.ANY_TAG, status=None):
        self.Sendrecv(np.array(buf), dest, sendtag, buf, source, recvtag)

    def send(self, obj, dest, tag=0):
        self._wait([self._start("send", _Pickled(obj), dest, tag)])

    def recv(self, buf=None, source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=None):
        self._allow("recv")
        length = MPI.Status()
        found = self._until(lambda: self.Improbe(source, tag, length), f"in recv{_from(source)}")
        data = bytearray(length.Get_count(MPI.BYTE))
        found.Recv([data, MPI.BYTE])
        self.received += 1
        return pickle.loads(data)

    def sendrecv(self, sendobj, dest, sendtag=0, recvbuf=None, source=MPI.ANY_SOURCE, recvtag=MPI.ANY_TAG, status=None):
        request = self._start("sendrecv", _Pickled(sendobj), dest, sendtag)
        obj = self.recv(None, source, recvtag)
        self._wait([request])
        return obj

    def Barrier(self):
        request = MPI.Intracomm.Ibarrier(self._side)
        self._until(request.Test, "in Barrier, which not all ranks call,")

    def _allow(self, name):
        if self._only is not None and name not in self._only:
            raise CheckFailed(f"you call {name}; here only {' and '.join(self._only)} are allowed.")

    def _start(self, name, buf, partner, tag, within=None):
        """Begin a message. Counts it if it is sent."""
        if within is None:
            self._allow(name)
        nbytes = _nbytes(buf)
        receives = name in ("Recv", "Irecv")
        if receives:
            request = MPI.Intracomm.Irecv(self, buf, partner, tag)
            what = f"in {within or name}{_from(partner)}"
            self.received += 1
        else:
            data = buf.data if isinstance(buf, _Pickled) else buf
            request = MPI.Intracomm.Issend(self, data, partner, tag)
            what = f"in {within or name} to rank {partner}"
            self.sent += nbytes
            self.messages += 1
            self.targets.add(partner)
        watched = _Request(request, self, what, nbytes if receives else None)
        self._pending.append(watched)
        return watched

    def _wait(self, requests):
        """Until all are complete; then the slow network takes its time for what came in."""
        open_ones = list(requests)

        def done():
            open_ones[:] = [request for request in open_ones if not _complete(request)]
            return not open_ones

        try:
            self._until(done, lambda: open_ones[-1].what)
        finally:
            self._pending = [request for request in self._pending if request != MPI.REQUEST_NULL]
        for request in requests:
            if request.nbytes is not None:
                pause = self._alpha + self._beta * request.nbytes + self._late.get(self.received, 0.0)
                time.sleep(pause) if pause else None

    def _until(self, done, what):
        deadline = time.monotonic() + WAIT
        while not (value := done()):
            if time.monotonic() > deadline:
                raise _Stuck(what() if callable(what) else what)
            os.sched_yield()
        return value

    def _drain(self) -> int:
        """Take all messages off the network that nobody received, so that nothing of this answer stays. Returns their number.

        Sends are synchronous: a rank whose sends are over may enter the barrier; when all are in it, no message is left.
        """
        receives = [request for request in self._pending if request.nbytes is not None]
        for request in receives:
            request.Cancel()
            MPI.Request.Wait(request)
        self._side.Barrier()
        lost, barrier = 0, None
        while True:
            status = MPI.Status()
            if found := self.Improbe(status=status):
                found.Recv([bytearray(status.Get_count(MPI.BYTE)), MPI.BYTE])
                lost += 1
            elif barrier is None:
                if all(MPI.Request.Test(request) for request in self._pending):
                    barrier = self._side.Ibarrier()
            elif barrier.Test():
                return lost + len(receives)


class _Pickled:
    """An object on its way by a lower-case call; an array counts as its own bytes, without pickle's few more."""

    def __init__(self, obj):
        self.data = pickle.dumps(obj)
        self.nbytes = obj.nbytes if isinstance(obj, np.ndarray) else len(self.data)


def _nbytes(buf) -> int:
    if not isinstance(buf, list | tuple):
        return buf.nbytes if hasattr(buf, "nbytes") else memoryview(buf).nbytes
    array = np.asarray(buf[0])
    count = next((part for part in buf[1:] if isinstance(part, int)), array.size)
    return count * array.itemsize


def _complete(request) -> bool:
    try:
        return MPI.Request.Test(request)
    except MPI.Exception as error:
        if error.Get_error_class() == MPI.ERR_TRUNCATE:
            raise CheckFailed(
                "a message is longer than the array that should receive it: the sender sends one chunk, the receiver expects "
                "another."
            ) from None
        raise


def _from(source) -> str:
    return " from any rank" if source == MPI.ANY_SOURCE else f" from rank {source}"


def _account(states):
    """The exception that tells the learner what went wrong on which ranks."""
    groups = {}
    for rank, (kind, text) in enumerate(states):
        if isinstance(text, TaskNotDone):
            return text
        groups.setdefault((kind, str(text)), []).append(rank)
    raised = [f"{name_ranks(ranks)}: {text}" for (kind, text), ranks in groups.items() if kind == "raised"]
    if raised:
        return CheckFailed("\n".join(raised))
    verbs = {"waits": ("waits", "wait"), "returned": ("has returned", "have returned")}
    story = [f"{name_ranks(ranks)} {verbs[kind][len(ranks) > 1]} {text}".rstrip() for (kind, text), ranks in groups.items()]
    return CheckFailed(
        f"this would hang: {', '.join(story)}.\nA message ends only if its sender sends it and its receiver receives it."
    )


def _refused(name, why):
    def call(self, *args, **options):
        raise CheckFailed(f"you call {name}; {why}")

    return call


for _name in _COLLECTIVES:
    setattr(MessageComm, _name, _refused(_name, "write it yourself here, with messages from rank to rank (Sendrecv)."))
for _name in _COMMUNICATORS:
    setattr(MessageComm, _name, _refused(_name, "use the comm that you are given, as it is."))
for _name in _OTHER_MESSAGES:
    setattr(MessageComm, _name, _refused(_name, "this check knows Sendrecv, Send, Recv, Isend and Irecv."))
