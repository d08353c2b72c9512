"""A pytest plugin: what nbval did with each notebook's cells, counted over all lanes, and what broke.

Lanes are pytest-xdist's workers. A cell's facts travel with its reports, so the account is the same with one lane or several.
"""

import fcntl
import os
import tempfile
from collections import Counter
from pathlib import Path
from unittest import mock

import budgets
import nbval.kernel
import needs
import pytest
from jupyter_client.manager import KernelManager
from nbval.plugin import IPyNbCell, NbCellError
from nbval_cells import asserts, beside, has_text, kind
from nbval_report import DOOR

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = ("compared", "quiet", "exempted", "asserted", "skipped", "failed")
SLOWEST = 20
COMPLAINT = 8  # not a number of pytest's: no second try (check.py) can mend it


class PrivateKernelManager(KernelManager):
    """Talks to its kernel through sockets in a private folder, not through TCP ports that anybody could listen on."""

    def __init__(self, **options):
        self._folder = tempfile.TemporaryDirectory()
        super().__init__(transport="ipc", ip=f"{self._folder.name}/kernel", **options)


def execute(kernel, source, allow_stdin=None):
    """As nbval, but the kernel remembers the cell: without that, IPython ignores the ; that hides a cell's last value."""
    return kernel.kc.execute(source, allow_stdin=allow_stdin, stop_on_error=False)


def pytest_configure(config):
    nbval.kernel.KernelManager = PrivateKernelManager
    nbval.kernel.RunningKernel.execute_cell_input = execute
    config.pluginmanager.register(Lane())
    if not hasattr(
        config, "workerinput"
    ):  # a lane's reports come to the one process that writes the account
        config.pluginmanager.register(Account())


