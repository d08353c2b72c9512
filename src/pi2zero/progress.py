"""One line that says what is going on, and at the end what came of it."""

import sys
import time

from IPython import get_ipython
from IPython.display import display


class Progress:
    """Call it with what is being waited for. In a notebook the line replaces itself."""

    def __init__(self, title: str):
        self.title = title
        self.start = time.monotonic()
        self._last = ""
        self._handle = None

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
            line = {"text/plain": text}
            if self._handle is None:
                self._handle = display(line, raw=True, display_id=True)
            else:
                self._handle.update(line, raw=True)
        elif sys.stderr.isatty():
            print(f"\r{text:<78}", end="\n" if last else "", file=sys.stderr, flush=True)
        elif last:
            print(text, file=sys.stderr)
