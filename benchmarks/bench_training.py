"""Two ranks against one, one thread each: DDP, Horovod, by hand, and two independent runs. Writes benchmarks/training.md.

The independent runs (--method single on two ranks) do not communicate: what they lose, the machine takes (memory bandwidth,
caches, clock), and no method can do better. The rest of a method's loss is its communication.
Each of ROUNDS rounds runs all variants; a ratio is the median of the rounds' ratios.
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

import torch

from pi2zero import machine
from pi2zero.processes import mpi_env

HERE = Path(__file__).parent
SCRIPT = HERE.parent / "scripts" / "synthetic_benchmark.py"
NAMES = {"single": "two independent runs (ceiling)", "hand": "by hand", "ddp": "DDP", "horovod": "Horovod"}


def measure(method, ranks, args):
    """The script's report for one run."""
    command = ["mpirun", "-n", str(ranks), "--bind-to", "none", sys.executable, str(SCRIPT), "--json", "--threads", "1"]
    command += ["--method", method, "--model", args.model, "--batch-size", str(args.batch_size)]
    command += ["--image-size", str(args.image_size), "--iterations", str(args.iterations), "--warmup", "2"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)


def one_round(methods, args):
    """{method: ratio of images/s of 2 ranks to 1}, and the step of one rank in s. Rates by the median step."""
    alone = measure("single", 1, args)["step_seconds"]
    return {method: 2 * alone / measure(method, 2, args)["step_seconds"] for method in methods}, alone


def page(rounds, args, load):
    """The text of training.md."""
    steps = [1e3 * alone for _, alone in rounds]
    lines = [
        "# Training: two ranks against one",
        "",
        f"{datetime.date.today()}, {platform.system()}, {machine.cores():.0f} cores, torch {torch.__version__.split('+')[0]}, "
        f"1 thread a rank. Load of the machine before the start: {load:.1f} (0 is idle).",
        f"`scripts/synthetic_benchmark.py --model {args.model} --image-size {args.image_size} --batch-size {args.batch_size}` "
        f"(per rank), {args.iterations} steps, {len(rounds)} rounds; a step on one rank: {statistics.median(steps):.0f} ms "
        f"({min(steps):.0f} to {max(steps):.0f}).",
        "",
        "| 2 ranks | times 1 rank: median | min | max | efficiency | share of the ceiling |",
        "|---|---|---|---|---|---|",
    ]
    for method in rounds[0][0]:
        ratios = [ratio[method] for ratio, _ in rounds]
        of_ceiling = statistics.median(ratio[method] / ratio["single"] for ratio, _ in rounds)
        median = statistics.median(ratios)
        lines.append(
            f"| {NAMES[method]} | {median:.2f} | {min(ratios):.2f} | {max(ratios):.2f} | {median / 2:.0%} | {of_ceiling:.0%} |"
        )
    return "\n".join([*lines, "", (HERE / "training_explained.md").read_text()])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="small", help="as in synthetic_benchmark.py (default: small)")
    parser.add_argument("--batch-size", type=int, default=32, help="per rank (default: 32)")
    parser.add_argument("--image-size", type=int, default=96, help="pixels (default: 96)")
    parser.add_argument("--iterations", type=int, default=10, help="steps that are counted (default: 10)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument("--output", type=Path, default=HERE / "training.md", help="(default: benchmarks/training.md)")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds has to be 1 or more; got {args.rounds}")
    load = os.getloadavg()[0]
    mpi_env()
    methods = [m for m in NAMES if m != "horovod" or importlib.util.find_spec("horovod")]
    rounds = [one_round(methods, args) for _ in range(args.rounds)]
    args.output.write_text(page(rounds, args, load))
    print(args.output.read_text())


if __name__ == "__main__":
    main()
