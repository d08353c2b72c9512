#!/usr/bin/env python
"""Generate labs/ from solutions/: the same notebooks with the answers taken out.

  python tools/labs.py           write labs/NN_x.ipynb for every solutions/NN_x.ipynb
  python tools/labs.py --check   write nothing; fail if that would change anything

What stands between ### BEGIN SOLUTION and ### END SOLUTION becomes
`raise NotImplementedError("task N: ...")`. Outputs go, and so do cells with the tag
`solution-only`. N comes from the cell's tag `task-N`. All code cells of a task get the tag
`raises-exception`, so that an unsolved lab can be run from top to bottom.
"""

import argparse
import re
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent


class LabError(Exception):
    """A solution of which no lab can be made. The message names the notebook and the cell."""


BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"


def with_stub(source, number):
    """A cell's text with `raise NotImplementedError` for its solution. Raises LabError."""
    definition = re.search(r"^def (\w+\(.*\)):", source, re.MULTILINE)
    if number is None or not definition:
        raise LabError("a solution needs a tag like task-3, and stands in a function")
    stub = f'raise NotImplementedError("task {number}: write {definition[1]}")'
    lab = re.sub(rf"^( *){BEGIN}\n.*?{END}$", rf"\1{stub}", source, flags=re.DOTALL | re.MULTILINE)
    if BEGIN in lab or END in lab:
        raise LabError(f"{BEGIN} and {END} come in pairs")
    return lab


def task_number(cell):
    """3 for a cell with the tag task-3, None without such a tag."""
    found = [re.fullmatch(r"task-(\d+)", tag) for tag in cell.metadata.get("tags", [])]
    return next((int(match[1]) for match in found if match), None)


def make_lab(solution):
    """The lab of a solution, as the text of an .ipynb file. solution: its path. Raises LabError."""
    book = nbformat.read(solution, as_version=4)
    book.cells = [
        cell for cell in book.cells if "solution-only" not in cell.metadata.get("tags", [])
    ]
    if not any(BEGIN in cell.source for cell in book.cells):
        raise LabError(f"{solution.name}: no cell has {BEGIN}; what should be left out?")
    for place, cell in enumerate(book.cells, 1):
        if cell.cell_type != "code":
            continue
        cell.outputs, cell.execution_count, number = [], None, task_number(cell)
        for field in ("collapsed", "scrolled"):
            cell.metadata.pop(field, None)
        if BEGIN in cell.source:
            try:
                cell.source = with_stub(cell.source, number)
            except LabError as error:
                raise LabError(f"{solution.name}, cell {place} of the lab: {error}.") from None
        if number is not None:
            cell.metadata.tags = [*cell.metadata.tags, "raises-exception"]
    return nbformat.writes(book) + "\n"


def main():
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument(
        "--check", action="store_true", help="only compare; status 1 if one differs"
    )
    parser.add_argument(
        "--root", type=Path, default=ROOT, help="the folder of solutions/ and labs/"
    )
    options = parser.parse_args()
    solutions = sorted((options.root / "solutions").glob("*.ipynb"))
    if not solutions:
        sys.exit(f"There is no notebook in {options.root / 'solutions'}.")
    try:
        texts = {options.root / "labs" / path.name: make_lab(path) for path in solutions}
    except LabError as error:
        sys.exit(str(error))
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text() != text]
    orphans = [path for path in (options.root / "labs").glob("*.ipynb") if path not in texts]
    count = f"{len(texts)} lab{'s' * (len(texts) != 1)}"
    if options.check:
        for path in stale:
            print(f"labs/{path.name} is out of step with solutions/{path.name}. Run: make labs")
        for path in sorted(orphans):
            print(
                f"labs/{path.name} has no solutions/{path.name}. "
                "Labs are generated: remove it, or add its solution."
            )
        print(f"{count} compared with the solutions, {len(stale) + len(orphans)} out of step.")
        sys.exit(1 if stale or orphans else 0)
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(texts[path])
        print(f"labs/{path.name} written.")
    print(f"{count} in step with the solutions.")


if __name__ == "__main__":
    main()
