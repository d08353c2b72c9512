"""The plans for a session: their minutes add up, each block has a break and a reserve, and the headings they name are there."""

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
PLANS = (ROOT / "docs" / "plans.md").read_text()
BLOCKS = {  # {"A": (its minutes, its rows as lists of four)}
    name: (
        int(total),
        [[part.strip() for part in row.split("|")[1:5]] for row in re.findall(r"^\| \d+ \|.*$", text, re.MULTILINE)],
    )
    for name, total, text in re.findall(r"^## Block (\w): [^\n]*\((\d+) min\)$(.*?)(?=^## |\Z)", PLANS, re.MULTILINE | re.DOTALL)
}
NAMED = [(name, row[1]) for name, (_, rows) in BLOCKS.items() for row in rows if "notebook" in row[1] and "*" in row[1]]


def headings(number):
    (path,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
    cells = nbformat.read(path, as_version=4).cells
    return re.findall(r"^## (.+)$", "\n".join(cell.source for cell in cells if cell.cell_type == "markdown"), re.MULTILINE)


def test_the_minutes_of_a_block_add_up():
    assert set(BLOCKS) == set("SABCDEFGH")
    for name, (total, rows) in BLOCKS.items():
        assert sum(int(row[0]) for row in rows) == total, name
        what = " ".join(row[1] for row in rows)
        assert "reserve" in what and ("break" in what or total <= 120), name


def test_the_blocks_of_a_plan_add_up():
    plans = re.findall(r"^\| [a-z ]+ \| ([A-Z][A-Z,; ]*) \| (\d+) \|$", PLANS, re.MULTILINE)
    assert len(plans) == 5
    for blocks, minutes in plans:
        assert sum(BLOCKS[name][0] for name in re.findall(r"\w", blocks)) == int(minutes)


@pytest.mark.parametrize(("block", "what"), NAMED)
def test_the_headings_of_a_plan_are_there(block, what):
    """Of `notebook 02 ... *Heading*` in the column `what`; a notebook's names reach to the next notebook's."""
    for number, text in re.findall(r"notebook (\w+)(.*?)(?=notebook|$)", what):
        known = headings(number)
        for name in re.findall(r"\*([^*]+)\*", text):
            assert any(heading.startswith(name) for heading in known), f"block {block}: notebook {number} has no heading {name!r}"


def test_the_room_sheet_has_ten_failures_with_their_cures():
    sheet = (ROOT / "docs" / "room_sheet.md").read_text()
    rows = re.findall(r"^\| .+ \| .+ \| .+ \|$", sheet[sheet.index("## The ten failures") :], re.MULTILINE)[1:]
    assert len(rows) == 10
