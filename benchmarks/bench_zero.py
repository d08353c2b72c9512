"""ZeRO on two ranks: a step of each stage against DDP's; the largest model under a limit of memory.

Writes benchmarks/zero.md.

Step times: all variants in one process after another, ROUNDS times; a variant is compared with DDP
of the same round. Largest model: each rank may add LIMIT bytes (setrlimit, RLIMIT_DATA) to what it
has when DeepSpeed is loaded. A model of layers of 1024 x 1024 is built and trained for two steps,
with as many layers as fit, to STEP of the prediction. Peaks: the same on four ranks without a
limit, and what each phase adds at its fullest moment.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

import figures
import torch
from zero_worker import SAVINGS

from pi2zero import costs
from pi2zero.hosts import limits
from pi2zero.mpi import mpi_env

HERE = Path(__file__).parent
LIMIT = 2**31
STEP = 0.05  # of the prediction
WANTED = 0.8  # of stage 3
FIRST = (
    0.75,
    0.85,
    0.7,
    0.85,
)  # by stage, the share to try first: what is usual here, because a try takes up to half a minute
OUT_OF_MEMORY = ("MemoryError", "not enough memory", "bad_alloc", "allocate memory")
SAVED = ("bf16", "dealt", "buckets", "fused", "groups")  # one after the other, in the third table
# glibc gives freed arrays back at once, in place of learning from their sizes to keep them.
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(2**16),
    "MALLOC_TRIM_THRESHOLD_": str(2**16),
    "MALLOC_ARENA_MAX": "1",
}
PEAK_LAYERS = 64
SIZES = {
    "2 million": ["--width", "512", "--layers", "8"],
    "25 million": ["--width", "1024", "--layers", "24"],
}


def worker(ranks, *options, timeout=900):
    """The worker's report, or None if its memory did not suffice."""
    # mpi4py's own runner ends all ranks when one fails; else the others would wait for it.
    command = [
        "mpirun",
        "-n",
        str(ranks),
        sys.executable,
        "-m",
        "mpi4py",
        str(HERE / "zero_worker.py"),
        *map(str, options),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode == 0:
        return json.loads(done.stdout)
    if any(word in done.stderr for word in OUT_OF_MEMORY):
        return None
    sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")


def step_rows(rounds):
    """Lines of the table of step times, and its figures: those of the larger model, each ratio of
    one round.
    """
    rows, kept = [], []
    for size, options in SIZES.items():
        found = [worker(2, "steps", *options) for _ in range(rounds)]
        parameters = int(options[1]) ** 2 * int(options[3])
        for variant in found[0]:
            ratios = [one[variant][0] / one["DDP"][0] for one in found]
            milliseconds = 1e3 * statistics.median(one[variant][0] for one in found)
            sent = found[0][variant][1] / (4 * parameters)
            rows.append(
                f"| {size} | {variant} | {milliseconds:.0f} | {statistics.median(ratios):.2f} | "
                f"{min(ratios):.2f} to "
                f"{max(ratios):.2f} | {sent:.2f} |"
            )
            if size == list(SIZES)[-1] and variant != "DDP":
                kept.append(
                    figures.of(
                        f"{variant} / DDP, a step of {size} parameters",
                        "times",
                        ratios,
                        beside="DDP: 1",
                    )
                )
    return rows, kept


def largest(ranks, stage):
    """(predicted parameters, largest that was trained): up from FIRST until one does not fit, or
    down until one does.
    """
    predicted = float(costs.largest_model(LIMIT, ranks, stage))

    def fits(steps):
        layers = round(steps * STEP * predicted / 2**20)
        options = (
            "fits",
            "--width",
            1024,
            "--layers",
            layers,
            "--stage",
            stage,
            "--batch",
            4,
            "--limit",
            LIMIT,
        )
        return layers * 2**20 if worker(ranks, *options, "--save", *SAVED) else 0

    steps = round(FIRST[stage] / STEP)
    trained = fits(steps)
    if not trained:
        return predicted, next(
            (found for lower in range(steps - 1, 0, -1) if (found := fits(lower))), 0
        )
    while larger := fits(steps := steps + 1):
        trained = larger
    return predicted, trained


def largest_rows(counts):
    """Lines of the table of the largest model, and its figure: stage 3's on the most ranks."""
    rows = []
    for ranks in counts:
        for stage in range(4):
            predicted, trained = largest(ranks, stage)
            rows.append(
                f"| {ranks} | {stage} | {predicted / 1e6:.0f} | {trained / 1e6:.0f} | "
                f"{trained / predicted:.0%} |"
            )
    more = {
        "wanted": WANTED,
        "less_is_better": False,
        "beside": "the paper's sum, as if nothing else were there: 1",
    }
    return rows, [
        figures.of(
            f"largest model in 2 GiB, stage 3, {ranks} ranks: share",
            "of 1",
            [trained / predicted],
            **more,
        )
    ]


def peak_rows():
    """Lines of the table of what each saving changes at stage 3 on 4 ranks; the last one is the
    allocator's.
    """
    size, rows = ("--width", 1024, "--layers", PEAK_LAYERS, "--stage", 3, "--batch", 4), []
    for count in range(len(SAVED) + 1):
        found = worker(4, "peaks", *size, "--save", *SAVED[:count])
        rows.append(
            peak_row(
                "with none of these settings" if not count else f"and {SAVINGS[SAVED[count - 1]]}",
                found,
            )
        )
    os.environ |= MALLOC
    return [
        *rows,
        peak_row(
            "and freed memory goes back at once (glibc's settings)",
            worker(4, "peaks", *size, "--save", *SAVED),
        ),
    ]


def peak_row(label, found):
    cells = " | ".join(f"{added:.1f}" for added in found.values())
    return f"| {label} | {cells} | **{max(found.values()):.1f}** |"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument(
        "--output", type=Path, default=HERE / "zero.md", help="(default: benchmarks/zero.md)"
    )
    parser.add_argument(
        "--ranks", type=int, nargs="+", default=[4], help="of the largest model (default: 4)"
    )
    args = parser.parse_args()
    load, explained = os.getloadavg()[0], (HERE / "zero_explained.md").read_text()
    mpi_env()
    measured = (
        f"{datetime.date.today()}, {platform.system()}, {limits.cores():.0f} cores, torch "
        f"{torch.__version__.split('+')[0]}, "
        f"1 thread a rank, gloo. Load of the machine before the start: {load:.1f} (0 is idle)."
    )
    steps, kept = step_rows(args.rounds)
    peaks = peak_rows()  # before the largest models: it sets the allocator for all that follows
    largest_models, share = largest_rows(args.ranks)
    if args.output.parent == HERE:
        figures.keep("zero", kept + share, load)
    whole = PEAK_LAYERS * 2**20 / 1e6
    lines = [
        "# ZeRO: time of a step, and the largest model",
        "",
        f"## A step on 2 ranks, fp32, Adam, 64 samples a rank; {args.rounds} rounds, medians",
        "",
        measured,
        "",
        "| parameters | variant | ms | times DDP | times DDP, min to max | bytes sent / bytes "
        "of the model |",
        "|---|---|---|---|---|---|",
        *steps,
        "",
        "## The largest model that adds at most 2 GiB to a rank, bf16, Adam; millions of "
        "parameters",
        "",
        measured,
        "",
        "| ranks | stage | predicted | trained | share |",
        "|---|---|---|---|---|",
        *largest_models,
        "",
        f"## Stage 3 on 4 ranks: what each phase adds at its fullest moment, {whole:.0f} "
        f"million parameters; bytes for each",
        "",
        f"Predicted: {float(costs.zero_total(1, 4, 3)):.0f}. A column's figure holds all that "
        f"is there at that moment.",
        "",
        "| | built | `initialize` | forward, backward | step | most |",
        "|---|---|---|---|---|---|",
        *peaks,
        "",
        explained,
    ]
    args.output.write_text("\n".join(lines))
    print(args.output.read_text())


if __name__ == "__main__":
    main()
