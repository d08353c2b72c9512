"""Two ranks against one, one thread each: DDP, Horovod, by hand, and two independent runs. Writes benchmarks/training.md.

The independent runs (--method single on two ranks) do not communicate: what they lose, the machine takes (memory bandwidth,
caches, clock), and no method can do better. Where a method loses the rest, training_explained.md says.
Each of ROUNDS rounds runs all variants, and one rank alone before and after each, because a machine's pace drifts within
minutes: a variant is compared with the mean of its two neighbours. A ratio is the median of the rounds' ratios.
"""

import argparse
import datetime
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

import figures
import torch
from figures import of

from pi2zero.hosts import limits
from pi2zero.mpi import mpi_env

HERE = Path(__file__).parent
SCRIPT = HERE.parent / "scripts" / "synthetic_benchmark.py"
MPIRUN, HOROVODRUN = ["mpirun", "-n", "{ranks}", "--bind-to", "none"], ["horovodrun", "--gloo", "-np", "{ranks}"]
VARIANTS = {  # name in the page: method, launcher, environment
    "two independent runs (ceiling)": ("single", MPIRUN, {}),
    "by hand": ("hand", MPIRUN, {}),
    "DDP": ("ddp", MPIRUN, {}),
    "Horovod, MPI": ("horovod", MPIRUN, {}),
    "Horovod, MPI that yields": ("horovod", MPIRUN, {"OMPI_MCA_mpi_yield_when_idle": "1"}),
    "Horovod, gloo": ("horovod", HOROVODRUN, {}),
}
CEILING = next(iter(VARIANTS))
LOCKSTEP = "the same, if each step waited for the slower rank"  # what every method does that keeps the ranks together
TOGETHER = ("by hand", "DDP", "Horovod, MPI that yields")  # of whom 95 % of the ceiling is wanted


def measure(variant, ranks, args):
    """The script's report for one run."""
    method, launcher, settings = VARIANTS[variant]
    command = [part.format(ranks=ranks) for part in launcher] + [sys.executable, str(SCRIPT), "--json", "--threads", "1"]
    command += ["--method", method, "--model", args.model, "--batch-size", str(args.batch_size)]
    command += ["--image-size", str(args.image_size), "--iterations", str(args.iterations), "--warmup", "2"]
    environment = dict(os.environ, **settings)
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout[done.stdout.index("{") :])  # horovodrun writes [0]<stdout>: before it


def one_round(variants, args):
    """{variant: ratio of images/s of 2 ranks to 1}, and the step of one rank in s. Rates by the median step."""
    alone = [measure(CEILING, 1, args)["step_seconds"]]
    ratios = {}
    for variant in variants:
        report = measure(variant, 2, args)
        alone.append(measure(CEILING, 1, args)["step_seconds"])
        ratios[variant] = (alone[-2] + alone[-1]) / report["step_seconds"]
        if variant == CEILING:
            ratios[LOCKSTEP] = (alone[-2] + alone[-1]) / report["slowest_seconds"]
    return ratios, statistics.median(alone)


def page(rounds, args, load):
    """The text of training.md."""
    steps = [1e3 * alone for _, alone in rounds]
    lines = [
        "# Training: two ranks against one",
        "",
        f"{datetime.date.today()}, {platform.system()}, {limits.cores():.0f} cores, torch {torch.__version__.split('+')[0]}, "
        f"1 thread a rank. Load of the machine before the start: {load:.1f} (0 is idle).",
        f"`scripts/synthetic_benchmark.py --model {args.model} --image-size {args.image_size} --batch-size {args.batch_size}` "
        f"(per rank), {args.iterations} steps, {len(rounds)} rounds; a step on one rank: {statistics.median(steps):.0f} ms "
        f"({min(steps):.0f} to {max(steps):.0f}).",
        "",
        "| 2 ranks | times 1 rank: median | min | max | efficiency | share of the ceiling |",
        "|---|---|---|---|---|---|",
    ]
    for variant in rounds[0][0]:
        ratios = [ratio[variant] for ratio, _ in rounds]
        of_ceiling = statistics.median(ratio[variant] / ratio[CEILING] for ratio, _ in rounds)
        median = statistics.median(ratios)
        lines.append(
            f"| {variant} | {median:.2f} | {min(ratios):.2f} | {max(ratios):.2f} | {median / 2:.0%} | {of_ceiling:.0%} |"
        )
    return "\n".join([*lines, "", (HERE / "training_explained.md").read_text()])


def kept(rounds):
    """Shares of what two independent runs give; and images/s of two ranks."""
    apart = f"two that share nothing: 1 (they are {statistics.median(r[CEILING] for r, _ in rounds):.2f} times as fast as one)"
    found = []
    for name in (name for name in rounds[0][0] if name != CEILING):
        shares = [r[name] / r[CEILING] for r, _ in rounds]
        more = {"less_is_better": False, "wanted": 0.95 if name in TOGETHER else None, "beside": apart}
        found.append(of(f"two ranks, {name}: share of two independent runs", "of 1", shares, **more))
    more = {"less_is_better": False, "beside": "two cores that share nothing: 2"}
    return [*found, of("two ranks by hand / one rank, images/s", "times", [r["by hand"] for r, _ in rounds], **more)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="small", help="as in synthetic_benchmark.py (default: small)")
    parser.add_argument("--batch-size", type=int, default=96, help="per rank (default: 96)")
    parser.add_argument("--image-size", type=int, default=96, help="pixels (default: 96)")
    parser.add_argument("--iterations", type=int, default=6, help="steps that are counted (default: 6)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument("--output", type=Path, default=HERE / "training.md", help="(default: benchmarks/training.md)")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds has to be 1 or more; got {args.rounds}")
    load = os.getloadavg()[0]
    mpi_env()
    there = importlib.util.find_spec("horovod")
    variants = [name for name, (method, *_) in VARIANTS.items() if there or method != "horovod"]
    rounds = [one_round(variants, args) for _ in range(args.rounds)]
    args.output.write_text(page(rounds, args, load))
    if args.output.parent == HERE:
        figures.keep("training", kept(rounds), load)
    print(args.output.read_text())


if __name__ == "__main__":
    main()
