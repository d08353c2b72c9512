"""Run an answer that communicates, on real ranks, without a chance to hang.

Before each collective call the ranks tell each other which call they are about to make. If all say
the same, the real call is made. If not, it would never end: then no rank makes it, and every rank
knows who would have waited for whom.
"""

from mpi4py import MPI

from pi2zero_course.checks.framework.agree import divergence_error
from pi2zero_course.checks.framework.answers import CheckError
from pi2zero_course.checks.framework.clock import clock
from pi2zero_course.checks.framework.messages import Messages

MANY = 2000  # collective calls after which an answer counts as endless

# ruff: noqa: SIM905 - words are easier to read than lists of quoted words
# Where `root` stands among the arguments; None for calls without a root.
_COLLECTIVES = dict.fromkeys(
    """barrier Barrier allreduce Allreduce allgather Allgather Allgatherv alltoall Alltoall scan
    Scan exscan Exscan Reduce_scatter Reduce_scatter_block Ibarrier Iallreduce Iallgather
    Iallgatherv Ialltoall""".split()
)
_COLLECTIVES |= dict.fromkeys(["bcast", "Bcast", "gather", "scatter", "Ibcast"], 1)
_COLLECTIVES |= dict.fromkeys(
    ["reduce", "Gather", "Gatherv", "Scatter", "Scatterv", "Igather", "Iscatter"], 2
)
_COLLECTIVES |= {"Reduce": 3, "Ireduce": 3}
_ROOT_IN_PLACE = {"Reduce", "Ireduce", "Gather", "Gatherv", "Igather"}
_COMBINE = {"allreduce", "reduce", "scan", "exscan"}
# Where `op` stands among the arguments.
_OP_AT = dict.fromkeys(_COMBINE, 1)
_OP_AT |= dict.fromkeys("Allreduce Reduce Scan Exscan Iallreduce Ireduce".split(), 2)
# What a message writes of an operation; nothing of SUM, the default.
_OPS = {
    getattr(MPI, name).handle: f" with {name}"
    for name in ("MAX", "MIN", "PROD", "LAND", "LOR", "LXOR", "BAND", "BOR")
}


class _Diverged(BaseException):
    """Not all ranks came to the same call. No learner's `except Exception` shall catch it."""


class WatchedComm(Messages):
    """A communicator whose collective calls are agreed upon before they are made, and whose
    messages cannot hang."""

    most = MANY  # calls

    def __init__(self, comm):
        super().__init__(comm)
        self._calls = 0  # that all ranks have made together
        self._states = None  # what each rank was up to when they parted

    def run_together(self, function, args) -> list:
        """Call function(self, *args) on every rank. Returns all ranks' results, on all ranks.

        Raises, on all ranks alike, TaskNotDoneError, or CheckError if a rank raised or the ranks
        would have waited forever.
        """
        result = None
        try:
            result, *state = self.call(function, args)
            self._agree_on_state(*state)
        except _Diverged:
            self.drain()
            raise self._divergence() from None
        self.refuse_unsendable(result)
        return self.side.allgather(result)

    def agree_on_call(self, call: str) -> None:
        """Agree with all ranks that this call is made next."""
        if clock.time_up_message:  # and the answer has swallowed that
            self._agree_on_state("raised", CheckError(f"{self.name} {clock.time_up_message}"))
        self._agree_on_state("calls", call)
        clock.refill()

    def _agree_on_state(self, kind: str, text) -> None:
        """Tell all ranks what this one does next, and learn what they do."""
        if self._states:  # already parted, and the answer goes on anyway
            raise _Diverged
        clock.pause()
        states = self.gather_states(kind, text)
        self._calls += 1
        if kind in ("raised", "waits") or len(set(states)) > 1 or self._calls > self.most:
            self._states = states
            clock.go_on()
            raise _Diverged

    def _divergence(self):
        """The exception that tells the learner how the ranks parted."""
        calls = self._calls - 1
        before = f"after {calls} call{'s' * (calls > 1)} that all ranks made, " if calls else ""
        wrong = divergence_error(self._states, before)
        if len(set(self._states)) == 1 and self._states[0][0] == "calls":
            return CheckError(
                f"The ranks had made {MANY:,} collective calls and went on. Does a loop never end?"
            )
        if "NoneType" in str(wrong):
            return CheckError(
                f"{wrong}\nreduce and gather give their result to rank 0 only; the other ranks get "
                "None."
            )
        return wrong


def _watched(name: str, root_at: int | None):
    real = getattr(MPI.Intracomm, name)

    def call(self, *args, **options):
        self.used = True
        root = _argument("root", root_at, args, options, 0)
        data = args[0] if args else options.get("sendobj", options.get("sendbuf"))
        op = _argument("op", _OP_AT.get(name), args, options, MPI.SUM)
        if name in _ROOT_IN_PLACE and data is MPI.IN_PLACE and self.rank != root:
            # MPI refuses it here, while the root waits in it.
            raise CheckError(
                f"{name} takes MPI.IN_PLACE on the root, {root}, only: the other ranks give their "
                "own."
            )
        if name.islower() and (name not in ("bcast", "scatter") or self.rank == root):
            # What cannot be sent raises here, not while the others wait for it inside MPI.
            sent = MPI.pickle.dumps(data)
        if name in _COMBINE:
            # So does what cannot be combined. Copies, because an operation may change its own.
            op(MPI.pickle.loads(sent), MPI.pickle.loads(sent))
        with_op = _OPS.get(op.handle, "") if isinstance(op, MPI.Op) else ""
        self.agree_on_call(name + with_op + (f" with root {root}" if root else ""))
        return real(self, *args, **options)

    return call


def _argument(name, at, args, options, default):
    """An argument of a call, given by name or at a place. at: None for a call that does not have
    it."""
    if at is None:
        return default
    return options.get(name, args[at] if len(args) > at else default)


for _name, _root_at in _COLLECTIVES.items():
    setattr(WatchedComm, _name, _watched(_name, _root_at))
