"""200 rounds of start, run, break at random, go on, stop: does anything grow? Writes
benchmarks/soak.md and soak.png.

150 rounds in one kernel that is never restarted, then 50 that restart it, too. The same seed breaks
the same things.
"""

import argparse
import os
import statistics
import sys
from collections import Counter
from pathlib import Path

import figures
import matplotlib.pyplot as plt
import numpy as np
from bench import conditions
from figures import of, table

from pi2zero import plots

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from tests.faults.kernel import Notebook  # noqa: E402
from tests.faults.soak import BREAKS, MACHINE, apart, rounds  # noqa: E402

RESTART = "kernel restarted"
WARM = 10  # rounds that import what every start needs, and break each thing once
HELD = {
    "descriptors": "descriptors of the kernel",
    "threads": "threads of the kernel",
    "memory": "memory of its own, MB",
    "shared": "entries of /dev/shm (semaphores with a name are there)",
    "semaphores": "System V semaphores",
    "files": "entries of the temporary folder",
    "ports": "ports on which the machine listens",
    "processes": "processes left",
}


# By how much the fitted line may rise from the first to the last round
MOST = {
    "descriptors": ("", 2),
    "threads": ("", 2),
    "memory": ("MB", 20),
    "shared": ("", 1),
    "semaphores": ("", 1),
    "files": ("", 2),
    "ports": ("", 2),
}


def soak(count, seed, names):
    """One dict a round, in one kernel (or in those that follow its restarts)."""
    notebook, found = Notebook(), []
    try:
        for one in rounds(notebook, count, seed, names):
            found.append({**one, "memory": one["memory"] / 1e6})
            print(
                f"{len(found)} of {count}: {one['broken']}, start {one['start']:.1f} s, "
                f"{one['descriptors']} descriptors",
                flush=True,
            )
    finally:
        notebook.close()
    return found


def growth(values):
    """How much the fitted line rises from the first to the last round; to a hundredth: the fit of
    equal values is not quite 0.
    """
    return round(float(np.polyfit(range(len(values)), values, 1)[0] * (len(values) - 1)), 2) + 0.0


def held_table(found, names=tuple(HELD)):
    """What is held after the first rounds."""
    rows = []
    for name, words in ((name, HELD[name]) for name in names):
        values = [one[name] for one in found[WARM:]]
        ends = f"{statistics.median(values[:10]):.0f}", f"{statistics.median(values[-10:]):.0f}"
        rows.append(
            [words, *ends, f"{min(values):.0f} to {max(values):.0f}", f"{growth(values):+.1f}"]
        )
    header = [
        "after a stop",
        "median of the first 10",
        "of the last 10",
        "least to most",
        f"fitted growth in {len(found) - WARM} rounds",
    ]
    return table(header, rows)


def draw(one_kernel, restarted):
    fig, axes = plt.subplots(3, 1, figsize=(9, 7), sharex=True)
    every = [*one_kernel, *restarted]
    columns = (
        ("start", "seconds of the start"),
        ("memory", "memory, MB"),
        ("descriptors", "descriptors"),
    )
    for ax, (name, words) in zip(axes, columns, strict=True):
        ax.plot([one[name] for one in every], ".-", lw=0.8, color=plots.rank_color(0))
        ax.axvline(len(one_kernel) - 0.5, color="0.4", ls="--")
        ax.set_ylim(0, 1.1 * max(ax.get_ylim()))  # a flat line at the top is seen
        ax.set_ylabel(words)
    axes[0].set_title("Flat: after each of 200 breaks the kernel holds what it held before")
    axes[-1].set_xlabel("round (right of the dashed line, kernels are restarted, too)")
    fig.savefig(HERE / "soak.png", dpi=110, bbox_inches="tight")


def kept(found, restarted):
    """The figures: what grew in one kernel, and the start's time in its second half over its first;
    and what has come to stay on the machine (not in a kernel) while kernels were restarted.
    """
    after = found[WARM:]
    middle = len(after) // 2
    starts = [one["start"] for one in after]
    later = [b / a for a, b in zip(sorted(starts[:middle]), sorted(starts[-middle:]), strict=True)]
    count = len(after)
    return [
        of("start in the second half / in the first", "times", later, wanted=1.1, beside="flat: 1"),
        *(
            of(
                f"growth of {HELD[name].split(',')[0]} in {count} rounds",
                unit,
                [rise],
                wanted=most,
                beside="nothing: 0",
            )
            for name, (unit, most) in MOST.items()
            for rise in [growth([one[name] for one in after])]
        ),
        *(
            of(
                f"growth of {HELD[name].split(',')[0]}, kernels restarted",
                "",
                [rise],
                wanted=MOST[name][1],
                beside="nothing: 0",
            )
            for name in MACHINE
            for rise in [growth([one[name] for one in restarted[WARM:]])]
        ),
        of(
            "processes left",
            "",
            [sum(one["processes"] for one in [*found, *restarted])],
            wanted=0,
            beside="nothing: 0",
        ),
    ]


def page(one_kernel, restarted, seed, load):
    broken = Counter(one["broken"] for one in [*one_kernel, *restarted])
    seconds = statistics.quantiles([one["start"] for one in one_kernel[WARM:]], n=10)
    return "\n\n".join(
        [
            "# Soak: 200 rounds of start, break, go on, stop",
            f"Written by `python benchmarks/bench_soak.py`, seed {seed}. {conditions()} Load "
            f"before: {load:.1f} (0 is idle). "
            f"{len(one_kernel)} rounds in one kernel, then {len(restarted)} in which the kernel "
            f"is restarted, too. In each: "
            "`pi2zero.start(n=2)`, a cell, the break, the same cell on fresh ranks, "
            "`cluster.stop()`; then it is counted.",
            "![Seconds of the start, memory and descriptors over the rounds](soak.png)",
            held_table(one_kernel),
            f"The same in the {len(restarted)} rounds that restart the kernel, too, after the "
            f"first {WARM}:",
            held_table(restarted, (*MACHINE, "processes")),
            f"The start, in the one kernel: median "
            f"{statistics.median(one['start'] for one in one_kernel[WARM:]):.2f} s, "
            f"eight of ten between {seconds[0]:.2f} and {seconds[-1]:.2f} s.",
            "What broke, and how often: "
            + ", ".join(f"{name} ({times})" for name, times in broken.most_common())
            + ".",
            (HERE / "soak_explained.md").read_text(),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds",
        type=int,
        nargs=2,
        default=[150, 50],
        help="in one kernel, and with restarts (default: 150 50)",
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if min(args.rounds) < 2 * WARM + 2:
        parser.error(f"--rounds: {2 * WARM + 2} or more of each; the first {WARM} are not counted.")
    if "PI2ZERO_SOAK" not in os.environ and os.geteuid() == 0:
        os.environ["PI2ZERO_SOAK"] = "apart"
        sys.exit(apart(sys.executable, *sys.argv).returncode)
    load = os.getloadavg()[0]
    one_kernel = soak(args.rounds[0], args.seed, tuple(name for name in BREAKS if name != RESTART))
    restarted = soak(args.rounds[1], args.seed + 1, tuple(BREAKS))
    draw(one_kernel, restarted)
    (HERE / "soak.md").write_text(page(one_kernel, restarted, args.seed, load))
    found = kept(one_kernel, restarted)
    figures.keep("soak", found, load)
    print((HERE / "soak.md").read_text())
    if grown := [
        f"{one.what}: {figures.number(one.value)}, wanted {figures.bound(one)}"
        for one in found
        if not one.reached()
    ]:
        sys.exit("\n".join(["Something grows:", *grown]))


if __name__ == "__main__":
    main()
