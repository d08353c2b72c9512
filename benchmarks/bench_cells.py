"""What the hang detection costs: an empty `%%px` cell compared with ipyparallel's own execute.

Writes benchmarks/cells.md. Both run in turn in the same process on the same ranks, so that other
work on the machine slows down both.
"""

import argparse
import os
import statistics
import time

import figures
from figures import conditions, table
from IPython.core.interactiveshell import InteractiveShell

import pi2zero

ROUNDS, RANKS = 60, [1, 2, 4, 8, 16, 32]
WANTED = 1.5
REFERENCE = "ipyparallel's own execute, in the same session: 1"


def measure(n, shell):
    """(seconds of the start, seconds of each execute, of each %%px) on n ranks."""
    begin = time.perf_counter()
    cluster = pi2zero.start(n=n)
    start, times = time.perf_counter() - begin, ([], [])
    view = cluster.view
    calls = (
        lambda: view.execute("pass", block=True),
        lambda: shell.run_cell("%%px\npass").raise_error(),
    )
    for call in calls:  # The first call of each imports modules.
        call()
    for _ in range(ROUNDS):
        for call, seconds in zip(calls, times, strict=True):
            begin = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - begin)
    cluster.stop()
    return start, *times


def ratio_of(execute, px):
    return statistics.median(px) / statistics.median(execute)


def figure(what, ratio, ratios, wanted):
    """A figure with the range of nine of ten cells: the outer ones met other work."""
    low, *_, high = statistics.quantiles(ratios, n=20)
    name = f"`%%px pass` / `view.execute`, {what}"
    more = {"wanted": wanted, "reference": REFERENCE}
    return figures.Figure(name, "times", ratio, low, high, ROUNDS, **more)


def ratio_figure(n, execute, px):
    """The ratio on n ranks; each cell is compared with the execute before it."""
    ratios = [b / a for a, b in zip(execute, px, strict=True)]
    return figure(f"{n} ranks", ratio_of(execute, px), ratios, WANTED if n == 4 else None)


def growth(few, many, times):
    """How much longer a cell takes on many ranks than on few, relative to that of an execute."""
    ratios = [(d / c) / (b / a) for a, b, c, d in zip(*times[few], *times[many], strict=True)]
    ratio = ratio_of(*times[many]) / ratio_of(*times[few])
    return figure(f"growth from {few} to {many} ranks", ratio, ratios, 1)


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    shell, rows, times, load = InteractiveShell.instance(), [], {}, os.getloadavg()[0]
    for n in RANKS:
        start, execute, px = measure(n, shell)
        times[n] = execute, px
        medians = [f"{1e3 * statistics.median(seconds):.1f}" for seconds in times[n]]
        rows.append([str(n), f"{start:.1f}", *medians, f"{ratio_of(execute, px):.2f}"])
        print(*rows[-1], flush=True)
    header = ["ranks", "start, s", '`view.execute("pass")`, ms', "`%%px` with `pass`, ms"]
    figures.write_page(
        "cells",
        "# What the hang detection costs",
        f"Written by `make bench`. {conditions(load)} Medians of {ROUNDS} cells of each kind, in "
        "turn; one start.",
        table([*header, f"ratio (wanted: at most {WANTED})"], rows),
    )
    results = [ratio_figure(n, *times[n]) for n in (4, 32)]
    figures.keep("cells", [*results, growth(4, 32, times)], load)


if __name__ == "__main__":
    main()
