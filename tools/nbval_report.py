#!/usr/bin/env python
"""Run notebooks with nbval, and account for what was compared.

  python tools/nbval_report.py                             notebooks/ and solutions/
  python tools/nbval_report.py notebooks/02_mpi_pi.ipynb   this one

Fails if a cell fails, if a notebook has no cell whose text is compared, or if a cell's text is exempted
(`nbval-ignore-output`) and neither it nor a neighbour asserts anything.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import nbval.kernel
import pytest
from jupyter_client.manager import KernelManager
from nbval.plugin import IPyNbCell, NbCellError
from nbval_cells import asserts, beside, has_text, kind

ROOT = Path(__file__).resolve().parent.parent
CELL_SECONDS = 120  # nbval's own default is 2000: one dead kernel would cost half an hour
COLUMNS = ("compared", "quiet", "exempted", "asserted", "skipped", "failed")


class PrivateKernelManager(KernelManager):
    """Talks to its kernel through sockets in a private folder, not through TCP ports that anybody could listen on."""

    def __init__(self, **options):
        self._folder = tempfile.TemporaryDirectory()
        super().__init__(transport="ipc", ip=f"{self._folder.name}/kernel", **options)


def execute(kernel, source, allow_stdin=None):
    """As nbval, but the kernel remembers the cell: without that, IPython ignores the ; that hides a cell's last value."""
    return kernel.kc.execute(source, allow_stdin=allow_stdin, stop_on_error=False)


class Account:
    """A pytest plugin that counts, per notebook, what nbval did, and names what broke."""

    def __init__(self):
        self.books = {}  # path: its items
        self.failed = {}  # item: why
        self.started, self.seconds = {}, Counter()

    def pytest_collection_modifyitems(self, items):
        for item in items:
            if isinstance(item, IPyNbCell):
                self.books.setdefault(item.path, []).append(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        start = time.monotonic()
        result = yield
        self.seconds[item.path] += time.monotonic() - start
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if report.failed and isinstance(item, IPyNbCell):
            error = call.excinfo.value
            self.failed.setdefault(item, str(error) if isinstance(error, NbCellError) else repr(error))
        return report

    def complaints(self):
        """What is wrong with the notebooks themselves, whatever their cells did."""
        found = []
        for path, items in self.books.items():
            cells = [item.cell for item in items]
            kinds = [kind(item.cell, item.options) for item in items]
            if "compared" not in kinds:
                found.append(f"{name(path)}: no cell's text is compared. Print a number that always comes out the same.")
            for at, item in enumerate(items):
                loses_text = kinds[at] == "exempted" and any(map(has_text, item.cell.outputs))  # a picture loses nothing
                if loses_text and not any(asserts(cells[other].source) for other in beside(kinds, at)):
                    found.append(
                        f"{where(item)} is exempted, but neither it nor a neighbour asserts anything: {first_line(item)}"
                    )
        return found

    def rows(self):
        """A line of the table for each notebook: its name, its number of code cells, the counts, its seconds."""
        for path, items in self.books.items():
            count = Counter(kind(item.cell, item.options) for item in items)
            count["asserted"] = sum(asserts(item.cell.source) for item in items)
            count["failed"] = sum(item in self.failed for item in items)
            yield name(path), len(items), [count[column] for column in COLUMNS], self.seconds[path]

    def pytest_sessionfinish(self, session):
        if self.complaints() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        say = terminalreporter.write_line
        terminalreporter.section("notebooks: what nbval compared")
        say(f"{'notebook':<36}{'cells':>6}" + "".join(f"{column:>10}" for column in COLUMNS) + f"{'seconds':>9}")
        for book, cells, counts, seconds in self.rows():
            say(f"{book:<36}{cells:>6}" + "".join(f"{count:>10}" for count in counts) + f"{seconds:>9.0f}")
        say("quiet: no text to compare, but run; exempted: run, output not compared; asserted: holds an assert or a check")
        for item, why in self.failed.items():
            say(f"BROKEN {where(item)}: {why}: {first_line(item)}")
        for complaint in self.complaints():
            say(f"NOT CHECKED {complaint}")


def name(path):
    """A notebook's path as a person would write it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def where(item):
    """The notebook and the cell, counted as JupyterLab shows them: all cells, from 1."""
    cells = item.parent.nb.cells
    number = next(i for i, cell in enumerate(cells, start=1) if cell is item.cell)
    return f"{name(item.path)}, cell {number} of {len(cells)}"


def first_line(item):
    """The first line of a cell that says something."""
    lines = [line for line in item.cell.source.splitlines() if line.strip() and not line.startswith("%%")]
    return lines[0].strip() if lines else "(empty)"


def main():
    description, ways = __doc__.split("\n\n", 1)
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, epilog=ways, formatter_class=formatter)
    parser.add_argument("path", nargs="*", help="notebooks or folders (default: notebooks/ and solutions/)")
    parser.add_argument("--timeout", type=float, default=CELL_SECONDS, help=f"seconds for one cell (default: {CELL_SECONDS})")
    options = parser.parse_args()
    paths = [Path(path) for path in options.path] or [ROOT / "notebooks", ROOT / "solutions"]
    if missing := [str(path) for path in paths if not path.exists()]:
        sys.exit(f"{', '.join(missing)}: no such notebook or folder.")
    nbval.kernel.KernelManager = PrivateKernelManager
    nbval.kernel.RunningKernel.execute_cell_input = execute
    limits = ["--nbval-cell-timeout", str(options.timeout), "--timeout", str(options.timeout + 120)]
    quiet = ["-q", "--tb=short", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    sys.exit(pytest.main(["--nbval", *limits, *quiet, *map(str, paths)], plugins=[Account()]))


if __name__ == "__main__":
    main()
