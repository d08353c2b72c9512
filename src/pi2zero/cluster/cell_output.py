"""What a notebook shows of a cell on the ranks: their output, live and in the order of the ranks.

The output can be compared from run to run: rank 0's stdout, then rank 1's, and so on, then stderr,
then pictures and tables. The lowest rank that still runs is shown as it prints. What the others
print and display meanwhile is shown in the same order in a live area, where a person watches; the
area is gone at the end.
"""

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from IPython.display import clear_output, display

from pi2zero.cluster.activity_lanes import ActivityLanes
from pi2zero.cluster.display import EMPTY, LIVE, LiveDisplay, RankBars, is_px_cell, is_watched

UPDATE_PERIOD = 0.5  # s between two changes of the live area
CHARS_PER_SECOND = 250_000  # Jupyter's server lets 1 MB/s pass
FIRST_UPDATE = 1.0  # s after the start of the cell until there is a live area
LANES_AFTER = 2.0  # s after the start of the cell until it says what each rank does
CHUNK = 50  # lines of text that are sent again when one of them changes
EQUAL = "equal"  # an order of the output, next to ipyparallel's own


class CellOutput:
    """One cell's output.

    metadata(rank): ipyparallel's record of what the rank printed and displayed. groupby: an order
    of `show_grouped`, in which everything is shown at the end; None: as it comes. lanes: what each
    rank does."""

    def __init__(
        self,
        ranks: list[int],
        metadata: Callable[[int], dict],
        groupby: str | None,
        lanes: ActivityLanes,
    ):
        self.ranks, self.metadata, self.groupby, self.lanes = ranks, metadata, groupby, lanes
        self._current = 0  # index in `ranks` of the rank whose stdout is shown now
        self._shown = 0  # characters of its stdout that have been shown
        self._bars, self._area = RankBars(), LiveArea()
        self._watched, self._cleared = is_watched(), False
        self._outputs: dict[int, list] = {}  # {rank: the list that clear_output replaces}
        self._status, self._start = "", time.monotonic()
        self._next_update = self._start + FIRST_UPDATE

    def update(self, complete: set[int]) -> tuple:
        """Show what is new. complete: ranks of which nothing more comes.

        Returns a value that changes whenever a rank prints, displays or publishes.
        """
        self._note_clearing()
        if not self._area.used and not self._cleared:
            self._stream(complete)
        published = self._published()
        if not self._watched:
            self._bars.show(published)
        elif time.monotonic() >= self._next_update:
            self._show_live(published)
        self._status = ""
        records = [self.metadata(rank) for rank in self.ranks]
        lengths = [len(record[name]) for record in records for name in ("stdout", "stderr")]
        return lengths, [list(map(id, record["outputs"])) for record in records], str(published)

    def show_status(self, seconds: float, places: str) -> None:
        """Say in a transient text where the ranks are."""
        self._status = (
            f"No rank has printed or finished for {seconds:.0f} s. They are here:\n{places}\n"
            "The cell goes on. The stop button ends it."
        )

    def flush(self) -> None:
        """Show everything that has not been shown yet, in the order of the ranks."""
        self._note_clearing()
        with_lanes = self._area.used and self.lanes.seconds >= LANES_AFTER
        if (self._area.used or self._cleared) and is_px_cell():
            self._begin_anew()
            self._bars, self._area = RankBars(), LiveArea()
        self._area.show([self._lanes_item(ended=True)] if with_lanes else [])
        self._stream(set(self.ranks), last=True)
        self._bars.show(self._published())
        streamed = {"stdout": ""} if self.groupby is None else {}
        records = {rank: lasting(self.metadata(rank)) | streamed for rank in self.ranks}
        show_grouped(records, self.groupby or "type")

    def _begin_anew(self) -> None:
        """Take away what has been shown of the cell, as soon as something else comes."""
        clear_output(wait=True)
        self._current = self._shown = 0

    def _published(self) -> dict[int, dict]:
        return {rank: dict(self.metadata(rank)["data"]) for rank in self.ranks}

    def _note_clearing(self) -> None:
        """Has a rank cleared its output? Then what was streamed of it is not what it shows now."""
        for index, rank in enumerate(self.ranks):
            outputs = self.metadata(rank)["outputs"]
            if self._outputs.setdefault(rank, outputs) is outputs:
                continue
            self._outputs[rank] = outputs
            if index < self._current or (index == self._current and self._shown):
                self._cleared = True
            if index == self._current:
                self._shown = 0

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

    def _show_live(self, published: dict[int, dict]) -> None:
        now, bundles = time.monotonic(), []
        if not self._area.used and is_px_cell():
            self._begin_anew()  # what was streamed moves into the area
        if self._status:
            bundles.append({"text/plain": self._status})
        if bars := RankBars.bundle(published):
            bundles.append(bars)
        bundles += live_bundles(pieces(self._not_streamed(), self.groupby or "type"))
        items = [(bundle, LIVE) for bundle in bundles]
        if now - self._start >= LANES_AFTER:
            items.insert(0, self._lanes_item())
        chars = self._area.show(items)
        self._next_update = now + max(UPDATE_PERIOD, chars / CHARS_PER_SECOND)

    def _lanes_item(self, ended: bool = False) -> tuple[dict, dict]:
        return self.lanes.bundle(ended), self.lanes.status(ended)

    def _not_streamed(self) -> dict[int, dict]:
        """The records without the stdout that has been shown for good."""
        records = {}
        for index, rank in enumerate(self.ranks):
            record = self.metadata(rank)
            if self.groupby is None and not self._cleared and index <= self._current:
                rest = record["stdout"][self._shown :] if index == self._current else ""
                record = record | {"stdout": rest}
            records[rank] = record
        return records


