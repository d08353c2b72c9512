"""What a notebook shows of a cell on the ranks: their output, live and in the order of the ranks.

The output can be compared from run to run: rank 0's stdout, then rank 1's, and so on. The lowest
rank that still runs is shown as it prints. What the others have printed meanwhile appears in one
transient line for each, until it is their turn.
"""

import itertools
import sys
import time
from collections.abc import Callable

from IPython.display import display

from pi2zero.cluster.display import RankBars, TransientText

UPDATE_PERIOD = 0.5  # s between two changes of the transient lines
FIRST_UPDATE = 1.0  # s after the start of the cell until the first of them
LINE_WIDTH = 110  # characters of a transient line


class CellOutput:
    """One cell's output.

    metadata(rank): ipyparallel's record of what the rank printed and displayed. groupby: an order
    of `show_grouped`, in which everything is shown at the end; None: as it comes."""

    def __init__(self, ranks: list[int], metadata: Callable[[int], dict], groupby: str | None):
        self.ranks, self.metadata, self.groupby = ranks, metadata, groupby
        self._current = 0  # index in `ranks` of the rank whose stdout is shown now
        self._shown = 0  # characters of its stdout that have been shown
        self._bars, self._transient = RankBars(), TransientText()
        self._status, self._updated, self._start = "", 0.0, time.monotonic()

    def update(self, complete: set[int]) -> tuple:
        """Show what is new. complete: ranks of which nothing more comes.

        Returns a value that changes whenever a rank prints or publishes.
        """
        self._stream(complete)
        published = {rank: dict(self.metadata(rank)["data"]) for rank in self.ranks}
        self._bars.show(published)
        now = time.monotonic()
        if now - self._updated > UPDATE_PERIOD and now - self._start > FIRST_UPDATE:
            self._updated = now
            self._transient.show("\n".join(filter(None, [*self._last_lines(), self._status])))
        self._status = ""
        streams = "stdout", "stderr", "outputs"
        lengths = [len(self.metadata(rank)[name]) for rank in self.ranks for name in streams]
        return lengths, str(published)

    def show_status(self, seconds: float, places: str) -> None:
        """Say in a transient text where the ranks are."""
        self._status = (
            f"No rank has printed or finished for {seconds:.0f} s. They are here:\n{places}\n"
            "The cell goes on. The stop button ends it."
        )

    def flush(self) -> None:
        """Show everything that has not been shown yet, in the order of the ranks."""
        self._transient.clear()
        self._stream(set(self.ranks), last=True)
        self._bars.show({rank: dict(self.metadata(rank)["data"]) for rank in self.ranks})
        streamed = {"stdout": ""} if self.groupby is None else {}
        records = {rank: self.metadata(rank) | streamed for rank in self.ranks}
        show_grouped(records, self.groupby or "type")

    def _stream(self, complete: set[int], last: bool = False) -> None:
        while self.groupby is None and self._current < len(self.ranks):
            rank = self.ranks[self._current]
            stdout = self.metadata(rank)["stdout"]
            fresh = stdout[self._shown :]
            if not last:  # whole lines only, so that no line is split
                fresh = fresh[: fresh.rfind("\n") + 1]
            print_labelled(fresh, "stdout", rank, sys.stdout)
            self._shown += len(fresh)
            if not last and (rank not in complete or self._shown < len(stdout)):
                return
            self._current, self._shown = self._current + 1, 0

    def _last_lines(self) -> list[str]:
        """The last line of each stdout that is not shown yet, and of each stderr."""
        texts = {}
        for index, rank in enumerate(self.ranks):
            stdout = self.metadata(rank)["stdout"]
            if self.groupby is not None or index > self._current:
                texts[f"stdout:{rank}"] = stdout
            elif index == self._current:
                texts[f"stdout:{rank}"] = stdout[self._shown :]
        texts |= {f"stderr:{rank}": self.metadata(rank)["stderr"] for rank in self.ranks}
        return [
            f"[{label}] {text.rstrip().splitlines()[-1]}"[:LINE_WIDTH]
            for label, text in texts.items()
            if text.strip()
        ]


def show_grouped(records: dict[int, dict], groupby: str) -> None:
    """Show what ranks printed and displayed. records: {rank: ipyparallel's record of it}.

    groupby: "type": all stdout, all stderr, all that was displayed; "engine": everything of a rank
    together; "order": as type, but the first display of each rank, then the second, and so on.
    """
    if groupby == "engine":
        for rank, record in records.items():
            show_grouped({rank: record}, "type")
        return
    for name, file in {"stdout": sys.stdout, "stderr": sys.stderr}.items():
        for rank, record in records.items():
            print_labelled(record[name], name, rank, file)
        file.flush()  # a notebook's stdout and stderr are separate: this keeps their order
    displays = [
        [(rank, output) for output in record["outputs"]] for rank, record in records.items()
    ]
    turns = itertools.zip_longest(*displays) if groupby == "order" else displays
    for rank, output in filter(None, itertools.chain.from_iterable(turns)):
        metadata = output.get("metadata", {})
        if not metadata.get("pi2zero", {}).get("unlabelled"):
            print(f"[output:{rank}]")
        display(output["data"], metadata=metadata, raw=True)
    for rank, record in records.items():
        if (reply := record["execute_result"]) is not None:
            print_labelled(reply["data"].get("text/plain", ""), "out", rank, sys.stdout)


def print_labelled(text: str, stream: str, rank: int, file) -> None:
    """Print each line with the rank in front, as ipyparallel writes it while it streams."""
    if text:
        print("\n".join(f"[{stream}:{rank}] {line}" for line in text.splitlines()), file=file)
