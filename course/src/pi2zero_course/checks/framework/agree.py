"""Run something on all ranks, and agree on how it ended: the same result for all, or the same
exception."""

from contextlib import contextmanager
from threading import Timer

from mpi4py import MPI

from pi2zero.mpi import name_ranks
from pi2zero.ranks import raise_on_all
from pi2zero_course.checks.framework.answers import CheckError, TaskNotDoneError

PATIENCE = 5  # s that the other ranks get, before one tells alone what failed on it


def agree(part, *args):
    """Call part(*args) on all ranks. Returns what it returns here, or raises the same exception on
    all of them."""

    def allgather(error):
        with _print_if_alone(error):
            return MPI.COMM_WORLD.allgather(error)

    return raise_on_all(
        lambda: part(*args), (CheckError, TaskNotDoneError), allgather, merge_errors
    )


@contextmanager
def _print_if_alone(error):
    """What failed here is told also if the others never come: they may wait for this rank in a
    call that is not watched."""
    rank = MPI.COMM_WORLD.rank
    late = Timer(
        PATIENCE,
        print,
        [f"On rank {rank}: {error}\nThe other ranks are still at work, or wait for this one."],
    )
    if isinstance(error, CheckError):
        late.start()
    try:
        yield
    finally:
        late.cancel()


def agree_on(value, what: str) -> None:
    """Raise CheckError on all ranks if they have different values."""
    if len({repr(one) for one in MPI.COMM_WORLD.allgather(value)}) > 1:
        raise CheckError(f"the ranks have different {what}. All ranks need the same.")


def merge_errors(errors) -> Exception | None:
    """One exception for all, from how each rank's part failed, by rank (None: it did not).
    TaskNotDoneError goes first."""
    groups = {}
    for rank, error in enumerate(errors):
        if isinstance(error, TaskNotDoneError):
            return error
        if error:
            groups.setdefault(str(error), []).append(rank)
    if not groups:
        return None
    if list(map(len, groups.values())) == [len(errors)]:  # all ranks say the same
        return CheckError(*groups)
    return CheckError("\n".join(f"{name_ranks(ranks)}: {text}" for text, ranks in groups.items()))


def pickling_error(result, name: str) -> CheckError | None:
    """What to say if a rank cannot send what an answer returned to the others, to be looked at;
    name: the answer's."""
    try:
        MPI.pickle.dumps(result)
    except Exception:  # whatever pickle, or the thing itself, says: a generator, an open file
        return CheckError(
            f"{name} returned {type(result).__name__!r} objects, or has them in what it returned: "
            "return values."
        )
    return None


def divergence_error(states, before="") -> Exception | None:
    """How the ranks parted, as an exception that tells the learner; None if all have returned.

    states: (kind, text) by rank; kind: "returned", "calls", "waits" or "raised". before: what went
    well before that.
    """
    verbs = {
        "returned": ("has returned", "have returned"),
        "calls": ("calls", "call"),
        "waits": ("waits", "wait"),
    }
    groups = {}
    for rank, state in enumerate(states):
        groups.setdefault(state, []).append(rank)
    if list(groups) == [("returned", "")]:
        return None
    phrases = {
        f"{name_ranks(ranks)} {verbs[kind][len(ranks) > 1]} {text}".rstrip(): kind
        for (kind, text), ranks in groups.items()
        if kind in verbs
    }
    if wrong := merge_errors([text if kind == "raised" else None for kind, text in states]):
        waiting = [phrase for phrase, kind in phrases.items() if kind != "returned"]
        if waiting and isinstance(wrong, CheckError):
            return CheckError(f"{wrong}\nMeanwhile {', '.join(waiting)}: that would never end.")
        return wrong
    story = before + ", ".join(phrases)
    ends = "A collective call ends only if every rank makes it."
    if any(kind == "waits" for kind, _ in states):
        ends = "A message ends only if its sender sends it and its receiver receives it."
    return CheckError(f"this would hang. {story[0].upper()}{story[1:]}.\n{ends}")


def require_ranks(fewest: int) -> None:
    """Raise CheckError if there are fewer ranks."""
    world = MPI.COMM_WORLD.size
    if world < fewest:
        are, start = "is 1" if world == 1 else f"are {world}", f"pi2zero.start(n={max(fewest, 4)})"
        raise CheckError(
            f"This check needs at least {fewest} ranks; there {are}. Start them: {start}."
        )
