"""Pipelines against their ideal, rings and halos against one process, by hand against by library.

Writes benchmarks/parallel.md.

The programs are the notebooks' own cells (parallel_worker.py). Stages of the schedules sleep, so
that four ranks do not fight for cores; all else computes, on two ranks. Every round runs all; a
ratio is taken within a round; the rounds' median is shown.
"""

import argparse
import datetime
import os
import platform
import statistics
from pathlib import Path

import figures
import torch
from bench_plan import report_of

from pi2zero.hosts import limits

HERE = Path(__file__).parent
BY_HAND = ("1F1B, 2 stages", "MLP, columns and rows")
AGAINST = {  # what: (beside what, of the same kind)
    "attention: ring, two ranks": ("attention: plain, one rank", 0.5),
    "attention: ring, two ranks ": ("attention: fused, one rank", 0.5),
    "convolution: two strips": ("convolution: one rank", 0.5),
    "convolution: the exchange alone": ("convolution: one rank", 0.0),
}
IDEAL = "the schedule on ranks that hand over in no time: 1"


def row(name, ratios, *more):
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return f"| {' | '.join((name, *more, f'{statistics.median(ratios):.2f}', spread))} |"


def median(rounds, name):
    return 1e3 * statistics.median(one[name] for one in rounds)


def schedules(found):
    yield from (
        "| schedule | ideal, ms | measured, ms | measured / ideal | min to max |",
        "|---|---|---|---|---|",
    )
    for name, ideal in found["ideal"].items():
        ratios = [one[name] / ideal for one in found["schedules"]]
        yield row(name, ratios, f"{1e3 * ideal:.0f}", f"{median(found['schedules'], name):.0f}")


def kernels(found):
    yield from (
        "| two ranks | ms | beside | ms | ratio | min to max | a perfect ratio |",
        "|---|---|---|---|---|---|---|",
    )
    rounds = found["pairs"]
    for name, (other, perfect) in AGAINST.items():
        ratios = [one[name.strip()] / one[other] for one in rounds]
        told = row(
            name.strip(),
            ratios,
            f"{median(rounds, name.strip()):.1f}",
            other,
            f"{median(rounds, other):.1f}",
        )
        yield f"{told} {perfect:g} |"


def hands(found):
    yield from (
        "| two ranks | by hand, ms | library, ms | by hand / library | min to max | library / "
        "by hand |",
        "|---|---|---|---|---|---|",
    )
    rounds = found["pairs"]
    for name in BY_HAND:
        ours, theirs = f"{name}: by hand", f"{name}: library"
        ratios = [one[ours] / one[theirs] for one in rounds]
        told = row(name, ratios, f"{median(rounds, ours):.1f}", f"{median(rounds, theirs):.1f}")
        yield f"{told} {1 / statistics.median(ratios):.2f} |"


def kept(found):
    """For figures.json: ratios only."""
    for name, ideal in found["ideal"].items():
        yield figures.of(
            f"{name}: measured / ideal",
            "times",
            [one[name] / ideal for one in found["schedules"]],
            beside=IDEAL,
        )
    for name, (other, perfect) in AGAINST.items():
        ratios = [one[name.strip()] / one[other] for one in found["pairs"]]
        yield figures.of(
            f"{name.strip()} / {other}", "times", ratios, beside=f"perfect: {perfect or 0:g}"
        )
    for name in BY_HAND:
        ratios = [one[f"{name}: by hand"] / one[f"{name}: library"] for one in found["pairs"]]
        yield figures.of(f"{name}, by hand / by library", "times", ratios, beside="the library: 1")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument(
        "--repeats",
        type=int,
        default=5,
        help="of what computes, in a round; the shortest counts (default: 5)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=HERE / "parallel.md",
        help="(default: benchmarks/parallel.md)",
    )
    args = parser.parse_args()
    load, explained = os.getloadavg()[0], (HERE / "parallel_explained.md").read_text()
    found = report_of("parallel_worker.py", rounds=args.rounds, repeats=args.repeats)
    lines = [
        "# Model parallelism: schedules, rings, halos, and libraries",
        "",
        f"{datetime.date.today()}, {platform.system()}, {limits.cores():.0f} cores, torch "
        f"{torch.__version__.split('+')[0]}, "
        f"1 thread a rank, gloo. Load of the machine before the start: {load:.1f} (0 is idle). "
        f"{args.rounds} rounds, medians.",
        "",
        "## Schedules: 4 ranks, 8 micro-batches (batches, one direction or two), stages that "
        "sleep 20 ms a layer",
        "",
        *schedules(found),
        "",
        "## Beside one process's kernel: forward and backward, 2 ranks",
        "",
        *kernels(found),
        "",
        f"## By hand and by library: a step on 2 ranks, the shortest of {args.repeats} in each "
        f"round",
        "",
        *hands(found),
        "",
        explained,
    ]
    args.output.write_text("\n".join(lines))
    figures.keep("parallel", kept(found), load)
    print(args.output.read_text())


if __name__ == "__main__":
    main()
