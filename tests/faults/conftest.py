"""The account of the faults: for each, what the learner saw, and when."""

import os
import platform
import time
from pathlib import Path

import pytest

from .kernel import Notebook

HEADER = ("fault", "seen after", "message", "next cell", "processes left")
_rows: list[tuple[str, ...]] = []


def pytest_addoption(parser):
    parser.addoption("--account", type=Path, help="write the account of the faults into this Markdown page, between its markers")


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
        message = message.removeprefix("RankError: ")
        _rows.append((fault, f"{seconds:.1f} s", message[:75], next_cell, str(left)))

    return add


def pytest_terminal_summary(terminalreporter, config):
    if not _rows:
        return
    table = ["| " + " | ".join(row) + " |" for row in (HEADER, ["---"] * 5, *_rows)]
    terminalreporter.section("no cell hangs: what the learner saw")
    terminalreporter.write_line("\n".join(table))
    if page := config.getoption("--account"):
        head, rest = page.read_text().split("<!-- account -->\n")[0::2]
        conditions = f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {platform.system()}, one run of each."
        page.write_text(f"{head}<!-- account -->\n{conditions}\n\n" + "\n".join(table) + f"\n<!-- account -->\n{rest}")
