"""ipyparallel's views on the ranks, which note what they send for a replay."""

from collections.abc import Callable
from typing import Any

from ipyparallel.error import CompositeError, RemoteError

from pi2zero.mpi import name_ranks


class MissingVariableError(NameError):
    """A variable that some ranks do not have."""

    def _render_traceback_(self):
        return f"NameError: {self}".splitlines()


def recording_view(
    view,
    ranks: list[int],
    record: Callable[[dict, int | None], None],
    lost_names: Callable[[], set[str]],
):
    """An ipyparallel view on these MPI ranks that records what it pushes.

    record(values, rank) is called after `view["x"] = 1` and `view.push(...)`; rank None: all.
    lost_names(): what ranks that are gone had. A variable that the ranks lack is one sentence.
    """
    push, pull = view.push, view.pull
    ids = view.targets if isinstance(view.targets, list) else [view.targets]
    rank_of = dict(zip(ids, ranks, strict=True))

    def push_and_record(ns, targets=None, **options):
        result = push(ns, targets=targets, **options)
        for engine in targets if isinstance(targets, list | tuple) else [targets]:
            # scatter sends each rank a part of its own
            record(dict(ns), rank_of.get(engine, ranks[0] if len(ranks) == 1 else None))
        return result

    def pull_or_explain(names, *args, **options):
        try:
            return pull(names, *args, **options)
        except RemoteError as error:
            raise _missing_variable(error, rank_of, lost_names()) or error from None

    view.push, view.pull = push_and_record, pull_or_explain
    return view


def _missing_variable(
    error: RemoteError, rank_of: dict[int, int], lost_names: set[str]
) -> MissingVariableError | None:
    """The sentence, if all that failed is a name that is not defined. rank_of: {engine id:
    rank}."""
    if isinstance(error, CompositeError):
        failures = [(name, text, info["engine_id"]) for name, text, _, info in error.elist]
    else:
        info: Any = error.engine_info
        failures = [(error.ename, error.evalue or "", info["engine_id"])]
    quoted = [text.split("'") for name, text, _ in failures if name == "NameError"]
    names = {words[1] for words in quoted if len(words) == 3}
    if len(names) != 1 or len(quoted) != len(failures):
        return None
    ranks = [rank_of[engine] for *_, engine in failures]
    (name,) = names
    advice = "Define it there first, in a %%px cell."
    if name in lost_names:
        advice = (
            "The ranks are new, and what earlier ones had is gone: "
            "cluster.replay() runs your earlier steps again."
        )
    have = "has" if len(ranks) == 1 else "have"
    return MissingVariableError(f"{name_ranks(ranks)} {have} no variable {name!r}. {advice}")
