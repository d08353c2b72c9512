"""Is this cell hanging? Reads the ranks' samples (pulse.py) and decides; and says where each rank stands.

A cell hangs when every rank that has not finished waits for others: nobody is left who could come. A rank that computes, sleeps,
reads, or of which nothing is known keeps it alive.
"""

import time
from dataclasses import dataclass

from pi2zero.cluster import pulse
from pi2zero.cluster.calls import COLLECTIVES
from pi2zero.cluster.report import Frame, frames_of
from pi2zero.mpi import name_ranks

STALE = 3.0  # s without a fresh look, after which nothing is known of a rank: it may have left its wait for a long call of C
TRANSFER = 4  # times the time-out that ranks get which are all in the same collective: it may be moving a lot of data


@dataclass
class _Seen:
    sample: pulse.Sample
    at: float  # when the kernel first saw it, on the kernel's own clock


class Standing:
    """What the ranks of one cell are doing. read(rank): the text of a rank's last sample, on whatever host it is."""

    def __init__(self, read, ranks: list[int]):
        self._read, self.ranks = read, ranks
        self._before = {
            rank: sample.number for rank in ranks if (sample := pulse.parse(self._read(rank)))
        }
        self._seen: dict[int, _Seen] = {}
        self._outside: dict[
            int, tuple[object, float]
        ] = {}  # the place of a rank that holds Python's lock, and since when

    def look(self, pending: list[int]) -> dict[int, pulse.Sample]:
        """The fresh samples of these ranks. Who has none is busy in C code, stopped, or has only begun."""
        now = time.monotonic()
        for rank in pending:
            sample = pulse.parse(self._read(rank))
            if sample is None or sample.number == self._before.get(rank):
                continue
            if rank not in self._seen or self._seen[rank].sample.number != sample.number:
                self._seen[rank] = _Seen(sample, now)
        return {
            rank: seen.sample
            for rank, seen in self._seen.items()
            if rank in pending and now - seen.at < STALE
        }

    def unknown(self, pending: list[int]) -> list[int]:
        """Ranks without a fresh sample."""
        return [rank for rank in pending if rank not in self.look(pending)]

    def look_from_outside(self, stacks: dict, reduces_at) -> None:
        """Of ranks that hold Python's lock: the stacks that a signal brings, and whether it can only be a reduction there."""
        now = time.monotonic()
        for rank, frames in stacks.items():
            place = frames[0] if frames and reduces_at(frames[0]) else None
            if self._outside.get(rank, (None,))[0] != place:
                self._outside[rank] = place, now

    def hangs(self, pending: list[int], timeout: float) -> bool:
        """Whether all of these ranks have waited for others for `timeout` s, and none but they could come."""
        samples = self.look(pending)
        if any(sample.state not in ("waits", "polls") for sample in samples.values()):
            return False
        for rank in set(pending) - set(samples):
            place, since = self._outside.get(rank, (None, 0.0))
            if place is None or time.monotonic() - since < TRANSFER * timeout:
                return False
        patience = timeout * (TRANSFER if self._may_transfer(samples) else 1)
        return all(sample.seconds >= patience for sample in samples.values())

    def _may_transfer(self, samples: dict[int, pulse.Sample]) -> bool:
        """All ranks of the cell in the same collective that carries data: it can complete."""
        places = {(sample.method.lower(), sample.stack[0][1]) for sample in samples.values()}
        methods = {sample.method for sample in samples.values()}
        carries = methods <= COLLECTIVES or all(map(_in_a_library_that_carries, samples.values()))
        return len(samples) == len(self.ranks) > 1 and len(places) == 1 and carries

    def seconds(self, pending: list[int]) -> float:
        """How long the last of them has waited."""
        return min((sample.seconds for sample in self.look(pending).values()), default=float("inf"))

    def waits(self, rank: int) -> bool:
        """Whether a rank was last seen in a call that needs the others: an interrupt does not reach it."""
        return rank in self._seen and self._seen[rank].sample.state == "waits"

    def frames(self, rank: int) -> list[Frame]:
        """Where a rank was last seen in this cell."""
        return frames_of(self._seen[rank].sample.stack) if rank in self._seen else []

    def tell(self, pending: list[int], describe) -> str:
        """One line for each group of ranks that do the same. describe(frames): the place as a person would say it."""
        samples = self.look(pending)
        groups: dict[str, list[int]] = {}
        for rank in pending:
            groups.setdefault(self._words(samples.get(rank), describe), []).append(rank)
        return "\n".join(f"  {name_ranks(ranks)}: {words}" for words, ranks in groups.items())

    @staticmethod
    def _words(sample: pulse.Sample | None, describe) -> str:
        if sample is None:
            return "not known (in a long call that Python cannot look into, or stopped)"
        verb = {
            "waits": "waits for other ranks",
            "polls": "asks again and again for a message",
            "moves": "works",
            "computes": "works (one long call)",
            "rests": "sleeps, reads or waits for something that is no rank",
        }[sample.state]
        return f"{verb}: {describe(sample.stack)}"


def _in_a_library_that_carries(sample: pulse.Sample) -> bool:
    """Whether torch's or Horovod's function for a collective with data is among the innermost frames."""
    words = (
        "all_reduce",
        "allreduce",
        "all_to_all",
        "alltoall",
        "broadcast",
        "gather",
        "scatter",
        "synchronize",
    )
    return any(word in function for _, _, function in sample.stack[:4] for word in words)
