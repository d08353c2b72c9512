"""Two notebooks at once on one machine, and the same one twice: does each cell still say what is stored?

Takes each notebook and solution twice at once, then beside the next one; names choose some. Writes benchmarks/pairs.md.
(`make test` runs notebooks two at a time, too, but for those that measure.)
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "benchmarks" / "pairs.md"
HEAD = """# Two notebooks at once

Written by `python tests/pairs.py`: both start at the same moment on a machine of {cores} cores, as two people on one node do.
*Passed*: cells that say what is stored. None may hang, get another's ranks or messages, or leave a process. A cell that fails is
named below the table: it measures time and asserts it, which needs the machine for itself.

| notebook | beside it | passed | failed | s | processes left |
|---|---|---|---|---|---|
"""


def start(book):
    command = [sys.executable, "tools/nbval_report.py", "--lanes", "1", str(book)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ})


def engines():
    """Ranks and controllers on this machine."""
    return {one.pid for one in psutil.process_iter(["cmdline"]) if "ipyparallel" in " ".join(one.info["cmdline"] or [])}


def together(one, other):
    """A row for each of the two."""
    before, begin = engines(), time.monotonic()
    both = [(one, other, start(one)), (other, one, start(other))]
    said = [process.communicate(timeout=1800)[0] for *_, process in both]
    seconds = time.monotonic() - begin
    for _ in range(50):
        if not (left := engines() - before):
            break
        time.sleep(0.2)
    rows, failed = [], []
    for (book, beside, _), text in zip(both, said, strict=True):
        passed = int(found[1]) if (found := re.search(r"(\d+) passed", text)) else 0
        cells = re.findall(r"^FAILED (\S+)", text, re.M)
        rows.append(f"| {book.stem} | {beside.stem} | {passed} | {len(cells)} | {seconds:.0f} | {len(left)} |")
        failed += [f"- {cell}, beside {beside.stem}" for cell in cells]
    return rows[: 1 if one == other and rows[0] == rows[1] else 2], failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("book", nargs="*", type=Path, help="(default: all)")
    books = parser.parse_args().book or [*sorted(ROOT.glob("notebooks/*.ipynb")), *sorted(ROOT.glob("solutions/*.ipynb"))]
    rows, failed = [], []
    for one, after in zip(books, books[1:] + books[:1], strict=True):
        for other in dict.fromkeys((one, after)):
            more, cells = together(one, other)
            print("\n".join([*more, *cells]), flush=True)
            rows, failed = rows + more, failed + cells
            PAGE.write_text(HEAD.format(cores=os.cpu_count()) + "\n".join([*rows, "", *failed, ""]))


if __name__ == "__main__":
    main()
