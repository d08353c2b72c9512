"""Start a set of MPI ranks, run cells on them, mend them and stop them."""

import atexit
import os
import threading
import time

import psutil
from IPython import get_ipython

from pi2zero import ownership
from pi2zero.cluster.current import current, take
from pi2zero.cluster.display import Passing, Progress
from pi2zero.cluster.engines import START_TIMEOUT, ClusterError, Engines
from pi2zero.cluster.history import Cell, History
from pi2zero.cluster.report import CellSources, Outcome, render
from pi2zero.cluster.space import too_little
from pi2zero.cluster.views import noting
from pi2zero.cluster.warden import ensure_warden
from pi2zero.cluster.watch import Watch
from pi2zero.hosts.find import find
from pi2zero.hosts.limits import cores
from pi2zero.hosts.place import Place
from pi2zero.hosts.slurm import cancel_job_in
from pi2zero.mpi import name_ranks

CROWDED = 4  # ranks a core, above which `start` says a word about it


class MPICluster:
    """n MPI ranks, each an IPython engine, that outlive any mistake in a cell. Made by `start`.

    n: the world size. view: an ipyparallel DirectView on all ranks, in their order. info: a dict for each rank.
    """

    def __init__(self, n: int, progress: Progress, former: History, place: Place):
        self.n = n
        self._sources = CellSources()
        self._history = History()  # what these ranks were told
        self._lost = former  # what ranks that are gone were told, and these were not
        self._of_former = bool(len(former))  # whether these ranks are another cluster's
        self._mended = threading.Event()  # not set while the ranks are being restarted
        self._mended.set()
        self._mending_failed: Exception | None = None
        self._sent = (
            None,
            [],
        )  # the cell that was sent without waiting, and the engines that it went to
        self.last_result = None  # ipyparallel's AsyncResult of the cell that was sent last
        self._engines: Engines | None = Engines(n, progress, place)

    def __repr__(self):
        return f"<MPICluster: {self.state}>"

    @property
    def state(self) -> str:
        """Whether a cell can be sent now: "4 ranks, ready", "4 ranks, being restarted", "stopped", or who has died."""
        if not self._engines or self._mending_failed:
            return "stopped"
        if not self._mended.is_set():
            return f"{self.n} ranks, being restarted"
        dead = self._engines.death_notes()
        if not dead:
            return f"{self.n} ranks, ready"
        return f"{self.n} ranks, {'all' if len(dead) == self.n > 1 else name_ranks(dead)} died; the next cell says why"

    @property
    def view(self):
        """An ipyparallel DirectView: `cluster.view["x"]` is a list of x on rank 0, 1, 2, ..."""
        self._wait_until_ready()
        view = self._engines.client[self._engines.ids]
        view.block = True
        return noting(view, list(range(self.n)), self._history.add_sending, lambda: self._lost)

    def __getitem__(self, rank: int):
        """An ipyparallel DirectView on one rank: `cluster[0]["x"]` is x on rank 0, `cluster[0]["x"] = 1` sets it there."""
        if not isinstance(rank, int) or not -self.n <= rank < self.n:
            raise IndexError(f"there is no rank {rank!r}; this cluster has ranks 0 to {self.n - 1}")
        self._wait_until_ready()
        rank %= self.n
        view = self._engines.client[self._engines.ids[rank]]
        return noting(view, [rank], self._history.add_sending, lambda: self._lost)

    @property
    def info(self) -> list[dict]:
        """For each rank: rank, size, pid, mark, host, cores that it may use, library."""
        self._wait_until_ready()
        return self._engines.info

    @property
    def place(self) -> Place:
        """Where the ranks are."""
        return self._engines.place

    def stop(self) -> None:
        """End the ranks and the controller, and remove their files. May be called twice."""
        engines, self._engines = self._engines, None
        if engines:
            engines.stop()  # also while they are being restarted: what is started meanwhile carries the same mark
            self._mended.wait(START_TIMEOUT)

    def runs(self) -> bool:
        """Whether it has ranks; after `stop` it has none."""
        return self._engines is not None

    @property
    def client(self):
        """The ipyparallel Client: `rc` in ipyparallel's own notebooks."""
        return self.view.client

    def ranks_of(self, view) -> list[int]:
        """The MPI ranks that an ipyparallel view reaches; none if it is another cluster's."""
        if not self.runs() or view.client is not self._engines.client:
            return []
        ids = view.targets if isinstance(view.targets, list) else [view.targets]
        return [
            rank
            for rank, engine in enumerate(self._engines.ids)
            if engine in ids or view.targets == "all"
        ]

    def activate(self) -> None:
        """Let `%%px` run on these ranks. `start` has done so; needed after another cluster's `activate`."""
        from pi2zero.cluster.magics import register

        if shell := get_ipython():
            register(shell)

    def send(self, source: str, targets: list[int]):
        """Send a cell to the ranks and return ipyparallel's AsyncResult at once. `run(..., sent=...)` waits for it, watched."""
        self._wait_until_ready()
        self._sources.add(source)
        self._sent = self._engines.execute(source, targets), self._engines.ids
        return self._sent[0]

    def run(
        self,
        source: str,
        targets: list[int] | None = None,
        timeout: float = 30.0,
        groupby: str | None = None,
        sent=None,
    ):
        """Run a cell on the ranks and show what they print, rank by rank. Raises RankError if a rank fails.

        targets: MPI ranks, default all. timeout: seconds that ranks may wait for each other before the cell is ended.
        groupby: show the output at the end, in an order of `show_grouped`; None: as it comes. sent: see `send`.
        """
        self.last_result = None
        self._wait_until_ready()
        if sent is not None and self._sent[1] is not self._engines.ids:
            raise ClusterError(
                "The ranks of that cell are gone, and what it gave is gone with them. Run it again."
            )
        self._sources.add(source)
        ranks = list(range(self.n)) if targets is None else targets
        watch = Watch(self._engines, ranks, timeout, self._sources, groupby)
        try:
            outcome = watch.run(source, sent)
        finally:
            self.last_result = watch.sent
        if not outcome.good:
            self._raise(outcome)
        self._history.add_cell(Cell(source, None if len(ranks) == self.n else ranks, timeout))

    def replay(self, stop: int | None = None) -> None:
        """Do again what the notebook did to its ranks: after a restart of the ranks, or a second `start`.

        The `%%px` cells that succeeded and the variables that were sent, in their order; what was changed in place since then (an
        array, a list) goes as it is now. stop: the number of the last one to do, if not all; this prints the numbers first.
        Definitions that a later cell replaced are left out.
        """
        self._wait_until_ready()
        self._of_former = False  # these ranks go on where the others were
        todo = (self._lost if len(self._lost) else self._history).entries
        if not todo:
            print(
                "There is nothing to replay: no %%px cell has succeeded on these ranks or the ones before."
            )
            return
        for number, entry in enumerate(todo, start=1):
            print(f"{number}: {entry}" + " (for other ranks: left out)" * (not entry.fits(self.n)))
        start, now = time.monotonic(), [entry for entry in todo[:stop] if entry.fits(self.n)]
        for number, entry in enumerate(now, start=1):
            self._again(entry, f"{number} of {len(now)}")
        print(f"Replayed {len(now)} of {len(todo)}, {time.monotonic() - start:.1f} s.")
        if stop is None:
            self._lost = History()

    @property
    def definitions(self) -> set[str]:
        """The functions and classes that `%%px` cells have defined on these ranks, or on those before them."""
        return self._lost.definitions | self._history.definitions

    def _told(self) -> History:
        """All that this notebook told its ranks. What another cluster was told counts until these have been told something."""
        if self._of_former and len(self._history):
            self._lost, self._of_former = History(), False
        return self._lost.then(self._history)

    def _again(self, entry, where: str) -> None:
        passing = Passing()
        passing.show(f"replay, {where}: {entry}")
        try:
            if isinstance(entry, Cell):
                self.run(entry.source, entry.targets, entry.timeout)
            else:
                (self.view if entry.rank is None else self[entry.rank]).push(entry.values)
        finally:
            passing.clear()

    def _raise(self, outcome: Outcome) -> None:
        """Mend what has to be mended, and tell the learner."""
        if not self._engines.controller_runs():
            self.stop()
            raise ClusterError(
                f"This cluster was ended from outside (a reset?). Start one: pi2zero.start(n={self.n})"
            )
        if outcome.restarted:
            self._lost, self._history = self._told(), History()
            self._mended.clear()
            # In the background: the learner reads the report meanwhile.
            threading.Thread(
                target=self._mend, args=[self._engines], name="pi2zero mender", daemon=True
            ).start()
        raise render(outcome, self._sources, self.n, self._lost)

    def _mend(self, engines: Engines) -> None:
        try:
            engines.replace()
        except Exception as error:
            self._mending_failed = error
            engines.stop()  # nothing is left of them, also if no other cell is run
        finally:
            self._mended.set()

    def _wait_until_ready(self) -> None:
        """Wait for ranks that are being restarted. Raises RankError if one died since the last cell."""
        self._wait_until_mended()
        if self._mending_failed and self._engines:
            error, self._mending_failed = self._mending_failed, None
            self.stop()
            raise ClusterError(
                f"The ranks could not be restarted: {error}\nStart anew: pi2zero.start(n={self.n})"
            )
        if not self._engines:
            raise ClusterError(
                f"This cluster is stopped. Start one: cluster = pi2zero.start(n={self.n})"
            )
        if notes := self._engines.death_notes():
            self._raise(Outcome(dead=notes))

    def _wait_until_mended(self) -> None:
        passing, start = Passing(), time.monotonic()
        try:
            # An event, not Thread.join: in Python 3.11 a join that is interrupted takes a live thread for ended.
            while not self._mended.wait(0.25):
                seconds = time.monotonic() - start
                passing.show(f"Waiting for {self.n} fresh ranks, {seconds:.0f} s")
                if seconds > 2 * self._engines.patience:
                    raise ClusterError(
                        f"The ranks are still being restarted after {seconds:.0f} s. cluster.stop() ends them."
                    )
        finally:
            passing.clear()


