"""A room of seats: one line for the one who sits there, one table for the one who walks round."""

import json
from pathlib import Path

from pi2zero.doctor.checks import Result

LONGEST = 1_000_000  # bytes of a seat's answer, which has some 5,000


def code(results: list[Result]) -> str:
    """GREEN: the notebooks run here, perhaps with warnings. RED, and the checks that failed: here they do not."""
    failed = [result.name for result in results if result.status == "failed"]
    warnings = [result.name for result in results if result.status == "warning"]
    if failed:
        return f"RED: {', '.join(failed)}"
    return "GREEN" + (f" (look at: {', '.join(warnings)})" if warnings else "")


def read(path: Path) -> list[Result]:
    """What `doctor --json` wrote at a seat. Raises ValueError if it is not that."""
    try:
        if not path.is_file():
            raise TypeError("a pipe would keep us until somebody writes")
        with path.open("rb") as file:
            results = [Result(**check) for check in json.loads(file.read(LONGEST))["checks"]]
        if not all(
            isinstance(word, str)
            for result in results
            for word in (result.name, result.status, result.remedy)
        ):
            raise TypeError("a field is not text")
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        raise ValueError("not what `doctor --json` writes: let it run there again") from error
    return results


def table(folder: Path) -> tuple[list[tuple[str, str, str]], int]:
    """Of all files *.json of a folder, named by their seats: (seat, code, what to do), red ones first; how many are red."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        try:
            results = read(path)
            remedies = " ".join(
                dict.fromkeys(
                    result.remedy
                    for result in results
                    if result.status == "failed" and result.remedy
                )
            )
            said = code(results), remedies
        except ValueError as error:
            said = "RED: no answer", str(error)
        # Whoever sits there has written it: nothing that a terminal would obey.
        rows.append(
            tuple(
                "".join(c if c.isprintable() else "?" for c in text) for text in (path.stem, *said)
            )
        )
    if not rows:
        raise FileNotFoundError(
            f"{folder} has no *.json. At each seat: python -m pi2zero doctor --json > {folder}/SEAT.json"
        )
    rows.sort(key=lambda row: not row[1].startswith("RED"))
    return rows, sum(row[1].startswith("RED") for row in rows)


def show(folder: Path) -> int:
    """Print the table. How many seats are red."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    rows, red = table(folder)
    shown = Table("seat", "", "what to do")
    for seat, said, remedy in rows:
        shown.add_row(
            escape(seat),
            f"[{'bold red' if said.startswith('RED') else 'green'}]{escape(said)}[/]",
            escape(remedy),
        )
    Console().print(shown)
    print(f"{len(rows)} seats: {len(rows) - red} green, {red} red")
    return red
