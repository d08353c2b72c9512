"""Watch one cell while it runs on the ranks, each rank by itself, and end it when it cannot end alone."""

import signal
import sys
import time

from ipyparallel.error import RemoteError
from IPython.display import display

from pi2zero.cluster.display import Bars
from pi2zero.cluster.grouped import print_labelled
from pi2zero.cluster.report import Outcome

POLL = 0.05  # s between two looks
GRACE = 1.0  # s that the other ranks get to finish after one has raised
AFTER_INTERRUPT = 1.0  # s that a rank gets to react to SIGINT before it counts as stuck
SAMPLES = 4  # stacks taken to see whether a rank moves


class Watch:
    """One run of one cell. `run()` returns its Outcome; stdout of the lowest rank is shown as it comes.

    engines: the processes (see `Engines`). ranks: the MPI ranks to run on, ascending.
    timeout: seconds without any rank moving (no rank finishing, no stack changing) after which the cell is ended.
    """

    def __init__(self, engines, ranks: list[int], timeout: float, live: bool = True):
        self.engines, self.ranks, self.timeout, self.live = engines, ranks, timeout, live
        self.outcome = Outcome()
        self._shown = 0  # characters of the first rank's stdout that have been printed
        self._bars = Bars()

    def run(self, source: str, sent=None) -> Outcome:
        """Run `source` on the ranks. Ends when all are done, or when it is clear that they never will be.

        sent: ipyparallel's AsyncResult, if the ranks have been given it already.
        """
        # One result for each rank: a joint result would not come before the last rank, which may never finish.
        view = self.engines.client[[self.engines.ids[rank] for rank in self.ranks]]
        self.sent = sent or view.execute(source, silent=False, block=False)
        self.results = dict(zip(self.ranks, self.sent.split(), strict=True))
        try:
            self._wait()
        except KeyboardInterrupt:
            self.outcome.interrupted = True
        try:
            if self.outcome.interrupted or self.unfinished():
                self._end_the_others()
            else:
                self._wait_for_output(self.ranks)
        except KeyboardInterrupt:  # an impatient second interrupt: end it now, whatever the stacks would have said
            self.outcome.stuck = {rank: [] for rank in self.unfinished()}
        self.outcome.deaf = bool(self.unfinished())
        self._collect_errors()
        unwell = {*self.outcome.errors, *self.outcome.dead, *self.outcome.stuck}
        self.outcome.finished = [rank for rank in self.ranks if rank not in unwell]
        self._stream_first_rank(final=True)
        self._show_bars()
        return self.outcome

    def unfinished(self) -> list[int]:
        return [rank for rank, result in self.results.items() if not result.done()]

    def metadata(self, rank: int) -> dict:
        """ipyparallel's record of what the rank printed and displayed."""
        return self.sent.metadata[self.ranks.index(rank)]

    def _wait_for_output(self, ranks: list[int]) -> None:
        for rank in ranks:
            self.results[rank].wait_for_output(1)

    def _wait(self) -> None:
        moved = time.monotonic()
        first_error = None
        left = len(self.ranks)
        while pending := self.unfinished():
            time.sleep(POLL)
            now = time.monotonic()
            self._stream_first_rank()
            self._show_bars()
            if notes := self.engines.death_notes():
                self.outcome.dead = notes
                return
            if len(pending) < left:
                left, moved = len(pending), now
            if first_error is None and self._collect_errors():
                first_error = now
            if first_error and now - first_error > GRACE:
                return
            if now - moved > self.timeout:
                if self._nobody_moves(pending):
                    self.outcome.seconds_still = self.timeout
                    return
                moved = time.monotonic()
        time.sleep(POLL)
        self.outcome.dead = self.engines.death_notes()

    def _nobody_moves(self, pending: list[int]) -> bool:
        first = self.engines.stacks(pending)
        for _ in range(SAMPLES - 1):
            time.sleep(0.3)
            if self.unfinished() != pending or self.engines.stacks(pending) != first:
                return False
        return True

    def _end_the_others(self) -> None:
        """Note where the unfinished ranks are, and interrupt them; some cannot be (a call of MPI that waits)."""
        pending = self.unfinished()
        if self.outcome.dead:
            return  # mpirun ends the others
        self.outcome.stuck = self.engines.stacks(pending)
        self.engines.signal(signal.SIGINT, pending)
        deadline = time.monotonic() + AFTER_INTERRUPT
        while self.unfinished() and time.monotonic() < deadline:
            time.sleep(POLL)

    def _collect_errors(self) -> bool:
        """Note what each finished rank raised; True if any did."""
        for rank, result in self.results.items():
            if rank in self.outcome.dead or not result.done():
                continue
            try:
                result.get(10)  # done, but perhaps not yet unpacked by ipyparallel's thread: at 0 it may say "not ready"
            except RemoteError as error:
                interrupted_by_us = error.ename == "KeyboardInterrupt" and rank in self.outcome.stuck
                engine_gone = error.ename == "EngineError"  # `death_notes` says why
                if not (interrupted_by_us or engine_gone):
                    self.outcome.errors[rank] = error
            else:
                self.outcome.stuck.pop(rank, None)  # it came to its end while the others were interrupted
        return bool(self.outcome.errors)

    def _stream_first_rank(self, final: bool = False) -> None:
        if not self.live:
            return
        text = self.metadata(self.ranks[0])["stdout"]
        fresh = text[self._shown :]
        if not final:  # whole lines only, so that no line is split
            fresh = fresh[: fresh.rfind("\n") + 1]
        if not fresh:
            return
        self._shown += len(fresh)
        print_labelled(fresh, "stdout", self.ranks[0], sys.stdout)

    def _show_bars(self) -> None:
        self._bars.show({rank: dict(self.metadata(rank)["data"]) for rank in self.ranks})

    def show_outputs(self) -> None:
        """Everything else that the ranks printed and displayed, in the order of the ranks."""
        for rank in self.ranks[1:]:
            print_labelled(self.metadata(rank)["stdout"], "stdout", rank, sys.stdout)
        for rank in self.ranks:
            print_labelled(self.metadata(rank)["stderr"], "stderr", rank, sys.stderr)
        for rank in self.ranks:
            for output in self.metadata(rank)["outputs"]:
                print(f"[output:{rank}]")
                display(output["data"], metadata=output.get("metadata", {}), raw=True)
            if (reply := self.metadata(rank)["execute_result"]) is not None:
                print_labelled(reply["data"].get("text/plain", ""), "out", rank, sys.stdout)
