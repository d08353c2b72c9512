"""MPI's files, whose collective calls are agreed upon as a communicator's are."""

from mpi4py import MPI

_COLLECTIVE = [
    name for name in vars(MPI.File) if name.endswith(("_all", "_ordered", "_begin", "_end"))
]
_COLLECTIVE += ["Set_size", "Set_view", "Preallocate", "Sync", "Close"]


class WatchedFile(MPI.File):
    """An open file; all ranks of `comm`, a WatchedComm, agree on its calls before they make
    them."""

    def __new__(cls, file, comm):
        return super().__new__(cls, file)

    def __init__(self, file, comm):
        self._comm = comm


def _watched(name):
    real = getattr(MPI.File, name)

    def call(self, *args, **options):
        self._comm.agree_on_call(name)
        return real(self, *args, **options)

    return call


for _name in _COLLECTIVE:
    setattr(WatchedFile, _name, _watched(_name))
