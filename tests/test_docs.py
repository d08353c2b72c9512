"""What the pages and notebooks point to is there, and the README names every notebook, lab and make target that it promises."""

import json
import re
import subprocess
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
NOT_PAGES = (
    "slides/",
    "site/pages/",
    "benchmarks/pi_explained",
)  # decks and site have tests of their own; the last is part of a page
PAGES = [name for name in TRACKED if name.endswith((".md", ".ipynb")) and not name.startswith(NOT_PAGES)]
LINK = re.compile(r"\]\((?!https?:|#|mailto:|attachment:)([^)#\s]+)")


def text_of(path):
    if path.suffix == ".md":
        return path.read_text()
    return "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    path = ROOT / name
    text = re.sub(r"```.*?```", "", text_of(path), flags=re.DOTALL)
    missing = [link for link in LINK.findall(text) if not (path.parent / link).exists()]
    assert not missing


def test_the_readme_names_every_notebook_lab_and_deck():
    readme = (ROOT / "README.md").read_text()
    names = [p.name for folder in ("notebooks", "labs") for p in (ROOT / folder).glob("*.ipynb")]
    decks = [p.parent.name for p in (ROOT / "slides").glob("*/deck.md")]
    assert names and decks
    assert not [name for name in names + decks if name not in readme]


def test_the_readme_has_the_minutes_that_each_notebook_and_lab_states():
    rows = re.findall(
        r"^\| \[[^]]+\]\(((?:notebooks|labs)/[^)]+)\) \|.*\| (\d+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert len(rows) >= 17
    for name, minutes in rows:
        stated = re.search(r"\*\*(?:about )?(\d+) minutes", text_of(ROOT / name))
        assert stated and stated[1] == minutes, (
            f"{name}: the README says {minutes} minutes, its first cell {stated and stated[1]}"
        )


def test_every_make_target_that_a_page_names_is_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = [ROOT / name for name in PAGES if name.endswith(".md")]
    named = {word for page in pages for word in re.findall(r"`make ([a-z-]+)`", page.read_text())}
    assert named and named <= targets


@pytest.mark.parametrize("name", [name for name in PAGES if name.endswith(".ipynb")])
def test_no_output_tells_where_a_clone_or_its_python_lies(name):
    outputs = [cell.get("outputs", []) for cell in nbformat.read(ROOT / name, as_version=4).cells]
    plain = re.sub(r"\\u001b\[[0-9;]*m", "", json.dumps(outputs))  # without a terminal's colours
    assert not re.findall(r"(?<![\w.])/[\w./-]+/(?:site-packages|lib/python3)[^\s\"\\]*", plain)
