"""`make bench`: all-reduces compared, by scripts/allreduce_bench.py. Writes collectives.md.

Each figure is a median of ROUNDS rounds. A round is one mpirun, in which the algorithms of MPI take
turns call by call, and Horovod and gloo follow. A ratio is the median of the rounds' ratios,
because the speed of a machine drifts from minute to minute.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import timeit

import figures
import numpy
from figures import HERE, conditions, of, table

from pi2zero.mpi import mpi_env
from pi2zero.plots import bytes_text

ROUNDS = 5
RANKS = 2
SHORT, LONG = 4 * 2**10, 16 * 2**20
COMMAND = "scripts/allreduce_bench.py --json --warmups 2 --repeats 15 --longest 60 --sizes"
SIZES = "1K 4K 64K 1M 4M 16M 64M"
CHOOSE = "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm"
# What explains the figures: label -> (options of mpirun, options of the script)
EXPERIMENTS = {
    "MPI, ring": (f"{CHOOSE} 4", "4K 16M --algorithms mpi"),
    "Horovod, cycle of 0.1 ms": ("-x HOROVOD_CYCLE_TIME=0.1", "4K 16M --algorithms horovod"),
}


def results_of(command, **options):
    """{(algorithm, bytes): s} of one run of scripts/allreduce_bench.py."""
    more = {"capture_output": True, "text": True, "timeout": 300, "cwd": HERE.parent}
    done = subprocess.run([str(word) for word in command], **more, **options)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    rows = json.loads(done.stdout)["results"]
    return {(row["algorithm"], row["bytes"]): row["seconds"] for row in rows}


def run(mpi_options, options):
    mpirun = ["mpirun", "-n", RANKS, *mpi_options.split(), sys.executable]
    return results_of([*mpirun, *COMMAND.split(), *options.split()])


def measure():
    """The rounds so far, [{(label, bytes): s}], after each one.

    The experiments run once: they explain, and no ratio uses them.
    """
    rounds = []
    for number in range(ROUNDS):
        print(f"round {number + 1} of {ROUNDS}", flush=True)
        rounds.append(run("", SIZES))
        yield rounds
    for label, (mpi_options, options) in EXPERIMENTS.items():
        print(label, flush=True)
        if ("horovod", LONG) in rounds[0] or "horovod" not in options:
            rounds[0] |= {
                (label, nbytes): t for (_, nbytes), t in run(mpi_options, options).items()
            }
            yield rounds


def median(rounds, key):
    return statistics.median(times[key] for times in rounds)


def ratio(rounds, one, other):
    return statistics.median(times[one] / times[other] for times in rounds)


def faster(rounds, nbytes):
    """Which library is the fastest at this size, and the times of the others relative to it."""
    measured = [name for name in ("mpi", "gloo", "horovod") if (name, nbytes) in rounds[0]]
    best = min(measured, key=lambda name: median(rounds, (name, nbytes)))
    others = [
        f"{name} {ratio(rounds, (name, nbytes), (best, nbytes)):.2f} times its time"
        for name in measured
        if name != best
    ]
    return f"{best} ({', '.join(others)})"


def bandwidths(rounds):
    """Bus bandwidth in GB/s; on two ranks it is size / time."""
    names = list(dict.fromkeys(name for name, _ in rounds[0] if name not in EXPERIMENTS))
    sizes = sorted({nbytes for _, nbytes in rounds[0]})
    factor = 2 * (RANKS - 1) / RANKS / 1e9
    rows = [
        [bytes_text(n), *(f"{factor * n / median(rounds, (name, n)):.3f}" for name in names)]
        for n in sizes
    ]
    return table(["bus bandwidth, GB/s", *names], rows)


def spread(rounds):
    """Times at the two sizes that matter: min, median and max over the rounds."""
    rows = []
    for label, nbytes in sorted(rounds[0], key=lambda key: key[1]):
        if nbytes in (SHORT, LONG):
            values = [1e6 * times[label, nbytes] for times in rounds if (label, nbytes) in times]
            rows.append(
                [
                    bytes_text(nbytes),
                    label,
                    *(f"{f(values):,.1f}" for f in (min, statistics.median, max)),
                ]
            )
    return table(["size", "all-reduce", "min, µs", "median, µs", "max, µs"], rows)


def ratios(rounds):
    ring = ratio(rounds, ("mpi", LONG), ("ring", LONG))
    naive = ratio(rounds, ("naive", LONG), ("ring", LONG))
    return table(
        ["ratio (median of the rounds' ratios)", "measured", "wanted"],
        [
            [
                "learner's ring / MPI.Allreduce, bus bandwidth at 16 MiB",
                f"{ring:.2f}",
                "at least 0.8",
            ],
            ["learner's ring / naive, bus bandwidth at 16 MiB", f"{naive:.2f}", ""],
            ["the fastest of MPI, gloo and Horovod at 4 KiB", faster(rounds, SHORT), ""],
            ["the fastest of MPI, gloo and Horovod at 16 MiB", faster(rounds, LONG), ""],
        ],
    )


def figures_of(rounds):
    """The ring compared with MPI's own, and the fastest compared with a copy in memory, which reads
    and writes as much as an all-reduce has to.
    """
    ring = [times["mpi", LONG] / times["ring", LONG] for times in rounds]
    names = [name for name in ("ring", "mpi", "gloo") if (name, LONG) in rounds[0]]
    best = [LONG / min(times[name, LONG] for name in names) / 1e9 for times in rounds]
    copy = f"a copy of 16 MiB by NumPy on one core: {copy_bandwidth(LONG) / 1e9:.1f} GB/s"
    name = "learner's ring / MPI.Allreduce, bus bandwidth at 16 MiB"
    more = {"less_is_better": False}
    return [
        of(name, "times", ring, **more, wanted=0.8, reference="MPI's own: 1"),
        of("fastest all-reduce at 16 MiB, bus bandwidth", "GB/s", best, **more, reference=copy),
    ]


def copy_bandwidth(nbytes):
    """Bytes per second of a copy, the best of five."""
    source = numpy.ones(nbytes // 8)
    target = numpy.empty_like(source)
    return nbytes / min(timeit.repeat(lambda: numpy.copyto(target, source), number=1, repeat=5))


def warn_if_busy(load):
    """Ranks that wait for a core measure the scheduler: 4 KiB then takes 100 ms, not 10 µs."""
    if load > 1:
        print(f"The machine is busy (load {load:.1f}): two cores must be free.", file=sys.stderr)


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    load = os.getloadavg()[0]
    warn_if_busy(load)
    mpi_env()
    for rounds in measure():  # Writing after each round keeps the results of a run that is stopped.
        figures.write_page(
            "collectives",
            "# All-reduce: your ring, MPI, gloo, Horovod",
            f"Written by `make bench`. {RANKS} ranks on one host. {conditions(load)} Medians of "
            f"{len(rounds)} rounds.",
            f"Command: `mpirun -n {RANKS} python {COMMAND} {SIZES}`. Each call's time is the "
            "slowest rank's.",
            bandwidths(rounds),
            "busbw = size / time x 2 (p-1)/p (nccl-tests).",
            ratios(rounds),
            spread(rounds),
            f"{'; '.join(EXPERIMENTS)}: one run, where they are in the table.",
        )
        figures.keep("collectives", figures_of(rounds), load)


if __name__ == "__main__":
    main()
