"""Run an answer that communicates, on real ranks, without a chance to hang.

Before each collective call the ranks tell each other which call they are about to make. If all say the same, the real
call is made. If not, it would never end: then nobody makes it, and every rank knows who would have waited for whom.
"""

import inspect

from mpi4py import MPI

from pi2zero_course.checks.framework.agree import parted, ranks_needed
from pi2zero_course.checks.framework.base import CheckFailed, TaskNotDone, is_whole
from pi2zero_course.checks.framework.bytecode import global_names
from pi2zero_course.checks.framework.clock import clock
from pi2zero_course.checks.framework.messages import Messages

MANY = 2000  # collective calls after which an answer counts as endless
_FROM_COMM = "take rank and size from the comm that it is given, comm.rank and comm.size."

# Where `root` stands among the arguments; None for calls without a root.
_COLLECTIVES = {
    **dict.fromkeys(
        ["barrier", "Barrier", "allreduce", "Allreduce", "allgather", "Allgather", "Allgatherv"]
    ),
    **dict.fromkeys(
        [
            "alltoall",
            "Alltoall",
            "scan",
            "Scan",
            "exscan",
            "Exscan",
            "Reduce_scatter",
            "Reduce_scatter_block",
        ]
    ),
    **{"bcast": 1, "Bcast": 1, "reduce": 2, "Reduce": 3, "gather": 1, "Gather": 2, "Gatherv": 2},
    **{"scatter": 1, "Scatter": 2, "Scatterv": 2},
    **dict.fromkeys(["Ibarrier", "Iallreduce", "Iallgather", "Iallgatherv", "Ialltoall"]),
    **{"Ibcast": 1, "Ireduce": 3, "Igather": 2, "Iscatter": 2},
}
_ROOT_IN_PLACE = {"Reduce", "Ireduce", "Gather", "Gatherv", "Igather"}  # in place of what is sent
_COMBINE = {"allreduce", "reduce", "scan", "exscan"}
# Where `op` stands among the arguments, and what is written of it; nothing of SUM, the default.
_OP_AT = dict.fromkeys(_COMBINE, 1) | dict.fromkeys(
    ["Allreduce", "Reduce", "Scan", "Exscan", "Iallreduce", "Ireduce"], 2
)
_OPS = {
    getattr(MPI, name).handle: f" with {name}"
    for name in ("MAX", "MIN", "PROD", "LAND", "LOR", "LXOR", "BAND", "BOR")
}


class _Parted(BaseException):
    """Not all ranks came to the same call. No learner's `except Exception` shall catch it."""


class WatchedComm(Messages):
    """A communicator whose collective calls are agreed upon before they are made, and whose messages cannot hang."""

    most = MANY  # calls

    def __init__(self, comm):
        super().__init__(comm)
        self._calls = 0  # that all ranks have made together
        self._states = None  # what each rank was up to when they parted

    def together(self, function, args) -> list:
        """Call function(self, *args) on every rank. Returns all ranks' results, on all ranks.

        Raises, on all ranks alike, TaskNotDone, or CheckFailed if a rank raised or the ranks would have waited forever.
        """
        result = None
        try:
            result, *state = self.call(function, args)
            self._meet(*state)
        except _Parted:
            self.drain()
            raise self._account() from None
        self.refuse_unsendable(result)
        return self.side.allgather(result)

    def meet(self, call: str) -> None:
        """Agree with all ranks that this call is made next."""
        if clock.over:  # and the answer has swallowed that
            self._meet("raised", CheckFailed(f"{self.name} {clock.over}"))
        self._meet("calls", call)
        clock.refill()

    def _meet(self, kind: str, text) -> None:
        """Tell all ranks what this one does next, and learn what they do."""
        if self._states:  # already parted, and the answer goes on all the same
            raise _Parted
        clock.pause()
        states = self.states(kind, text)
        self._calls += 1
        if kind in ("raised", "waits") or len(set(states)) > 1 or self._calls > self.most:
            self._states = states
            clock.go_on()
            raise _Parted

    def _account(self):
        """The exception that tells the learner how the ranks parted."""
        calls = self._calls - 1
        before = f"after {calls} call{'s' * (calls > 1)} that all ranks made, " if calls else ""
        wrong = parted(self._states, before)
        if len(set(self._states)) == 1 and self._states[0][0] == "calls":
            return CheckFailed(
                f"The ranks had made {MANY:,} collective calls and went on. Does a loop never end?"
            )
        if "NoneType" in str(wrong):
            return CheckFailed(
                f"{wrong}\nreduce and gather give their result to rank 0 only; the other ranks get None."
            )
        return wrong


