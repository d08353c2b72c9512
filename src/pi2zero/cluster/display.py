"""What a cell shows while it waits: a line that says what is going on, a bar for each rank, lines that pass."""

import math
import os
import sys
import time
from html import escape

from IPython import get_ipython
from IPython.display import display

__all__ = ["Bars", "Passing", "Progress"]

WIDTH = 30  # characters of a bar in plain text


class Spot:
    """A place in a cell's output whose picture is replaced by the next one."""

    def __init__(self):
        self._shown, self._handle = None, None

    def show(self, picture: dict[str, str]) -> None:
        """picture: the same in several kinds, such as {"text/plain": ..., "text/html": ...}."""
        if picture == self._shown:
            return
        self._shown = picture
        if self._handle is None:
            self._handle = display(picture, raw=True, display_id=True)
        else:
            self._handle.update(picture, raw=True)

    @property
    def empty(self) -> bool:
        """Whether nothing has been shown here yet."""
        return self._handle is None


class Bars:
    """One display that is drawn anew whenever a rank has published something else.

    A rank publishes with ipyparallel's `publish_data({"progress": 0.3, "step": 30, "loss": 1.2})`: `progress`, 0 to 1, makes
    the bar, everything else stands beside it (numbers with three digits). Without `progress` nothing is drawn.
    """

    def __init__(self):
        self._spot = Spot()

    def show(self, published: dict[int, dict]) -> None:
        """published: {rank: what it published last}."""
        published = {
            rank: data for rank, data in published.items() if _is_share(data.get("progress"))
        }
        if get_ipython() is not None and published:
            self._spot.show({"text/plain": self.text(published), "text/html": self.html(published)})

    @staticmethod
    def text(published: dict[int, dict]) -> str:
        """The bars in plain text."""
        lines = []
        for rank, data in published.items():
            full = round(WIDTH * min(1, data["progress"]))
            lines.append(f"rank {rank} [{'#' * full}{'.' * (WIDTH - full)}] {_beside(data)}")
        return "\n".join(lines)

    @staticmethod
    def html(published: dict[int, dict]) -> str:
        """The bars as HTML, for a notebook."""
        rows = [
            f'<div>rank {rank} <progress value="{data["progress"]:.3f}" aria-label="rank {rank}"></progress> '
            f"{escape(_beside(data))}</div>"
            for rank, data in published.items()
        ]
        return "".join(rows)


def _is_share(value) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _beside(data):
    """'step 30, loss 1.2, tokens/s 24,000'"""
    names = sorted(
        data.keys() - {"progress"}, key=lambda name: (name != "step", name.lower())
    )  # ipyparallel sorts them, too
    return ", ".join(f"{name} {_short(data[name])}" for name in names)


def _short(value):
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


class Progress:
    """Call it with what is being waited for. In a notebook the line replaces itself."""

    def __init__(self, title: str):
        self.title = title
        self.start = time.monotonic()
        self._spot, self._last = Spot(), ""

    def __call__(self, what: str) -> None:
        seconds = time.monotonic() - self.start
        text = f"{self.title}: waiting for {what}, {seconds:.0f} s"
        if text != self._last:
            self._last = text
            self._show(text)

    def done(self, text: str) -> None:
        """The last line; `{seconds}` in it becomes the time taken."""
        self._show(text.format(seconds=time.monotonic() - self.start), last=True)

    def _show(self, text: str, last: bool = False) -> None:
        if get_ipython() is not None:
            self._spot.show({"text/plain": text})
        elif sys.stderr.isatty():
            print(f"\r{text:<78}", end="\n" if last else "", file=sys.stderr, flush=True)
        elif last:
            print(text, file=sys.stderr)


class Passing:
    """Lines for a person who watches, in a display of their own that is empty in the end. Not shown where PI2ZERO_LIVE is 0."""

    def __init__(self):
        self._spot = Spot()

    def show(self, text: str) -> None:
        """Replace the lines that stand there."""
        if live():
            self._spot.show({"text/plain": text})

    def clear(self) -> None:
        """Leave nothing to see, if there was something."""
        if not self._spot.empty:
            self.show("")


def live() -> bool:
    """Whether somebody may be watching."""
    return get_ipython() is not None and os.environ.get("PI2ZERO_LIVE", "1") != "0"
