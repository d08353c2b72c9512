"""What a rank prints, capped before it floods the notebook. This runs on the engines."""

import os
import re
from pathlib import Path
from typing import Any

from pi2zero import log

MAX_LINES, MAX_CHARS = 2000, 400_000  # of one cell, over all ranks
FILE_LIMIT = 100_000_000  # bytes in the file that takes the rest


class CappedStream:
    """Replaces a rank's stdout or stderr. What exceeds the cap in one cell goes to a file, whose
    name is shown.

    stream: the engine's own. path: the file, made when it is needed. size: the world size; the cap
    is divided among the ranks."""

    def __init__(self, stream, path: Path, size: int):
        self._stream, self._path = stream, path
        self._max_lines, self._max_chars = (
            max(50, MAX_LINES // size),
            max(10_000, MAX_CHARS // size),
        )
        self.start_cell()

    def start_cell(self, *_) -> None:
        """Count from zero again. The engine's shell calls it before each cell."""
        self._lines, self._chars, self._in_line = 0, 0, False
        self._line_chars = 0  # of the last line, as far as it has come
        self._file: Any = None  # of bytes, once it is needed

    def end_cell(self, *_) -> None:
        """Close the file, if the cell needed one. The engine's shell calls it after each cell."""
        if self._file is not None:
            with log.failures("close the file of a rank's output", OSError):
                self._file.close()

    def write(self, text: str) -> int:
        """Show the text, or put it into the file. Returns how many characters it has."""
        if self._file is None:
            self._count(text)
            if self._lines <= self._max_lines and self._chars <= self._max_chars:
                self._in_line = not text.endswith("\n") if text else self._in_line
                return self._stream.write(text)
            text_of_file = self._open_file(text)
        else:
            text_of_file = text
        self._write_file(text_of_file)
        return len(text)

    def _count(self, text: str) -> None:
        """Count lines and characters, except those that are overwritten, as tqdm's bars are."""
        self._lines += text.count("\n")
        for part in re.split("(\r\n|[\r\n])", text) if text else ():
            self._chars += len(part)
            self._line_chars += len(part)
            if part == "\r":
                self._chars -= self._line_chars
            if part in ("\r", "\n", "\r\n"):
                self._line_chars = 0

    def _open_file(self, text: str) -> str:
        """Show what still fits, and where the rest is; return the rest."""
        lines = text.splitlines(keepends=True)
        excess = max(0, self._lines - self._max_lines)
        fitting = max(len(lines) - excess, int(self._in_line))  # a line that has begun is completed
        shown = "".join(lines[:fitting])[: max(1, self._max_chars - self._chars + len(text))]
        self._stream.write(shown if shown.endswith("\n") or not shown else shown + "\n")
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            self._file = self._path.open("wb")
            where = f"is in {self._path} (until the next such cell, or the ranks' end)"
        except OSError as error:
            self._file = Path(os.devnull).open("wb")  # noqa: SIM115
            where = f"is left out ({error})"
        self._stream.write(f"... more than a page can hold: the rest {where}\n")
        self._room = FILE_LIMIT
        return text[len(shown) :]

    def _write_file(self, text: str) -> None:
        data = text.encode(errors="replace")
        room, self._room = self._room, self._room - len(data)
        if room < 0:
            return
        try:
            self._file.write(data[:room])
            if len(data) > room:
                note = f"\n... cut: this file has no more than {FILE_LIMIT:,} bytes\n"
                self._file.write(note.encode())
        except (OSError, ValueError) as error:
            # A full disk must not end the cell, nor a thread that prints after it.
            self._room = -1
            log.logger.debug("the rest of the output is lost: %r", error)

    def writelines(self, lines) -> None:
        """Write each of them; no line ends are added."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name):
        return getattr(self._stream, name)
