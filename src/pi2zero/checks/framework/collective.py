"""Run an answer that communicates, on real ranks, without a chance to hang.

Before each collective call the ranks tell each other which call they are about to make. If all say the same, the real
call is made. If not, it would never end: then nobody makes it, and every rank knows who would have waited for whom.
"""

from mpi4py import MPI

from pi2zero.checks.framework.base import CheckFailed, TaskNotDone, answer, arm, disarm
from pi2zero.mpi import name_ranks

MANY = 2000  # collective calls after which an answer counts as endless

# Where `root` stands among the arguments; None for calls without a root.
_COLLECTIVES = {
    **dict.fromkeys(["barrier", "Barrier", "allreduce", "Allreduce", "allgather", "Allgather", "Allgatherv"]),
    **dict.fromkeys(["alltoall", "Alltoall", "scan", "Scan", "exscan", "Exscan", "Reduce_scatter", "Reduce_scatter_block"]),
    **{"bcast": 1, "Bcast": 1, "reduce": 2, "Reduce": 3, "gather": 1, "Gather": 2, "Gatherv": 2},
    **{"scatter": 1, "Scatter": 2, "Scatterv": 2},
}
_MESSAGES = ["send", "Send", "recv", "Recv", "isend", "Isend", "irecv", "Irecv", "sendrecv", "Sendrecv", "ssend", "Ssend"]


class _Parted(BaseException):
    """Not all ranks came to the same call. No learner's `except Exception` shall catch it."""


class WatchedComm(MPI.Intracomm):
    """A communicator whose collective calls are agreed upon before they are made.

    Its other methods are those of `comm`; messages from rank to rank are counted, not watched.
    """

    def __new__(cls, comm):
        return super().__new__(cls, comm)

    def __init__(self, comm):
        self._side = comm.Dup()  # where the ranks talk about their calls, apart from the answer's own traffic
        self._calls = 0  # that all ranks have made together
        self.used = False
        self._states = None  # what each rank was up to when they parted

    def together(self, function, args) -> list:
        """Call function(self, *args) on every rank. Returns all ranks' results, on all ranks.

        Raises, on all ranks alike, TaskNotDone, or CheckFailed if a rank raised or the ranks would have waited for ever.
        """
        result = None
        try:
            try:
                result = answer(function, self, *args)
                state = ("returned", "")
            except (CheckFailed, TaskNotDone) as error:
                state = ("raised", error)
            self._meet(*state)
        except _Parted:
            raise self._account() from None
        return self._side.allgather(result)

    def free(self) -> None:
        self._side.Free()

    def _meet(self, kind: str, text) -> None:
        """Tell all ranks what this one does next, and learn what they do."""
        if self._states:  # already parted, and the answer goes on all the same
            raise _Parted
        disarm()
        states = self._side.allgather((kind, text))
        if kind == "calls":
            arm()
        if any(state[0] == "raised" for state in states) or len(set(states)) > 1:
            self._states = states
            raise _Parted
        self._calls += 1
        if self._calls > MANY:
            self._states = states
            raise _Parted

    def _account(self):
        """The exception that tells the learner how the ranks parted."""
        groups = {}
        for rank, (kind, text) in enumerate(self._states):
            groups.setdefault((kind, str(text)), []).append(rank)
        for _, text in self._states:
            if isinstance(text, TaskNotDone):
                return text
        raised = [f"{name_ranks(ranks)}: {text}" for (kind, text), ranks in groups.items() if kind == "raised"]
        if raised:
            nothing = "\nreduce and gather give their result to rank 0 only; the other ranks get None."
            return CheckFailed("\n".join(raised) + nothing * any("NoneType" in line for line in raised))
        if len(groups) == 1:
            return CheckFailed(f"The ranks had made {MANY:,} collective calls and went on. Does a loop never end?")
        story = ", ".join(f"{name_ranks(ranks)} {_verb(kind, text, len(ranks) > 1)}" for (kind, text), ranks in groups.items())
        before = f"after {self._calls} call{'s' * (self._calls > 1)} that all ranks made, " if self._calls else ""
        return CheckFailed(f"this would hang. {_capital(before + story)}.\nA collective call ends only if every rank makes it.")


def _verb(kind: str, text: str, several: bool) -> str:
    if kind == "returned":
        return "have returned" if several else "has returned"
    return f"call {text}" if several else f"calls {text}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _watched(name: str, root_at: int | None):
    real = getattr(MPI.Intracomm, name)

    def call(self, *args, **options):
        self.used = True
        root = options.get("root", args[root_at] if len(args) > root_at else 0) if root_at is not None else 0
        self._meet("calls", name if root == 0 else f"{name} with root {root}")
        return real(self, *args, **options)

    return call


def _counted(name: str):
    real = getattr(MPI.Intracomm, name)

    def call(self, *args, **options):
        self.used = True
        return real(self, *args, **options)

    return call


for _name, _root_at in _COLLECTIVES.items():
    setattr(WatchedComm, _name, _watched(_name, _root_at))
for _name in _MESSAGES:
    setattr(WatchedComm, _name, _counted(_name))


def on_ranks(function, arguments, judge, fewest: int = 1, watch=WatchedComm) -> list[int]:
    """Let all ranks, then only the first 3, 2 and 1 of them, call the answer. Returns those world sizes.

    arguments(rank, size): what follows `comm` in function(comm, ...). judge(size, results): raises CheckFailed; results
    by rank. fewest: the smallest world to try. watch: makes the communicator that is handed to the answer. The outcome is
    the same exception on all ranks, or none.
    """
    world = MPI.COMM_WORLD
    if world.size < 3:
        raise CheckFailed(f"This check needs at least 3 ranks; there are {world.size}. Start them: pi2zero.start(n=4).")
    sizes = [size for size in sorted({world.size, 3, 2, 1}, reverse=True) if size >= fewest]
    for size in sizes:
        comm = world.Split(0 if world.rank < size else MPI.UNDEFINED, world.rank)
        wrong = _try(comm, function, arguments, judge, watch) if world.rank < size else None
        if wrong := world.bcast(wrong, root=0):
            raise wrong
    return sizes


def _try(comm, function, arguments, judge, watch):
    """The exception of one world size, or None; the same on all ranks of `comm`."""
    watched = watch(comm)
    try:
        results = watched.together(function, arguments(comm.rank, comm.size))
        judge(comm.size, results)
        if comm.size > 1 and not watched.used:
            return CheckFailed("Your function made no call on the comm that it was given. Use that one, not MPI.COMM_WORLD.")
    except TaskNotDone as missing:
        return missing
    except CheckFailed as wrong:
        return CheckFailed(f"On {comm.size} rank{'s' * (comm.size > 1)}: {wrong}")
    finally:
        watched.free()
        comm.Free()
    return None
