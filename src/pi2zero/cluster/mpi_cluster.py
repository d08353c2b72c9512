"""The object that `pi2zero.start` returns: run cells on the ranks, restart them, stop them."""

from __future__ import annotations

import contextlib
import operator
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ipyparallel.error import IPythonError
from IPython import get_ipython

from pi2zero.cluster import magics
from pi2zero.cluster.cell_watch import CellWatch
from pi2zero.cluster.display import StatusLine, TransientText
from pi2zero.cluster.engines import START_TIMEOUT, ClusterError, Engines
from pi2zero.cluster.history import Cell, History, recording_view
from pi2zero.cluster.report import CellSources, Outcome, make_report, visible
from pi2zero.hosts.place import Place
from pi2zero.log import logger
from pi2zero.mpi import name_ranks


class MPICluster:
    """n MPI ranks, each an IPython engine, that outlive any mistake in a cell. Made by `start`.

    n: the world size. view: an ipyparallel DirectView on all ranks, in the order of the ranks.
    info: a dict for each rank."""

    def __init__(self, n: int, progress: StatusLine, previous: History, place: Place):
        self.n = n
        self._sources = CellSources()
        self._history = History()  # of these ranks
        self._previous_history = previous  # of ranks that are gone
        self._previous_is_of_another_cluster = bool(len(previous))
        self._restarted = threading.Event()  # not set while the ranks are being restarted
        self._restarted.set()
        self._restart_error: Exception | None = None
        self.last_result = None  # ipyparallel's AsyncResult of the cell that was sent last
        self._sent_to: list[int] = []  # the engines that `send` has used
        self._engines: Engines | None = Engines(n, progress, place)

    def __repr__(self):
        return f"<MPICluster: {self.state}>"

    @property
    def state(self) -> str:
        """Whether a cell can run now: "4 ranks, ready", "4 ranks, being restarted", "stopped", or
        which ranks have died."""
        if not self._engines or self._restart_error:
            return "stopped"
        if not self._restarted.is_set():
            return f"{self.n} ranks, being restarted"
        dead = self._engines.dead_ranks()
        if not dead:
            return f"{self.n} ranks, ready"
        who = "all" if len(dead) == self.n > 1 else name_ranks(dead)
        return f"{self.n} ranks, {who} died; the next cell says why"

    @property
    def view(self):
        """An ipyparallel DirectView: `cluster.view["x"]` is a list of x on rank 0, 1, 2, ..."""
        engines = self._ready_engines()
        view = engines.client[engines.ids]
        view.block = True
        return self._recording(view, list(range(self.n)))

    def __getitem__(self, rank: int):
        """An ipyparallel DirectView on one rank: `cluster[0]["x"]` is x on rank 0, and
        `cluster[0]["x"] = 1` sets it there."""
        try:
            index = range(self.n)[operator.index(rank)]
        except (TypeError, IndexError):
            raise IndexError(
                f"there is no rank {rank!r}; this cluster has ranks 0 to {self.n - 1}"
            ) from None
        engines = self._ready_engines()
        return self._recording(engines.client[engines.ids[index]], [index])

    def _recording(self, view, ranks: list[int]):
        record = self._history.add_variables
        return recording_view(view, ranks, record, lambda: self._previous_history)

    @property
    def info(self) -> list[dict]:
        """For each rank: rank, size, pid, mark, host, cores that it may use, library."""
        return self._ready_engines().info

    @property
    def place(self) -> Place:
        """Where the ranks are. Raises ClusterError after `stop`."""
        return self._running_engines().place

    @property
    def folder(self) -> Path:
        """A folder for files that all ranks see. It is removed when the ranks end.

        It is in the temporary folder, or in ~/.cache/pi2zero if there are ranks on other hosts.
        """
        return self._running_engines().shared_folder

    @property
    def client(self):
        """The ipyparallel Client: `rc` in ipyparallel's own notebooks."""
        return self.view.client

    def stop(self) -> None:
        """End the ranks and the controller, and remove their files. May be called twice."""
        engines, self._engines = self._engines, None
        if engines:
            # Also during a restart: what is started meanwhile carries the same mark.
            engines.stop()
            self._restarted.wait(START_TIMEOUT)

    def restart(self) -> None:
        """Replace all ranks by fresh ones. Their variables are gone; `replay` brings them back."""
        self._await_restart()
        self._begin_restart(self._running_engines())
        self._ready_engines()

    def runs(self) -> bool:
        """Whether it has ranks; after `stop` it has none."""
        return self._engines is not None

    def ranks_of(self, view) -> list[int]:
        """The MPI ranks that an ipyparallel view reaches; none if it is another cluster's."""
        if not self._engines or view.client is not self._engines.client:
            return []
        ids = view.targets if isinstance(view.targets, list) else [view.targets]
        every = view.targets == "all"
        return [rank for rank, engine in enumerate(self._engines.ids) if every or engine in ids]

    def activate(self) -> None:
        """Let `%%px` run on these ranks. `start` does so; needed after another cluster's
        `activate`."""
        if shell := get_ipython():
            magics.register(shell, self)

    def ask(self, rank: int, function: Callable, arguments: tuple, patience: float) -> Any:
        """What a function returns on a rank. None if the rank is busy or gone, or does not answer
        within `patience` seconds: this never waits for a cell or a restart."""
        engines = self._engines
        if not engines or not self._restarted.is_set():
            return None
        with contextlib.suppress(KeyError, IndexError, TimeoutError, IPythonError):
            if not engines.is_busy(rank):
                return engines.ask(rank, function, arguments, patience)

    def send(self, source: str, targets: list[int]):
        """Send a cell to the ranks; return ipyparallel's AsyncResult at once.

        `run(..., sent=...)` waits for it, watched.
        """
        engines = self._ready_engines()
        self._sources.add(source)
        self._sent_to = engines.ids
        return engines.execute(source, targets)

    def run(
        self,
        source: str,
        targets: list[int] | None = None,
        timeout: float = 30.0,
        groupby: str | None = None,
        sent=None,
    ) -> None:
        """Run a cell on the ranks and show what they print, rank by rank.

        targets: MPI ranks, default all. timeout: seconds that ranks may wait for each other before
        the cell is ended. groupby: show the output at the end, in an order of `show_grouped`; None:
        as it comes. sent: see `send`. Raises RankError if a rank fails, ClusterError if there are
        no ranks."""
        self.last_result = None
        engines = self._ready_engines()
        if sent is not None and self._sent_to is not engines.ids:
            raise ClusterError(
                "The ranks of that cell are gone, and its result is gone with them. Run it again."
            )
        self._sources.add(source)
        ranks = list(range(self.n)) if targets is None else targets
        watch = CellWatch(engines, ranks, timeout, self._sources, groupby)
        try:
            outcome = watch.run(source, sent)
        finally:
            self.last_result = watch.sent
        if not outcome.succeeded:
            self._raise(outcome)
        self._history.add_cell(Cell(source, None if len(ranks) == self.n else ranks, timeout))

    def replay(self, stop: int | None = None) -> None:
        """Do again what the notebook did to its ranks, after a restart or a second `start`.

        These are the `%%px` cells that succeeded and the variables that were sent, in their order.
        What was changed in place since then (an array, a list) is sent as it is now. Definitions
        that a later cell replaced are left out. stop: the number of the last step to do, if not
        all; the numbers are printed first."""
        self._ready_engines()
        self._previous_is_of_another_cluster = False  # these ranks continue that cluster's work
        previous = self._previous_history
        steps = (previous if len(previous) else self._history).entries
        if not steps:
            print(
                "There is nothing to replay: "
                "no %%px cell has succeeded on these ranks or the ones before."
            )
            return
        for number, step in enumerate(steps, start=1):
            note = "" if step.runs_on(self.n) else " (for other ranks: left out)"
            print(f"{number}: {step}{note}")
        start, possible = time.monotonic(), [step for step in steps[:stop] if step.runs_on(self.n)]
        for number, step in enumerate(possible, start=1):
            self._replay_step(step, f"{number} of {len(possible)}")
        print(f"Replayed {len(possible)} of {len(steps)}, {time.monotonic() - start:.1f} s.")
        if stop is None:
            self._previous_history = History()

    def _replay_step(self, step, where: str) -> None:
        transient = TransientText()
        transient.show(f"replay, {where}: {step}")
        try:
            if isinstance(step, Cell):
                self.run(step.source, step.targets, step.timeout)
            else:
                (self.view if step.rank is None else self[step.rank]).push(step.values)
        finally:
            transient.clear()

    @property
    def definitions(self) -> set[str]:
        """The functions and classes that `%%px` cells have defined on these ranks or earlier
        ones."""
        return self._previous_history.definitions | self._history.definitions

    def whole_history(self) -> History:
        """All steps of this notebook. Those of another cluster count until this one has its own."""
        if self._previous_is_of_another_cluster and len(self._history):
            self._previous_history, self._previous_is_of_another_cluster = History(), False
        return self._previous_history.merged_with(self._history)

    def _raise(self, outcome: Outcome) -> None:
        """Start a restart if one is needed, and raise the report."""
        engines = self._running_engines()
        if not engines.controller_runs():
            self.stop()
            raise ClusterError(
                "This cluster was ended from outside (a reset?). "
                f"Start one: pi2zero.start(n={self.n})"
            )
        if outcome.needs_restart:
            self._begin_restart(engines)  # meanwhile the learner reads the report
        raise visible(make_report(outcome, self._sources, self.n, self._previous_history))

    def _begin_restart(self, engines: Engines) -> None:
        """Replace the ranks, in the background."""
        self._previous_history, self._history = self.whole_history(), History()
        self._restarted.clear()
        threading.Thread(
            target=self._restart, args=[engines], name="pi2zero restart", daemon=True
        ).start()

    def _restart(self, engines: Engines) -> None:
        start = time.monotonic()
        try:
            logger.info("restarting all %d ranks", self.n)
            engines.replace()
            logger.info("the ranks are up again after %.1f s", time.monotonic() - start)
        except Exception as error:
            logger.exception("the ranks could not be restarted")
            self._restart_error = error
            engines.stop()  # nothing is left of them, also if no other cell is run
        finally:
            self._restarted.set()

    def _running_engines(self) -> Engines:
        if not self._engines:
            raise ClusterError(
                f"This cluster is stopped. Start one: cluster = pi2zero.start(n={self.n})"
            )
        return self._engines

    def _ready_engines(self) -> Engines:
        """The engines, after a restart that goes on. Raises RankError if a rank died since the last
        cell, ClusterError if there are none."""
        self._await_restart()
        if self._restart_error and self._engines:
            error, self._restart_error = self._restart_error, None
            self.stop()
            raise ClusterError(
                f"The ranks could not be restarted: {error}\nStart anew: pi2zero.start(n={self.n})"
            )
        engines = self._running_engines()
        if dead := engines.dead_ranks():
            self._raise(Outcome(dead=dead))
        engines.restore_files()
        return engines

    def _await_restart(self) -> None:
        transient, start = TransientText(), time.monotonic()
        try:
            # Not Thread.join: in Python 3.11 an interrupted join takes a live thread for ended.
            while not self._restarted.wait(0.25):
                seconds = time.monotonic() - start
                transient.show(f"Waiting for {self.n} fresh ranks, {seconds:.0f} s")
                if self._engines and seconds > 2 * self._engines.patience:
                    raise ClusterError(
                        f"The ranks are still being restarted after {seconds:.0f} s. "
                        "cluster.stop() ends them."
                    )
        finally:
            transient.clear()
