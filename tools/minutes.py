#!/usr/bin/env python
"""How long a notebook or a lab takes somebody alone: from its words, lines, predictions, blanks and the cells' own seconds.

  python tools/minutes.py           what each takes
  python tools/minutes.py --write   into the first cells, the labs, and the README's rows and sums

The rates are assumptions, not measurements: technical text in a second language, code that is read to be understood.
The cells' seconds are those of tools/budgets.toml. Totals are rounded to five minutes.
"""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import budgets

ROOT = Path(__file__).resolve().parents[1]
WORDS, LINES = 120, 15  # of text and of code, read in a minute
PICTURE, PREDICTION = 0.5, 1.5  # min to look at one; to think about one, and type it
BLANK, ANSWER_LINE = (
    2.0,
    0.75,
)  # min to understand what to write, and for each line of the kit's answer
STATED = re.compile(r"\*\*(\d+) minutes(?: \([^)]*\))?")
HINTS = re.compile(r"<details><summary>Hint.*?</details>", re.DOTALL)  # not everybody opens them
ANSWER = re.compile(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", re.DOTALL)
BLANKS = {"blank", "blank-check", "blank-solution"}
NOT_FOR_ALL = {"solution-only", "optional"}  # text of the solutions, and for those who are early


@dataclass
class Minutes:
    read: float
    predict: float
    write: float
    run: float

    @property
    def total(self) -> int:
        return max(5, round((self.read + self.predict + self.write + self.run) / 5) * 5)

    def __str__(self):
        parts = {f"to {name}": value for name, value in vars(self).items() if round(value)}
        return f"{self.total} minutes ({', '.join(f'{value:.0f} {name}' for name, value in parts.items())})"


def books() -> list[str]:
    """The notebooks, and the solutions, from which the labs are written."""
    return [
        str(path.relative_to(ROOT))
        for folder in ("notebooks", "solutions")
        for path in sorted((ROOT / folder).glob("*.ipynb"))
    ]


def lines_of(code: str) -> int:
    """Lines that say something."""
    return sum(
        bool(line.strip()) and not line.strip().startswith(("#", "@", "%%px"))
        for line in code.splitlines()
    )


def part_of(cells: list, since: str | None, before: str | None) -> list:
    """The cells from one heading on, up to another one. Raises ValueError if there is no such heading."""

    def at(heading):
        found = [
            i
            for i, cell in enumerate(cells)
            if f"\n## {heading}\n" in "\n" + "".join(cell["source"]) + "\n"
        ]
        if len(found) != 1:
            raise ValueError(f"{len(found)} headings are called {heading!r}")
        return found[0]

    return cells[at(since) if since else 0 : at(before) if before else None]


def minutes(name: str, since: str | None = None, before: str | None = None) -> Minutes:
    """name: a notebook or a solution, relative to the kit's folder. since, before: headings, where a part begins and ends."""
    book = json.loads((ROOT / name).read_text())["cells"]
    cells = part_of(book, since, before)
    tags = [set(cell["metadata"].get("tags", [])) for cell in cells]
    sources = ["".join(cell["source"]) for cell in cells]
    code = [
        source if cell["cell_type"] == "code" else ""
        for cell, source in zip(cells, sources, strict=True)
    ]
    text = "\n".join(
        source
        for cell, mine, source in zip(cells, tags, sources, strict=True)
        if cell["cell_type"] == "markdown" and not mine & NOT_FOR_ALL
    )
    answers = [source for mine, source in zip(tags, code, strict=True) if "blank-solution" in mine]
    answers += [answer for source in code for answer in ANSWER.findall(source)]
    given = [
        ANSWER.sub("", source)
        for mine, source in zip(tags, code, strict=True)
        if not mine & (BLANKS | {"solution-only"})
    ]
    pictures = sum(
        "image/png" in output.get("data", {})
        for cell in cells
        for output in cell.get("outputs", [])
    )
    return Minutes(
        read=len(re.findall(r"\w+", HINTS.sub("", STATED.sub("", text)))) / WORDS
        + sum(map(lines_of, given)) / LINES
        + pictures * PICTURE,
        predict=len(re.findall(r"\*\*(?:Predict|Your turn)", text)) * PREDICTION,
        write=sum(BLANK + ANSWER_LINE * lines_of(answer) for answer in answers),
        run=budgets.NOTEBOOKS[name]
        / 60
        * len([c for c in code if c])
        / max(1, sum(c["cell_type"] == "code" for c in book)),
    )


def stated(name: str) -> int:
    """What the file says of itself. A handout has labs, but no solutions to compute it from."""
    if found := STATED.search((ROOT / name).read_text()):
        return int(found[1])
    raise ValueError(f"{name} does not state its minutes")


def write(name: str) -> None:
    """Into the cell that states it."""
    path, says = ROOT / name, f"**{minutes(name)}"
    text = path.read_text()
    path.write_text(STATED.sub(says, text, count=1))


def write_readme() -> None:
    """The rows of notebooks and labs, and the hours of parts and ways."""
    sys.path.insert(0, str(ROOT / "site"))
    import content

    path = ROOT / "README.md"
    text = path.read_text()
    for name in books():
        page = name.replace("solutions/", "labs/")
        text = re.sub(
            rf"^(\| \[[^]]+\]\({page}\) \|.*\| )\d+( \|)$",
            rf"\g<1>{minutes(name).total}\2",
            text,
            flags=re.MULTILINE,
        )
    for part in content.PARTS:
        text = last_of_row(
            text, part["title"], content.hours(sum(map(content.minutes_of, content.pages_of(part))))
        )
    for way in content.WAYS:
        text = last_of_row(text, way["name"], content.hours(content.minutes_of_way(way)))
    path.write_text(text)


def last_of_row(text: str, holds: str, value: str) -> str:
    """A Markdown page with another value at the end of the row that begins with these words."""
    return re.sub(
        rf"^(\| [^|]*{re.escape(holds)}[^|]* \|.*\| )[^|]+( \|)$",
        rf"\g<1>{value}\2",
        text,
        flags=re.MULTILINE,
    )


if __name__ == "__main__":
    for book in books():
        print(f"{book:<42} {minutes(book)}")
        if "--write" in sys.argv[1:]:
            write(book)
    if "--write" in sys.argv[1:]:
        subprocess.run([sys.executable, "tools/labs.py"], cwd=ROOT, check=True)
        write_readme()
