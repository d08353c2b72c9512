"""From π to ZeRO: the plumbing that the notebooks share. The ideas are in the notebooks' own cells."""

__version__ = "0.1.0"
__all__ = ["ClusterError", "NotBuilt", "RankError", "mpi_env", "reset", "start", "wait_for"]

# From the package to where it is defined. Loaded on first use, so that ranks and the shell's commands start quickly.
_WHERE = {
    "ClusterError": "pi2zero.cluster.engines",
    "NotBuilt": "pi2zero.built",
    "RankError": "pi2zero.cluster.report",
    "mpi_env": "pi2zero.mpi",
    "reset": "pi2zero.cluster.api",
    "start": "pi2zero.cluster.api",
    "wait_for": "pi2zero.built",
}


def __getattr__(name):
    if name not in _WHERE:
        raise AttributeError(f"module 'pi2zero' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)
