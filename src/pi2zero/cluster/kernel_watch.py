"""Says in a cell that the notebook's own kernel waits in MPI, which no stop button ends.

It happens to a parent that has spawned children and calls something else than they do, and where
`%%px` is missing. The ranks of a cluster are watched from the kernel, see cell_watch.py; here a
thread of the kernel watches its main thread.
"""

import os
import sys
import time
from pathlib import Path

import psutil

from pi2zero import ownership
from pi2zero.cluster.activity_sampler import ActivitySampler, Sample
from pi2zero.cluster.blocking_calls import MPI_WAITS, call_of, has_spawned_peers, is_wait_of_mpi
from pi2zero.cluster.display import TransientText
from pi2zero.mpi import RUN_DIR

PATIENCE = 10.0  # s in one call
LOOK = 0.3  # s, in which it is seen whether children compute
# A second of the processor: a process that waits in MPI rests as often between two looks for
# messages, see OMPI_MCA_threads_pthreads_yield_strategy in mpi.py. One that computes does not.
RESTS_PER_SECOND = 500
_watches: list["KernelWatch"] = []


def watch_kernel() -> None:
    """Watch, from now on, the cells of this process if it is a notebook's kernel."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if _watches or RUN_DIR in os.environ or not hasattr(shell, "kernel"):
        return
    _watches.append(KernelWatch(shell))
    _watches[0].start()


class KernelWatch(ActivitySampler):
    """Samples the kernel's main thread and shows a sentence, instead of writing a file."""

    def __init__(self, shell):
        super().__init__(Path(os.devnull), shell)
        self.name = "pi2zero kernel watch"
        self._note = TransientText()

    def _start_cell(self, *args):
        self._note = TransientText()
        super()._start_cell(*args)

    def _end_cell(self, *args):
        super()._end_cell(*args)
        self._note.clear()

    def _look_after_cell(self):
        self._awake.clear()
        if self._in_cell:
            self._awake.set()

    def _write(self, sample: Sample) -> None:
        sentence = self._sentence() if sample.state != "runs" and sample.seconds > PATIENCE else ""
        if not sentence:
            self._note.clear()
        elif self._in_cell:
            self._note.show(sentence, status="the kernel waits in MPI: Kernel → Restart")

    def _sentence(self) -> str:
        """What to say of the call in which the main thread is; "" if it does not wait in MPI, or a
        child still computes."""
        frame = sys._current_frames().get(self._main.ident or 0)
        call = call_of(frame) if frame else None
        if call is None or not is_wait_of_mpi(call) or call.method not in MPI_WAITS:
            return ""
        spawned = has_spawned_peers(call.owner)
        if spawned and any(map(_computes, _children())):
            return ""
        whom = "its children." if spawned else "other ranks. Is %%px missing?"
        return (
            f"This notebook's kernel waits in {call.method} for {whom} "
            "The stop button cannot help: Kernel → Restart (2 s)"
        )


def _children() -> list[psutil.Process]:
    """The processes that this kernel has spawned by MPI."""
    own = ownership.owner_mark()
    marked = [each for each in ownership.marked_processes(own) if "python" in each.name()]
    return [each for each in marked if each.environ().get(ownership.MARK) == own]


def _computes(process: psutil.Process) -> bool:
    """Whether a process works, sleeps or reads, and does not wait in MPI."""
    try:
        rests, used = process.num_ctx_switches().voluntary, sum(process.cpu_times()[:2])
        time.sleep(LOOK)
        rests = process.num_ctx_switches().voluntary - rests
        used = sum(process.cpu_times()[:2]) - used
    except psutil.Error:
        return False
    return rests < RESTS_PER_SECOND * max(used, LOOK / 10)
