"""The account of the faults: for each, what the learner saw, and when; and of what is no fault."""

import os
import platform
import time
from pathlib import Path

import pytest

from .kernel import Notebook

TABLES = {
    "faults": ("fault", "seen after", "message", "next cell", "processes left"),
    "alive": ("what the ranks do", "for", "the cell", "variables"),
    "ended": ("what the ranks wait in", "seen after", "message", "next cell"),
}
_rows: dict[str, list[tuple[str, ...]]] = {name: [] for name in TABLES}


def pytest_addoption(parser):
    parser.addoption("--account", type=Path, help="write the tables into this Markdown page, between their markers")


@pytest.fixture
def notebook():
    """A fresh kernel; nothing of it may be left at the end of the test."""
    book = Notebook()
    yield book
    book.close()


@pytest.fixture
def account():
    """Call it with the name of a table and a row of it; the tables are printed after the tests."""
    return lambda table, *row: _rows[table].append(row)


def pytest_terminal_summary(terminalreporter, config):
    page = config.getoption("--account")
    for name, rows in _rows.items():
        if not rows:
            continue
        header = TABLES[name]
        table = "\n".join("| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows))
        terminalreporter.section(f"no cell hangs: {name}")
        terminalreporter.write_line(table)
        if page:
            marker = f"<!-- {name} -->\n"
            head, _, rest = page.read_text().split(marker)
            conditions = f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {platform.system()}, one run of each."
            page.write_text(f"{head}{marker}{conditions}\n\n{table}\n{marker}{rest}")
