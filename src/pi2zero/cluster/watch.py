"""Watch one cell while it runs on the ranks, each rank by itself, and end it when it cannot end alone."""

import concurrent.futures
import re
import signal
import time

from ipyparallel.error import CompositeError, RemoteError

from pi2zero.cluster.hang import Standing
from pi2zero.cluster.report import Outcome
from pi2zero.cluster.show import Show
from pi2zero.hosts.concurrency import defer_sigint

SOON = 0.3  # s that a cell gets to end by itself, before anybody looks
POLL = 0.1  # s between two looks
LATE = 5.0  # s that a rank's output may take longer than its answer, on a busy machine: they come by two ways
GRACE = 1.0  # s that ranks which wait for others get to finish after one has raised
GRACE_AWAKE = 2.5  # s that any other gets: on a busy machine it may still be making its traceback
LEAVES = re.compile(r"^\s*(exit|quit)\(", re.MULTILINE)
AFTER_INTERRUPT = (
    1.0  # s that a rank which waits for others gets to react to SIGINT before it counts as stuck
)
AFTER_INTERRUPT_AWAKE = (
    5.0  # s that any other gets: on a busy machine a signal's handler has to wait for its turn
)


class Watch:
    """One run of one cell. `run()` returns its Outcome; what the ranks print is shown as it comes.

    engines: the processes (see `Engines`). ranks: the MPI ranks to run on, ascending. sources: the cells' text.
    timeout: seconds after which ranks that all wait for each other are ended, and after which a cell says where its ranks are.
    """

    def __init__(
        self, engines, ranks: list[int], timeout: float, sources, groupby: str | None = None
    ):
        self.engines, self.ranks, self.timeout, self.sources = engines, ranks, timeout, sources
        self.outcome = Outcome()
        self.standing = Standing(engines.hosts.sample, ranks)
        self.sent = None  # ipyparallel's AsyncResult
        self._gone: set[int] = set()  # ranks whose engine ended before it answered
        self.show = Show(ranks, self.metadata, sources.place, groupby)

    def run(self, source: str, sent=None) -> Outcome:
        """Run `source` on the ranks. Ends when all are done, or when it is clear that they never will be.

        sent: ipyparallel's AsyncResult, if the ranks have been given it already.
        """
        try:
            with defer_sigint():  # a cell that has been sent is watched
                self.sent = sent or self.engines.execute(source, self.ranks)
                # One result for each rank: a joint result would not come before the last rank, which may never finish.
                self.results = dict(zip(self.ranks, self.sent.split(), strict=True))
            if self.sent.wait(SOON):
                self._await_output()
            else:
                self._wait()
            if LEAVES.search(source):  # the engine ends after it has answered
                self.outcome.dead = self._why_gone()
        except KeyboardInterrupt:
            self.outcome.interrupted = True
        try:
            if self.outcome.interrupted or self.unfinished():
                self._end_the_others()
        except (
            KeyboardInterrupt
        ):  # an impatient second interrupt: end it now, whatever the stacks would have said
            self.outcome.stuck = {rank: [] for rank in self.unfinished()}
        return self._sum_up()

    def _sum_up(self) -> Outcome:
        self.outcome.deaf = bool(self.unfinished())
        self._collect_errors()
        if self._gone and not self.outcome.dead:
            self.outcome.dead = self._why_gone()
        unwell = {*self.outcome.errors, *self.outcome.dead, *self.outcome.stuck}
        self.outcome.finished = [rank for rank in self.ranks if rank not in unwell]
        self.show.rest()
        return self.outcome

    def _why_gone(self) -> dict[int, str]:
        """ipyparallel knows of an engine's end a moment before mpirun has written why."""
        deadline = time.monotonic() + 3
        while not (notes := self.engines.death_notes()) and time.monotonic() < deadline:
            time.sleep(POLL)
        return notes or dict.fromkeys(self._gone, "its process is gone")

    def _others_work(self) -> bool:
        """Whether somebody outside of this cell may come: a spawned process, or a rank with a cell that was sent before."""
        if self.engines.has_spawned():
            return True
        client = self.engines.client
        others = set(range(self.engines.n)) - set(self.ranks)
        return any(
            client._outstanding_dict.get(client._engines[self.engines.ids[rank]]) for rank in others
        )

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

    def _wait(self) -> None:
        moved = time.monotonic()
        first_error = signs = None
        while pending := self.unfinished():
            concurrent.futures.wait(
                [self.results[rank] for rank in pending], POLL, concurrent.futures.FIRST_COMPLETED
            )
            now = time.monotonic()
            if notes := self.engines.death_notes():
                self.outcome.dead = notes
                return
            if first_error is None and self._collect_errors():
                first_error = now
            before, signs = signs, (len(pending), self.show.update(self._complete()))
            moved = now if signs != before else moved
            self.standing.look(pending)
            if first_error and now - first_error > (
                GRACE if all(map(self.standing.waits, pending)) else GRACE_AWAKE
            ):
                return
            if now - moved > self.timeout:
                if blind := self.standing.unknown(pending):
                    self.standing.look_from_outside(
                        self.engines.stacks(blind), self.sources.reduces_at
                    )
                if not self._others_work() and self.standing.hangs(pending, self.timeout):
                    self.outcome.seconds_still = min(now - moved, self.standing.seconds(pending))
                    return
                self.show.standing(now - moved, self.standing.tell(pending, self.show.describe))
        self._await_output()

    def _await_output(self) -> None:
        """All have answered: what they have printed comes, too, unless a rank is gone."""
        deadline, there = time.monotonic() + LATE, set(self.engines.client.ids)
        for rank, result in self.results.items():
            result.wait_for_output(
                max(0.0, deadline - time.monotonic()) if self.engines.ids[rank] in there else 0
            )

    def _end_the_others(self) -> None:
        """Note where the unfinished ranks are, and interrupt them; some cannot be (a call of MPI that waits)."""
        pending = self.unfinished()
        if self.outcome.dead:
            return  # mpirun ends the others
        self.standing.look(pending)
        self.outcome.stuck = self.engines.stacks(pending)
        for (
            rank,
            frames,
        ) in (
            self.outcome.stuck.items()
        ):  # a signal does not reach who waits for a file: what its thread saw
            self.outcome.stuck[rank] = frames or self.standing.frames(rank)
        self.engines.signal(signal.SIGINT, pending)
        start = time.monotonic()
        while left := self.unfinished():
            patience = (
                AFTER_INTERRUPT if all(map(self.standing.waits, left)) else AFTER_INTERRUPT_AWAKE
            )
            if time.monotonic() - start > patience:
                return
            time.sleep(POLL)
            self.standing.look(left)

    def _collect_errors(self) -> bool:
        """Note what each finished rank raised; True if any did."""
        for rank, result in self.results.items():
            if rank in self.outcome.dead or not result.done():
                continue
            try:
                result.get(
                    10
                )  # done, but perhaps not yet unpacked by ipyparallel's thread: at 0 it may say "not ready"
            except RemoteError as error:
                if isinstance(
                    error, CompositeError
                ):  # ipyparallel does not split the result of a cell on one rank
                    error = RemoteError(*error.elist[0])
                interrupted_by_us = (
                    error.ename == "KeyboardInterrupt" and rank in self.outcome.stuck
                )
                if error.ename == "EngineError":
                    self._gone.add(rank)
                elif not interrupted_by_us:
                    self.outcome.errors[rank] = error
            else:
                self.outcome.stuck.pop(
                    rank, None
                )  # it came to its end while the others were interrupted
        return bool(self.outcome.errors)
