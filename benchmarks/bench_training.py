"""Two ranks against one, one thread each: DDP, Horovod, by hand, and two independent runs.

Writes benchmarks/training.md.

The independent runs (--method single on two ranks) do not communicate: what they lose, the machine
takes (memory bandwidth, caches, clock), and no method can do better. Where a method loses the rest,
training_explained.md says. A machine's pace drifts within seconds, so all programs are there at
once, and take turns of STEPS steps; the others are stopped (SIGSTOP). A rate is all steps of a
round's turns by all their seconds; a ratio is of one round.
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
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import figures
import numpy as np
import psutil
import torch
from figures import of

from pi2zero.hosts import limits
from pi2zero.mpi import mpi_env

HERE = Path(__file__).parent
WORKER = HERE / "training_worker.py"
STEPS, TURNS = 3, 4  # that are counted in a turn; turns of each program in a round
LONGEST = 120  # s of a turn, or of a start
MPIRUN, HOROVODRUN = (
    ["mpirun", "-n", "{ranks}", "--bind-to", "none"],
    ["horovodrun", "--gloo", "-np", "{ranks}"],
)
ALONE, CEILING = "one rank", "two independent runs (ceiling)"
# what every method does that keeps the ranks together
LOCKSTEP = "the same, if each step waited for the slower rank"
YIELDS = "Horovod, MPI that yields, a cycle of 10 ms"
# Memory that a step has freed stays with the process (mallopt(3)). Else each step asks the kernel
# for it again, page by page.
KEPT_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**34)}
VARIANTS = {  # name in the page: method, ranks, launcher, environment
    ALONE: ("single", 1, MPIRUN, {}),
    CEILING: ("single", 2, MPIRUN, {}),
    "by hand": ("hand", 2, MPIRUN, {}),
    "DDP": ("ddp", 2, MPIRUN, {}),
    "Horovod, MPI": ("horovod", 2, MPIRUN, {}),
    YIELDS: (
        "horovod",
        2,
        MPIRUN,
        {"OMPI_MCA_mpi_yield_when_idle": "1", "HOROVOD_CYCLE_TIME": "10"},
    ),
    "Horovod, gloo": ("horovod", 2, HOROVODRUN, {}),
}
TOGETHER = ("by hand", "DDP", YIELDS)  # of whom 95 % of the ceiling is wanted


class Program:
    """The ranks of one variant; stopped but for its turns."""

    def __init__(self, variant, args):
        method, self.ranks, launcher, settings = VARIANTS[variant]
        self.variant, self.turn, self.own = variant, 0, tempfile.TemporaryDirectory()
        self.folder = Path(self.own.name)
        command = [part.format(ranks=self.ranks) for part in launcher] + [
            sys.executable,
            "-W",
            "ignore",
            str(WORKER),
        ]
        command += [
            str(self.folder),
            "--method",
            method,
            "--model",
            args.model,
            "--ranks",
            str(self.ranks),
        ]
        command += [
            "--batch-size",
            str(args.batch_size),
            "--image-size",
            str(args.image_size),
            "--steps",
            str(STEPS),
        ]
        self.said = (self.folder / "said").open("w")
        self.started = psutil.Popen(
            command,
            stdout=self.said,
            stderr=subprocess.STDOUT,
            env=os.environ | KEPT_MEMORY | settings,
        )

    def __enter__(self):
        try:
            self.steps()  # a first turn, that does not count, before others are there
        except BaseException:
            self.__exit__()
            raise
        return self

    def steps(self):
        """Seconds, (ranks, STEPS), of its next turn."""
        self.signal("resume")
        (self.folder / f"go{self.turn}").touch()
        told = [self.folder / f"{self.turn}.{rank}" for rank in range(self.ranks)]
        end = time.monotonic() + LONGEST
        while not all(path.exists() for path in told):
            if self.started.poll() is not None or time.monotonic() > end:
                sys.exit(
                    f"{self.variant}: no steps came:\n{(self.folder / 'said').read_text()[-2000:]}"
                )
            time.sleep(0.02)
        self.turn += 1
        time.sleep(0.1)  # the last step of all, if nobody waits for it
        self.signal("suspend")
        return np.array([json.loads(path.read_text()) for path in told])

    def signal(self, what):
        with suppress(psutil.NoSuchProcess):  # it has ended
            for process in [*self.started.children(recursive=True), self.started]:
                with suppress(psutil.NoSuchProcess):
                    getattr(process, what)()

    def __exit__(self, *_):
        self.signal("resume")
        (self.folder / "end").touch()
        try:
            self.started.wait(30)
        except psutil.TimeoutExpired:  # a rank may hang at its end: synthetic_benchmark.leave
            left = [*self.started.children(recursive=True), self.started]
            self.signal("kill")
            psutil.wait_procs(left, 10)
        self.said.close()
        self.own.cleanup()


def one_round(programs):
    """{variant: steps of two ranks a second / those of one}, and the step of one rank in s."""
    seconds = {program.variant: [] for program in programs}
    for turn in range(TURNS):
        for program in programs[:: -1 if turn % 2 else 1]:
            seconds[program.variant].append(program.steps())
    seconds = {
        variant: np.concatenate(turns, axis=1) for variant, turns in seconds.items()
    }  # (ranks, steps)
    alone = seconds.pop(ALONE).mean()
    ratios = {
        CEILING: float((alone / seconds[CEILING].mean(axis=1)).sum())
    }  # each at its own pace: nobody waits
    ratios[LOCKSTEP] = float(2 * alone / seconds.pop(CEILING).max(axis=0).mean())
    return ratios | {
        variant: float(2 * alone / own.max(axis=0).mean()) for variant, own in seconds.items()
    }, float(alone)


def enough_memory(program, more, parser):
    """All programs are in the memory at the same time."""
    rank = max(
        psutil.Process(process.pid).memory_info().rss
        for process in program.started.children(recursive=True)
    )
    free = psutil.virtual_memory().available
    if more * rank > free:
        parser.error(
            f"{more} more ranks of {rank / 1e9:.1f} GB each need {more * rank / 1e9:.0f} GB, "
            f"{free / 1e9:.0f} GB are free: "
            "take a smaller --batch-size"
        )


def page(rounds, args, load):
    """The text of training.md."""
    steps = [1e3 * alone for _, alone in rounds]
    lines = [
        "# Training: two ranks against one",
        "",
        f"{datetime.date.today()}, {platform.system()}, {limits.cores():.0f} cores, torch "
        f"{torch.__version__.split('+')[0]}, "
        f"1 thread a rank. Load of the machine before the start: {load:.1f} (0 is idle).",
        f"The steps of `scripts/synthetic_benchmark.py --model {args.model} --image-size "
        f"{args.image_size} "
        f"--batch-size {args.batch_size}` (per rank), {len(rounds)} rounds of {TURNS} turns of "
        f"{STEPS} steps; "
        f"a step on one rank: {statistics.median(steps):.0f} ms ({min(steps):.0f} to "
        f"{max(steps):.0f}).",
        "",
        "| 2 ranks | times 1 rank: median | min | max | efficiency | share of the ceiling |",
        "|---|---|---|---|---|---|",
    ]
    for variant in rounds[0][0]:
        ratios = [ratio[variant] for ratio, _ in rounds]
        of_ceiling = statistics.median(ratio[variant] / ratio[CEILING] for ratio, _ in rounds)
        median = statistics.median(ratios)
        lines.append(
            f"| {variant} | {median:.2f} | {min(ratios):.2f} | {max(ratios):.2f} | "
            f"{median / 2:.0%} | {of_ceiling:.0%} |"
        )
    return "\n".join([*lines, "", (HERE / "training_explained.md").read_text()])


def kept(rounds):
    """Shares of what two independent runs give; and images/s of two ranks."""
    apart = (
        f"two that share nothing: 1 (they are "
        f"{statistics.median(r[CEILING] for r, _ in rounds):.2f} times as fast as one)"
    )
    found = []
    for name in (name for name in rounds[0][0] if name != CEILING):
        shares = [r[name] / r[CEILING] for r, _ in rounds]
        more = {
            "less_is_better": False,
            "wanted": 0.95 if name in TOGETHER else None,
            "beside": apart,
        }
        found.append(
            of(f"two ranks, {name}: share of two independent runs", "of 1", shares, **more)
        )
    more = {"less_is_better": False, "beside": "two cores that share nothing: 2"}
    return [
        *found,
        of(
            "two ranks by hand / one rank, images/s",
            "times",
            [r["by hand"] for r, _ in rounds],
            **more,
        ),
    ]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", default="small", help="as in synthetic_benchmark.py (default: small)"
    )
    parser.add_argument("--batch-size", type=int, default=192, help="per rank (default: 192)")
    parser.add_argument("--image-size", type=int, default=96, help="pixels (default: 96)")
    parser.add_argument("--rounds", type=int, default=4, help="(default: 4)")
    parser.add_argument(
        "--output",
        type=Path,
        default=HERE / "training.md",
        help="(default: benchmarks/training.md)",
    )
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds has to be 1 or more; got {args.rounds}")
    load = os.getloadavg()[0]
    mpi_env()
    there = importlib.util.find_spec("horovod")
    with ExitStack() as all_of_them:
        variants = [name for name, (method, *_) in VARIANTS.items() if there or method != "horovod"]
        programs = [all_of_them.enter_context(Program(ALONE, args))]
        enough_memory(programs[0], sum(VARIANTS[variant][1] for variant in variants[1:]), parser)
        programs += [all_of_them.enter_context(Program(variant, args)) for variant in variants[1:]]
        rounds = [one_round(programs) for _ in range(args.rounds)]
    args.output.write_text(page(rounds, args, load))
    if args.output.parent == HERE:
        figures.keep("training", kept(rounds), load)
    print(args.output.read_text())


if __name__ == "__main__":
    main()
