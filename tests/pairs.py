"""Two notebooks at once on one machine, and the same one twice: does each cell still say what is stored?

`python tests/pairs.py --count 20` takes as many pairs by chance of all that there are, those first that have not run; names of
notebooks choose among them. Adds to benchmarks/pairs.md. (`make test` runs notebooks two at a time, too.)
"""

import argparse
import itertools
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil

from pi2zero import marks

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "benchmarks" / "pairs.md"
HEAD = """# Two notebooks at once

Written by `python tests/pairs.py`: both start at the same moment, as two people on one node do. *Passed*: cells that say what is
stored. None may hang, get another's ranks or messages, or leave a process. A cell that fails is named below the table.

{cores} cores. {pairs} of the {all} pairs that there are have been run: the others were not.

| notebook | beside it | passed | failed | s | processes left | load before |
|---|---|---|---|---|---|---|
"""
ROW = re.compile(r"^\| (\w+) \| (\w+) \| .*$", re.M)


def start(book, scope):
    command = [sys.executable, "tools/nbval_report.py", "--lanes", "1", str(book)]
    env = {**os.environ, marks.SCOPE: scope}
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def left(scope):
    """What a pair has started, and still lives."""
    found = []
    for process in psutil.process_iter():
        try:
            found += [process] * (process.environ().get(marks.SCOPE) == scope)
        except psutil.Error:
            continue
    return found


def together(one, other):
    """A row for each of the two, and the cells that failed."""
    scope, begin, load = f"pair-{os.getpid()}", time.monotonic(), os.getloadavg()[0]
    both = [(one, other, start(one, scope)), (other, one, start(other, scope))]
    said = [process.communicate(timeout=1800)[0] for *_, process in both]
    seconds, deadline = time.monotonic() - begin, time.monotonic() + 20
    while (remain := left(scope)) and time.monotonic() < deadline:
        time.sleep(0.2)
    rows, failed = [], []
    for (book, beside, _), text in zip(both, said, strict=True):
        passed = int(found[1]) if (found := re.search(r"(\d+) passed", text)) else 0
        cells = re.findall(r"^FAILED (\S+)", text, re.M)
        numbers = f"{passed} | {len(cells)} | {seconds:.0f} | {len(remain)} | {load:.0f}"
        rows.append(f"| {book.stem} | {beside.stem} | {numbers} |")
        failed += [f"- {cell}, beside {beside.stem}" for cell in cells]
        if not passed:
            print(text[-3000:], flush=True)
    return rows, failed


def page(former, rows, failed, total):
    """The page with these rows in place of a former one's of the same pairs."""
    new = {frozenset(ROW.match(row).groups()) for row in rows}
    kept = [found[0] for found in ROW.finditer(former) if found[1] != "notebook" and frozenset(found.groups()) not in new]
    pairs = new | {frozenset(ROW.match(row).groups()) for row in kept}
    cells = [line for line in former.splitlines() if line.startswith("- ") and not any(is_of(line, pair) for pair in new)]
    return HEAD.format(cores=os.cpu_count(), pairs=len(pairs), all=total) + "\n".join([*kept, *rows, "", *cells, *failed, ""])


def is_of(line, pair):
    """Does a line on a cell belong to this pair?"""
    cell, _, beside = line.rpartition(", beside ")
    return frozenset((Path(cell[2:].partition("::")[0]).stem, beside)) == pair


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("book", nargs="*", type=Path, help="(default: all)")
    parser.add_argument("--count", type=int, help="so many pairs (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    every = [*sorted(ROOT.glob("notebooks/*.ipynb")), *sorted(ROOT.glob("solutions/*.ipynb"))]
    books = [ROOT / book for book in args.book] or every
    pairs, total = list(itertools.combinations_with_replacement(books, 2)), len(every) * (len(every) + 1) // 2
    random.Random(args.seed).shuffle(pairs)
    former = PAGE.read_text() if PAGE.exists() else ""
    ran = {frozenset(found.groups()) for found in ROW.finditer(former)}
    pairs.sort(key=lambda pair: frozenset(book.stem for book in pair) in ran)
    for one, other in pairs[: args.count]:
        rows, failed = together(one, other)
        print("\n".join([*rows, *failed]), flush=True)
        former = page(former, rows, failed, total)
        PAGE.write_text(former)


if __name__ == "__main__":
    main()
