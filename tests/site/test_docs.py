"""What the pages and notebooks point to is there, and the README names every notebook, lab and make
target that it promises.
"""

import ast
import difflib
import getpass
import re
import socket
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from IPython.display import Code

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))


TRACKED = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.split("\n")
NOT_PAGES = (
    "slides/",
    "site/pages/",
    "benchmarks/pi_explained",
)  # decks and site have tests of their own; the last is part of a page
PAGES = [
    name for name in TRACKED if name.endswith((".md", ".ipynb")) and not name.startswith(NOT_PAGES)
]
LINK = re.compile(r"\]\((?!https?:|#|mailto:|attachment:)([^)#\s]+)")


def text_of(path):
    if path.suffix == ".md":
        return path.read_text()
    return "\n".join(
        cell.source
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "markdown"
    )


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


def test_every_make_target_that_a_page_names_is_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = [ROOT / name for name in PAGES if name.endswith(".md")]
    named = {word for page in pages for word in re.findall(r"`make ([a-z-]+)`", page.read_text())}
    assert named and named <= targets


BOOKS = {
    name: nbformat.read(ROOT / name, as_version=4).cells
    for name in PAGES
    if name.endswith(".ipynb")
}
# a path from the root; not what follows http:/ or a name; behind file:// it is one, too
TELLING = [
    re.compile(r"(?:(?<![\w.:/~<-])|(?<=file://))/(?!dev/null)(?:[\w.~@-]+/)+[\w.~@-]*"),
    re.compile(r"\btoken=\w{8,}"),
]


def said(cells):
    """The text of all outputs, without a terminal's colours; pictures are none."""
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    texts = [output.get("text", "") + "\n".join(output.get("traceback", [])) for output in outputs]
    texts += [
        str(value)
        for output in outputs
        for kind, value in output.get("data", {}).items()
        if not kind.startswith("image/")
    ]
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(texts))


@pytest.mark.parametrize("name", BOOKS)
def test_no_output_tells_a_path_a_token_or_whose_machine_it_was(name):
    text, sources = (
        said(BOOKS[name]),
        "\n".join(cell.source for cells in BOOKS.values() for cell in cells),
    )
    found = [hit for telling in TELLING for hit in telling.findall(text)]
    for own in {socket.gethostname(), getpass.getuser(), Path.home().name}:
        word = re.compile(rf"(?<![\w.-]){re.escape(own)}(?![\w-])")
        if not word.search(sources):  # a word of the notebooks' own, such as root, tells nothing
            found += word.findall(text)
    assert not found, "`make notebooks` writes them so that nobody's machine is named"


FRAMES = (
    r"cell line \d+:  (.+)$",
    r"this cell, line \d+\n(?:.*\n)*?-+> \d+ (.+)$",
)  # where ranks waited, and where one raised


def test_a_stored_error_quotes_the_cell_above_it():
    """Where the output is not compared, a cell that was changed later keeps the error of the former
    one.
    """
    told = {}
    for name, cells in BOOKS.items():
        for number, cell in enumerate(cells):
            lines = [
                line.strip() for frame in FRAMES for line in re.findall(frame, said([cell]), re.M)
            ]
            told |= (
                {(name, number): [line for line in lines if line not in cell.source]}
                if lines
                else {}
            )
    assert len(told) >= 15 and not {where: lines for where, lines in told.items() if lines}


SHOWS = re.compile(
    r'Path\(f?"\.\./scripts/[^"]+"\)\.read_text\(\)'
)  # cells that show a program of the kit
SHOWN = [
    pytest.param(cell, id=f"{name}, cell {number}")
    for name, cells in BOOKS.items()
    for number, cell in enumerate(cells, 1)
    if cell.cell_type == "code" and SHOWS.search(cell.source)
]


@pytest.mark.parametrize("cell", SHOWN)
def test_a_program_is_shown_as_it_is(cell, monkeypatch, capsys):
    """A change to a program changes the notebooks that quote it: told here, not after an hour."""
    monkeypatch.chdir(ROOT / "notebooks")
    lines = ast.parse(cell.source).body
    known = {"Path": Path, "difflib": difflib, "Code": Code}
    exec(compile(ast.Module(lines[:-1], []), "cell", "exec"), known)
    last = eval(compile(ast.Expression(lines[-1].value), "cell", "eval"), known)
    printed = "".join(output.text for output in cell.outputs if output.output_type == "stream")
    pages = [
        output.data["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})
    ]
    again = (
        f"`.venv/bin/python tools/notebooks.py` with that notebook writes what "
        f"{SHOWS.search(cell.source).group()} is now"
    )
    assert capsys.readouterr().out == printed and pages == ([last._repr_html_()] if last else []), (
        again
    )
