#!/usr/bin/env python
"""Run notebooks with nbval, and account for what was compared.

  python tools/nbval_report.py                             notebooks/ and solutions/
  python tools/nbval_report.py notebooks/02_mpi_pi.ipynb   this one

Several notebooks run in two lanes: the longest first, and those that time things alone (tools/budgets.toml).
Fails if a cell fails, if a notebook has no cell whose text is compared, or if a cell's text is exempted
(`nbval-ignore-output`) and neither it nor a neighbour asserts anything.
"""

import argparse
import os
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from notebooks import THIS_HOST, named

ROOT = Path(__file__).resolve().parent.parent
CELL_SECONDS = 900  # a hang's limit, not a budget: the longest cell takes 180 s alone on an idle machine, and 300 were too few
# beside another notebook on a busy one. nbval's own is 2000.
DOOR = (
    "PI2ZERO_NBVAL_DOOR"  # names the folder of the locks by which the lanes let a notebook be alone
)
LANES = 2  # a rank that waits spins, so not more than two MPI jobs on two cores


def main():
    description, ways = __doc__.split("\n\n", 1)
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        description=description, epilog=ways, formatter_class=formatter
    )
    parser.add_argument(
        "path", nargs="*", help="notebooks or folders (default: notebooks/ and solutions/)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=CELL_SECONDS,
        help=f"seconds for one cell (default: {CELL_SECONDS})",
    )
    parser.add_argument(
        "--lanes",
        type=int,
        default=LANES,
        help=f"notebooks that run at the same time (default: {LANES})",
    )
    options, more = parser.parse_known_args()  # more: pytest's own
    paths = [Path(path) for path in options.path] or [ROOT / "notebooks", ROOT / "solutions"]
    if missing := [str(path) for path in paths if not path.exists()]:
        sys.exit(f"{', '.join(missing)}: no such notebook or folder.")
    books = [
        book for path in paths for book in (path.glob("**/*.ipynb") if path.is_dir() else [path])
    ]
    lanes = min(options.lanes, len(books))
    workers = (
        ["-n", str(lanes), "--dist", "loadfile", "--no-loadscope-reorder"] if lanes > 1 else []
    )
    limits = ["--nbval-cell-timeout", str(options.timeout), "--timeout", str(options.timeout + 120)]
    quiet = ["-q", "--tb=short", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    with tempfile.TemporaryDirectory() as door, tempfile.NamedTemporaryFile("w") as same:
        same.write(
            f"regex: {named(socket.gethostname())}\nreplace: {THIS_HOST}\n"
        )  # as it is called where outputs are stored
        same.flush()
        os.environ[DOOR] = door
        os.environ["PI2ZERO_LIVE"] = "0"  # lines for a person who watches are not compared
        nbval = ["--nbval", "--nbval-sanitize-with", same.name, "-p", "nbval_account"]
        sys.exit(pytest.main([*nbval, *workers, *limits, *quiet, *more, *map(str, paths)]))


if __name__ == "__main__":
    main()
