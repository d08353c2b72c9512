"""A room of seats: one line for who sits there, one table for who walks round."""

import json
from pathlib import Path

from pi2zero.doctor.checks import Result

MAX_BYTES = 1_000_000  # of a seat's answer, which has some 5,000


def code(results: list[Result]) -> str:
    """GREEN: the notebooks run here, perhaps with warnings. RED: they do not, and what failed."""
    failed = [result.name for result in results if result.status == "failed"]
    warnings = [result.name for result in results if result.status == "warning"]
    if failed:
        return f"RED: {', '.join(failed)}"
    return f"GREEN (look at: {', '.join(warnings)})" if warnings else "GREEN"


def read(path: Path) -> list[Result]:
    """What `doctor --json` wrote at a seat. Raises ValueError if it is not that."""
    try:
        if not path.is_file():
            raise TypeError("a pipe would keep us until somebody writes")
        with path.open("rb") as file:
            results = [Result(**check) for check in json.loads(file.read(MAX_BYTES))["checks"]]
        for result in results:
            if not all(isinstance(t, str) for t in (result.name, result.status, result.remedy)):
                raise TypeError("a field is not text")
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        raise ValueError("not what `doctor --json` writes: let it run there again") from error
    return results


def table(folder: Path) -> tuple[list[tuple[str, str, str]], int]:
    """(rows, how many seats are red) of all files SEAT.json in a folder; red rows come first.

    A row: the seat, its code, what to do.
    """
    rows = []
    for path in sorted(folder.glob("*.json")):
        try:
            results = read(path)
            failed = [result for result in results if result.status == "failed"]
            remedies = dict.fromkeys(result.remedy for result in failed if result.remedy)
            row = path.stem, code(results), " ".join(remedies)
        except ValueError as error:
            row = path.stem, "RED: no answer", str(error)
        # Whoever sits there has written it: keep out what a terminal would obey.
        rows.append(tuple("".join(c if c.isprintable() else "?" for c in text) for text in row))
    if not rows:
        raise FileNotFoundError(
            f"{folder} has no *.json. At each seat: "
            f"python -m pi2zero doctor --json > {folder}/SEAT.json"
        )
    rows.sort(key=lambda row: not row[1].startswith("RED"))
    return rows, sum(row[1].startswith("RED") for row in rows)


def show(folder: Path) -> int:
    """Print the table. Returns how many seats are red."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    rows, red = table(folder)
    shown = Table("seat", "", "what to do")
    for seat, words, remedy in rows:
        style = "bold red" if words.startswith("RED") else "green"
        shown.add_row(escape(seat), f"[{style}]{escape(words)}[/]", escape(remedy))
    Console().print(shown)
    print(f"{len(rows)} seats: {len(rows) - red} green, {red} red")
    return red
