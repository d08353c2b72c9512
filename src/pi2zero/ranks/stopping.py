"""The first press of the stop button, seen by a training loop: it ends between two steps."""

import contextlib
import os
import sys
from pathlib import Path

from pi2zero import ownership
from pi2zero.mpi import RUN_DIR

_steps = 0  # how often this cell has asked
_answer: Path | None = None  # what this rank tells the notebook: that it asks, where it stopped


def stopping(comm=None) -> bool:
    """Whether to leave the training loop now, because the stop button was pressed.

    All ranks that train call it once in each step, and all get the same answer: they leave the loop
    after the same step, alive and with their variables. A second press ends them.

        for batch in loader:
            ...
            if ranks.stopping():
                break

    comm: mpi4py's communicator of the ranks that call it, if these are not all. It costs one small
    all-reduce. In a script that no notebook's `%%px` runs, it is False at once.
    """
    global _steps, _answer
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    if shell is None or RUN_DIR not in os.environ:
        return False
    from mpi4py import MPI

    run_dir, comm = os.environ[RUN_DIR], comm or MPI.COMM_WORLD
    if _answer is None:
        _answer = ownership.stop_answer(run_dir, MPI.COMM_WORLD.rank)
        shell.events.register("pre_run_cell", _forget)
    if not _steps:
        _answer.write_text("asks")
    _steps += 1
    flag = bytearray([_is_requested(run_dir)])
    comm.Allreduce(MPI.IN_PLACE, [flag, MPI.BYTE], MPI.BOR)
    if flag[0]:
        _answer.write_text(str(_steps))
    return bool(flag[0])


def _is_requested(run_dir: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return ownership.stop_request(run_dir).stat().st_size > 0
    return False


def _forget(*_) -> None:
    """The next cell may have no such loop."""
    global _steps
    if _steps and _answer:
        _steps = 0
        _answer.write_text("")
