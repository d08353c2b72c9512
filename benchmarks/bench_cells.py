"""What the watch costs: an empty `%%px` cell beside ipyparallel's own execute, by ranks.

Writes benchmarks/cells.md.

Both in the same process on the same ranks, in turn, so that what else the machine does meets both.
"""

import argparse
import os
import statistics
import time
from pathlib import Path

import figures
from bench import conditions
from figures import table
from IPython.core.interactiveshell import InteractiveShell

import pi2zero

HERE = Path(__file__).parent
ROUNDS, RANKS = 60, [1, 2, 4, 8, 16, 32]
WANTED = 1.5
BARE = "ipyparallel's own execute, in the same session: 1"


def measure(n, shell):
    """(seconds of the start, seconds of each execute, of each %%px) on n ranks."""
    begin = time.perf_counter()
    cluster = pi2zero.start(n=n)
    start, times = time.perf_counter() - begin, ([], [])
    view = cluster.view
    ways = (
        lambda: view.execute("pass", block=True),
        lambda: shell.run_cell("%%px\npass").raise_error(),
    )
    for way in ways:  # the first of each imports
        way()
    for _ in range(ROUNDS):
        for way, seconds in zip(ways, times, strict=True):
            begin = time.perf_counter()
            way()
            seconds.append(time.perf_counter() - begin)
    cluster.stop()
    return start, *times


def row(n, start, execute, px):
    middle = statistics.median
    return [
        str(n),
        f"{start:.1f}",
        f"{1e3 * middle(execute):.1f}",
        f"{1e3 * middle(px):.1f}",
        f"{ratio_of(execute, px):.2f}",
    ]


def ratio_of(execute, px):
    return statistics.median(px) / statistics.median(execute)


def figure(n, execute, px):
    """The ratio on n ranks; each cell of one way beside the next of the other."""
    ratios = [b / a for a, b in zip(execute, px, strict=True)]
    wanted = WANTED if n == 4 else None
    return of_ratios(
        f"`%%px pass` / `view.execute`, {n} ranks", ratio_of(execute, px), ratios, wanted
    )


def growth(few, many, times):
    """How much longer a cell takes on many ranks than on few, relative to that of an execute."""
    ratios = [(d / c) / (b / a) for a, b, c, d in zip(*times[few], *times[many], strict=True)]
    what = f"`%%px pass` / `view.execute`, growth from {few} to {many} ranks"
    return of_ratios(what, ratio_of(*times[many]) / ratio_of(*times[few]), ratios, wanted=1)


def of_ratios(what, middle, ratios, wanted):
    low, high = statistics.quantiles(ratios, n=20)[
        ::18
    ]  # nine of ten cells: one alone meets whatever the machine does
    return figures.Figure(what, "times", middle, low, high, ROUNDS, wanted=wanted, beside=BARE)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="*", default=RANKS)
    options = parser.parse_args()
    shell, rows, kept, times, load = InteractiveShell.instance(), [], [], {}, os.getloadavg()[0]
    for n in options.ranks:
        start, *ways = measure(n, shell)
        times[n] = ways
        rows.append(row(n, start, *ways))
        kept.append(figure(n, *ways))
        print(*rows[-1], flush=True)
    if {4, 32} <= times.keys():
        kept.append(growth(4, 32, times))
    header = (
        "ranks",
        "start, s",
        '`view.execute("pass")`, ms',
        "`%%px` with `pass`, ms",
        f"ratio (wanted: at most {WANTED})",
    )
    text = "\n\n".join(
        [
            "# What does the watch cost",
            f"Written by `make bench`. {conditions()} Load before: {load:.1f} (0 is idle). "
            f"Medians of {ROUNDS} cells of each kind, in turn; one start.",
            table(header, rows),
            (HERE / "cells_explained.md").read_text(),
        ]
    )
    (HERE / "cells.md").write_text(text)
    figures.keep(
        "cells",
        [each for each in kept if " 4 ranks" in each.what or " 32 ranks" in each.what],
        load,
    )
    print(f"\n{text}\nwritten to benchmarks/cells.md")


if __name__ == "__main__":
    main()
