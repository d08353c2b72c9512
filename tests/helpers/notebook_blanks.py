"""The blanks as they stand in the notebooks: for each, the cells that the learner meets."""

import re
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[2]
BOOKS = {
    path.stem: nbformat.read(path, as_version=4)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
}
TAUGHT = [stem for stem in BOOKS if re.match(r"0[1-9]|10|11[abc]?_|12", stem)]
PARTS = ("blank", "blank-check", "blank-solution")


def tags(cell):
    return cell.metadata.get("tags", [])


def code(cell):
    """A cell's source without its magic."""
    return cell.source.removeprefix("%%px\n")


class Blank:
    """One blank: its three cells, its name, the module of its check, and whether it is on ranks."""

    def __init__(self, book, at):
        self.book, self.cells = book, BOOKS[book].cells[at : at + 3]
        self.name = re.search(r"^def (\w+)\(", self.cells[0].source, re.MULTILINE)[1]
        self.on_ranks = self.cells[0].source.startswith("%%px\n")
        imported = re.findall(
            r"from pi2zero_course\.checks\.blanks import .*\bsolution, (\w+) as check",
            "\n".join(c.source for c in BOOKS[book].cells),
        )
        self.module = next(name for name in imported if name.endswith("_on_ranks") == self.on_ranks)

    def __repr__(self):
        return f"{self.book[:3].strip('_')}-{self.name}"

    @property
    def kits(self):
        """The kit's function as text."""
        return code(self.cells[2]).removeprefix("@solution\n")


BLANKS = [
    Blank(stem, at)
    for stem, book in BOOKS.items()
    for at, cell in enumerate(book.cells)
    if "blank" in tags(cell)
]
