"""Does this cell hang? Reads the ranks' samples (activity_sampler.py) and decides.

A cell hangs when every rank that has not finished waits for other ranks: none is left that could
come. A rank that computes, sleeps, reads, or of which nothing is known, keeps the cell alive.
Ranks that wait for ranks which are done with the cell have no hope: that is seen within seconds.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from pi2zero.cluster.activity_sampler import Sample, parse_sample
from pi2zero.cluster.blocking_calls import DATA_COLLECTIVES, FILE_COLLECTIVES
from pi2zero.cluster.report import Frame, frames_of
from pi2zero.mpi import name_ranks

STALE_S = 3.0  # a sample older than this says nothing: the rank may be in a long C call by now
ABANDONED_S = 3.0  # so long may a rank wait for ranks that are done
WAITING = ("waits", "polls")
# Ranks that are all in the same collective may be moving a lot of data: so many times the time-out.
TRANSFER_FACTOR = 4
STATES = {
    "waits": "waits for other ranks",
    "polls": "asks again and again for a message",
    "runs": "works",
    "computes": "works (one long call)",
    "rests": "sleeps, reads or waits for something that is no rank",
    "done": "is done",
}
# Parts of the names of torch's and Horovod's functions for collectives that carry data
DATA_FUNCTIONS = ("all_reduce", "allreduce", "all_to_all", "alltoall", "broadcast", "gather")
DATA_FUNCTIONS += ("scatter", "synchronize", "wait")


@dataclass
class _Seen:
    sample: Sample
    at: float  # when the kernel first saw it, on the kernel's own clock


class HangDetector:
    """What the ranks of one cell are doing. read(rank): the text of the rank's last sample."""

    def __init__(self, read: Callable[[int], str], ranks: list[int]):
        self._read, self.ranks = read, ranks
        samples = {rank: parse_sample(read(rank)) for rank in ranks}
        self._of_last_cell = {rank: sample.number for rank, sample in samples.items() if sample}
        self._seen: dict[int, _Seen] = {}
        # {rank that holds the GIL: (its place, since when)}
        self._in_gil_holding_call: dict[int, tuple[Frame | None, float]] = {}

    def update(self, pending: list[int]) -> dict[int, Sample]:
        """Read the samples; return the fresh ones of these ranks.

        A rank without one is in a long C call, is stopped, or has only begun.
        """
        now = time.monotonic()
        for rank in pending:
            sample = parse_sample(self._read(rank))
            if sample is None or sample.number == self._of_last_cell.get(rank):
                continue
            if rank not in self._seen or self._seen[rank].sample.number != sample.number:
                self._seen[rank] = _Seen(sample, now)
        return {
            rank: seen.sample
            for rank, seen in self._seen.items()
            if rank in pending and now - seen.at < STALE_S
        }

    def unknown(self, pending: list[int]) -> list[int]:
        """Ranks without a fresh sample."""
        fresh = self.update(pending)
        return [rank for rank in pending if rank not in fresh]

    def note_stacks(
        self, stacks: dict[int, list[Frame]], is_gil_holding_reduction: Callable[[Frame], bool]
    ) -> None:
        """Of ranks that hold the GIL: the stacks that a signal has brought."""
        now = time.monotonic()
        for rank, frames in stacks.items():
            place = frames[0] if frames and is_gil_holding_reduction(frames[0]) else None
            if self._in_gil_holding_call.get(rank, (None,))[0] != place:
                self._in_gil_holding_call[rank] = place, now

    def hangs(self, pending: list[int], timeout: float) -> bool:
        """Whether all of these ranks have waited for each other for `timeout` seconds."""
        samples = self.update(pending)
        if any(sample.state not in WAITING for sample in samples.values()):
            return False
        for rank in set(pending) - set(samples):
            place, since = self._in_gil_holding_call.get(rank, (None, 0.0))
            if place is None or time.monotonic() - since < TRANSFER_FACTOR * timeout:
                return False
        factor = TRANSFER_FACTOR if self._may_transfer(samples) else 1
        return all(sample.seconds >= factor * timeout for sample in samples.values())

    def is_abandoned(self, pending: list[int], others: set[int], timeout: float) -> bool:
        """Whether these ranks wait for others that are done and will not come.

        Data may still be on its way between two that wait, in a thread of a library, or to a file:
        then `hangs` decides.
        """
        samples = self.update(pending)
        if set(samples) != set(pending):
            return False
        patience = min(timeout, ABANDONED_S)
        for sample in samples.values():
            if sample.state not in WAITING or sample.seconds < patience or sample.in_background:
                return False
            if sample.method in FILE_COLLECTIVES:
                return False
            if len(pending) > 1 and not (sample.needs_all and others):
                return False
        return all(map(self._is_done, others))

    def _is_done(self, rank: int) -> bool:
        sample = parse_sample(self._read(rank))
        if sample is None:  # it has never run a cell
            return rank not in self.ranks
        fresh = rank not in self.ranks or sample.number != self._of_last_cell.get(rank)
        return sample.state == "done" and fresh

    def _may_transfer(self, samples: dict[int, Sample]) -> bool:
        """Whether all ranks of the cell are in the same collective, and it carries data."""
        places = {(sample.method.lower(), sample.stack[0][1]) for sample in samples.values()}
        methods = {sample.method for sample in samples.values()}
        carries = methods <= DATA_COLLECTIVES or all(map(_is_data_function, samples.values()))
        return len(samples) == len(self.ranks) > 1 and len(places) == 1 and carries

    def seconds_waited(self, pending: list[int]) -> float:
        """How long the last of them has waited."""
        samples = self.update(pending).values()
        return min((sample.seconds for sample in samples), default=float("inf"))

    def is_blocked_on_peers(self, rank: int) -> bool:
        """Whether it was last seen in a call that needs other ranks: no interrupt reaches it
        there."""
        return rank in self._seen and self._seen[rank].sample.state == "waits"

    def frames(self, rank: int) -> list[Frame]:
        """Where a rank was last seen in this cell."""
        return frames_of(self._seen[rank].sample.stack) if rank in self._seen else []

    def summary(self, pending: list[int], describe: Callable[[list], str]) -> str:
        """One line for each group of ranks that do the same. describe(stack): the place in
        words."""
        samples = self.update(pending)
        groups: dict[str, list[int]] = {}
        for rank in pending:
            words = "not known (in a long call that Python cannot look into, or stopped)"
            if sample := samples.get(rank):
                words = f"{STATES[sample.state]}: {describe(sample.stack)}"
            groups.setdefault(words, []).append(rank)
        return "\n".join(f"  {name_ranks(ranks)}: {words}" for words, ranks in groups.items())


def _is_data_function(sample: Sample) -> bool:
    """Whether a function of torch or Horovod that carries data is among the innermost frames."""
    return any(part in function for *_, function in sample.stack[:4] for part in DATA_FUNCTIONS)
