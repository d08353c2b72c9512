#!/usr/bin/env python
"""The minutes of docs/plans.md beside those that tools/minutes.py and the decks' notes give for the same parts.

A row names its part by headings: `notebook 02 to *Darts on ranks*` (from the top, and that heading's part with it),
`notebook 04, *A* to *B*`, `notebook 09, *A*, *B*`; `lab 1, tasks 1 to 3`; a deck's sections:
`slides 1, *the beginning*, *Then, many*`.
"""

import json
import re

import minutes as tool

PAGE = tool.ROOT / "docs" / "plans.md"
PART = re.compile(r"\b(notebook|lab|slides) (\d\w*)(.*?)(?=; (?:notebook|lab|slides) \d|$)")
BEGINNING = "the beginning"


def blocks() -> dict[str, tuple[int, list[list[str]]]]:
    """{"A": (its minutes, its rows as lists of four)}"""
    found = re.findall(
        r"^## Block (\w): [^\n]*\((\d+) min\)$(.*?)(?=^## |\Z)",
        PAGE.read_text(),
        re.MULTILINE | re.DOTALL,
    )
    rows = [re.findall(r"^\| \d+ \|.*$", text, re.MULTILINE) for _, _, text in found]
    return {
        name: (int(total), [[part.strip() for part in row.split("|")[1:5]] for row in of])
        for (name, total, _), of in zip(found, rows, strict=True)
    }


def sections(number: str) -> dict[str, float]:
    """A deck's sections, by the headings of their dividers, with the minutes of talking in their notes."""
    (deck,) = (tool.ROOT / "slides").glob(f"{number}_*/deck.md")
    found, name = {BEGINNING: 0.0}, BEGINNING
    for slide in re.split(r"^---$", deck.read_text(), flags=re.MULTILINE):
        heading, notes = (
            re.search(r"^## (.+)$", slide, re.MULTILINE),
            re.search(r"^::: notes ([\d.]+) min", slide, re.MULTILINE),
        )
        if heading and notes:
            name = heading[1] if "{.divider}" in slide else name
            found[name] = found.get(name, 0) + float(notes[1])
    return found


def chosen(parts: dict[str, float], text: str) -> float:
    """The minutes of those parts, by their headings and in their order, that `text` names; of all if it names none."""
    values, at = list(parts.values()), []
    for name in re.findall(r"\*([^*]+)\*", text):
        fits = [i for i, heading in enumerate(parts) if heading.startswith(name)]
        if not fits:
            raise ValueError(f"no heading begins with {name!r}; there are {', '.join(parts)}")
        at.append(fits[0])
    if not at:
        return sum(values)
    if "to *" in text:
        return sum(values[0 if text.startswith(" to ") else at[0] : at[-1] + 1])
    return sum(values[i] for i in at)


def parts_of(name: str) -> dict[str, float]:
    """The minutes of a notebook's or a solution's parts, by their headings."""
    cells = json.loads((tool.ROOT / name).read_text())["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    found = re.findall(r"^## (.+)$", text, re.MULTILINE)
    between = zip([None, *found], [*found, None], strict=True)
    return {
        since or "top": sum(vars(tool.minutes(name, since, before)).values())
        for since, before in between
    }


def tasks(parts: dict[str, float], text: str) -> float:
    """The minutes of those tasks of a lab that `text` names, and of what introduces them; of all if it names none."""
    named, task, total = [int(digits) for digits in re.findall(r"\d+", text)], 1, 0.0
    if not named:
        return sum(parts.values())
    for heading, value in parts.items():
        total += value if named[0] <= task <= named[-1] else 0
        task += heading.startswith("Task ")
    return total


def needed(what: str) -> float | None:
    """Minutes that the parts take which a row names; None if it names none."""
    total = None
    for kind, number, text in PART.findall(what):
        if kind == "slides":
            minutes = chosen(sections(number), text)
        else:
            (path,) = tool.ROOT.glob(
                f"solutions/0{number}_*.ipynb" if kind == "lab" else f"notebooks/{number}_*.ipynb"
            )
            minutes = (tasks if kind == "lab" else chosen)(
                parts_of(str(path.relative_to(tool.ROOT))), text
            )
        total = (total or 0) + minutes
    return total


if __name__ == "__main__":
    for block, (_, rows) in blocks().items():
        for minutes, what, *_ in rows:
            if (need := needed(what)) is not None:
                print(f"{block}  planned {minutes:>3}, needed {need:5.1f}  {what}")