class Lane:
    """Where cells run: the longest notebooks first, those that time things alone."""

    def __init__(self):
        self.door = self.shared = None

    def pytest_collection_modifyitems(self, items):
        items.sort(
            key=lambda item: budgets.turn(name(item.path))
        )  # stable: a notebook's cells keep their order
        for item in items:
            if isinstance(item, IPyNbCell):
                cell = facts(item)
                item.user_properties.append(("cell", cell))
                if needs.ON_HOSTS and "one-host" in item.cell.metadata.get("tags", []):
                    item.options["check"] = (
                        False  # what MPI does then differs between memory and network
                    )
                if cell["absent"]:
                    item.add_marker(pytest.mark.skip(reason=f"{cell['book']}: {cell['absent']}"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        if self.door is None:
            alone = name(item.path) in budgets.ALONE
            self.door = enter(alone)
            self.shared = mock.patch.dict(os.environ, {} if alone else budgets.SHARED_CORES)
            self.shared.start()
        result = yield
        if nextitem is None or nextitem.path != item.path:
            self.shared.stop()
            os.close(self.door)
            self.door = None
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if report.failed and isinstance(item, IPyNbCell):
            error = call.excinfo.value
            report.user_properties.append(
                ("why", str(error) if isinstance(error, NbCellError) else repr(error))
            )
        return report


def enter(alone):
    """The lock of a notebook that runs, once nobody stands in its way; closing it lets others in.

    First come, first served: else a lane whose notebook has just ended would go on with a long one, while the other waits for all
    of it to be alone.
    """
    turn, door = (
        os.open(f"{os.environ[DOOR]}/{part}", os.O_RDONLY | os.O_CREAT) for part in ("turn", "door")
    )
    fcntl.flock(turn, fcntl.LOCK_EX)
    fcntl.flock(door, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    os.close(turn)
    return door


class Account:
    """Counts, per notebook, what the lanes report, and names what broke."""

    def __init__(self):
        self.books = {}  # name: {number of the cell: its facts}
        self.failed = {}  # (name, number): why
        self.seconds = Counter()  # of (name, number)

    def pytest_runtest_logreport(self, report):
        told = dict(report.user_properties)
        if "cell" not in told:
            return
        cell = told["cell"]
        at = cell["book"], cell["number"]
        self.books.setdefault(cell["book"], {})[cell["number"]] = cell
        self.seconds[at] += report.duration
        if report.failed:
            self.failed.setdefault(at, told.get("why", "its kernel's process ended"))

    def cells(self):
        """(name, the facts of its cells in their order) of each notebook."""
        for book in sorted(self.books):
            yield book, [cell for _, cell in sorted(self.books[book].items())]

    def complaints(self):
        """What is wrong with the notebooks themselves, whatever their cells did."""
        found = []
        for book, cells in self.cells():
            kinds = [cell["kind"] for cell in cells]
            if cells[0]["absent"]:
                continue
            if "compared" not in kinds:
                found.append(
                    f"{book}: no cell's text is compared. Print a number that always comes out the same."
                )
            for at, cell in enumerate(cells):
                if cell["loses text"] and not any(
                    cells[other]["asserts"] for other in beside(kinds, at)
                ):
                    found.append(
                        f"{where(cell)} is exempted, but neither it nor a neighbour asserts anything: {cell['first line']}"
                    )
        return found

    def rows(self):
        """A line of the table for each notebook: its name, its number of code cells, the counts, its seconds."""
        for book, cells in self.cells():
            count = Counter(cell["kind"] for cell in cells)
            count["asserted"] = sum(cell["asserts"] for cell in cells)
            count["failed"] = sum(name == book for name, _ in self.failed)
            yield (
                book,
                len(cells),
                [count[column] for column in COLUMNS],
                sum(self.seconds[book, c["number"]] for c in cells),
            )

    def pytest_sessionfinish(self, session):
        if self.complaints():
            session.exitstatus = COMPLAINT

    def pytest_terminal_summary(self, terminalreporter):
        say = terminalreporter.write_line
        terminalreporter.section(f"the {SLOWEST} slowest cells")
        for (book, number), seconds in self.seconds.most_common(SLOWEST):
            cell = self.books[book][number]
            say(f"{seconds:>6.1f} s  {where(cell)}: {cell['first line']}")
        terminalreporter.section("notebooks: what nbval compared")
        line = "{:<36}{:>6}" + "{:>10}" * len(COLUMNS) + "{:>9}"
        say(line.format("notebook", "cells", *COLUMNS, "seconds"))
        rows = list(self.rows())
        for book, cells, counts, seconds in rows:
            say(line.format(book, cells, *counts, round(seconds)))
        totals = [
            sum(column)
            for column in zip(
                *((cells, *counts, seconds) for _, cells, counts, seconds in rows), strict=True
            )
        ]
        say(line.format("all", *map(round, totals or [0] * (len(COLUMNS) + 2))))
        say(
            "quiet: no text to compare, but run; exempted: run, output not compared; asserted: holds an assert or a check"
        )
        for book, cells in self.cells():
            if why := cells[0]["absent"]:
                say(f"SKIPPED {book}: {why}")
        for (book, number), why in self.failed.items():
            cell = self.books[book][number]
            say(f"BROKEN {where(cell)}: {why}: {cell['first line']}")
        for complaint in self.complaints():
            say(f"NOT CHECKED {complaint}")


def facts(item):
    """What the account has to know of a cell, in words that travel from lane to lane."""
    book = item.parent.nb
    absent, cells = needs.why_not(book), book.cells
    does = "skipped" if absent else kind(item.cell, item.options)
    return {
        "book": name(item.path),
        "number": next(i for i, cell in enumerate(cells, start=1) if cell is item.cell),
        "of": len(cells),
        "kind": does,
        "absent": absent,  # why the whole notebook cannot run here
        "asserts": not absent
        and asserts(item.cell.source, book.metadata.get("language_info", {}).get("name")),
        "loses text": does == "exempted"
        and any(map(has_text, item.cell.outputs)),  # a picture loses nothing
        "first line": first_line(item.cell.source),
    }


def name(path):
    """A notebook's path as a person would write it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def where(cell):
    """The notebook and the cell, counted as JupyterLab shows them: all cells, from 1."""
    return f"{cell['book']}, cell {cell['number']} of {cell['of']}"


def first_line(source):
    """The first line of a cell that says something."""
    lines = [line for line in source.splitlines() if line.strip() and not line.startswith("%%")]
    return lines[0].strip() if lines else "(empty)"
