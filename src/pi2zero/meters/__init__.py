"""What is measured on live ranks: time and bytes sent (traffic.py), memory (memory.py), a profiled
step (traces.py).

Nothing here patches a library: a meter counts what the program passes to it, in lines that the
reader sees. `Memory` looks at all living tensors and changes none.
"""

from typing import TYPE_CHECKING

from pi2zero.meters.traces import activities
from pi2zero.meters.traffic import Timeline, Traffic, now
from pi2zero.requirements import require_package

if TYPE_CHECKING:
    from pi2zero.meters.memory import Memory

__all__ = ["Memory", "Timeline", "Traffic", "activities", "now"]


def __getattr__(name: str):
    if name != "Memory":
        raise AttributeError(f"module 'pi2zero.meters' has no attribute {name!r}")
    require_package("torch", "train")
    from pi2zero.meters.memory import Memory  # needs torch; the meters of the MPI notebooks do not

    return Memory


def __dir__() -> list[str]:
    return sorted(__all__)  # what Tab offers