def _watched(name: str, root_at: int | None):
    real = getattr(MPI.Intracomm, name)

    def call(self, *args, **options):
        self.used = True
        root = (
            options.get("root", args[root_at] if len(args) > root_at else 0)
            if root_at is not None
            else 0
        )
        given = args[0] if args else options.get("sendobj", options.get("sendbuf"))
        if (
            name in _ROOT_IN_PLACE and given is MPI.IN_PLACE and self.rank != root
        ):  # MPI refuses it, while the root waits in it
            raise CheckFailed(
                f"{name} takes MPI.IN_PLACE on the root, {root}, only: the other ranks give their own."
            )
        if name.islower() and (name not in ("bcast", "scatter") or self.rank == root):
            sent = MPI.pickle.dumps(
                given
            )  # what cannot be sent raises here, not while the others wait for it inside MPI
        if (
            name in _COMBINE
        ):  # nor what cannot be combined: None, or the larger of two arrays. (An operation may change its own.)
            (args[1] if len(args) > 1 else options.get("op", MPI.SUM))(
                MPI.pickle.loads(sent), MPI.pickle.loads(sent)
            )
        at = _OP_AT.get(name)
        op = options.get("op", args[at] if at and len(args) > at else MPI.SUM) if at else MPI.SUM
        self.meet(
            name
            + (_OPS.get(op.handle, "") if isinstance(op, MPI.Op) else "")
            + (f" with root {root}" if root else "")
        )
        return real(self, *args, **options)

    return call


for _name, _root_at in _COLLECTIVES.items():
    setattr(WatchedComm, _name, _watched(_name, _root_at))


def on_ranks(function, arguments, judge, fewest: int = 1, watch=WatchedComm) -> list[int]:
    """Let all ranks, then only the first 3, 2 and 1 of them, call the answer. Returns those world sizes.

    arguments(rank, size): what follows `comm` in function(comm, ...). judge(size, results): raises CheckFailed; results
    by rank. fewest: the smallest world to try. watch: makes the communicator that is handed to the answer. The outcome is
    the same exception on all ranks, or none.
    """
    ranks_needed(3)
    world = MPI.COMM_WORLD
    sizes = [size for size in sorted({world.size, 3, 2, 1}, reverse=True) if size >= fewest]
    for size in sizes:
        order = (
            -1 if 1 < size < world.size else 1
        )  # a smaller world counts its ranks backwards: comm.rank is not the world's
        wrong = _try(size, order, function, arguments, judge, watch)
        if (
            isinstance(wrong, CheckFailed)
            and order < 0
            and _try(size, 1, function, arguments, judge, watch) is None
        ):
            wrong = CheckFailed(
                f"On {size} ranks whose numbers in comm are not those in MPI.COMM_WORLD, your function fails: {_FROM_COMM}"
            )
        elif (
            isinstance(wrong, CheckFailed)
            and size < world.size
            and (names := _of_the_notebook(function))
        ):
            wrong = CheckFailed(
                f"{str(wrong).rstrip()}\nYour function uses the notebook's {' and '.join(names)}: {_FROM_COMM}"
            )
        if wrong:
            raise wrong
    return sizes


def _of_the_notebook(function) -> list[str]:
    """Which of its notebook's rank and size a function uses. On fewer ranks than all they are others than the comm's."""
    space = getattr(inspect.unwrap(function), "__globals__", {})
    return [
        name
        for name in ("rank", "size")
        if name in global_names(function) and is_whole(space.get(name))
    ]


def _try(size, order, function, arguments, judge, watch):
    """The exception of one world size, or None; the same on all ranks. order: 1 as in the world, -1 backwards."""
    world = MPI.COMM_WORLD
    comm = world.Split(0 if world.rank < size else MPI.UNDEFINED, order * world.rank)
    wrong = _outcome(comm, function, arguments, judge, watch) if world.rank < size else None
    return world.bcast(wrong, root=0)


def _outcome(comm, function, arguments, judge, watch):
    """The exception of an answer on one communicator, or None; the same on all ranks of `comm`."""
    watched = watch(comm)
    try:
        results = watched.together(function, arguments(comm.rank, comm.size))
        judge(comm.size, results)
        if comm.size > 1 and not watched.used:
            return CheckFailed(
                "Your function made no call on the comm that it was given. Use that one, not MPI.COMM_WORLD. "
                "(Messages and collectives are seen, one-sided windows are not.)"
            )
    except TaskNotDone as missing:
        return missing
    except CheckFailed as wrong:
        return CheckFailed(f"On {comm.size} rank{'s' * (comm.size > 1)}: {wrong}")
    finally:
        watched.free()
        comm.Free()
    return None