def start(n: int = 4, on=None) -> MPICluster:
    """Start n MPI ranks and let `%%px` run cells on them, watched.

    n: the world size; more than there are cores works, slower. on: where; "local" (this machine), "slurm" (a job as the site
    file says), hosts with their slots, such as ["node1:2", "node2:2"], or the path of an Open MPI hostfile; None: the nodes of
    the Slurm job that the kernel is in, or what the site file says, or this machine. A cluster that this kernel already runs is
    stopped first. Raises PlaceError if there is no such place, ClusterError with the ranks' own output if they do not arrive.
    """
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ValueError(
            f"n is the number of ranks, a whole number from 1 up; got {n!r}. Try pi2zero.start(n=4)."
        )
    request, former = find(on), History()
    if before := current():
        former = before._told()
        before.stop()
    ownership.end_marked(f"{ownership.owner_mark()}cluster-")  # of a start that was interrupted
    progress = Progress(f"Starting {n} rank{'s' * (n != 1)}")
    try:
        ensure_warden()  # it also cancels a Slurm job if this kernel is killed
        place = request.allocate(n, progress)
        try:
            cluster = take(MPICluster(n, progress, former, place))
        except BaseException:
            place.give_back()
            raise
    except (ClusterError, OSError) as error:
        if full := too_little():
            raise ClusterError(f"{full} What failed said:\n{error}") from None
        raise
    plural = "s are" if n > 1 else " is"
    crowd = ""
    if not cluster.place.slots and n > CROWDED * cores():
        crowd = f" They share {cores():g} cores: results are right, cells are slow."
    library = cluster.info[0]["library"]
    progress.done(
        f"{n} rank{plural} up{cluster.place.describe(n)} ({library}), {{seconds:.1f}} s. %%px runs a cell on all of them.{crowd}"
    )
    cluster.activate()
    return cluster


