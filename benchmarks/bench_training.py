"""Two ranks compared with one, one thread each: DDP, Horovod, by hand, and two independent runs.

Writes benchmarks/training.md. The independent runs (--method single on two ranks) do not
communicate: the machine takes what they lose (memory bandwidth, caches, clock), and no method can
do better. training_explained.md says where a method loses the rest. A machine's pace drifts within
seconds, so all programs run at once and take turns of STEPS steps; the others are stopped
(SIGSTOP). A rate is all steps of a round's turns by all their seconds. A ratio is of one round.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import figures
import numpy as np
import psutil
from figures import HERE, conditions, of, table

from pi2zero.mpi import mpi_env

WORKER = HERE / "training_worker.py"
STEPS, TURNS = 3, 4  # counted steps per turn; turns of each program per round
TIMEOUT = 120  # s of a turn, or of a start
MPIRUN = ["mpirun", "-n", "{ranks}", "--bind-to", "none"]
HOROVODRUN = ["horovodrun", "--gloo", "-np", "{ranks}"]
ALONE, CEILING = "one rank", "two independent runs (ceiling)"
# What every method does that keeps the ranks together
LOCKSTEP = "the same, if each step waited for the slower rank"
YIELDS = "Horovod, MPI that yields, a cycle of 10 ms"
# Memory that a step has freed stays with the process (mallopt(3)). Otherwise each step asks the
# kernel for it again, page by page.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**34)}
YIELD = {"OMPI_MCA_mpi_yield_when_idle": "1", "HOROVOD_CYCLE_TIME": "10"}
VARIANTS = {  # name in the page: method, ranks, launcher, environment
    ALONE: ("single", 1, MPIRUN, {}),
    CEILING: ("single", 2, MPIRUN, {}),
    "by hand": ("hand", 2, MPIRUN, {}),
    "DDP": ("ddp", 2, MPIRUN, {}),
    "Horovod, MPI": ("horovod", 2, MPIRUN, {}),
    YIELDS: ("horovod", 2, MPIRUN, YIELD),
    "Horovod, gloo": ("horovod", 2, HOROVODRUN, {}),
}
BOUNDED = ("by hand", "DDP", YIELDS)  # should reach 95 % of the ceiling


class Program:
    """The ranks of one variant, which are stopped except in its turns."""

    def __init__(self, variant, args):
        method, self.ranks, launcher, environment = VARIANTS[variant]
        self.variant, self.turn, self.temporary = variant, 0, tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        launcher = [part.format(ranks=self.ranks) for part in launcher]
        command = [*launcher, sys.executable, "-W", "ignore", WORKER, self.folder]
        command += ["--method", method, "--model", args.model, "--ranks", self.ranks]
        command += ["--batch-size", args.batch_size, "--image-size", args.image_size]
        self.log = (self.folder / "log").open("w")
        self.process = psutil.Popen(
            [str(word) for word in [*command, "--steps", STEPS]],
            stdout=self.log,
            stderr=subprocess.STDOUT,
            env=os.environ | KEEP_MEMORY | environment,
        )

    def __enter__(self):
        try:
            self.steps()  # A warm-up before the other programs start.
        except BaseException:
            self.__exit__()
            raise
        return self

    def steps(self):
        """Seconds, (ranks, STEPS), of its next turn."""
        self.signal("resume")
        (self.folder / f"go{self.turn}").touch()
        reports = [self.folder / f"{self.turn}.{rank}" for rank in range(self.ranks)]
        end = time.monotonic() + TIMEOUT
        while not all(path.exists() for path in reports):
            if self.process.poll() is not None or time.monotonic() > end:
                log = (self.folder / "log").read_text()[-2000:]
                sys.exit(f"{self.variant}: no steps came:\n{log}")
            time.sleep(0.02)
        self.turn += 1
        time.sleep(0.1)  # Independent ranks finish their last step.
        self.signal("suspend")
        return np.array([json.loads(path.read_text()) for path in reports])

    def signal(self, action):
        with suppress(psutil.NoSuchProcess):
            for process in [*self.process.children(recursive=True), self.process]:
                with suppress(psutil.NoSuchProcess):
                    getattr(process, action)()

    def __exit__(self, *_):
        self.signal("resume")
        (self.folder / "end").touch()
        try:
            self.process.wait(30)
        except psutil.TimeoutExpired:  # A rank may hang at its end: synthetic_benchmark.leave
            left = [*self.process.children(recursive=True), self.process]
            self.signal("kill")
            psutil.wait_procs(left, 10)
        self.log.close()
        self.temporary.cleanup()


def one_round(programs):
    """({variant: steps/s of two ranks over those of one}, s of a step of one rank)."""
    turns = {program.variant: [] for program in programs}
    for turn in range(TURNS):
        for program in programs[:: -1 if turn % 2 else 1]:
            turns[program.variant].append(program.steps())
    seconds = {name: np.concatenate(each, axis=1) for name, each in turns.items()}  # (ranks, steps)
    alone, independent = seconds.pop(ALONE).mean(), seconds.pop(CEILING)
    # Independent ranks do not wait: each has its own pace.
    ratios = {CEILING: float((alone / independent.mean(axis=1)).sum())}
    for name, each in {LOCKSTEP: independent, **seconds}.items():
        ratios[name] = float(2 * alone / each.max(axis=0).mean())
    return ratios, float(alone)


def require_memory(program, more, parser):
    """All programs are in memory at the same time. more: ranks that start after this program."""
    ranks = program.process.children(recursive=True)
    rank = max(psutil.Process(process.pid).memory_info().rss for process in ranks)
    free = psutil.virtual_memory().available
    if more * rank > free:
        parser.error(
            f"{more} more ranks of {rank / 1e9:.1f} GB each need {more * rank / 1e9:.0f} GB, "
            f"{free / 1e9:.0f} GB are free: take a smaller --batch-size"
        )


def write_page(rounds, args, load):
    steps = [1e3 * alone for _, alone in rounds]
    rows = []
    for variant in rounds[0][0]:
        ratios = [ratio[variant] for ratio, _ in rounds]
        median = statistics.median(ratios)
        share = statistics.median(ratio[variant] / ratio[CEILING] for ratio, _ in rounds)
        spread = [f"{value:.2f}" for value in (median, min(ratios), max(ratios))]
        rows.append([variant, *spread, f"{median / 2:.0%}", f"{share:.0%}"])
    header = ["2 ranks", "times 1 rank: median", "min", "max", "efficiency", "share of the ceiling"]
    figures.write_page(
        "training",
        "# Training: two ranks compared with one",
        f"{conditions(load)} 1 thread per rank.",
        f"The steps of `scripts/synthetic_benchmark.py --model {args.model} --image-size "
        f"{args.image_size} --batch-size {args.batch_size}` (per rank), {len(rounds)} rounds of "
        f"{TURNS} turns of {STEPS} steps; a step on one rank: {statistics.median(steps):.0f} ms "
        f"({min(steps):.0f} to {max(steps):.0f}).",
        table(header, rows),
    )


def figures_of(rounds):
    """Shares of what two independent runs give; and images/s of two ranks."""
    ceiling = statistics.median(ratios[CEILING] for ratios, _ in rounds)
    reference = f"two independent runs: 1 (they are {ceiling:.2f} times as fast as one)"
    results, more = [], {"less_is_better": False}
    for name in rounds[0][0]:
        if name != CEILING:
            shares = [ratios[name] / ratios[CEILING] for ratios, _ in rounds]
            wanted = 0.95 if name in BOUNDED else None
            what = f"two ranks, {name}: share of two independent runs"
            results.append(of(what, "of 1", shares, **more, wanted=wanted, reference=reference))
    what, values = "two ranks by hand / one rank, images/s", [r["by hand"] for r, _ in rounds]
    return [*results, of(what, "times", values, **more, reference="two independent cores: 2")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--model", default="small", help="as in synthetic_benchmark.py (default: small)")
    add("--batch-size", type=int, default=192, help="per rank (default: 192)")
    add("--image-size", type=int, default=96, help="pixels (default: 96)")
    add("--rounds", type=int, default=4, help="(default: 4)")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds has to be 1 or more; got {args.rounds}")
    load = os.getloadavg()[0]
    mpi_env()
    horovod = importlib.util.find_spec("horovod")
    names = [name for name, (method, *_) in VARIANTS.items() if horovod or method != "horovod"]
    with ExitStack() as stack:
        programs = [stack.enter_context(Program(ALONE, args))]
        require_memory(programs[0], sum(VARIANTS[name][1] for name in names[1:]), parser)
        programs += [stack.enter_context(Program(name, args)) for name in names[1:]]
        rounds = [one_round(programs) for _ in range(args.rounds)]
    write_page(rounds, args, load)
    figures.keep("training", figures_of(rounds), load)


if __name__ == "__main__":
    main()
