"""Watch one cell while it runs on the ranks, and end it when it cannot end by itself."""

import concurrent.futures
import contextlib
import signal
import time
from typing import Any

from ipyparallel.error import CompositeError, RemoteError

from pi2zero.cluster.activity_lanes import ActivityLanes
from pi2zero.cluster.cell_output import CellOutput
from pi2zero.cluster.engines import Engines
from pi2zero.cluster.hang_detector import ABANDONED_S, HangDetector
from pi2zero.cluster.report import CellSources, Frame, Outcome
from pi2zero.cluster.soft_stop import SoftStop
from pi2zero.hosts.concurrency import defer_sigint
from pi2zero.log import logger
from pi2zero.mpi import name_ranks

# All in seconds. A busy machine delays ranks: those that do not wait for others get more time.
QUICK_CELL = 0.3  # a cell that ends within it is not watched
POLL = 0.1
OUTPUT_DELAY = 5.0  # a rank's output and its answer come by two ways: so much may lie between them
GRACE_BLOCKED, GRACE = 1.0, 2.5  # for the other ranks to finish, after one has raised
INTERRUPT_BLOCKED, INTERRUPT = 1.0, 5.0  # for a rank to react to SIGINT, before it counts as stuck


class CellWatch:
    """One run of one cell. `run()` returns its Outcome; what the ranks print is shown as it comes.

    ranks: the MPI ranks to run on, ascending. timeout: seconds after which ranks that all wait for
    each other are ended, and after which a cell says where its ranks are.
    """

    def __init__(
        self,
        engines: Engines,
        ranks: list[int],
        timeout: float,
        sources: CellSources,
        groupby: str | None = None,
    ):
        self.engines, self.ranks, self.timeout, self.sources = engines, ranks, timeout, sources
        self.outcome = Outcome()
        self.hang_detector = HangDetector(engines.hosts.sample, ranks)
        self.sent: Any = None  # ipyparallel's AsyncResult
        self._gone: set[int] = set()  # ranks whose engine ended before it answered
        self.lanes = ActivityLanes(ranks, sources.describe_stack)
        self.output = CellOutput(ranks, self.metadata, groupby, self.lanes)

    def run(self, source: str, sent=None, number: int = 0) -> Outcome:
        """Run `source` on the ranks, until all are done or it is clear that they never will be.

        sent: ipyparallel's AsyncResult, if the cell has been sent to the ranks already. number: 62
        for In [62].
        """
        self._start = time.monotonic()
        try:
            with defer_sigint():  # a cell that has been sent is watched
                self.sent = sent or self.engines.execute(source, self.ranks, number)
                # One result for each rank: a joint one would not come before the last rank is done.
                self.results = dict(zip(self.ranks, self.sent.split(), strict=True))
            if self.sent.wait(QUICK_CELL):
                self._await_output()
            else:
                self._wait()
        except KeyboardInterrupt:
            self.outcome.interrupted = True
            with contextlib.suppress(KeyboardInterrupt):  # the second press ends the ranks
                self._stop_softly()
        try:
            if self.unfinished():
                self._interrupt_unfinished()
        except KeyboardInterrupt:  # a second interrupt: end it now, without the stacks
            self.outcome.stuck = {rank: [] for rank in self.unfinished()}
        self._complete_outcome()
        self._log(time.monotonic() - self._start)
        return self.outcome

    def _stop_softly(self) -> None:
        """Let ranks in a loop that asks `ranks.stopping()` leave it, and end the cell."""
        soft_stop = SoftStop(self.engines, self.unfinished())
        if soft_stop.is_possible():
            with soft_stop:
                self._wait(soft_stop)
            self.outcome.stopped_at = soft_stop.step()

    def _complete_outcome(self) -> None:
        self.outcome.uninterruptible = bool(self.unfinished())
        self._collect_errors()
        if self._gone and not self.outcome.dead:
            self.outcome.dead = self._reasons_of_death()
        failed = {*self.outcome.errors, *self.outcome.dead, *self.outcome.stuck}
        self.outcome.finished = [rank for rank in self.ranks if rank not in failed]
        self.lanes.end(time.monotonic() - self._start, self.outcome.dead)
        self.output.flush()

    def _log(self, seconds: float) -> None:
        """Note how the cell ended; neither its text nor what was raised, which may hold data."""
        outcome, notes = self.outcome, []
        if outcome.errors:
            kinds = sorted({str(error.ename) for error in outcome.errors.values()})
            notes.append(f"{name_ranks(outcome.errors)} raised {', '.join(kinds)}")
        notes += [f"rank {rank} died: {why}" for rank, why in outcome.dead.items()]
        if outcome.stuck:
            waited = f" after {outcome.seconds_waited:.1f} s of waiting" * bool(
                outcome.seconds_waited
            )
            notes.append(f"{name_ranks(outcome.stuck)} had not finished{waited}")
        notes += ["interrupted"] * outcome.interrupted + [
            "uninterruptible"
        ] * outcome.uninterruptible
        ranks = name_ranks(self.ranks)
        logger.info("cell on %s: %.1f s, %s", ranks, seconds, "; ".join(notes) or "succeeded")

    def _reasons_of_death(self) -> dict[int, str]:
        """ipyparallel knows of an engine's end a moment before mpirun has written why."""
        deadline = time.monotonic() + 3
        while not (dead := self.engines.dead_ranks()) and time.monotonic() < deadline:
            time.sleep(POLL)
        return dead or dict.fromkeys(self._gone, "its process is gone")

    def _others_work(self, pending: list[int]) -> bool:
        """Whether another process may come: a spawned one, or a rank with a cell that was sent
        before or after this one."""
        return self.engines.has_spawned() or any(map(self.engines.is_busy, self._others(pending)))

    def _others(self, pending: list[int]) -> set[int]:
        return set(range(self.engines.n)) - set(pending)

    def unfinished(self) -> list[int]:
        """Ranks that have not answered yet."""
        return [rank for rank, result in self.results.items() if not result.done()]

    def _complete(self) -> set[int]:
        """Ranks that are done and whose output has arrived."""
        return {
            rank
            for rank, result in self.results.items()
            if result.done() and result.wait_for_output(0)
        }

    def metadata(self, rank: int) -> dict:
        """ipyparallel's record of what the rank printed and displayed."""
        return self.sent.metadata[self.ranks.index(rank)]

    def _patience(self, ranks: list[int], blocked: float, other: float) -> float:
        return blocked if all(map(self.hang_detector.is_blocked_on_peers, ranks)) else other

    def _wait(self, soft_stop: SoftStop | None = None) -> None:
        last_sign_of_life = time.monotonic()
        first_error = signs = None
        while pending := self.unfinished():
            results = [self.results[rank] for rank in pending]
            concurrent.futures.wait(results, POLL, concurrent.futures.FIRST_COMPLETED)
            now = time.monotonic()
            if dead := self.engines.dead_ranks():
                self.outcome.dead = dead
                return
            if soft_stop and soft_stop.is_overdue():
                return
            if first_error is None and self._collect_errors():
                first_error = now
            previous, signs = signs, (len(pending), self.output.update(self._complete()))
            if signs != previous:
                last_sign_of_life = now
            self.lanes.note(now - self._start, self.hang_detector.update(pending), pending)
            if first_error and now - first_error > self._patience(pending, GRACE_BLOCKED, GRACE):
                return
            quiet = now - last_sign_of_life
            if quiet > min(self.timeout, ABANDONED_S) and self._is_abandoned(pending, quiet):
                return
            if quiet > self.timeout and self._hangs(pending, quiet):
                return
        self._await_output()

    def _is_abandoned(self, pending: list[int], quiet: float) -> bool:
        """Whether what has not finished waits for ranks that are done with the cell."""
        others = self._others(pending)
        if not self.hang_detector.is_abandoned(pending, others, self.timeout):
            return False
        if self._others_work(pending):
            return False
        self.outcome.seconds_waited = min(quiet, self.hang_detector.seconds_waited(pending))
        self.outcome.abandoned = True
        return True

    def _hangs(self, pending: list[int], quiet: float) -> bool:
        """Whether the cell hangs; if not, show where the ranks are. quiet: s without a sign of
        life."""
        detector = self.hang_detector
        if unknown := detector.unknown(pending):
            stacks = self.engines.stacks(unknown)
            detector.note_stacks(stacks, self.sources.is_gil_holding_reduction)
        if not self._others_work(pending) and detector.hangs(pending, self.timeout):
            self.outcome.seconds_waited = min(quiet, detector.seconds_waited(pending))
            return True
        self.output.show_status(quiet, detector.summary(pending, self.sources.describe_stack))
        return False

    def _await_output(self) -> None:
        """All have answered: wait for what they have printed, unless a rank is gone."""
        deadline, alive = time.monotonic() + OUTPUT_DELAY, set(self.engines.client.ids)
        for rank, result in self.results.items():
            left = max(0.0, deadline - time.monotonic())
            result.wait_for_output(left if self.engines.ids[rank] in alive else 0)

    def _interrupt_unfinished(self) -> None:
        """Note where the unfinished ranks are, and interrupt them.

        A rank that waits in a call of MPI cannot be interrupted.
        """
        pending = self.unfinished()
        if self.outcome.dead:
            return  # mpirun ends the others
        self.hang_detector.update(pending)
        self.outcome.stuck = {
            rank: self._with_line_of_a_cell(rank, frames)
            for rank, frames in self.engines.stacks(pending).items()
        }
        self.engines.signal(signal.SIGINT, pending)
        start = time.monotonic()
        while left := self.unfinished():
            if time.monotonic() - start > self._patience(left, INTERRUPT_BLOCKED, INTERRUPT):
                return
            time.sleep(POLL)
            self.hang_detector.update(left)

    def _with_line_of_a_cell(self, rank: int, frames: list[Frame]) -> list[Frame]:
        """A stack by a signal has the innermost 100 frames, and none while the rank waits for a
        file; the last sample has all."""
        is_of_cell = self.sources.is_of_cell
        if any(map(is_of_cell, frames)):
            return frames
        sampled = self.hang_detector.frames(rank)
        return [*frames, *filter(is_of_cell, sampled)] if frames else sampled

    def _collect_errors(self) -> bool:
        """Note what each finished rank raised; True if any did."""
        for rank, result in self.results.items():
            if rank in self.outcome.dead or not result.done():
                continue
            try:
                # It is done, but ipyparallel's thread may still be unpacking it.
                result.get(10)
            except RemoteError as error:
                # ipyparallel does not split the result of a cell on one rank.
                if isinstance(error, CompositeError):
                    error = RemoteError(*error.elist[0])
                by_our_interrupt = error.ename == "KeyboardInterrupt" and rank in self.outcome.stuck
                if error.ename == "EngineError":
                    self._gone.add(rank)
                elif not by_our_interrupt:
                    self.outcome.errors[rank] = error
            else:
                self.outcome.stuck.pop(rank, None)  # it ended while the others were interrupted
        return bool(self.outcome.errors)
