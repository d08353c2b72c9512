"""`pi2zero.start` and `pi2zero.reset`."""

import atexit
import contextlib
import operator
import os
import shutil
import tempfile
from pathlib import Path

import psutil
from IPython import get_ipython

from pi2zero import log, ownership, px_without_ranks
from pi2zero.cluster.capacity import others_ranks, refuse_too_many
from pi2zero.cluster.display import StatusLine
from pi2zero.cluster.engines import ClusterError, refuse_missing_folder
from pi2zero.cluster.history import History
from pi2zero.cluster.magics import cluster_of
from pi2zero.cluster.mpi_cluster import MPICluster
from pi2zero.cluster.watchdog import ensure_watchdog
from pi2zero.hosts.concurrency import defer_sigint
from pi2zero.hosts.find import find
from pi2zero.hosts.limits import cores
from pi2zero.hosts.place import PlaceRequest
from pi2zero.hosts.slurm import cancel_job_in

CROWDED = 4  # ranks per core, above which `start` says so
# Bytes: of a cluster's own files; of shared memory, without which Open MPI does not start
FILES_REQUIRED, SEGMENT_REQUIRED = 1e6, 17e6
_running: list[MPICluster] = []  # what has to be stopped when the process ends


class StartInterrupted(KeyboardInterrupt):
    """The stop button was pressed while ranks were started."""

    def _render_traceback_(self):
        return f"StartInterrupted: {self}".splitlines()


def start(n: int = 4, on=None) -> MPICluster:
    """Start n MPI ranks and let `%%px` run cells on them, watched.

    n: the world size; more than there are cores works, slower. on: where; "local" (this machine),
    "slurm" (a job as the site file says), hosts with their slots, such as ["node1:2", "node2:2"],
    or the path of an Open MPI hostfile; None: the nodes of the Slurm job that the kernel is in, or
    what the site file says, or this machine. A cluster that this kernel already runs is stopped
    first. Raises PlaceError if there is no such place; ClusterError if this machine has no room for
    n ranks, or with the ranks' own output if they do not arrive; StartInterrupted at the stop
    button."""
    n = _number_of_ranks(n)
    px_without_ranks.register_failed_start(get_ipython())  # until they are here
    refuse_missing_folder()
    progress = StatusLine(f"Starting {n} rank{'s' * (n != 1)}")
    try:
        return _start(n, find(on), progress)
    except KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt), defer_sigint():  # however often it is pressed
            _stop_running()
        progress.done("")
        raise StartInterrupted(
            f"The start of {n} ranks was stopped, and nothing of it is left. "
            "Run the cell again to start them."
        ) from None


def _start(n: int, request: PlaceRequest, progress: StatusLine) -> MPICluster:
    previous = cluster_of(get_ipython())
    if request.is_local():
        refuse_too_many(n, replaced=previous.n if previous and previous.runs() else 0)
    _stop_running()
    history = previous.history_for_next_cluster() if previous else History()
    ownership.end_marked(f"{ownership.owner_mark()}cluster-")  # of a start that was interrupted
    others = others_ranks()
    try:
        ensure_watchdog()  # it also cancels a Slurm job if this kernel is killed
        place = request.allocate(n, progress)
        try:
            cluster = MPICluster(n, progress, history, place)
        except BaseException:
            place.give_back()
            raise
    except (ClusterError, OSError) as error:
        if full := full_disk_message():
            raise ClusterError(f"{full} What failed said:\n{error}") from None
        raise
    _running.append(cluster)
    are, where, library = "s are" if n > 1 else " is", cluster.place, cluster.info[0]["library"]
    crowd = ""
    if not where.slots and n > CROWDED * cores():
        crowd = f" They share {cores():g} cores: results are right, cells are slow."
    progress.done(
        f"{n} rank{are} up{where.describe(n)} ({library}), {{seconds:.1f}} s. "
        f"%%px runs a cell on all of them.{crowd}{others}"
    )
    cluster.activate()
    return cluster


def _number_of_ranks(n) -> int:
    """n as an int, also if it is NumPy's. Raises ValueError."""
    try:
        number = 0 if isinstance(n, bool) else operator.index(n)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(
            f"n is the number of ranks, a whole number from 1 up; got {n!r}. "
            "Try pi2zero.start(n=4)."
        )
    return number


def full_disk_message() -> str:
    """A sentence on the folder of this machine that is too full to start ranks; "" if none is."""
    temporary = (
        "Free some space there, "
        "or name a folder on another disk in TMPDIR before the kernel starts."
    )
    shared = (
        f"Remove what nobody uses (ls -l {ownership.SHM_DIR}); "
        "a container has more with --shm-size=1g."
    )
    folders = {os.environ.get("TMPDIR") or "/", tempfile.gettempdir()} - {"/"}
    places = [(Path(folder), FILES_REQUIRED, temporary) for folder in folders]
    for folder, required, advice in [*places, (ownership.SHM_DIR, SEGMENT_REQUIRED, shared)]:
        if folder.exists() and (free := shutil.disk_usage(folder).free) < required:
            return (
                f"{folder} is full: {free / 1e6:.1f} MB are free there, "
                f"and ranks need {required / 1e6:.0f}. {advice}"
            )
    return ""


def reset() -> str:
    """End every process that the kit started from this clone on this host; say how many there were.

    Their files are removed. Other notebooks' ranks are ended too; they notice at their next `%%px`
    cell. So is what else was started from a kernel after its first `pi2zero.start`. The kernels
    themselves stay, and the helper of Open MPI in one that has spawned, if nothing runs in it. So
    do other clones' processes, and those of other Slurm jobs; the environment variable
    PI2ZERO_SCOPE sets a name instead of the clone."""
    busy, idle = ownership.spawn_daemons()
    own = any(process in psutil.Process().children() for process in busy)
    count = len(ownership.marked_processes()) - len(idle)
    _stop_running()
    for folder in ownership.run_dirs():
        cancel_job_in(folder)
        log.keep(folder)
    ownership.end_marked(spare=idle)
    ownership.remove_run_dirs()
    ownership.remove_unused_segments()
    if not count:
        return "Nothing of the kit was running."
    told = f"{count} processes ended, their files removed."
    if own:
        told += (
            " What this kernel had spawned is among them: "
            "to spawn again, restart it (Kernel > Restart)."
        )
    return told


def _stop_running() -> None:
    while _running:
        _running.pop().stop()


@atexit.register
def _at_exit() -> None:
    _stop_running()
    if (
        os.environ.get(ownership.MARK) == ownership.owner_mark()
    ):  # what was spawned without a cluster
        ownership.end_marked(ownership.owner_mark())
