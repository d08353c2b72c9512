"""200 rounds of start, run, break at random, continue, stop: does anything grow? Writes
reports/soak.md and soak.png.

150 rounds in one kernel that is never restarted, then 50 that restart it, too. The same seed breaks
the same things.
"""

import argparse
import os
import statistics
import sys
from collections import Counter

import figures
import matplotlib.pyplot as plt
import numpy as np
from figures import HERE, conditions, of, table

from pi2zero import plots

sys.path.insert(0, str(HERE.parent))
from tests.faults.kernel import Notebook
from tests.faults.soak import BREAKS, MACHINE, apart, rounds

RESTART = "kernel restarted"
WARM_UP = 10  # rounds that import what every start needs, and break each thing once
# What is counted after each stop: (in words, unit, how far the fitted line may rise)
COUNTED = {
    "descriptors": ("descriptors of the kernel", "", 2),
    "threads": ("threads of the kernel", "", 2),
    "memory": ("memory of its own", "MB", 20),
    "shared": ("entries of /dev/shm (semaphores with a name are there)", "", 1),
    "semaphores": ("System V semaphores", "", 1),
    "files": ("entries of the temporary folder", "", 2),
    "ports": ("ports on which the machine listens", "", 2),
}
PROCESSES = "processes left"


def soak(count, seed, names):
    """One dict per round, in one kernel (or in those that follow its restarts)."""
    notebook, results = Notebook(), []
    try:
        for result in rounds(notebook, count, seed, names):
            results.append({**result, "memory": result["memory"] / 1e6})
            print(
                f"{len(results)} of {count}: {result['broken']}, start {result['start']:.1f} s, "
                f"{result['descriptors']} descriptors",
                flush=True,
            )
    finally:
        notebook.close()
    return results


def growth(results, name):
    """How far the fitted line rises from the first to the last round after the warm-up, to a
    hundredth: the fit of equal values is not quite 0.
    """
    values = [result[name] for result in results[WARM_UP:]]
    slope = float(np.polyfit(range(len(values)), values, 1)[0])
    return round(slope * (len(values) - 1), 2) + 0.0


def counted_table(results, names=tuple(COUNTED)):
    """What is counted after the first rounds."""
    rows = []
    for name in (*names, "processes"):
        values = [result[name] for result in results[WARM_UP:]]
        words, unit, _ = COUNTED.get(name, (PROCESSES, "", 0))
        first, last = (f"{statistics.median(part):.0f}" for part in (values[:10], values[-10:]))
        spread, rise = f"{min(values):.0f} to {max(values):.0f}", f"{growth(results, name):+.1f}"
        rows.append([f"{words} {unit}".strip(), first, last, spread, rise])
    header = ["after a stop", "median of the first 10", "of the last 10", "lowest to highest"]
    return table([*header, f"fitted growth in {len(results) - WARM_UP} rounds"], rows)


def draw(one_kernel, restarted):
    fig, axes = plt.subplots(3, 1, figsize=(9, 7), sharex=True)
    results = [*one_kernel, *restarted]
    columns = (
        ("start", "seconds of the start"),
        ("memory", "memory, MB"),
        ("descriptors", "descriptors"),
    )
    for ax, (name, words) in zip(axes, columns, strict=True):
        ax.plot([result[name] for result in results], ".-", lw=0.8, color=plots.rank_color(0))
        ax.axvline(len(one_kernel) - 0.5, color="0.4", ls="--")
        ax.set_ylim(0, 1.1 * max(ax.get_ylim()))  # so that a flat line at the top is seen
        ax.set_ylabel(words)
    axes[0].set_title("Flat: after each of 200 breaks the kernel needs what it needed before")
    axes[-1].set_xlabel("round (right of the dashed line, kernels are restarted, too)")
    fig.savefig(figures.REPORTS / "soak.png", dpi=110, bbox_inches="tight")


def figures_of(one_kernel, restarted):
    """What grew in one kernel, and the time of its start in the second half over the first; and
    what stayed on the machine, outside of the kernels, while they were restarted.
    """
    starts = [result["start"] for result in one_kernel[WARM_UP:]]
    half = len(starts) // 2
    later = np.divide(sorted(starts[-half:]), sorted(starts[:half]))

    def growth_of(name, results, when):
        words, unit, bound = COUNTED[name]
        what = f"growth of {words}{when}"
        return of(what, unit, [growth(results, name)], wanted=bound, reference="nothing: 0")

    left = sum(result["processes"] for result in [*one_kernel, *restarted])
    what = "start in the second half / in the first"
    return [
        of(what, "times", later, wanted=1.1, reference="flat: 1"),
        *(growth_of(name, one_kernel, f" in {len(starts)} rounds") for name in COUNTED),
        *(growth_of(name, restarted, ", kernels restarted") for name in MACHINE),
        of(PROCESSES, "", [left], wanted=0, reference="nothing: 0"),
    ]


def write_page(one_kernel, restarted, seed, load):
    broken = Counter(result["broken"] for result in [*one_kernel, *restarted])
    starts = [result["start"] for result in one_kernel[WARM_UP:]]
    low, *_, high = statistics.quantiles(starts, n=10)
    figures.write_page(
        "soak",
        "# Soak: 200 rounds of start, break, continue, stop",
        f"Written by `python benchmarks/bench_soak.py`, seed {seed}. {conditions(load)} "
        f"{len(one_kernel)} rounds in one kernel, then {len(restarted)} in which the kernel is "
        "restarted, too. In each: `pi2zero.start(n=2)`, a cell, the break, the same cell on fresh "
        "ranks, `cluster.stop()`; then it is counted.",
        "![Seconds of the start, memory and descriptors over the rounds](soak.png)",
        counted_table(one_kernel),
        f"The same in the {len(restarted)} rounds that restart the kernel, too, after the first "
        f"{WARM_UP}:",
        counted_table(restarted, MACHINE),
        f"The start, in the one kernel: median {statistics.median(starts):.2f} s, eight of ten "
        f"between {low:.2f} and {high:.2f} s.",
        "What broke, and how often: "
        + ", ".join(f"{name} ({times})" for name, times in broken.most_common())
        + ".",
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words = "in one kernel, and with restarts (default: 150 50)"
    parser.add_argument("--rounds", type=int, nargs=2, default=[150, 50], help=words)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if min(args.rounds) < 2 * WARM_UP + 2:
        parser.error(f"--rounds: at least {2 * WARM_UP + 2} each; {WARM_UP} are a warm-up.")
    if "PI2ZERO_SOAK" not in os.environ and os.geteuid() == 0:
        os.environ["PI2ZERO_SOAK"] = "apart"
        sys.exit(apart(sys.executable, *sys.argv).returncode)
    load = os.getloadavg()[0]
    one_kernel = soak(args.rounds[0], args.seed, tuple(name for name in BREAKS if name != RESTART))
    restarted = soak(args.rounds[1], args.seed + 1, tuple(BREAKS))
    draw(one_kernel, restarted)
    write_page(one_kernel, restarted, args.seed, load)
    results = figures_of(one_kernel, restarted)
    figures.keep("soak", results, load)
    grown = [
        f"{figure.what}: {figures.number(figure.value)}, wanted {figures.bound(figure)}"
        for figure in results
        if not figure.reached()
    ]
    if grown:
        sys.exit("\n".join(["Something grows:", *grown]))


if __name__ == "__main__":
    main()
