"""Try an answer that communicates on all ranks, and on the first 3, 2 and 1 of them."""

from collections.abc import Callable
from dataclasses import dataclass

from mpi4py import MPI

from pi2zero_course.checks.framework.agree import require_ranks
from pi2zero_course.checks.framework.answers import (
    CheckError,
    TaskNotDoneError,
    global_names,
    globals_of,
    speaking_of,
)
from pi2zero_course.checks.framework.values import is_int, plural
from pi2zero_course.checks.framework.watched_comm import MisfitError, WatchedComm

_FROM_COMM = "take rank and size from the comm that it is given, comm.rank and comm.size."


@dataclass(kw_only=True)
class OnRanks:
    """How an answer function(comm, ...) is tried.

    arguments(rank, size, *case): what follows comm. judge(results, *case): raises CheckError;
    results: by rank, what the answer returned, or a MessageComm's reports. call(function, comm,
    *arguments): how the answer is called, if otherwise. comm: makes the communicator that the
    answer gets. fewest: the smallest number of ranks to try. if_misfit: what to do where arrays do
    not fit those of other ranks.
    """

    arguments: Callable
    judge: Callable
    call: Callable | None = None
    comm: Callable = WatchedComm
    fewest: int = 1
    if_misfit: str = ""

    def __call__(self, function: Callable, cases) -> list[int]:
        """Let all ranks, then only the first 3, 2 and 1 of them, call the answer with each case.

        Returns those numbers. Raises the same exception on all ranks.
        """
        require_ranks(3)
        world = MPI.COMM_WORLD.size
        sizes = [size for size in sorted({world, 3, 2, 1}, reverse=True) if size >= self.fewest]
        run = function
        if self.call:
            run = speaking_of(function, lambda comm, *args: self.call(function, comm, *args))
        for number, case in enumerate(cases or [()]):
            for size in sizes:
                # Later cases may need no communication, such as an array without numbers.
                if wrong := self._outcome_by_world(run, case, size, needs_comm=number == 0):
                    raise wrong
        return sizes

    def _outcome_by_world(self, run, case, size, needs_comm) -> Exception | None:
        """The exception of the first `size` ranks, or None, with what explains it."""
        # A smaller world counts its ranks backwards, so that comm.rank is not the world's.
        backwards = 1 < size < MPI.COMM_WORLD.size
        wrong = self._outcome_on(run, case, size, backwards, needs_comm)
        if not isinstance(wrong, CheckError):
            return wrong
        if backwards and not self._outcome_on(run, case, size, False, needs_comm):
            return CheckError(
                f"On {size} ranks whose numbers in comm are not those in MPI.COMM_WORLD, your "
                f"function fails: {_FROM_COMM}"
            )
        if size < MPI.COMM_WORLD.size and (names := _names_of_the_notebook(run)):
            return CheckError(
                f"{str(wrong).rstrip()}\nYour function uses the notebook's "
                f"{' and '.join(names)}: {_FROM_COMM}"
            )
        return wrong

    def _outcome_on(self, run, case, size, backwards, needs_comm) -> Exception | None:
        """The exception of the first `size` ranks, or None; the same on all ranks of the world."""
        world = MPI.COMM_WORLD
        key = -world.rank if backwards else world.rank
        comm = world.Split(0 if world.rank < size else MPI.UNDEFINED, key)
        wrong = self._outcome(comm, run, case, needs_comm) if world.rank < size else None
        return world.bcast(wrong, root=0)

    def _outcome(self, comm, run, case, needs_comm) -> Exception | None:
        """The exception of an answer on one communicator, or None; the same on all its ranks."""
        watched = self.comm(comm)
        try:
            results = watched.run_together(run, self.arguments(comm.rank, comm.size, *case))
            self.judge(results, *case)
            if needs_comm and comm.size > 1 and not watched.used:
                return CheckError(
                    "Your function made no call on the comm that it was given. Use that one, not "
                    "MPI.COMM_WORLD. (Messages and collectives are seen, one-sided windows are "
                    "not.)"
                )
        except TaskNotDoneError as missing:
            return missing
        except CheckError as wrong:
            why = f"\n{self.if_misfit}" if isinstance(wrong, MisfitError) and self.if_misfit else ""
            return CheckError(f"On {plural(comm.size, 'rank')}: {wrong}{why}")
        finally:
            watched.free()
            comm.Free()
        return None


def _names_of_the_notebook(function) -> list[str]:
    """Which of the notebook's `rank` and `size` a function uses: on fewer ranks they are not the
    comm's."""
    space, used = globals_of(function), global_names(function)
    return [name for name in ("rank", "size") if name in used and is_int(space.get(name))]
