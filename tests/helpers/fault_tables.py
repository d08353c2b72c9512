"""Tables of the injected faults: what the learner saw, and when. Printed after the tests."""

import os
import platform
import time
from pathlib import Path

import pytest

TABLES = {
    "faults": ("fault", "seen after", "message", "next cell", "processes left"),
    "alive": ("what the ranks do", "for", "the cell", "variables"),
    "ended": ("what the ranks wait in", "seen after", "message", "next cell"),
}
TWO_HOSTS = ", two hosts"  # behind the name of a table whose ranks were on two
TABLES |= {f"{name}{TWO_HOSTS}": header for name, header in TABLES.items()}
TABLES["lost"] = ("what happens", "seen after", "message", "afterwards", "left on the hosts")
rows: dict[str, list[tuple[str, ...]]] = {name: [] for name in TABLES}


def pytest_addoption(parser):
    parser.addoption(
        "--account",
        type=Path,
        help="write the tables into this Markdown page, between their markers",
    )


@pytest.fixture
def account():
    """A function of a table's name and a row: seconds are floats, "it works" is a bool."""
    return lambda table, *row: rows[table].append(tuple(map(_in_words, row)))


def _in_words(value) -> str:
    if isinstance(value, bool):
        return "works" if value else "fails"
    return f"{value:.1f} s" if isinstance(value, float) else str(value)


def pytest_terminal_summary(terminalreporter, config):
    page = config.getoption("--account")
    for name, told in rows.items():
        if not told:
            continue
        terminalreporter.section(f"no cell hangs: {name}")
        terminalreporter.write_line(as_table(name, told))
        if page:
            marker = f"<!-- {name} -->\n"
            head, before, rest = page.read_text().split(marker)
            table = as_table(name, merged(before, told))
            conditions = f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, "
            conditions += f"{platform.system()}, one run of each; "
            conditions += f"load at its end {os.getloadavg()[0]:.0f} (0 is idle)."
            page.write_text(f"{head}{marker}{conditions}\n\n{table}\n{marker}{rest}")


def as_table(name, told) -> str:
    header = TABLES[name]
    return "\n".join(
        "| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *told)
    )


def merged(before: str, told: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The rows of a page's table; these replace those of the same case."""
    lines = [line for line in before.splitlines() if line.startswith("| ")][2:]
    found = {
        row[0]: row
        for row in (tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in lines)
    }
    return list((found | {row[0]: row for row in told}).values())
