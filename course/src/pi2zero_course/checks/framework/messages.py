"""Messages from rank to rank that cannot hang: every blocking call is made of MPI's non-blocking
ones, and waited for as long as some rank gets on.
"""

import time

import numpy as np
from mpi4py import MPI

from pi2zero_course.checks.framework.agree import merge_errors, pickling_error
from pi2zero_course.checks.framework.answers import (
    CheckError,
    TaskNotDoneError,
    call_answer,
    name_of,
)
from pi2zero_course.checks.framework.clock import clock
from pi2zero_course.checks.framework.requests import Request, requests_that_end, wait_for_all
from pi2zero_course.checks.framework.waiting import Stuck, Waiting

MANY = 20_000  # messages after which an answer counts as endless


class Messages(MPI.Intracomm):
    """A communicator on which waiting for a message ends, with Stuck, as soon as no rank can get
    on.

    sent, messages, targets: bytes this rank sent, in how many messages, to which ranks.
    """

    # Does a send end only when the message is received, as MPI does it for long ones?
    synchronous = False

    def __new__(cls, comm, **options):
        return super().__new__(cls, comm)

    def __init__(self, comm, parent=None):
        # apart from the answer's own traffic: what the ranks do
        self.side = parent.side if parent else comm.Dup()
        self.waiting = parent.waiting if parent else Waiting(comm)
        self.used = False
        self.sent = self.messages = self.received = 0
        self.targets = set()
        self._pending = []

    def free(self) -> None:
        """Give back what it has of MPI. All ranks call it together."""
        self.waiting.free()
        self.side.Free()

    def call(self, function, args):
        """Call function(self, *args): (what it returns or None, kind, text). kind: "returned",
        "waits" or "raised"."""
        self.name = name_of(function)
        try:
            with requests_that_end():
                return call_answer(function, self, *args), "returned", ""
        except Stuck as stuck:
            return None, "waits", str(stuck)
        except (CheckError, TaskNotDoneError) as error:
            return None, "raised", error

    def gather_states(self, kind, text, offer=None) -> tuple[list, list]:
        """What all ranks do and offer, once all have come here; a rank that waits in vain
        meanwhile comes as well."""
        here = self.side.Ibarrier()
        try:
            self.waiting.until(here.Test)
        except Stuck:
            here.Wait()
        gathered = self.side.allgather((kind, text, offer))
        states = [state for *state, _ in gathered]
        self.waiting.deadlocked = any(kind == "waits" for kind, _ in states)
        return [tuple(state) for state in states], [offer for *_, offer in gathered]

    def Isend(self, buf, dest, tag=0):
        return self._begin_send("Isend", buf, dest, tag)

    def Issend(self, buf, dest, tag=0):
        return self._begin_send("Issend", buf, dest, tag)

    def isend(self, obj, dest, tag=0):
        return self._begin_send("isend", obj, dest, tag)

    def issend(self, obj, dest, tag=0):
        return self._begin_send("issend", obj, dest, tag)

    def Irecv(self, buf, source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG):
        return self._begin_receive("Irecv", buf, source, tag)

    def irecv(self, buf=None, source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG):
        return self._begin_receive("irecv", buf, source, tag)

    def Send(self, buf, dest, tag=0):
        self._begin_send("Send", buf, dest, tag).Wait()

    def Ssend(self, buf, dest, tag=0):
        self._begin_send("Ssend", buf, dest, tag).Wait()

    def send(self, obj, dest, tag=0):
        self._begin_send("send", obj, dest, tag).Wait()

    def ssend(self, obj, dest, tag=0):
        self._begin_send("ssend", obj, dest, tag).Wait()

    def Recv(self, buf, source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=None):
        self._begin_receive("Recv", buf, source, tag).Wait(status)

    def recv(self, buf=None, source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=None):
        self.allow("recv")
        return self._receive_object("recv", source, tag, status)

    def Sendrecv(
        self,
        sendbuf,
        dest,
        sendtag=0,
        recvbuf=None,
        source=MPI.ANY_SOURCE,
        recvtag=MPI.ANY_TAG,
        status=None,
    ):
        into = self._begin_receive("Sendrecv", recvbuf, source, recvtag)
        wait_for_all([self._begin_send("Sendrecv", sendbuf, dest, sendtag), into], [None, status])

    def Sendrecv_replace(
        self, buf, dest, sendtag=0, source=MPI.ANY_SOURCE, recvtag=MPI.ANY_TAG, status=None
    ):
        self.Sendrecv(np.array(buf), dest, sendtag, buf, source, recvtag, status)

    def sendrecv(
        self,
        sendobj,
        dest,
        sendtag=0,
        recvbuf=None,
        source=MPI.ANY_SOURCE,
        recvtag=MPI.ANY_TAG,
        status=None,
    ):
        request = self._begin_send("sendrecv", sendobj, dest, sendtag)
        obj = self._receive_object("sendrecv", source, recvtag, status)
        request.Wait()
        return obj

    def Probe(self, source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=None):
        self.allow("Probe")
        return self._await_message("Probe", source, lambda: self.Iprobe(source, tag, status))

    probe = Probe

    def allow(self, name):
        """Called before each call; may refuse it."""
        self.used = True

    def arrived(self, nbytes, began):
        """Called when a message is through. nbytes: of what was received, None for what was sent;
        began: when that did (s)."""

    def _begin_send(self, name, data, partner, tag):
        self.allow(name)
        self.messages += 1
        if self.messages > MANY:
            raise CheckError(
                f"this rank has sent {MANY:,} messages and goes on. Does a loop never end?"
            )
        self.targets.add(partner)
        pickled = name.islower()
        self.sent += _nbytes_of_object(data) if pickled else _nbytes(data)
        kind = "issend" if self.synchronous or "ssend" in name.lower() else "isend"
        real = getattr(MPI.Intracomm, kind if pickled else kind.capitalize())
        return self._note(
            real(self, data, partner, tag), f"in {name} to rank {partner}", None, pickled
        )

    def _begin_receive(self, name, buf, partner, tag):
        self.allow(name)
        self.received += 1
        pickled = name.islower()
        request = (MPI.Intracomm.irecv if pickled else MPI.Intracomm.Irecv)(self, buf, partner, tag)
        return self._note(
            request, f"in {name}{_from(partner)}", 0 if pickled else _nbytes(buf), pickled
        )

    def _receive_object(self, name, source, tag, status):
        # Not by irecv: mpi4py receives objects of up to 32 KiB with it.
        began, length = time.perf_counter(), MPI.Status()
        message = self._await_message(name, source, lambda: self.improbe(source, tag, length))
        self.received += 1
        obj = message.recv(status=status)
        self.arrived(length.Get_count(MPI.BYTE), began)
        return obj

    def _await_message(self, name, source, probe):
        with clock.paused():
            return self.waiting.until(probe, f"in {name}{_from(source)}")

    def _note(self, request, what, nbytes, pickled):
        self._pending = [one for one in self._pending if one != MPI.REQUEST_NULL]
        self._pending.append(Request(request, self, what, nbytes, pickled))
        return self._pending[-1]

    def refuse_unsendable(self, result) -> None:
        """Raise CheckError on all ranks if what the answer returned on one of them cannot be sent
        to the others."""
        if wrong := merge_errors(self.side.allgather(pickling_error(result, self.name))):
            raise wrong

    def count_begun_sends(self) -> int:
        """Sends that this rank has begun, and of which it has not seen the end."""
        return sum(
            request != MPI.REQUEST_NULL and request.nbytes is None for request in self._pending
        )

    def drain(self) -> int:
        """Take all messages off the network that no rank received, so that nothing of this answer
        stays. Returns their number.

        Where sends are synchronous, a rank whose sends are over may enter the barrier; when all
        are in it, no message is left.
        """
        pending = [request for request in self._pending if request != MPI.REQUEST_NULL]
        receives = [request for request in pending if request.nbytes is not None]
        for request in receives:
            request.Cancel()
            MPI.Request.Wait(request)
        self.side.Barrier()
        lost, barrier = 0, None
        while True:
            status = MPI.Status()
            if message := self.Improbe(status=status):
                message.Recv([bytearray(status.Get_count(MPI.BYTE)), MPI.BYTE])
                lost += 1
            elif barrier is None:
                if all(MPI.Request.Test(request) for request in pending):
                    barrier = self.side.Ibarrier()
            elif barrier.Test():
                return lost + len(receives)


def _nbytes_of_object(obj) -> int:
    """Of an object on its way by a lower-case call; an array counts as its own bytes, without
    pickle's few more."""
    return obj.nbytes if isinstance(obj, np.ndarray) else len(MPI.pickle.dumps(obj))


def _nbytes(buf) -> int:
    if not isinstance(buf, list | tuple):
        return buf.nbytes if hasattr(buf, "nbytes") else memoryview(buf).nbytes
    array = np.asarray(buf[0])
    count = next((part for part in buf[1:] if isinstance(part, int)), array.size)
    return count * array.itemsize


def _from(source) -> str:
    return " from any rank" if source == MPI.ANY_SOURCE else f" from rank {source}"
