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
from pi2zero_course.checks.framework.watched_comm import WatchedComm

_FROM_COMM = "take rank and size from the comm that it is given, comm.rank and comm.size."


@dataclass(kw_only=True)
class OnRanks:
    """How an answer function(comm, ...) is tried.

    arguments(rank, size, *case): what follows comm. judge(results, *case): raises CheckError;
    results: by rank, what the answer returned, or a MessageComm's reports. call(function, comm,
    *arguments): how the answer is called, if otherwise. comm: makes the communicator that the
    answer gets. fewest: the smallest number of ranks to try.
    """

    arguments: Callable
    judge: Callable
    call: Callable | None = None
    comm: Callable = WatchedComm
    fewest: int = 1

    def __call__(self, function: Callable, cases) -> list[int]:
        """The numbers of ranks that were tried. Raises the same exception on all ranks."""
        run = function
        if self.call:
            run = speaking_of(function, lambda comm, *args: self.call(function, comm, *args))
        for case in cases or [()]:
            sizes = on_ranks(
                run,
                lambda rank, size, case=case: self.arguments(rank, size, *case),
                lambda size, results, case=case: self.judge(results, *case),
                self.fewest,
                self.comm,
            )
        return sizes


def on_ranks(function, arguments, judge, fewest: int = 1, watch=WatchedComm) -> list[int]:
    """Let all ranks, then only the first 3, 2 and 1 of them, call the answer. Returns those
    numbers.

    arguments(rank, size): what follows `comm`. judge(size, results): raises CheckError; results by
    rank. The outcome is the same exception on all ranks, or none.
    """
    require_ranks(3)
    world = MPI.COMM_WORLD.size
    sizes = [size for size in sorted({world, 3, 2, 1}, reverse=True) if size >= fewest]
    for size in sizes:
        # A smaller world counts its ranks backwards, so that comm.rank is not the world's.
        backwards = 1 < size < world
        wrong = _outcome_on(size, backwards, function, arguments, judge, watch)
        if isinstance(wrong, CheckError):
            if backwards and not _outcome_on(size, False, function, arguments, judge, watch):
                wrong = CheckError(
                    f"On {size} ranks whose numbers in comm are not those in MPI.COMM_WORLD, your "
                    f"function fails: {_FROM_COMM}"
                )
            elif size < world and (names := _names_of_the_notebook(function)):
                wrong = CheckError(
                    f"{str(wrong).rstrip()}\nYour function uses the notebook's "
                    f"{' and '.join(names)}: {_FROM_COMM}"
                )
        if wrong:
            raise wrong
    return sizes


def _names_of_the_notebook(function) -> list[str]:
    """Which of the notebook's `rank` and `size` a function uses: on fewer ranks they are not the
    comm's."""
    space, used = globals_of(function), global_names(function)
    return [name for name in ("rank", "size") if name in used and is_int(space.get(name))]


def _outcome_on(size, backwards, function, arguments, judge, watch) -> Exception | None:
    """The exception of the first `size` ranks, or None; the same on all ranks of the world."""
    world = MPI.COMM_WORLD
    key = -world.rank if backwards else world.rank
    comm = world.Split(0 if world.rank < size else MPI.UNDEFINED, key)
    wrong = _outcome(comm, function, arguments, judge, watch) if world.rank < size else None
    return world.bcast(wrong, root=0)


def _outcome(comm, function, arguments, judge, watch) -> Exception | None:
    """The exception of an answer on one communicator, or None; the same on all its ranks."""
    watched = watch(comm)
    try:
        results = watched.run_together(function, arguments(comm.rank, comm.size))
        judge(comm.size, results)
        if comm.size > 1 and not watched.used:
            return CheckError(
                "Your function made no call on the comm that it was given. Use that one, not "
                "MPI.COMM_WORLD. (Messages and collectives are seen, one-sided windows are not.)"
            )
    except TaskNotDoneError as missing:
        return missing
    except CheckError as wrong:
        return CheckError(f"On {plural(comm.size, 'rank')}: {wrong}")
    finally:
        watched.free()
        comm.Free()
    return None
