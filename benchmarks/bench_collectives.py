"""`make bench`: all-reduces compared, by scripts/allreduce_bench.py.

Writes benchmarks/collectives.md.

Each figure is a median of ROUNDS rounds. A round is one mpirun, in which the algorithms of MPI take
turns call by call, and Horovod and gloo follow. A ratio is the median of the rounds' ratios,
because the speed of a machine drifts from minute to minute.
"""

import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import time
import timeit
from pathlib import Path

import figures
import numpy
import psutil
from figures import of, table

from pi2zero.mpi import mpi_env, mpi_library
from pi2zero.plots import bytes_text

HERE = Path(__file__).parent
ROUNDS = 5
RANKS = 2
PACKAGES = ("numpy", "mpi4py", "torch", "horovod")
SHORT, LONG = 4 * 2**10, 16 * 2**20
COMMAND = "scripts/allreduce_bench.py --json --warmups 2 --repeats 15 --longest 60 --sizes"
SIZES = "1K 4K 64K 1M 4M 16M 64M"
CHOOSE = "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm"
# What explains the figures: label -> (options of mpirun, options of the script)
EXPERIMENTS = {
    "MPI, ring": (f"{CHOOSE} 4", "4K 16M --algorithms mpi"),
    "Horovod, cycle of 0.1 ms": ("-x HOROVOD_CYCLE_TIME=0.1", "4K 16M --algorithms horovod"),
}


def run(mpi_options, options):
    """{(algorithm, bytes): s} of one mpirun."""
    command = [
        "mpirun",
        "-n",
        str(RANKS),
        *mpi_options.split(),
        sys.executable,
        *COMMAND.split(),
        *options.split(),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=HERE.parent, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return {
        (row["algorithm"], row["bytes"]): row["seconds"]
        for row in json.loads(done.stdout)["results"]
    }


def measure():
    """Yields the rounds so far, [{(label, bytes): s}].

    The experiments run once: they explain, and are in no ratio.
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
    there = [name for name in ("mpi", "gloo", "horovod") if (name, nbytes) in rounds[0]]
    best = min(there, key=lambda name: median(rounds, (name, nbytes)))
    others = [
        f"{name} {ratio(rounds, (name, nbytes), (best, nbytes)):.2f} times its time"
        for name in there
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


def kept(rounds):
    """The ring against MPI's own; and the fastest against a copy in memory, which reads and writes
    what an all-reduce has to.
    """
    ring = [times["mpi", LONG] / times["ring", LONG] for times in rounds]
    copy = [copied(LONG) for _ in rounds]
    best = [
        LONG / min(times[name, LONG] for name in ("ring", "mpi", "gloo") if (name, LONG) in times)
        for times in rounds
    ]
    beside = f"a copy of 16 MiB by NumPy on one core: {statistics.median(copy) / 1e9:.1f} GB/s"
    more = {"less_is_better": False}
    return [
        of(
            "learner's ring / MPI.Allreduce, bus bandwidth at 16 MiB",
            "times",
            ring,
            **more,
            wanted=0.8,
            beside="MPI's own: 1",
        ),
        of(
            "fastest all-reduce at 16 MiB, bus bandwidth",
            "GB/s",
            [each / 1e9 for each in best],
            **more,
            beside=beside,
        ),
    ]


def copied(nbytes):
    """Bytes a second of a copy, the best of five."""
    source = numpy.ones(nbytes // 8)
    target = numpy.empty_like(source)
    return nbytes / min(timeit.repeat(lambda: numpy.copyto(target, source), number=1, repeat=5))


def conditions(load, libraries, packages):
    """libraries: of MPI, in words. packages: whose versions to name."""
    versions = ", ".join([*libraries, *(f"{name} {version(name)}" for name in packages)])
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{time.strftime('%Y-%m-%d')}, {RANKS} ranks on one host, {os.cpu_count()} cores, "
        f"{memory:.0f} GiB, "
        f"{versions}; shared memory between ranks, no network, no GPU. Load of the machine "
        f"before the start: {load:.1f}."
    )


def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def report(rounds, load):
    return "\n\n".join(
        [
            "# All-reduce: your ring, MPI, gloo, Horovod",
            f"Written by `make bench`. {conditions(load, [mpi_library()], PACKAGES)} Medians of "
            f"{len(rounds)} rounds.",
            f"Command: `mpirun -n {RANKS} python {COMMAND} {SIZES}`. Each call's time is the "
            f"slowest rank's.",
            bandwidths(rounds),
            "busbw = size / time x 2 (p-1)/p (nccl-tests).",
            ratios(rounds),
            spread(rounds),
            f"{'; '.join(EXPERIMENTS)}: one run, where they stand in the table.",
            (HERE / "collectives_explained.md").read_text(),
        ]
    )


if __name__ == "__main__":
    before = os.getloadavg()[0]
    # Ranks that wait for a core measure the scheduler: 4 KiB then takes 100 ms instead of 10 µs.
    if before > 1:
        print(
            f"The machine is busy (load {before:.1f}). These figures need two free cores.",
            file=sys.stderr,
        )
    mpi_env()
    for (
        rounds
    ) in measure():  # written after each round: a run that is ended early leaves what it has
        text = report(rounds, before)
        (HERE / "collectives.md").write_text(text)
        figures.keep("collectives", kept(rounds), before)
    print(f"\n{text}\nwritten to benchmarks/collectives.md")