class LiveArea:
    """Places in the cell's output for what is not final yet, filled in order.

    When something comes that belongs between two others, the contents move on by one place, so
    what is seen is always in order."""

    def __init__(self):
        self._places: list[LiveDisplay] = []

    @property
    def used(self) -> bool:
        """Whether anything has been shown here."""
        return bool(self._places)

    def show(self, items: list[tuple[dict, dict]]) -> int:
        """Show these (mime bundle, status), and nothing else. Returns the characters sent."""
        chars = 0
        self._places += [LiveDisplay() for _ in items[len(self._places) :]]
        filled = [*items, *[(EMPTY, LIVE)] * (len(self._places) - len(items))]
        for place, (bundle, status) in zip(self._places, filled, strict=True):
            if place.show(bundle, status):
                chars += sum(len(str(content)) for content in bundle.values())
        return chars


@dataclass(frozen=True)
class Text:
    """Labelled lines of one stream, "stdout" or "stderr"."""

    stream: str
    text: str

    def show(self) -> None:
        """Print the lines."""
        print(self.text, file=getattr(sys, self.stream))


@dataclass(frozen=True)
class Rich:
    """A picture, a table, a widget: what a rank displayed, under its label."""

    label: str
    output: dict

    @property
    def is_unlabelled(self) -> bool:
        """Whether it says itself where it is from, as the outcome of a check."""
        return self.output.get("metadata", {}).get("pi2zero", {}).get("unlabelled", False)

    def show(self) -> None:
        """Print the label and display the rest."""
        if not self.is_unlabelled:
            print(self.label)
        display(self.output["data"], metadata=self.output.get("metadata", {}), raw=True)


def pieces(records: dict[int, dict], groupby: str) -> Iterator[Text | Rich]:
    """What ranks printed and displayed, in order. records: {rank: ipyparallel's record of it}.

    groupby: "type": all stdout, all stderr, all that was displayed; "engine": everything of a rank
    together; "order": as type, but the first display of each rank, then the second, and so on;
    "equal": as order, and what several ranks have in common once; "hidden": nothing.
    """
    if groupby == "hidden":
        return
    if groupby == "engine":
        for rank, record in records.items():
            yield from pieces({rank: record}, "type")
        return
    for name in ("stdout", "stderr"):
        texts = {rank: record[name] for rank, record in records.items() if record[name]}
        if groupby == EQUAL:
            yield from _merged_text(texts, name)
            continue
        for rank, text in texts.items():
            yield Text(name, labelled(text, name, rank))
    displays = [
        [(rank, output) for output in record["outputs"]] for rank, record in records.items()
    ]
    turns = itertools.zip_longest(*displays) if groupby in ("order", EQUAL) else displays
    outputs = filter(None, itertools.chain.from_iterable(turns))
    results = [
        (rank, reply) for rank, record in records.items() if (reply := record["execute_result"])
    ]
    if groupby == EQUAL:
        yield from _merged_outputs(outputs, "output")
        yield from _merged_outputs(results, "out")
        return
    for rank, output in outputs:
        yield Rich(f"[output:{rank}]", output)
    for rank, reply in results:
        if is_plain(reply):
            yield Text("stdout", labelled(reply["data"]["text/plain"], "out", rank))
        else:
            yield Rich(f"[out:{rank}]", reply)


