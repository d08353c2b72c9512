#!/usr/bin/env python
"""Generate labs/ from solutions/: the same notebooks with the answers taken out.

  python tools/labs.py           write labs/NN_x.ipynb for every solutions/NN_x.ipynb
  python tools/labs.py --check   write nothing; fail if that would change anything

What stands between ### BEGIN SOLUTION and ### END SOLUTION becomes `raise NotImplementedError("task N: ...")`, by nbgrader's
preprocessors. Outputs go, and so do cells with the tag `solution-only`. N comes from the cell's tag `task-N`; all code
cells of a task get the tag `raises-exception`, so that an unsolved lab can be run from top to bottom.
"""

import argparse
import re
import sys
from pathlib import Path

import nbformat
from nbgrader.preprocessors import ClearOutput, ClearSolutions

ROOT = Path(__file__).resolve().parent.parent


class LabError(Exception):
    """A solution of which no lab can be made. The message names the notebook and the cell."""


class Stubs(ClearSolutions):
    """nbgrader's ClearSolutions, with a stub that says which task is still to do."""

    enforce_metadata = False  # nobody collects or grades the labs

    def preprocess_cell(self, cell, resources, cell_index):
        if self.begin_solution_delimeter in cell.source:
            number, definition = (
                task_number(cell),
                re.search(r"^def (\w+\(.*\)):", cell.source, re.MULTILINE),
            )
            if number is None or not definition:
                raise LabError(
                    f"cell {cell_index + 1} of the lab: a solution needs a tag like task-3, and stands in a function"
                )
            self.code_stub = {
                "python": f'raise NotImplementedError("task {number}: write {definition[1]}")'
            }
        try:
            return super().preprocess_cell(cell, resources, cell_index)
        except RuntimeError as error:
            raise LabError(
                f"cell {cell_index + 1} of the lab: {error} (### BEGIN SOLUTION and ### END SOLUTION come in pairs)"
            ) from None


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
    if not any("### BEGIN SOLUTION" in cell.source for cell in book.cells):
        raise LabError(f"{solution.name}: no cell has ### BEGIN SOLUTION; what should be left out?")
    resources = {}
    try:
        book, resources = Stubs().preprocess(book, resources)
    except LabError as error:
        raise LabError(f"{solution.name}, {error}.") from None
    book, resources = ClearOutput().preprocess(book, resources)
    for cell in book.cells:
        if cell.cell_type == "code" and task_number(cell) is not None:
            cell.metadata.tags = [*cell.metadata.tags, "raises-exception"]
    return nbformat.writes(book) + "\n"


def main():
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument(
        "--check", action="store_true", help="only compare; exit status 1 if a lab is out of step"
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=ROOT,
        help="folder that has solutions/ and labs/ (default: the kit)",
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
    orphans = [
        path for path in sorted((options.root / "labs").glob("*.ipynb")) if path not in texts
    ]
    if options.check:
        for path in stale:
            print(f"labs/{path.name} is out of step with solutions/{path.name}. Run: make labs")
        for path in orphans:
            print(
                f"labs/{path.name} has no solutions/{path.name}. Labs are generated: remove it, or add its solution."
            )
        print(
            f"{len(texts)} lab{'s' * (len(texts) != 1)} compared with the solutions, {len(stale) + len(orphans)} out of step."
        )
        sys.exit(1 if stale or orphans else 0)
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(texts[path])
        print(f"labs/{path.name} written.")
    print(f"{len(texts)} lab{'s' * (len(texts) != 1)} in step with the solutions.")


if __name__ == "__main__":
    main()
