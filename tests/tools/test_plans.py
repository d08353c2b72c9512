"""The plans for a session: minutes are those of the one tool and add up, each block has a break and a reserve; the labs' page."""

import re
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import plans  # noqa: E402

PLANS = plans.PAGE.read_text()
BLOCKS = plans.blocks()
NAMED = [
    (name, row) for name, (_, rows) in BLOCKS.items() for row in rows if plans.PART.search(row[1])
]
LABS = sorted(path.stem for path in (ROOT / "labs").glob("*.ipynb"))


def test_the_minutes_of_a_block_add_up():
    assert set(BLOCKS) == set("SABCDEFGH")
    for name, (total, rows) in BLOCKS.items():
        assert sum(int(row[0]) for row in rows) == total, name
        what = " ".join(row[1] for row in rows)
        assert "reserve" in what and ("break" in what or total <= 120), name


def test_the_blocks_of_a_plan_add_up():
    found = re.findall(r"^\| [a-z ]+ \| ([A-Z][A-Z,; ]*) \| (\d+) \|$", PLANS, re.MULTILINE)
    assert len(found) == 5
    for blocks, minutes in found:
        assert sum(BLOCKS[name][0] for name in re.findall(r"\w", blocks)) == int(minutes)


@pytest.mark.parametrize(("block", "row"), NAMED)
def test_a_row_has_the_minutes_that_its_part_takes(block, row):
    """Of notebooks, labs and slides. Its headings are there, or `needed` says which one is not."""
    assert int(row[0]) == pytest.approx(plans.needed(row[1]), abs=3.5), (
        f"block {block}; python tools/plans.py shows all"
    )


def test_a_heading_that_is_not_there_is_named():
    assert plans.needed("a break") is None
    assert plans.needed("slides 5; lab 2") == pytest.approx(
        plans.needed("slides 5") + plans.needed("lab 2")
    )
    with pytest.raises(ValueError, match="no heading begins with 'Nowhere'"):
        plans.needed("notebook 02 to *Nowhere*")


@pytest.mark.parametrize("name", LABS)
def test_each_task_of_a_lab_has_something_for_those_who_are_early(name):
    """In the lab, and with what comes of it on the page from the front."""
    cells = nbformat.read(ROOT / "labs" / f"{name}.ipynb", as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    tasks = re.findall(r"^## Task (\d+)", text, re.MULTILINE)
    early = text[text.index("## If you are early") :]
    assert re.findall(r"^- \*\*Task (\d+)\*\*", early, re.MULTILINE) == tasks
    page = (ROOT / "docs" / "labs.md").read_text()
    section = re.search(rf"^## Lab {int(name[:2])} .*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section
    assert re.findall(r"^\| (\d+) \|", section[0], re.MULTILINE) == tasks
    assert "**Before.**" in section[0] and "**After.**" in section[0]


def test_the_room_sheet_has_ten_failures_with_their_cures():
    """Each message stands, to the letter, in what a notebook or a measured page really got."""
    sheet = (ROOT / "docs" / "room_sheet.md").read_text()
    rows = re.findall(
        r"^\| (.+) \| .+ \| .+ \|$", sheet[sheet.index("## The ten failures") :], re.MULTILINE
    )[1:]
    assert len(rows) == 10
    messages = [a or b for a, b in re.findall(r"``(.+?)``|`([^`]+)`", "\n".join(rows))]
    seen = "".join(
        path.read_text()
        for path in [*(ROOT / "notebooks").glob("*.ipynb"), ROOT / "docs" / "no_cell_hangs.md"]
    )
    assert len(messages) == 5
    assert not [message for message in messages if message not in seen]
