"""From π to ZeRO: the plumbing that the notebooks share. The ideas are in their own cells."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from pi2zero.requirements import require_linux

__version__ = "0.1.0"
__all__ = ["ClusterError", "NotBuiltError", "RankError", "mpi_env", "reset", "start", "wait_for"]

if TYPE_CHECKING:
    from pi2zero.cluster.api import reset, start
    from pi2zero.cluster.engines import ClusterError
    from pi2zero.cluster.report import RankError
    from pi2zero.mpi import mpi_env
    from pi2zero.native_build import NotBuiltError, wait_for

# Where each name is defined. It is imported at its first use, so that ranks start quickly.
_MODULES = {
    "ClusterError": "pi2zero.cluster.engines",
    "NotBuiltError": "pi2zero.native_build",
    "RankError": "pi2zero.cluster.report",
    "mpi_env": "pi2zero.mpi",
    "reset": "pi2zero.cluster.api",
    "start": "pi2zero.cluster.api",
    "wait_for": "pi2zero.native_build",
}


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module 'pi2zero' has no attribute {name!r}")
    if _MODULES[name].startswith("pi2zero.cluster"):
        require_linux()  # before modules that other systems cannot import
    if name in ("mpi_env", "start") and "ipykernel" in sys.modules and sys.platform == "linux":
        import_module("pi2zero.cluster.kernel_watch").watch_kernel()
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)  # what Tab offers


def load_ipython_extension(shell):
    """`%load_ext pi2zero`: from now on `%%px` says what to do until `start` gives it ranks.

    Raises UnsupportedSystemError on a system that is not Linux.
    """
    require_linux()
    import_module("pi2zero.px_without_ranks").register(shell)
