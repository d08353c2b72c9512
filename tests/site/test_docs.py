"""What the pages and notebooks point to exists, and stored outputs show the code of today."""

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
# Decks and site have tests of their own; pi_explained is a part of a page.
NOT_PAGES = ("slides/", "site/pages/", "benchmarks/pi_explained")
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
# A path from the root: not what follows http:/ or a name, but what follows file://. And a token.
PRIVATE = [
    re.compile(r"(?:(?<![\w.:/~<-])|(?<=file://))/(?!dev/null)(?:[\w.~@-]+/)+[\w.~@-]*"),
    re.compile(r"\btoken=\w{8,}"),
]


def output_text(cells):
    """The text of all outputs, without a terminal's colours and without pictures."""
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
def test_no_output_has_a_path_a_token_or_the_name_of_a_machine(name):
    text = output_text(BOOKS[name])
    sources = "\n".join(cell.source for cells in BOOKS.values() for cell in cells)
    leaks = [leak for pattern in PRIVATE for leak in pattern.findall(text)]
    for own in {socket.gethostname(), getpass.getuser(), Path.home().name}:
        word = re.compile(rf"(?<![\w.-]){re.escape(own)}(?![\w-])")
        if not word.search(sources):  # A word of the notebooks themselves, such as root, is none.
            leaks += word.findall(text)
    assert not leaks, "`make notebooks` removes the names of machines"


# Where ranks waited, and where one raised
FRAMES = (r"cell line \d+:  (.+)$", r"this cell, line \d+\n(?:.*\n)*?-+> \d+ (.+)$")


def test_a_stored_error_quotes_the_cell_above_it():
    """Some outputs are not compared; there, a changed cell would keep its former error."""
    quoted = [
        (name, number, line.strip(), cell.source)
        for name, cells in BOOKS.items()
        for number, cell in enumerate(cells)
        for frame in FRAMES
        for line in re.findall(frame, output_text([cell]), re.M)
    ]
    assert len(quoted) >= 15
    assert not [(name, number, line) for name, number, line, source in quoted if line not in source]


# Cells that show a program of the kit
SHOWS = re.compile(r'Path\(f?"\.\./scripts/[^"]+"\)\.read_text\(\)')
SHOWN = [
    pytest.param(cell, id=f"{name}, cell {number}")
    for name, cells in BOOKS.items()
    for number, cell in enumerate(cells, 1)
    if cell.cell_type == "code" and SHOWS.search(cell.source)
]


@pytest.mark.parametrize("cell", SHOWN)
def test_a_program_is_shown_as_it_is(cell, monkeypatch, capsys):
    """A change to a program changes the notebooks that quote it."""
    monkeypatch.chdir(ROOT / "notebooks")
    lines = ast.parse(cell.source).body
    known = {"Path": Path, "difflib": difflib, "Code": Code}
    exec(compile(ast.Module(lines[:-1], []), "cell", "exec"), known)
    last = eval(compile(ast.Expression(lines[-1].value), "cell", "eval"), known)
    printed = "".join(output.text for output in cell.outputs if output.output_type == "stream")
    pages = [
        output.data["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})
    ]
    remedy = "run `.venv/bin/python tools/notebooks.py` with that notebook"
    assert capsys.readouterr().out == printed, remedy
    assert pages == ([last._repr_html_()] if last else []), remedy