def lasting(record: dict) -> dict:
    """A rank's record without what it displayed only for those who watch, see LIVE."""
    noted = [output.get("metadata", {}).get("pi2zero", {}) for output in record["outputs"]]
    kept = [
        output
        for output, note in zip(record["outputs"], noted, strict=True)
        if not note.get("live")
    ]
    return record | {"outputs": kept}


def is_plain(output: dict) -> bool:
    """Whether it is text only, not a table or a picture that has a text, too."""
    return output["data"].keys() == {"text/plain"}


def _merged_text(texts: dict[int, str], stream: str) -> Iterator[Text]:
    """Line by line, with all ranks in front that print it: "[0-3] 6"."""
    prefix = "" if stream == "stdout" else f"{stream}:"
    lines = []
    columns = [[(rank, line) for line in text.splitlines()] for rank, text in texts.items()]
    for row in itertools.zip_longest(*columns):
        groups: dict[str, list[int]] = {}
        for rank, line in filter(None, row):
            groups.setdefault(line, []).append(rank)
        lines += [f"[{prefix}{rank_ranges(ranks)}] {line}" for line, ranks in groups.items()]
    if lines:
        yield Text(stream, "\n".join(lines))


def _merged_outputs(outputs, label: str) -> Iterator[Text | Rich]:
    groups: dict[str, tuple[list[int], dict]] = {}
    for rank, output in outputs:
        groups.setdefault(str(output["data"]), ([], output))[0].append(rank)
    for ranks, output in groups.values():
        if label == "out" and is_plain(output):
            lines = output["data"]["text/plain"].splitlines()
            yield Text("stdout", "\n".join(f"[{rank_ranges(ranks)}] {line}" for line in lines))
        else:
            yield Rich(f"[{label}:{rank_ranges(ranks)}]", output)


def rank_ranges(ranks: list[int]) -> str:
    """[0, 1, 2, 5] -> '0-2,5'"""
    ordered = sorted(set(ranks))
    groups = itertools.groupby(enumerate(ordered), lambda pair: pair[1] - pair[0])
    runs = [[rank for _, rank in group] for _, group in groups]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def show_grouped(records: dict[int, dict], groupby: str) -> None:
    """Show what ranks printed and displayed in an order of `pieces`."""
    stream = "stdout"
    for piece in pieces(records, groupby):
        if isinstance(piece, Text) and piece.stream != stream:
            # A notebook's stdout and stderr are separate: this keeps their order.
            getattr(sys, stream).flush()
            stream = piece.stream
        piece.show()


def live_bundles(shown: Iterator[Text | Rich]) -> list[dict]:
    """The same as mime bundles; long text in parts, because a change sends a whole bundle."""
    bundles, lines = [], []
    for piece in itertools.chain(shown, [None]):
        if isinstance(piece, Text):
            lines += piece.text.splitlines()
            continue
        if isinstance(piece, Rich) and not piece.is_unlabelled:
            lines.append(piece.label)
        bundles += [
            {"text/plain": "\n".join(lines[at : at + CHUNK])} for at in range(0, len(lines), CHUNK)
        ]
        lines = []
        if isinstance(piece, Rich):
            bundles.append(piece.output["data"])
    return bundles


def labelled(text: str, stream: str, rank: int) -> str:
    """Each line with the rank in front, as ipyparallel writes it while it streams."""
    return "\n".join(f"[{stream}:{rank}] {line}" for line in text.splitlines())


def print_labelled(text: str, stream: str, rank: int, file) -> None:
    """Print each line with the rank in front."""
    if text:
        print(labelled(text, stream, rank), file=file)
