"""`python benchmarks/bench_limits.py`: π on one core beside what that core can do.

Writes benchmarks/limits.md and limits.png.

The core's limits are measured, by loops that g++ turns into vector instructions (core_limits.cpp).
Every time is processor time of one thread, the least of several rounds: other programs do not count
in it, but they do disturb caches and clock.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import figures
import matplotlib.pyplot as plt
import numpy as np
import torch
from figures import of, table

from pi2zero import plots

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))
import cpi_compiled  # noqa: E402

import cpi  # noqa: E402

N = 10**8
ROUNDS = 5
# 4 / (1 + x²), x = (i + 0.5) * step: two operations for x, two for the square and the sum, a
# division, an addition to the total.
OPERATIONS = 6
# Of whole arrays, each operation reads one and writes one; the first only writes, the sum only
# reads.
BYTES = 8 * (1 + 2 * 5 + 1)
FLAGS = ["-O3", "-march=native", "-ffast-math", "-mprefer-vector-width=512"]
CORE = "a loop of g++, all that the vector unit gives"


def whole(n, rank=0, size=1):
    """The midpoint rule on arrays as long as n."""
    x = (np.arange(n) + 0.5) / n
    return np.sum(4 / (1 + x * x)) / n


WAYS = {
    "NumPy, whole arrays": whole,
    "NumPy, chunks (cpi.py)": cpi.partial_pi,
    "torch.compile (cpi_compiled.py)": cpi_compiled.partial_pi,
}


def seconds(work, n):
    """Processor seconds of each round."""
    work(n, 0, 1)
    found = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        pi = work(n, 0, 1)
        found.append(time.thread_time() - start)
        assert abs(pi - np.pi) < 1e-8, pi
    return found


def limits():
    """What core_limits.cpp measures: {name: seconds}."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "limits"
        subprocess.run(["g++", *FLAGS, HERE / "core_limits.cpp", "-o", program], check=True)
        out = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return {
        name: float(least) for name, least in (line.rsplit(" ", 1) for line in out.splitlines())
    }


def roofline(times, core):
    """The roofs, and where each way stands under them (Williams, Waterman, Patterson 2009)."""
    peak = 2 * 1.28e10 / core["1.28e10 multiply-adds"]
    ceiling = OPERATIONS * N / core["midpoint 1e8 slices"]
    roofs = {
        "memory": 2 * 8 * 2**26 / core["copy 2^26 doubles"],
        "cache": 2 * 8 * 2**26 / core["copy 2^15 doubles 2048 times"],
    }
    fig, ax = plt.subplots(figsize=(9, 5))
    x = np.geomspace(0.01, 100, 200)
    for style, (name, rate) in zip(("-", "--"), roofs.items(), strict=True):
        ax.loglog(
            x,
            np.minimum(rate * x, peak) / 1e9,
            style,
            color="0.3",
            label=f"{name}: {rate / 1e9:.0f} GB/s",
        )
    ax.axhline(
        ceiling / 1e9,
        color="0.3",
        ls=":",
        label=f"with this mix (one division in six): {ceiling / 1e9:.0f} Gflop/s",
    )
    places = dict(zip(WAYS, (OPERATIONS / BYTES, OPERATIONS / BYTES, 30), strict=True))
    for at, (name, place) in enumerate(places.items()):
        ax.plot(
            place,
            OPERATIONS * N / min(times[name]) / 1e9,
            "o",
            ms=9,
            color=plots.rank_color(at),
            label=name,
        )
    ax.set(
        xlabel="operations for each byte read or written",
        ylabel="Gflop/s of one core, double precision",
    )
    ax.set_title(f"One core: at most {peak / 1e9:.0f} Gflop/s of multiply-adds")
    ax.legend(loc="lower right", fontsize=10)
    fig.savefig(HERE / "limits.png", dpi=110, bbox_inches="tight")
    return peak, ceiling, roofs


def shares(times, core):
    """Of what the core's vector unit gives, for each way."""
    best = core["midpoint 1e8 slices"]
    beside = (
        f"the core's limit for this sum: {OPERATIONS * N / best / 1e9:.0f} Gflop/s, a loop of g++"
    )
    last = list(times)[-1]
    return [
        of(
            f"π, {name}: share of the core's limit",
            "of 1",
            [best / t for t in found],
            less_is_better=False,
            wanted=0.5 if name == last else None,
            beside=beside,
        )
        for name, found in times.items()
    ]


def report(times, core, load):
    peak, ceiling, roofs = roofline(times, core)
    best = core["midpoint 1e8 slices"]
    rows = [
        [
            name,
            f"{min(found):.4f}",
            f"{statistics.median(found):.4f}",
            f"{max(found):.4f}",
            f"{100 * best / min(found):.0f} %",
        ]
        for name, found in times.items()
    ]
    rows.append([CORE, f"{best:.4f}", "", "", "100 %"])
    parts = [
        "# π on one core, beside what the core can do",
        f"Written by `python benchmarks/bench_limits.py`. {time.strftime('%Y-%m-%d')}, one "
        f"thread of {os.cpu_count()} cores, "
        f"NumPy {np.__version__}, torch {torch.__version__}, g++ with {' '.join(FLAGS)}; load "
        f"before the start {load:.1f}. "
        f"N = 10^8 slices, {ROUNDS} rounds after a warm-up (and the compiling). Processor time "
        f"of the thread.",
        table(["the midpoint rule", "least, s", "median", "most", "of the core's limit"], rows),
        f"The core's limits, best of 7 rounds each: multiply-adds {peak / 1e9:.0f} Gflop/s; "
        f"this sum {ceiling / 1e9:.0f} Gflop/s "
        f"({OPERATIONS} operations a slice, one of them a division); copying, read and written "
        f"bytes together: in memory "
        f"{roofs['memory'] / 1e9:.0f} GB/s, in the core's cache {roofs['cache'] / 1e9:.0f} GB/s.",
        "![Roofline: operations a second over operations a byte, with the three ways under the "
        "roofs](limits.png)",
    ]
    return "\n\n".join([*parts, (HERE / "limits_explained.md").read_text()])


if __name__ == "__main__":
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    times = {name: seconds(work, N) for name, work in WAYS.items()}
    core = limits()
    (HERE / "limits.md").write_text(report(times, core, load))
    figures.keep("limits", shares(times, core), load)
    print("written: benchmarks/limits.md, benchmarks/limits.png")
