"""Run an answer that sends messages, on real ranks, without a chance to hang, and count what each
rank sends."""

import time

from pi2zero.mpi import name_ranks
from pi2zero_course.checks.framework.agree import divergence_error
from pi2zero_course.checks.framework.answers import CheckError
from pi2zero_course.checks.framework.clock import clock
from pi2zero_course.checks.framework.messages import Messages


class MessageComm(Messages):
    """A communicator for messages from rank to rank; collective calls are refused, except Barrier.

    Every send is synchronous. So a ring that hangs for long arrays only, hangs here for all. only:
    names of the calls that are allowed, None for all. alpha (s), beta (s per byte): what each
    message takes at least; late: s more, by message number.
    """

    synchronous = True

    def __init__(self, comm, only=None, alpha=0.0, beta=0.0, late=None):
        super().__init__(comm)
        self.fastest = float("inf")  # s from the beginning of a receive to its end
        self.barriers = 0
        self._only, self._alpha, self._beta, self._late = only, alpha, beta, late or {}

    def run_together(self, function, args) -> list:
        """Call function(self, *args) on every rank. Returns a dict a rank: result, args (as they
        are then), sent, ...

        Raises, on all ranks alike, TaskNotDoneError, or CheckError if a rank raised, was stuck, or
        messages were left over.
        """
        result, *state = self.call(function, args)
        states, _ = self.gather_states(*state)
        begun = self.side.allreduce(self.count_begun_sends())
        lost = self.side.allreduce(self.drain())
        if wrong := divergence_error(states):
            raise wrong
        if lost:
            raise CheckError(
                f"{lost} message{'s were' if lost > 1 else ' was'} sent and never received."
            )
        if begun:
            raise CheckError(
                f"no rank waited for the request of {begun} Isend{'s' * (begun > 1)}. Wait, else "
                "MPI may still send."
            )
        self.refuse_unsendable(result)
        traffic = {"bytes": self.sent, "messages": self.messages, "targets": sorted(self.targets)}
        traffic |= {"fastest": self.fastest, "barriers": self.barriers}
        return self.side.allgather({"result": result, "args": args, **traffic})

    def Barrier(self):
        self.used = True
        self.barriers += 1
        request = self.side.Ibarrier()
        with clock.paused():
            self.waiting.until(request.Test, "in Barrier, which not all ranks call,")
        time.sleep(2 * self._alpha)  # a barrier is messages, too: who times it along sees it

    barrier = Barrier

    def allow(self, name):
        """Raises CheckError if the answer calls what its task does not allow."""
        self.used = True
        if self._only is not None and name not in self._only:
            raise CheckError(f"you call {name}; here only {' and '.join(self._only)} are allowed.")

    def arrived(self, nbytes, began):
        """The slow network takes its time for what came in."""
        if nbytes is not None:
            pause = self._alpha + self._beta * nbytes + self._late.get(self.received, 0.0)
            time.sleep(pause) if pause else None
            self.fastest = min(self.fastest, time.perf_counter() - began)


def judge_traffic(case, reports, messages, nbytes, target, neighbours=None) -> None:
    """Raise CheckError if a rank sent more than `messages` messages, `nbytes` bytes, or to more
    than so many neighbours. case: how the message begins; target: what is due, in words."""
    for rank, report in enumerate(reports):
        if neighbours and len(report["targets"]) > neighbours:
            raise CheckError(
                f"{case}rank {rank} sent to {name_ranks(report['targets'])}; in a ring a rank "
                "sends to one neighbour only."
            )
        for what, most in (("messages", messages), ("bytes", nbytes)):
            if report[what] > most:
                raise CheckError(
                    f"{case}rank {rank} sent {report[what]:,} {what}; the target is {most:,}: "
                    f"{target}."
                )


def _refused(name, why):
    def call(self, *args, **options):
        raise CheckError(f"you call {name}; {why}")

    return call


# What to say of the calls that are not there.
_REFUSED = {
    "write it yourself here, with messages from rank to rank (Sendrecv).": """allgather Allgather
    Allgatherv allreduce Allreduce alltoall Alltoall Alltoallv bcast Bcast exscan Exscan gather
    Gather Gatherv reduce Reduce Reduce_scatter Reduce_scatter_block scan Scan scatter Scatter
    Scatterv Iallreduce Iallgather Ireduce Ibcast Igather Iscatter Ireduce_scatter
    Ireduce_scatter_block Ibarrier""",
    "use the comm that you are given, as it is.": """Dup Split Clone Create_cart Create Create_group
    Split_type Idup""",
    "this check knows Sendrecv, Send, Recv, Isend and Irecv.": """bsend ibsend Bsend Ibsend Rsend
    Irsend Isendrecv Send_init Recv_init""",
}
for _why, _names in _REFUSED.items():
    for _name in _names.split():
        setattr(MessageComm, _name, _refused(_name, _why))
