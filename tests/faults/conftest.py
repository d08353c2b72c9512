"""The account of the faults: for each, what the learner saw, and when."""

import pytest

from .kernel import Notebook

_rows: list[tuple[str, str, str, str, str]] = []


@pytest.fixture
def notebook():
    """A fresh kernel; nothing of it may be left at the end of the test."""
    book = Notebook()
    yield book
    book.close()


@pytest.fixture
def account():
    """Call it with (fault, seconds, message, next cell, processes left); the rows are printed after the tests."""

    def add(fault: str, seconds: float, message: str, next_cell: str, left: int) -> None:
        _rows.append((fault, f"{seconds:.1f} s", message[:70], next_cell, str(left)))

    return add


def pytest_terminal_summary(terminalreporter):
    if not _rows:
        return
    terminalreporter.section("no cell hangs: what the learner saw")
    rows = [("fault", "seen after", "message", "next cell", "processes left"), *_rows]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    for row in rows:
        terminalreporter.write_line(" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
