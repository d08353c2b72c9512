"""Run an answer that communicates, on real ranks, without a chance to hang.

Before each collective call the ranks tell each other which call they are about to make, and what
they give to it. If all say the same and it fits, the real call is made. If not, it would never end:
then no rank makes it, and every rank knows who would have waited for whom.
"""

from mpi4py import MPI

from pi2zero_course.checks.framework.agree import divergence_error
from pi2zero_course.checks.framework.answers import CheckError
from pi2zero_course.checks.framework.buffers import BUFFERED, misfit, mpi_offer
from pi2zero_course.checks.framework.clock import clock
from pi2zero_course.checks.framework.messages import Messages
from pi2zero_course.checks.framework.values import is_int, plural

MANY = 2000  # collective calls after which an answer counts as endless

# ruff: noqa: SIM905 - words are easier to read than lists of quoted words
# Where `root` stands among the arguments; None for calls without a root.
_COLLECTIVES = dict.fromkeys(
    """barrier Barrier allreduce Allreduce allgather Allgather Allgatherv alltoall Alltoall scan
    Scan exscan Exscan Reduce_scatter Reduce_scatter_block Ibarrier Iallreduce Iallgather
    Iallgatherv Ialltoall Alltoallv Alltoallw Dup Clone Split Split_type Create_cart""".split()
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


class MisfitError(CheckError):
    """What the ranks give to a collective call does not fit."""


class WatchedComm(Messages):
    """A communicator whose collective calls are agreed upon before they are made, and whose
    messages cannot hang.

    calls: the names of those that this rank has come to.
    """

    most = MANY  # calls

    def __init__(self, comm, parent=None):
        super().__init__(comm, parent)
        self.calls = []
        self._made = 0  # calls that all ranks have made together
        self._states = None  # what each rank was up to when they parted
        self._misfit = ""  # how their buffers did not fit, if that is why

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

    def agree_on_call(self, call: str, kind="", root=0, offer=None, group=None) -> None:
        """Agree with all ranks that this call is made next.

        kind, root, offer: what this rank gives to it, see `buffers.misfit`. group: the ranks that
        communicate with this one, if not all do.
        """
        if clock.time_up_message:  # and the answer has swallowed that
            self._agree_on_state("raised", CheckError(f"{self.name} {clock.time_up_message}"))
        everyone = tuple(range(self.size))
        offers = self._agree_on_state("calls", call, (group or everyone, offer))
        for ranks in dict.fromkeys(ranks for ranks, _ in offers):
            theirs = [offers[rank][1] for rank in ranks]
            if wrong := misfit(call, kind, root, theirs, ranks):
                self._misfit, self._states = wrong, [("calls", call)] * self.size
                clock.go_on()
                raise _Diverged
        clock.refill()

    def _agree_on_state(self, kind: str, text, offer=None) -> list:
        """Tell all ranks what this one does next, and learn what they do. Returns their offers."""
        if self._states:  # already parted, and the answer goes on anyway
            raise _Diverged
        clock.pause()
        states, offers = self.gather_states(kind, text, offer)
        self._made += 1
        if kind in ("raised", "waits") or len(set(states)) > 1 or self._made > self.most:
            self._states = states
            clock.go_on()
            raise _Diverged
        return offers

    def part(self, comm, name: str) -> "PartComm":
        """A communicator of some of the ranks, called `name` in the answer, whose calls all ranks
        agree on."""
        return PartComm(comm, self, name)

    def _divergence(self):
        """The exception that tells the learner how the ranks parted."""
        if self._misfit:
            return MisfitError(self._misfit)
        calls = self._made - 1
        before = f"after {calls} call{'s' * (calls > 1)} that all ranks made, " if calls else ""
        wrong = divergence_error(self._states, before)
        if len(set(self._states)) == 1 and self._states[0][0] == "calls":
            return CheckError(
                f"The ranks had made {MANY:,} collective calls and went on. Does a loop never end?"
            )
        if isinstance(wrong, CheckError) and "NoneType" in str(wrong):
            return CheckError(f"{wrong}{self._why_none()}")
        return wrong

    def _why_none(self) -> str:
        """Which of the calls that all ranks have made returned None."""
        made = self.calls[: self._made - 1]
        if {"reduce", "gather"} & set(made) and self._states[0][0] != "raised":
            return "\nreduce and gather give their result to rank 0 only; the other ranks get None."
        if filling := [name for name in made if name in BUFFERED]:
            return f"\n{filling[-1]} returns None: it fills the array that it is given."
        return ""


class PartComm(WatchedComm):
    """A communicator of some of a WatchedComm's ranks. All ranks agree on its calls, so that none
    waits in one communicator for a rank that waits in another."""

    def __new__(cls, comm, parent, name):
        return super().__new__(cls, comm)

    def __init__(self, comm, parent, name):
        super().__init__(comm, parent)
        self._parent, self._name = parent, name
        group = comm.Get_group()
        ranks = group.Translate_ranks(list(range(comm.size)), parent.Get_group())
        self._members = tuple(ranks)

    def agree_on_call(self, call, kind="", root=0, offer=None, group=None):
        self._parent.used = True
        self._parent.agree_on_call(f"{self._name}.{call}", kind, root, offer, self._members)


def _watched(name: str, root_at: int | None):
    real = getattr(MPI.Intracomm, name)

    def call(self, *args, **options):
        self.used = True
        self.calls.append(name)
        root = _argument("root", root_at, args, options, 0)
        has_root = is_int(root) and root in range(self.size)
        data = args[0] if args else options.get("sendobj", options.get("sendbuf"))
        op = _argument("op", _OP_AT.get(name), args, options, MPI.SUM)
        if name.islower() and any(hasattr(each, "shape") for each in args[1:]):
            raise CheckError(
                f"{name} returns its result and fills no array; {name.capitalize()}, with a "
                "capital letter, fills the array that it is given."
            )
        if name in _ROOT_IN_PLACE and data is MPI.IN_PLACE and self.rank != root:
            # MPI refuses it here, while the root waits in it.
            raise CheckError(
                f"{name} takes MPI.IN_PLACE on the root, {root}, only: the other ranks give their "
                "own."
            )
        if name.islower() and (name not in ("bcast", "scatter") or self.rank == root):
            # What cannot be sent raises here, not while the others wait for it inside MPI.
            sent = MPI.pickle.dumps(data)
            if name in ("scatter", "alltoall"):
                _refuse_other_than(self.size, data, name)
        offer = None
        if name in _COMBINE:
            # So does what cannot be combined. Copies, because an operation may change its own.
            op(MPI.pickle.loads(sent), MPI.pickle.loads(sent))
            offer = getattr(data, "shape", ())
        elif name[0].isupper() and name.removeprefix("I").capitalize() in BUFFERED and has_root:
            offer = mpi_offer(name, args, options, root, self)
        with_op = _OPS.get(op.handle, "") if isinstance(op, MPI.Op) else ""
        with_root = f" with root {root}" if has_root and root else ""
        self.agree_on_call(name + with_op + with_root, name, root, offer)
        return real(self, *args, **options)

    return call


def _refuse_other_than(size: int, data, name: str) -> None:
    """scatter and alltoall send the first object to rank 0, the second to rank 1, and so on."""
    try:
        count = len(data)
    except TypeError:
        count = None
    if count == size:
        return
    has = f"has {plural(count, 'item')}" if count is not None else f"is {type(data).__name__!r}"
    raise CheckError(
        f"{name} takes a list with one object for each of {plural(size, 'rank')}; yours {has}. "
        f"{name.capitalize()}, with a capital letter, splits an array into equal parts."
    )


def _argument(name, at, args, options, default):
    """An argument of a call, given by name or at a place. at: None for a call that does not have
    it."""
    if at is None:
        return default
    return options.get(name, args[at] if len(args) > at else default)


for _name, _root_at in _COLLECTIVES.items():
    setattr(WatchedComm, _name, _watched(_name, _root_at))
