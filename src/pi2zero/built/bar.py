"""What is seen while somebody waits: in a notebook a bar that replaces itself, in a terminal a line that does."""

import sys
from html import escape


class Bar:
    """Use it as a context. Nothing is shown if nothing has to be waited for."""

    def __init__(self):
        self._handle, self.was_shown, self._last = None, False, ""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.was_shown and self._handle is None and sys.stderr.isatty():
            print(file=sys.stderr)

    def show(self, text: str, share: float) -> None:
        """Draw how far it is, if that has changed."""
        self._draw(
            text,
            f'<progress value="{share:.3f}" aria-label="{escape(text)}"></progress> {escape(text)}',
        )

    def end(self, text: str) -> None:
        """The last line, in place of the bar."""
        self._draw(text, escape(text))

    def _draw(self, text: str, html: str) -> None:
        if text == self._last:
            return
        before, self._last, self.was_shown = self._last, text, True
        if in_notebook():
            from IPython.display import display

            picture = {"text/plain": text, "text/html": html}
            if self._handle is None:
                self._handle = display(picture, raw=True, display_id=True)
            else:
                self._handle.update(picture, raw=True)
        elif sys.stderr.isatty():
            print(f"\r{text:<78}", end="", file=sys.stderr, flush=True)
        elif (
            text.split(":")[0] not in before or "ready" in text
        ):  # a log has a line at the beginning and one at the end
            print(text, file=sys.stderr, flush=True)


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel. Does not load IPython for it."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")
