"""What each rank of a running cell has done so far: a line of text, and a thin lane for each."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from html import escape
from typing import Any

from pi2zero.cluster.activity_sampler import Sample
from pi2zero.cluster.display import LIVE
from pi2zero.mpi import name_ranks

COLOURS = {
    "computes": "#2e9e5b",
    "rests": "#a5d6b7",
    "waits": "#f08c00",
    "done": "#9e9e9e",
    "died": "#d62728",
}
KINDS = {"waits": "waits", "polls": "waits", "rests": "rests"}  # of a sample's state
VERBS = {
    "computes": ("computes", "compute"),
    "rests": ("sleeps or reads", "sleep or read"),
    "waits": ("waits", "wait"),
    "done": ("is done", "are done"),
    "died": ("died", "died"),
}
MAX_SEGMENTS = 400  # of all lanes together: each change of a segment is sent to the browser
NAMED_LANES = 8  # with more ranks, the lanes are thinner and have no names
MAX_GROUPS = 4  # ranks that do different things; of more, the line says no places
PLACE_WIDTH = 60  # characters
WAITED_SHARE, SAME_SHARE = 10, 5  # percent: the least that is said; ranks that differ by less


@dataclass
class Segment:
    """A time in which a rank did one kind of thing. start, end: s since the cell began."""

    kind: str
    what: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.end - self.start


@dataclass
class Lane:
    """The segments of one rank. waited: s in which it has waited for other ranks."""

    segments: list[Segment] = field(default_factory=lambda: [Segment("computes", "", 0.0, 0.0)])
    waited: float = 0.0

    @property
    def last(self) -> Segment:
        """What the rank does now."""
        return self.segments[-1]

    def extend(self, now: float, kind: str, what: str, since: float) -> None:
        """Note what the rank does now, and has done since a moment that may be a sample ago."""
        last = self.last
        if last.kind == kind:
            self._lengthen(last, now)
            last.what = what or last.what
            return
        begin = min(max(since, last.start), now)
        if last.kind == "waits":
            self.waited += begin - last.end
        last.end = begin
        self.segments.append(Segment(kind, what, begin, begin))
        self._lengthen(self.last, now)

    def _lengthen(self, segment: Segment, now: float) -> None:
        if segment.kind == "waits":
            self.waited += now - segment.end
        segment.end = now

    def drop_short_segments(self, most: int) -> None:
        """Join the shortest segments to the ones before them, until there are `most`."""
        while len(self.segments) > most:
            at = min(range(1, len(self.segments)), key=lambda at: self.segments[at].seconds)
            at = min(at, len(self.segments) - 2)  # the last one tells what the rank does now
            self.segments[at - 1].end = self.segments.pop(at).end


class ActivityLanes:
    """One lane for each rank of a cell. describe(stack): a place in words."""

    def __init__(self, ranks: list[int], describe: Callable[[list], str]):
        self._describe, self._lanes = describe, {rank: Lane() for rank in ranks}
        self._most = max(8, MAX_SEGMENTS // max(1, len(ranks)))
        self._described: dict[int, tuple[Sample, str]] = {}
        self.seconds = 0.0  # since the start of the cell

    def note(self, now: float, samples: dict[int, Sample], pending: list[int]) -> None:
        """What the ranks do `now`, in s since the start. pending: those that have not finished."""
        self.seconds = now
        for rank, lane in self._lanes.items():
            if rank not in pending:
                lane.extend(now, "done", "", now)
            elif sample := samples.get(rank):
                kind = KINDS.get(sample.state, "computes")
                since = now - sample.seconds if kind == "waits" else now
                lane.extend(now, kind, self._what(rank, kind, sample), since)
            else:  # no sample yet, or a call that holds Python's lock
                lane.extend(now, "computes", "", now)
            lane.drop_short_segments(self._most)

    def end(self, now: float, dead: Collection[int]) -> None:
        """The cell has ended; some ranks may be gone."""
        self.seconds = now
        for rank, lane in self._lanes.items():
            if rank in dead:
                lane.extend(now, "died", "", now)
            else:
                lane.extend(now, lane.last.kind, "", now)

    def _what(self, rank: int, kind: str, sample: Sample) -> str:
        """' in Barrier, cell line 3: comm.Barrier()'. A sample is described once: it stays the same
        for several notes."""
        if self._described.get(rank, (None, ""))[0] is sample:
            return self._described[rank][1]
        call = f" in {sample.method}" * bool(kind == "waits" and sample.method)
        place = " ".join(self._describe(sample.stack).split())
        self._described[rank] = sample, f"{call}, {place[:PLACE_WIDTH]}"
        return self._described[rank][1]

    def _groups(self, shorten: Callable[[str], str]) -> dict[tuple[str, str], list[int]]:
        """{(kind, what): ranks}. shorten: what is left of the words, before ranks are grouped."""
        groups: dict[tuple[str, str], list[int]] = {}
        for rank, lane in self._lanes.items():
            groups.setdefault((lane.last.kind, shorten(lane.last.what)), []).append(rank)
        return groups

    def text(self) -> str:
        """'3 s: ranks 0 and 2 compute, cell line 4: x = f(x); rank 1 waits in Barrier, ...'"""
        groups = self._groups(str)
        if len(groups) > MAX_GROUPS:
            groups = self._groups(_call)
        parts = [
            f"{name_ranks(ranks)} {VERBS[kind][len(ranks) > 1]}{what}"
            for (kind, what), ranks in groups.items()
        ]
        return f"{self.seconds:.0f} s: {'; '.join(parts)}"

    def short_text(self) -> str:
        """'4 ranks, 3 s: 2 compute, 1 waits in Barrier, 1 is done', for a status bar."""
        parts = [
            f"{len(ranks)} {VERBS[kind][len(ranks) > 1]}{call}"
            for (kind, call), ranks in self._groups(_call).items()
        ]
        ranks = f"{len(self._lanes)} rank{'s' * (len(self._lanes) > 1)}"
        return f"{ranks}, {self.seconds:.0f} s: {', '.join(parts)}"

    def summary(self) -> str:
        """'1.8 s; rank 3 waited 61 %'"""
        dead = [rank for rank, lane in self._lanes.items() if lane.last.kind == "died"]
        parts = [f"{self.seconds:.1f} s"]
        if dead:
            parts.append(f"{name_ranks(dead)} died")
        share = {
            rank: round(100 * lane.waited / max(self.seconds, 1e-9))
            for rank, lane in self._lanes.items()
        }
        groups: list[list[int]] = []
        for rank in sorted(share, key=lambda rank: -share[rank]):
            if share[rank] < WAITED_SHARE:
                break
            if groups and share[groups[-1][0]] - share[rank] < SAME_SHARE:
                groups[-1].append(rank)
            else:
                groups.append([rank])
        waits = [f"{name_ranks(ranks)} waited {share[ranks[0]]} %" for ranks in groups]
        return "; ".join([*parts, ", ".join(waits) or "no rank waited for others"])

    def html(self, ended: bool) -> str:
        """The lanes under the line of text; at the end folded under the summary."""
        rows = "".join(self._row(rank, lane) for rank, lane in self._lanes.items())
        style = "font-size:85%;line-height:1.4;max-width:60em"
        if ended:
            return (
                f'<details style="{style}"><summary>{escape(self.summary())}</summary>'
                f"{rows}</details>"
            )
        return f'<div style="{style}"><div>{escape(self.text())}</div>{rows}</div>'

    def _row(self, rank: int, lane: Lane) -> str:
        named = len(self._lanes) <= NAMED_LANES
        name = f'<span style="width:5em">rank {rank}</span>' if named else ""
        now = f"rank {rank} {VERBS[lane.last.kind][0]}{lane.last.what}"
        bars = "".join(
            f'<span title="{escape(_title(rank, segment))}" style="flex:{segment.seconds:.2f} 0 0;'
            f'background:{COLOURS[segment.kind]}"></span>'
            for segment in lane.segments
            if segment.seconds > 0
        )
        return (
            f'<div style="display:flex;align-items:center" title="{escape(now)}">{name}'
            f'<span role="img" aria-label="{escape(now)}" style="display:flex;flex:1;'
            f'height:{6 if named else 3}px;margin:1px 0">{bars}</span></div>'
        )

    def bundle(self, ended: bool = False) -> dict[str, str]:
        """The mime bundle that a front end shows."""
        return {
            "text/plain": self.summary() if ended else self.text(),
            "text/html": self.html(ended),
        }

    def status(self, ended: bool = False) -> dict[str, Any]:
        """The same for JupyterLab's status bar, see LiveDisplay.

        LIVE and {"status": "2 ranks, 3 s: 1 computes, 1 waits in Barrier", "seconds": 3.2,
        "ended": false, "ranks": [{"rank": 0, "does": "computes", "seconds": 3.2,
        "where": "cell line 4: f(x)"}, ...]}.
        does: one of COLOURS. seconds, of a rank: how long it has done that.
        """
        ranks = [
            {
                "rank": rank,
                "does": lane.last.kind,
                "seconds": round(lane.last.seconds, 1),
                "where": lane.last.what.lstrip(", "),
            }
            for rank, lane in self._lanes.items()
        ]
        text = self.summary() if ended else self.short_text()
        return LIVE | {
            "status": text,
            "seconds": round(self.seconds, 1),
            "ended": ended,
            "ranks": ranks,
        }


def _call(what: str) -> str:
    """' in Barrier, cell line 3: comm.Barrier()' -> ' in Barrier'"""
    return what.split(",")[0]


def _title(rank: int, segment: Segment) -> str:
    does = f"{VERBS[segment.kind][0]}{segment.what}"
    return f"rank {rank}, {segment.start:.1f} to {segment.end:.1f} s: {does}"
