"""What the workshop consists of: parts.toml, and the first cell of each notebook and lab."""

import functools
import json
import re
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
_FILE = tomllib.loads((HERE / "parts.toml").read_text())
PARTS, WAYS = _FILE["part"], _FILE["way"]
MENU = tomllib.loads((HERE / "menu.toml").read_text())
ANSWERS = MENU.pop("answers")


def minutes_of(path):
    """The minutes that a notebook or a lab states. path: relative to the kit's folder."""
    return int(re.search(r"\*\*(\d+) minutes", (ROOT / path).read_text())[1])


@functools.cache
def notebook(path):
    """A notebook of the kit as a dict. path: relative to the kit's folder."""
    return json.loads((ROOT / path).read_text())


def text_of(path):
    """All Markdown of a notebook."""
    return "\n\n".join(
        "".join(cell["source"])
        for cell in notebook(path)["cells"]
        if cell["cell_type"] == "markdown"
    )


def code_of(path):
    return "\n".join(
        "".join(cell["source"]) for cell in notebook(path)["cells"] if cell["cell_type"] == "code"
    )


def pages_of(part):
    """The paths of a part's notebooks and labs, in their order."""
    return [f"{page}.ipynb" for page in part["pages"]]


def path_of(name):
    """A notebook's or a lab's path, by its name without ending."""
    (path,) = (path for path in all_pages() if Path(path).stem == name)
    return path


def all_pages():
    return [path for part in PARTS for path in pages_of(part)]


def title_of(path):
    return re.search(r"^# (.+)$", text_of(path), re.MULTILINE)[1]


def number_of(path):
    """'02' of notebook 02, 'Lab 1' of lab 1."""
    return re.match(r"Lab \d+|\w+", title_of(path))[0]


def outcomes_of(path):
    """What the first cell says that one can do afterwards."""
    listed = re.search(r"^After this \w+ you can\n\n((?:\d\. .+\n)+)", text_of(path), re.MULTILINE)
    return [line.partition(". ")[2].rstrip(";.") for line in listed[1].splitlines()]


def minutes_of_deck(deck):
    """Minutes of talking: the sum of what the slides' notes state."""
    text = (ROOT / "slides" / deck / "deck.md").read_text()
    return int(sum(map(float, re.findall(r"^::: notes ([\d.]+) min$", text, re.MULTILINE))) + 0.5)


def minutes_of_way(way):
    paths = all_pages() if way["pages"] == ["..."] else [path_of(name) for name in way["pages"]]
    return sum(map(minutes_of, paths))


def hours(minutes):
    """'2 h 20 min', as the pages write it."""
    return " ".join(
        f"{n} {unit}" for n, unit in zip(divmod(minutes, 60), ("h", "min"), strict=True) if n
    )


def setting(name):
    """A line of CITATION.cff, such as its version, without quotes; "" if it is not there."""
    text = (ROOT / "CITATION.cff").read_text()
    found = re.search(rf"""^{name}: *["']?(.*?)["']?$""", text, re.MULTILINE)
    return found[1] if found else ""


def source_of(page):
    """The file that a page of the site is made from, relative to the kit's folder; or ""."""
    names = [f"{page}.ipynb", f"{page}.md", f"site/pages/{page}.md", f"site/{page}.toml"]
    names = [re.sub("^labs/", "solutions/", name) for name in names]
    return next((name for name in names if (ROOT / name).is_file()), "")
