"""What a notebook sees of a cell on the ranks: their output, live and in the order of the ranks, and lines that pass.

Output is text that can be compared from run to run: rank 0's stdout, then rank 1's, and so on. The lowest rank that still runs is
shown as it prints; what the others have printed meanwhile shows in a passing line each, until it is their turn. Passing lines are
for a person who watches: PI2ZERO_LIVE=0 leaves them out, for programs that store or compare what cells show.
"""

import sys
import time

from pi2zero.cluster.display import Bars, Passing
from pi2zero.cluster.grouped import print_labelled, show_grouped

EVERY = 0.5  # s between two changes of the passing lines
AHEAD = 1.0  # s that a rank's output waits for its turn before it shows in a passing line
WIDTH = 110  # characters of a passing line


class Show:
    """One cell's output. metadata(rank): ipyparallel's record of it. describe: a stack as a person would say it.

    groupby: an order of `show_grouped`, in which all is shown at the end; None: as it comes.
    """

    def __init__(self, ranks: list[int], metadata, describe, groupby: str | None):
        self.ranks, self.metadata, self.describe, self.groupby = ranks, metadata, describe, groupby
        self._at = 0  # of the ranks, the one whose stdout is shown now
        self._shown = 0  # characters of it
        self._bars, self._passing = Bars(), Passing()
        self._note, self._changed, self._start = "", 0.0, time.monotonic()

    def update(self, complete: set[int]) -> tuple:
        """Show what is new. complete: ranks of which nothing more comes. Returns what changes when a rank prints or publishes."""
        self._stream(complete)
        published = {rank: dict(self.metadata(rank)["data"]) for rank in self.ranks}
        self._bars.show(published)
        now = time.monotonic()
        if now - self._changed > EVERY and now - self._start > AHEAD:
            self._changed = now
            self._passing.show("\n".join(filter(None, [*self._ahead(), self._note])))
        self._note = ""
        lengths = [
            len(self.metadata(rank)[name])
            for rank in self.ranks
            for name in ("stdout", "stderr", "outputs")
        ]
        return lengths, str(published)

    def standing(self, seconds: float, places: str) -> None:
        """Say, in passing, where the ranks are."""
        self._note = (
            f"No rank has printed or finished for {seconds:.0f} s. They are here:\n{places}\n"
            "The cell goes on. The stop button ends it."
        )

    def rest(self) -> None:
        """Everything that has not been shown yet, in the order of the ranks."""
        self._passing.clear()
        self._stream(set(self.ranks), last=True)
        self._bars.show({rank: dict(self.metadata(rank)["data"]) for rank in self.ranks})
        shown = {"stdout": ""} if self.groupby is None else {}
        show_grouped(
            {rank: self.metadata(rank) | shown for rank in self.ranks}, self.groupby or "type"
        )

    def _stream(self, complete: set[int], last: bool = False) -> None:
        if self.groupby is not None:
            return
        while self._at < len(self.ranks):
            rank = self.ranks[self._at]
            fresh = self.metadata(rank)["stdout"][self._shown :]
            if not last:  # whole lines only, so that no line is split
                fresh = fresh[: fresh.rfind("\n") + 1]
            print_labelled(fresh, "stdout", rank, sys.stdout)
            self._shown += len(fresh)
            if not last and rank not in complete:
                return
            if not last and self._shown < len(self.metadata(rank)["stdout"]):
                return  # its last line has no end: at the end
            self._at, self._shown = self._at + 1, 0

    def _ahead(self) -> list[str]:
        """The last line of each rank whose turn has not come, a line that is not whole yet, and the last of each stderr."""
        said = {}
        for at, rank in enumerate(self.ranks):
            text = self.metadata(rank)["stdout"]
            if self.groupby is not None or at > self._at:
                said[f"stdout:{rank}"] = text
            elif at == self._at:
                said[f"stdout:{rank}"] = text[self._shown :]
        said |= {f"stderr:{rank}": self.metadata(rank)["stderr"] for rank in self.ranks}
        return [
            f"[{who}] {text.rstrip().splitlines()[-1]}"[:WIDTH]
            for who, text in said.items()
            if text.strip()
        ]
