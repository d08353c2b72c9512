"""What a rank prints, capped before it drowns the notebook: this runs on the engines."""

import contextlib
from pathlib import Path

LINES, CHARACTERS = 2000, 400_000  # of one cell, over all ranks
FILE_LIMIT = 100_000_000  # bytes that a file of the rest may take


class Capped:
    """Stands in for a rank's stdout or stderr. What is over the cap in one cell goes to a file, whose name is shown.

    stream: the engine's own. path: the file, made when it is needed. size: the world size, among which the cap is dealt out.
    """

    def __init__(self, stream, path: Path, size: int):
        self._stream, self._path = stream, path
        self._lines_cap, self._cap = max(50, LINES // size), max(10_000, CHARACTERS // size)
        self.new_cell()

    def new_cell(self, *_) -> None:
        self._lines, self._characters, self._file = 0, 0, None

    def write(self, text: str) -> int:
        if self._file is not None:
            self._divert(text)
            return len(text)
        self._lines += text.count("\n")
        self._characters += len(text)
        if self._lines <= self._lines_cap and self._characters <= self._cap:
            return self._stream.write(text)
        self._begin_file(text)
        return len(text)

    def _begin_file(self, text: str) -> None:
        over = max(0, self._lines - self._lines_cap)
        lines = text.splitlines(keepends=True)
        kept = "".join(lines[: len(lines) - over])[: max(0, self._cap - self._characters + len(text))]
        self._stream.write(kept + "\n" * (not kept.endswith("\n") and bool(kept)))
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        self._stream.write(f"... more than a page can hold: the rest is in {self._path} (until the ranks end)\n")
        self._file, self._left = self._path.open("w"), FILE_LIMIT
        self._divert(text[len(kept) :])

    def _divert(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a full disk must not end the cell
            if self._left > 0:
                self._file.write(text[: self._left])
                self._file.flush()
        self._left -= len(text)

    def writelines(self, lines) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name):
        return getattr(self._stream, name)
