"""The object that `pi2zero.start` returns: run cells on the ranks, restart them, stop them."""

from __future__ import annotations

import contextlib
import functools
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
from pi2zero.cluster.history import Cell, History, names_on
from pi2zero.cluster.names import defined_among, explain_on_ranks, replay_advice
from pi2zero.cluster.replay import Replay
from pi2zero.cluster.report import CellSources, Outcome, make_report, visible
from pi2zero.cluster.views import recording_view
from pi2zero.hosts.place import Place
from pi2zero.log import logger
from pi2zero.mpi import name_ranks

ANSWER_TIMEOUT = 1.0  # s, for ranks that are asked which names they have


class MPICluster:
    """n MPI ranks, each an IPython engine, that outlive any mistake in a cell. Made by `start`.

    n: the world size. view: an ipyparallel DirectView on all ranks, in the order of the ranks.
    info: a dict for each rank."""

    def __init__(self, n: int, progress: StatusLine, previous: History, place: Place):
        self.n = n
        self._sources = CellSources()
        self._history = previous
        self._replay: Replay | None = None  # the one that goes on
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
        history = self._history
        record = history.add_variables if self._replay is None else lambda values, rank: None
        return recording_view(view, ranks, record, lambda: history.lost_names)

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
        self._sources.add(source, cell_number())
        self._sent_to = engines.ids
        return engines.execute(source, targets, cell_number())

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
        ranks = list(range(self.n)) if targets is None else targets
        targets = None if len(ranks) == self.n else ranks
        cell = Cell(source, targets, timeout, cell_number())
        outcome = self._watch(engines, cell, source, groupby, sent)
        if not outcome.succeeded:
            self._raise(outcome, cell)
        self._history.add_cell(cell)

    def run_aside(self, source: str, targets: list[int]) -> None:
        """Run what no replay has to do again, such as an installation."""
        cell = Cell(source, targets, 30.0, cell_number())
        outcome = self._watch(self._ready_engines(), cell, source, None)
        if not outcome.succeeded:
            self._raise(outcome, cell)

    def run_unrecorded(self, cell: Cell, source: str, groupby: str | None) -> Outcome:
        """Run what is left of a cell for a replay. Returns how it ended.

        Raises RankError if ranks are gone or the stop button ended it."""
        outcome = self._watch(self._ready_engines(), cell, source, groupby)
        if outcome.needs_restart or outcome.interrupted:
            self._raise(outcome, cell)
        return outcome

    def _watch(self, engines: Engines, cell: Cell, source: str, groupby, sent=None) -> Outcome:
        self._sources.add(source, cell.number)
        ranks = list(range(self.n)) if cell.targets is None else cell.targets
        watch = CellWatch(engines, ranks, cell.timeout, self._sources, groupby)
        try:
            return watch.run(source, sent, cell.number)
        finally:
            self.last_result = watch.sent

    def replay(self, stop: int | None = None) -> None:
        """Do again what the notebook did to its ranks, after a restart or a second `start`.

        These are the `%%px` cells that succeeded and the variables that were sent, in their order,
        a line for each. What was changed in place since then (an array, a list) is sent as it is
        now. What these ranks have been told meanwhile stays. Left out are checks, installations, a
        definition with which a cell hung, and what fails. stop: the number of the last step to do,
        if not all."""
        self._ready_engines()
        self._history.is_of_another_cluster = False  # these ranks continue that cluster's work
        if not self._history.entries:
            print(
                "There is nothing to replay: "
                "no %%px cell has succeeded on these ranks or the ones before."
            )
            return
        self._replay = Replay(self, self._history, stop)
        try:
            self._replay.run()
        finally:
            self._replay = None

    @property
    def definitions(self) -> set[str]:
        """The functions and classes that `%%px` cells have defined on these ranks or earlier
        ones."""
        return self._history.definitions

    def ranks_with(self, names: set[str]) -> dict[str, list[int]]:
        """On which ranks each of these names is defined; of busy ranks, as far as it is known."""
        found: dict[str, list[int]] = {}
        for rank in range(self.n) if self.runs() else ():
            has = self.ask(rank, defined_among, (sorted(names),), ANSWER_TIMEOUT)
            if has is None:
                has = names & names_on(self._history.told, [rank])
            for name in has:
                found.setdefault(name, []).append(rank)
        return found

    def history_for_next_cluster(self) -> History:
        """All steps of this notebook."""
        self._history.lose()
        self._history.is_of_another_cluster = bool(self._history.entries)
        return self._history

    def _raise(self, outcome: Outcome, cell: Cell | None = None) -> None:
        """Start a restart if one is needed, and raise the report. cell: what was run, if any."""
        engines = self._running_engines()
        if not engines.controller_runs():
            self.stop()
            raise ClusterError(
                "This cluster was ended from outside (a reset?). "
                f"Start one: pi2zero.start(n={self.n})"
            )
        advice = ""
        if outcome.needs_restart:
            advice = self._note_loss(outcome, cell)
            self._begin_restart(engines)  # meanwhile the learner reads the report
        explain = functools.partial(explain_on_ranks, history=self._history)
        raise visible(make_report(outcome, self._sources, self.n, advice, explain))

    def _note_loss(self, outcome: Outcome, cell: Cell | None) -> str:
        """Note in the history what has ended the ranks; how to have their variables again."""
        suspects = set()
        if cell and not outcome.interrupted:
            suspects = self._history.suspect(cell, hung=bool(outcome.seconds_waited))
        if self._replay:
            return f"\n{self._replay.fail(outcome, suspects, in_a_step=cell is not None)}"
        self._history.lose()
        return replay_advice(self._history)

    def _begin_restart(self, engines: Engines) -> None:
        """Replace the ranks, in the background."""
        self._history.lose()
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


def cell_number() -> int:
    """What stands in front of the notebook's cell that runs now: 62 for In [62]; 0 in a script."""
    shell: Any = get_ipython()
    # Not its execution_count, which IPython raises before the cell, or after it: so by version.
    return len(shell.user_ns["In"]) - 1 if shell else 0
