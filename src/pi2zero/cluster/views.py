"""ipyparallel's views as the kit hands them out: what they send is noted, and what is missing is said in one sentence."""

from ipyparallel.error import CompositeError, RemoteError

from pi2zero.cluster.history import History
from pi2zero.mpi import name_ranks


class NoSuchVariable(NameError):
    """A variable that some ranks do not have."""

    def _render_traceback_(self):
        return f"NameError: {self}".splitlines()


def noting(view, ranks: list[int], note, lost):
    """The view, which reaches these MPI ranks.

    note(values, rank) hears what it has sent (`view["x"] = 1`, `view.push(...)`), and to which rank (None: all).
    lost(): the History of ranks that are gone, whose variables these may lack.
    """
    push, pull = view.push, view.pull
    rank_of = dict(
        zip(view.targets if isinstance(view.targets, list) else [view.targets], ranks, strict=True)
    )

    def push_and_note(ns, targets=None, **options):
        result = push(ns, targets=targets, **options)
        engines = targets if isinstance(targets, list | tuple) else [targets]
        for engine in engines:  # scatter sends each rank a part of its own
            note(dict(ns), rank_of.get(engine, ranks[0] if len(ranks) == 1 else None))
        return result

    def pull_or_say(names, *args, **options):
        try:
            return pull(names, *args, **options)
        except RemoteError as error:
            raise _missing(error, rank_of, lost()) or error from None

    view.push, view.pull = push_and_note, pull_or_say
    return view


def _missing(error: RemoteError, rank_of: dict[int, int], lost: History) -> NoSuchVariable | None:
    """The sentence, if all that went wrong is a name that is not there. rank_of: from ipyparallel's id to the MPI rank."""
    if isinstance(error, CompositeError):
        found = [(name, text, info["engine_id"]) for name, text, _, info in error.elist]
    else:
        found = [(error.ename, error.evalue, error.engine_info["engine_id"])]
    names = {
        text.split("'")[1]
        for name, text, _ in found
        if name == "NameError" and text.count("'") == 2
    }
    if len(names) != 1 or any(name != "NameError" for name, *_ in found):
        return None
    without = [rank_of[engine] for *_, engine in found]
    has = "has" if len(without) == 1 else "have"
    name = names.pop()
    todo = "Define it there first, in a %%px cell."
    if name in lost.names:
        todo = "The ranks are new, and what earlier ones had is gone: cluster.replay() runs your earlier steps again."
    return NoSuchVariable(f"{name_ranks(without)} {has} no variable {name!r}. {todo}")
