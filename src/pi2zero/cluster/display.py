"""What a cell shows while it waits: a status line, a bar for each rank, text that disappears
again."""

import math
import os
import sys
import time
from html import escape

from IPython import get_ipython
from IPython.display import display

BAR_WIDTH = 30  # characters of a bar in plain text


class LiveDisplay:
    """A place in a cell's output whose content each call of `show` replaces."""

    def __init__(self):
        self._shown, self._handle = None, None

    def show(self, mime_bundle: dict[str, str]) -> None:
        """mime_bundle: the same content in several types, {"text/plain": ..., "text/html": ...}."""
        if mime_bundle == self._shown:
            return
        self._shown = mime_bundle
        if self._handle is None:
            self._handle = display(mime_bundle, raw=True, display_id=True)
        else:
            self._handle.update(mime_bundle, raw=True)

    @property
    def empty(self) -> bool:
        """Whether nothing has been shown here yet."""
        return self._handle is None


class RankBars:
    """A bar for each rank that publishes its progress.

    A rank calls ipyparallel's `publish_data({"progress": 0.3, "step": 30, "loss": 1.2})`:
    `progress`, 0 to 1, makes the bar, the rest is written next to it. Without `progress` nothing is
    drawn."""

    def __init__(self):
        self._display = LiveDisplay()

    def show(self, published: dict[int, dict]) -> None:
        """published: {rank: what it published last}."""
        bars = {
            rank: data
            for rank, data in published.items()
            if isinstance(progress := data.get("progress"), int | float) and math.isfinite(progress)
        }
        if get_ipython() is not None and bars:
            self._display.show({"text/plain": self.text(bars), "text/html": self.html(bars)})

    @staticmethod
    def text(bars: dict[int, dict]) -> str:
        """The bars in plain text."""
        lines = []
        for rank, data in bars.items():
            full = round(BAR_WIDTH * min(1, data["progress"]))
            lines.append(f"rank {rank} [{'#' * full:.<{BAR_WIDTH}}] {_values(data)}")
        return "\n".join(lines)

    @staticmethod
    def html(bars: dict[int, dict]) -> str:
        """The bars as HTML, for a notebook."""
        return "".join(
            f'<div>rank {rank} <progress value="{data["progress"]:.3f}" aria-label="rank {rank}">'
            f"</progress> {escape(_values(data))}</div>"
            for rank, data in bars.items()
        )


def _values(data: dict) -> str:
    """'step 30, loss 1.2, tokens/s 24,000'. ipyparallel sorts the names, too."""
    names = sorted(data.keys() - {"progress"}, key=lambda name: (name != "step", name.lower()))
    return ", ".join(f"{name} {_short(data[name])}" for name in names)


def _short(value) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


class StatusLine:
    """Call it with what is being waited for. In a notebook the line replaces itself."""

    def __init__(self, title: str):
        self.title = title
        self.start = time.monotonic()
        self._display, self._last = LiveDisplay(), ""

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
            self._display.show({"text/plain": text})
        elif sys.stderr.isatty():
            print(f"\r{text:<78}", end="\n" if last else "", file=sys.stderr, flush=True)
        elif last:
            print(text, file=sys.stderr)


class TransientText:
    """Lines for a person who watches; they are gone at the end. PI2ZERO_LIVE=0 leaves them out."""

    def __init__(self):
        self._display = LiveDisplay()
        self._watched = get_ipython() is not None and os.environ.get("PI2ZERO_LIVE", "1") != "0"

    def show(self, text: str) -> None:
        """Replace the lines."""
        if self._watched:
            self._display.show({"text/plain": text})

    def clear(self) -> None:
        """Remove the lines, if there are any."""
        if not self._display.empty:
            self.show("")
