"""Whether n ranks fit on this machine, before they are started; and who else has ranks here."""

from typing import NamedTuple

from pi2zero import ownership
from pi2zero.cluster.engines import ClusterError
from pi2zero.cluster.live_ranks import ranks_by_kernel
from pi2zero.hosts import limits

# What a rank needs with its nanny, just started: bytes, and processes and threads together.
MEMORY, TASKS = 70e6, 16
# What the controller and mpirun need, whatever n is
OTHER_MEMORY, OTHER_TASKS = 100e6, 60
PER_CORE = 64  # ranks that share a core; with more a start takes minutes, and a cell too


class Limit(NamedTuple):
    """What limits the ranks, and to how many. text: of a sentence."""

    ranks: int
    text: str


def limits_of_ranks(replaced: int = 0) -> list[Limit]:
    """How many ranks this machine has room for, by each of its limits."""
    cores, memory = limits.cores(), limits.free_memory()
    found = [
        Limit(int(PER_CORE * cores), f"cores: {cores:g}, and at most {PER_CORE} ranks share one"),
        Limit(
            int((memory - OTHER_MEMORY) // MEMORY) + replaced,
            f"memory: {memory / 1e9:.1f} GB are free, and a rank needs {MEMORY / 1e6:.0f} MB",
        ),
    ]
    for whose, limit, used in limits.task_limits():
        text = (
            f"processes and threads: {whose} may have {limit:,} and has {used:,}, "
            f"and a rank needs {TASKS}"
        )
        found.append(Limit((limit - used - OTHER_TASKS) // TASKS + replaced, text))
    return found


def refuse_too_many(n: int, replaced: int = 0) -> None:
    """Raise ClusterError, with the numbers, if this machine has no room for n ranks.

    replaced: ranks that end first.
    """
    found = limits_of_ranks(replaced)
    if n <= (most := max(0, min(limit.ranks for limit in found))):
        return
    ranks = f"{n} ranks do" if n > 1 else "One rank does"
    lines = [f"{ranks} not fit on this machine. Nothing was started."]
    lines += [f"  room for {max(0, limit.ranks):,} by {limit.text}" for limit in found]
    advice = f"Try pi2zero.start(n={most}), or more hosts: docs/several_hosts.md."
    if not most:
        advice = "End other programs or notebooks first; pi2zero.reset() ends the kit's own."
    raise ClusterError("\n".join([*lines, advice]))


def others_ranks() -> str:
    """A sentence on the ranks of this user's other notebooks here, with a blank in front."""
    own = ownership.owner_mark()
    others = [total for kernel, total in ranks_by_kernel().items() if kernel != own]
    if not others:
        return ""
    ranks, memory = (sum(each) for each in zip(*others, strict=True))
    are = "1 rank" if ranks == 1 else f"{ranks} ranks"
    return (
        f" Other notebooks of yours hold {are}, {memory / 1e9:.1f} GB: "
        "shut down those that you do not need, or end all with pi2zero.reset()."
    )
