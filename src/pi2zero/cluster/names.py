"""A name that is missing on one side, the notebook's process or the ranks, and is on the other."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

from IPython import get_ipython

from pi2zero.cluster.history import History
from pi2zero.mpi import name_ranks

# Also in what a check says of an answer
NOT_DEFINED = re.compile(r"name '(\w+)' is not defined")


def explain_on_ranks(undefined: set[str], history: History) -> str:
    """Why ranks do not have these names, and what to do; "" if it is not known."""
    lost = {
        name: (number, step)
        for number, step in enumerate(history.entries, start=1)
        if step.lost or step.left_out
        for name in step.names & undefined
    }
    left_out = [name for name in sorted(lost) if lost[name][1].left_out]
    texts = [
        f"`{name}` comes from step {lost[name][0]}, `{lost[name][1]}`, which the replay left out: "
        "run its cell again."
        for name in left_out
    ]
    if missing := sorted(lost.keys() - set(left_out)):
        texts.append(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing because the "
            f"ranks are new: what earlier ones had is gone.{replay_advice(history)}"
        )
    shell: Any = get_ipython()
    variables = shell.user_ns if shell else {}
    for name in sorted(undefined - lost.keys()):
        if name in variables and name not in shell.user_ns_hidden:
            texts.append(_is_here(name, variables[name]))
    return "\n".join(texts)


def replay_advice(history: History) -> str:
    """The sentence on a replay; "" if nothing would be done."""
    count = sum(not (step.hung or step.is_suspect) for step in history.lost)
    steps = f"{count} earlier step{'s' * (count > 1)}"
    return f"\ncluster.replay() runs your {steps} again." if count else ""


def _is_here(name: str, value) -> str:
    text = f"`{name}` is defined in this notebook, not on the ranks: "
    if callable(value) or isinstance(value, ModuleType):
        return f"{text}begin the cell that defines it with %%px."
    return f'{text}send it, cluster.view["{name}"] = {name}, or define it in a %%px cell.'


def explain_here(error: BaseException, cluster) -> str:
    """Why the notebook's own process lacks a name that the ranks have; "" if they lack it, too."""
    names = set(NOT_DEFINED.findall(str(error)))
    texts = []
    for name, ranks in sorted(cluster.ranks_with(names).items()) if names else ():
        where = "the ranks" if len(ranks) == cluster.n else name_ranks(ranks)
        texts.append(
            f"`{name}` is on {where}: begin the cell with %%px. "
            "This notebook's own process does not have it."
        )
    return "\n".join(texts)


def defined_among(names: list[str]) -> list[str]:
    """On a rank: which of these names it has."""
    shell: Any = get_ipython()
    return [name for name in names if name in shell.user_ns]