def reset() -> str:
    """End every process that the kit started from this clone on this host, remove its files, and say how many there were.

    Other notebooks' ranks are ended too; they notice at their next `%%px` cell. So is whatever else was started from
    a kernel after its first `pi2zero.start`. The kernels themselves stay, and what Open MPI keeps beside one that has spawned,
    if nothing runs in it. So do other clones' processes, and those of other Slurm jobs; the environment variable PI2ZERO_SCOPE
    sets a name in place of the clone.
    """
    busy, idle = ownership.spawn_daemons()
    own = any(one in psutil.Process().children() for one in busy)
    count = len(ownership.marked_processes()) - len(idle)
    if current():
        current().stop()
    for folder in ownership.run_dirs():
        cancel_job_in(folder)
    ownership.end_marked(spare=idle)
    ownership.remove_run_dirs()
    ownership.remove_unused_segments()
    told = (
        f"{count} processes ended, their files removed."
        if count
        else "Nothing of the kit was running."
    )
    return (
        told
        + " What this kernel had spawned is among them: to spawn again, restart it (Kernel > Restart)."
        * own
    )


@atexit.register
def _at_exit() -> None:
    if current():
        current().stop()
    if (
        os.environ.get(ownership.MARK) == ownership.owner_mark()
    ):  # what was spawned without a cluster
        ownership.end_marked(ownership.owner_mark())
