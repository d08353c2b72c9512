"""Any two notebooks at once on one machine, and the same one twice: does each cell still say what is stored?

`python tests/audits/pairs.py --minutes 30` keeps two notebooks going, as two people on one node do: when one is through, the next begins
that has not yet run beside the others. `--at-once 4` keeps four going, and each meets three. Adds to benchmarks/pairs.md.
(`make test` runs notebooks two at a time, too.)
"""

import argparse
import os
import re
import subprocess
import sys
import time
from itertools import combinations, count
from pathlib import Path

import nbformat
import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import needs  # noqa: E402

PAGE = ROOT / "benchmarks" / "pairs.md"
RUN = "PI2ZERO_PAIRS_RUN"  # in the environment of all that a run starts: whose process is this?
TOGETHER = 10  # s: less is no pair
HEAD = """# Two notebooks at once

Written by `python tests/audits/pairs.py`: two or more are always running, by one user, and when one is through the next begins.
*Passed*: cells that say what is stored. None may hang, get another's ranks or messages, stop its cluster, or leave a process. A
cell that fails is named below the table.

{cores} cores. {pairs} of the {all} pairs that there are have run at the same time, for {together} s or more; {twice} of {books}
notebooks beside themselves.

| notebook | beside it | passed | failed | s | processes left | load |
|---|---|---|---|---|---|---|
"""
SECONDS = 100  # about what a notebook takes
ROW = re.compile(r"^\| (\w+) \| ([\w ,]+) \| (\d+) \|.*$", re.M)


class Run:
    """A notebook that runs on a kernel of its own, compared cell by cell."""

    numbers = count()

    def __init__(self, book, watched_by=()):
        self.book, self.begin, self.mark, self.beside = (
            book,
            time.monotonic(),
            f"{os.getpid()}-{next(self.numbers)}",
            {},
        )
        self.log = ROOT / "build" / f"pairs-{self.mark}.log"
        command = [
            *watched_by,
            sys.executable,
            "tools/compare_notebooks.py",
            "--workers=1",
            str(book),
        ]
        with self.log.open("w") as log:
            env = {**os.environ, RUN: self.mark}
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=env
            )

    def meets(self, other):
        """Both run just now."""
        now = time.monotonic()
        for one, two in ((self, other), (other, self)):
            first, _ = one.beside.get(two.book.stem, (now, now))
            one.beside[two.book.stem] = first, now

    def companions(self):
        """Who ran beside it, long enough."""
        return sorted(
            stem for stem, (first, last) in self.beside.items() if last - first >= TOGETHER
        )

    def over(self):
        """Its row, and the cells that failed."""
        deadline = time.monotonic() + 20
        while (remain := left(self.mark)) and time.monotonic() < deadline:
            time.sleep(0.2)
        text = self.log.read_text()
        passed = int(found[1]) if (found := re.search(r"(\d+) passed", text)) else 0
        cells = re.findall(r"^FAILED (\S+::Cell \d+)", text, re.M)
        beside, seconds = ", ".join(self.companions()) or "none", time.monotonic() - self.begin
        numbers = (
            f"{passed} | {len(cells)} | {seconds:.0f} | {len(remain)} | {os.getloadavg()[0]:.0f}"
        )
        row = f"| {self.book.stem} | {beside} | {numbers} |"
        print("\n".join([row, *cells]), flush=True)
        if not cells and passed:
            self.log.unlink()  # else it says why
        return row, [f"- {cell}, beside {beside}" for cell in cells]


def left(mark):
    """What a run has started, and still lives."""
    found = []
    for process in psutil.process_iter():
        try:
            found += [process] * (process.environ().get(RUN) == mark)
        except psutil.Error:
            continue
    return found


def met(page):
    """The pairs of a page, each once: a notebook beside itself is a set of one name."""
    return {
        frozenset((one, other))
        for one, others, _ in ROW.findall(page)
        for other in others.split(", ")
        if other != "none"
    }


def written(page, row, failed, books):
    """The page with one more row."""
    rows = [found[0] for found in ROW.finditer(page)]
    cells = [line for line in page.splitlines() if line.startswith("- ")]
    body = "\n".join([*rows, row, "", *cells, *failed, ""])
    pairs = met(body)
    facts = {
        "pairs": len(pairs),
        "all": books * (books + 1) // 2,
        "twice": sum(len(pair) == 1 for pair in pairs),
        "books": books,
    }
    return HEAD.format(cores=os.cpu_count(), together=TOGETHER, **facts) + body


def next_beside(running, books, done, remain):
    """The notebook that has run beside the fewest of those that run, then of all.

    None if what remains (s) is too short, or if it has met all of those.
    """
    fit = [book for book in books if remain > (len(running) + 1) * SECONDS]
    others = [one.book for one in running] or [book for book in books if remain > 2 * SECONDS]
    fit = [
        book
        for book in fit
        if any(frozenset((book.stem, other.stem)) not in done for other in others)
    ]

    def known(book):
        """The more it has still to meet, the earlier."""
        here = sum(frozenset((book.stem, one.book.stem)) in done for one in running)
        return here, sum(book.stem in pair for pair in done)

    return min(fit, key=known, default=None)


def books():
    """The notebooks that can run on one host."""
    every = [*sorted(ROOT.glob("notebooks/*.ipynb")), *sorted(ROOT.glob("solutions/*.ipynb"))]
    return [book for book in every if not needs.why_not(nbformat.read(book, as_version=4))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--minutes", type=float, default=30, help="none begins that would take longer (default: 30)"
    )
    parser.add_argument(
        "--at-once", type=int, default=2, help="how many run at the same time (default: 2)"
    )
    args = parser.parse_args()
    all_books, page, running = books(), PAGE.read_text() if PAGE.exists() else "", []
    (ROOT / "build").mkdir(exist_ok=True)
    done, end = met(page), time.monotonic() + 60 * args.minutes
    while True:
        for run in [run for run in running if run.process.poll() is not None]:
            running.remove(run)
            page = written(page, *run.over(), len(all_books))
            PAGE.write_text(page)
            done = met(page) | {
                frozenset((one.book.stem, two.book.stem)) for one, two in combinations(running, 2)
            }
        while len(running) < args.at_once and (
            book := next_beside(running, all_books, done, end - time.monotonic())
        ):
            done |= {frozenset((book.stem, run.book.stem)) for run in running}
            running.append(Run(book))
        if not running:
            break
        for one, two in combinations(running, 2):
            one.meets(two)
        time.sleep(0.5)


if __name__ == "__main__":
    main()
