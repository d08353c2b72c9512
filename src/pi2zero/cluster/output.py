"""What a rank prints, capped before it drowns the notebook: this runs on the engines."""

import contextlib
import os
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
        """Count from nothing again. Called by the engine's shell before each cell."""
        self._lines, self._characters, self._file, self._open_line = 0, 0, None, False

    def end_cell(self, *_) -> None:
        """Close the file, if the cell needed one. Called by the engine's shell after each cell."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def write(self, text: str) -> int:
        """As a stream's: shows the text, or puts it into the file. Returns how many characters it has."""
        if self._file is not None:
            self._divert(text)
            return len(text)
        self._lines += text.count("\n")
        self._characters += len(text)
        if self._lines <= self._lines_cap and self._characters <= self._cap:
            self._open_line = not text.endswith("\n") if text else self._open_line
            return self._stream.write(text)
        self._begin_file(text)
        return len(text)

    def _begin_file(self, text: str) -> None:
        over = max(0, self._lines - self._lines_cap)
        lines = text.splitlines(keepends=True)
        whole = max(
            len(lines) - over, int(self._open_line)
        )  # the end of a line that is shown already is shown, too
        kept = "".join(lines[:whole])[: max(1, self._cap - self._characters + len(text))]
        self._stream.write(kept if kept.endswith("\n") or not kept else kept + "\n")
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            self._file, where = (
                self._path.open("wb"),
                f"is in {self._path} (until the next such cell, or the ranks' end)",
            )
        except OSError as error:
            self._file, where = Path(os.devnull).open("wb"), f"is left out ({error})"  # noqa: SIM115
        self._stream.write(f"... more than a page can hold: the rest {where}\n")
        self._left = FILE_LIMIT
        self._divert(text[len(kept) :])

    def _divert(self, text: str) -> None:
        data = text.encode(errors="replace")
        with contextlib.suppress(
            OSError, ValueError
        ):  # a full disk must not end the cell, nor a thread that prints after it
            if self._left >= 0:
                self._file.write(data[: self._left])
                if len(data) > self._left:
                    self._file.write(
                        f"\n... cut: this file has no more than {FILE_LIMIT:,} bytes\n".encode()
                    )
        self._left -= len(data)

    def writelines(self, lines) -> None:
        """As a stream's: write each of them; no line ends are added."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name):
        return getattr(self._stream, name)
