"""ZeRO on two ranks: a step of each stage compared with DDP's; the largest model in limited memory.

Writes benchmarks/zero.md. Step times: all variants in one process after another, ROUNDS times; a
variant is compared with DDP of the same round. Largest model: each rank may add LIMIT bytes
(setrlimit, RLIMIT_DATA) to what it has when DeepSpeed is loaded. A model of layers of 1024 x 1024
is built and trained for two steps, with as many layers as fit, to STEP of the prediction. Peaks:
the same on four ranks without a limit, and what each phase adds at its peak.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

import figures
from figures import HERE, conditions, of, table
from zero_worker import SAVINGS

from pi2zero import costs
from pi2zero.mpi import mpi_env

LIMIT = 2**31
STEP = 0.05  # of the prediction
WANTED = 0.8  # of stage 3
# The share that each stage tries first: a try takes half a minute, so it starts near the result.
FIRST = (0.75, 0.85, 0.7, 0.85)
OUT_OF_MEMORY = ("MemoryError", "not enough memory", "bad_alloc", "allocate memory")
# glibc gives freed arrays back at once, instead of learning from their sizes to keep them.
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(2**16),
    "MALLOC_TRIM_THRESHOLD_": str(2**16),
    "MALLOC_ARENA_MAX": "1",
}
PEAK_LAYERS = 64
SIZES = {"2 million": (512, 8), "25 million": (1024, 24)}  # (width, layers)


def worker(ranks, *options):
    """The worker's report, or None if its memory did not suffice."""
    # mpi4py's own runner ends all ranks when one fails; otherwise the others would wait for it.
    program = [sys.executable, "-m", "mpi4py", HERE / "zero_worker.py", *options]
    command = [str(word) for word in ["mpirun", "-n", ranks, *program]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode == 0:
        return json.loads(done.stdout)
    if any(words in done.stderr for words in OUT_OF_MEMORY):
        return None
    sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")


def step_times(rounds):
    """Rows of the table of step times; and figures of the larger model, each ratio of one round."""
    rows, results = [], []
    for size, (width, layers) in SIZES.items():
        options = ("steps", "--width", width, "--layers", layers)
        reports = [worker(2, *options) for _ in range(rounds)]
        results = []
        for variant in reports[0]:
            ratios = [report[variant][0] / report["DDP"][0] for report in reports]
            ms = 1e3 * statistics.median(report[variant][0] for report in reports)
            sent = reports[0][variant][1] / (4 * width**2 * layers)
            what = f"{variant} / DDP, a step of {size} parameters"
            results.append(of(what, "times", ratios, reference="DDP: 1"))
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            median = f"{results[-1].value:.2f}"
            rows.append([size, variant, f"{ms:.0f}", median, spread, f"{sent:.2f}"])
    return rows, results[1:]  # DDP comes first.


def largest(ranks, stage):
    """(predicted parameters, largest that was trained): up from FIRST until one does not fit, or
    down until one does.
    """
    predicted = float(costs.largest_model(LIMIT, ranks, stage))

    def fits(steps):
        layers = round(steps * STEP * predicted / 2**20)
        options = ("--width", 1024, "--layers", layers, "--stage", stage, "--batch", 4)
        report = worker(ranks, "fits", *options, "--limit", LIMIT, "--save", *SAVINGS)
        return layers * 2**20 if report else 0

    steps = round(FIRST[stage] / STEP)
    trained = fits(steps)
    if not trained:
        return predicted, next(filter(None, map(fits, range(steps - 1, 0, -1))), 0)
    while larger := fits(steps := steps + 1):
        trained = larger
    return predicted, trained


def largest_models(counts):
    """Rows of the table of the largest model, and its figure: stage 3's on the most ranks."""
    rows = []
    for ranks in counts:
        for stage in range(4):
            predicted, trained = largest(ranks, stage)
            share = trained / predicted
            sizes = [f"{predicted / 1e6:.0f}", f"{trained / 1e6:.0f}"]
            rows.append([str(ranks), str(stage), *sizes, f"{share:.0%}"])
    what = f"largest model in 2 GiB, stage 3, {ranks} ranks: share"
    more = {"wanted": WANTED, "less_is_better": False}
    return rows, of(what, "of 1", [share], **more, reference="the paper's sum alone: 1")


def peaks():
    """Rows of the table of what each saving changes at stage 3 on 4 ranks; the last one is the
    allocator's.
    """
    size, names = ("--width", 1024, "--layers", PEAK_LAYERS, "--stage", 3, "--batch", 4), [*SAVINGS]
    labels = ["with none of these settings", *(f"and {words}" for words in SAVINGS.values())]
    rows = []
    for count, label in enumerate(labels):
        rows.append(peak_row(label, worker(4, "peaks", *size, "--save", *names[:count])))
    os.environ |= MALLOC
    label = "and freed memory goes back at once (glibc's settings)"
    return [*rows, peak_row(label, worker(4, "peaks", *size, "--save", *names))]


def peak_row(label, report):
    cells = [f"{added:.1f}" for added in report.values()]
    return [label, *cells, f"**{max(report.values()):.1f}**"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--rounds", type=int, default=5, help="(default: 5)")
    add("--ranks", type=int, nargs="+", default=[4], help="of the largest model (default: 4)")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    mpi_env()
    step_rows, steps = step_times(args.rounds)
    peak_rows = peaks()  # Before the largest models: it sets the allocator for all that follows.
    largest_rows, share = largest_models(args.ranks)
    header = ["parameters", "variant", "ms", "times DDP", "times DDP, min to max"]
    figures.write_page(
        "zero",
        "# ZeRO: time of a step, and the largest model",
        f"{conditions(load)} 1 thread per rank, gloo.",
        f"## A step on 2 ranks, fp32, Adam, 64 samples per rank; {args.rounds} rounds, medians",
        table([*header, "bytes sent / bytes of the model"], step_rows),
        "## The largest model that adds at most 2 GiB to a rank, bf16, Adam; millions of "
        "parameters",
        table(["ranks", "stage", "predicted", "trained", "share"], largest_rows),
        "## Stage 3 on 4 ranks: what each phase adds at its peak, "
        f"{PEAK_LAYERS * 2**20 / 1e6:.0f} million parameters; bytes per parameter",
        f"Predicted: {float(costs.zero_total(1, 4, 3)):.0f}. Each column counts all that is "
        "allocated at that moment.",
        table(["", "built", "`initialize`", "forward, backward", "step", "maximum"], peak_rows),
    )
    figures.keep("zero", [*steps, share], load)


if __name__ == "__main__":
    main()
