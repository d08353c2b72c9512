"""What a cell shows while it waits: a status line, a bar for each rank, text that disappears
again."""

import math
import re
import sys
import time
from functools import lru_cache
from html import escape

import psutil
from IPython import get_ipython
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.display import display

BAR_WIDTH = 30  # characters of a bar in plain text
EMPTY = {"text/plain": ""}
LIVE: dict = {"live": True}  # such an output is for those who watch; `make lab` does not save it


def is_watched() -> bool:
    """Whether a person sees this cell, in a front end that replaces what it has shown.

    Programs that run notebooks (nbclient, nbval, papermill) say that they cannot answer `input()`.
    A terminal prints each change below the last one.
    """
    shell = get_ipython()
    kernel = getattr(shell, "kernel", None)
    captured = isinstance(getattr(shell, "display_pub", None), CapturingDisplayPublisher)
    if kernel is None or captured or _parent_is_a_console():
        return False
    return kernel.get_parent("shell").get("content", {}).get("allow_stdin", True)


def is_px_cell() -> bool:
    """Whether the cell that the front end has sent begins with `%%px`: then all its output is the
    ranks'."""
    kernel = getattr(get_ipython(), "kernel", None)
    request = kernel.get_parent("shell") if kernel else {}
    return request.get("content", {}).get("code", "").lstrip().startswith("%%px")


@lru_cache
def _parent_is_a_console() -> bool:
    """Jupyter's consoles start their own kernel. They ignore changes of what they have printed."""
    try:
        parent = psutil.Process().parent()
        command = parent.cmdline() if parent else []
    except psutil.Error:
        return False
    return any(re.fullmatch(r".*jupyter[-_](qt)?console", word) for word in command)


class LiveDisplay:
    """A place in a cell's output whose content each call of `show` replaces."""

    def __init__(self):
        self._shown, self._handle = None, None

    def show(self, mime_bundle: dict, status: dict | None = None) -> bool:
        """mime_bundle: the same content in several types, {"text/plain": ..., "text/html": ...}.

        status: LIVE, or for JupyterLab's status bar {"status": text}; the kit's extension shows it
        until the cell has ended. Returns whether the bundle is new.
        """
        if mime_bundle == self._shown:
            return False
        self._shown, metadata = mime_bundle, {"pi2zero": status} if status else None
        if self._handle is None:
            self._handle = display(mime_bundle, raw=True, display_id=True, metadata=metadata)
        else:
            self._handle.update(mime_bundle, raw=True, metadata=metadata)
        return True

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
        if get_ipython() is not None and (bundle := self.bundle(published)):
            self._display.show(bundle)

    @classmethod
    def bundle(cls, published: dict[int, dict]) -> dict[str, str]:
        """The bars as a mime bundle; empty if there are none."""
        bars = {
            rank: data
            for rank, data in published.items()
            if isinstance(progress := data.get("progress"), int | float) and math.isfinite(progress)
        }
        return {"text/plain": cls.text(bars), "text/html": cls.html(bars)} if bars else {}

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
    """Call it with what is being waited for. In a notebook the line replaces itself.

    transient: nothing of it is left in the notebook; whether one waits differs from run to run."""

    def __init__(self, title: str, transient: bool = False):
        self.title = title
        self.start = time.monotonic()
        self._display, self._last = LiveDisplay(), ""
        in_notebook = hasattr(get_ipython(), "kernel") and not _parent_is_a_console()
        self._transient = TransientText() if transient and in_notebook else None

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
        if self._transient is not None:
            self._transient.show("" if last else text)
        elif hasattr(get_ipython(), "kernel") and _parent_is_a_console():
            if last and text:  # a console would show the first line only
                print(text)
        elif get_ipython() is not None:
            self._display.show({"text/plain": text})
        elif sys.stderr.isatty():
            print(f"\r{text:<78}", end="\n" if last else "", file=sys.stderr, flush=True)
        elif last:
            print(text, file=sys.stderr)


class TransientText:
    """Lines for a person who watches; they are gone at the end."""

    def __init__(self):
        self._display, self._watched = LiveDisplay(), is_watched()

    def show(self, text: str, status: str = "") -> None:
        """Replace the lines. status: for JupyterLab's status bar."""
        if self._watched:
            metadata = LIVE | {"status": status} if status else LIVE
            self._display.show({"text/plain": text}, metadata)

    def clear(self) -> None:
        """Remove the lines, if there are any."""
        if not self._display.empty:
            self.show("")
