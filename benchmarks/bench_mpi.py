"""`python benchmarks/bench_mpi.py`: scripts/allreduce_bench.py under each MPI library, side by
side. Writes benchmarks/mpi.md.

A round starts the program once under each library, one after the other, and the next round in
another order: a machine that slows down slows all of them. Ratios are taken within a round. The
environments are those of tools/mpi_libraries.py.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from bench_collectives import RANKS, results_of, warn_if_busy
from figures import HERE, conditions, table, write_page

from pi2zero import plots

sys.path.insert(0, str(HERE.parent / "tools"))
from mpi_libraries import TITLES, variables, version

ROUNDS = 7
COMMAND = (
    "scripts/allreduce_bench.py --json --warmups 2 --repeats 15 --sizes 1K 4K 16K 64K "
    "256K 1M 4M 16M 64M --algorithms"
)
ALGORITHMS = {
    "mpi": "MPI.Allreduce",
    "ring": "notebook 03's ring (Sendrecv)",
    "horovod": "Horovod, over MPI",
}
FIRST = "openmpi5"
PROGRAM = "import os, sys, pi2zero; pi2zero.mpi_env(); os.execvp(sys.argv[1], sys.argv[1:])"


def find_pythons():
    """{library: its Python} of the environments that exist."""
    others = {name: HERE.parent / f".venv-{name}" / "bin" / "python" for name in TITLES}
    pythons = {name: python for name, python in others.items() if python.exists()}
    return {FIRST: Path(sys.executable)} | {n: p for n, p in pythons.items() if n != FIRST}


def has_horovod(python):
    command = [python, "-c", "from horovod.torch import mpi_lib_v2"]
    return subprocess.run(command, env=variables(python), capture_output=True).returncode == 0


def run(python, algorithms):
    """{(algorithm, bytes): s} of one mpirun."""
    program = [python.with_name("mpirun"), "-n", RANKS, python, *COMMAND.split(), *algorithms]
    return results_of([python, "-c", PROGRAM, *program], env=variables(python))


def measure(pythons):
    """[{(library, algorithm, bytes): s}], one for each round."""
    algorithms = {
        library: [name for name in ALGORITHMS if name != "horovod" or has_horovod(python)]
        for library, python in pythons.items()
    }
    libraries, rounds = list(pythons), []
    for number in range(ROUNDS):
        rounds.append({})
        first = number % len(libraries)
        for library in libraries[first:] + libraries[:first]:
            print(f"round {number + 1} of {ROUNDS}: {TITLES[library]}", flush=True)
            times = run(pythons[library], algorithms[library])
            rounds[-1] |= {(library, *key): t for key, t in times.items()}
    return rounds


def values(rounds, key):
    return [times[key] for times in rounds if key in times]


def ratios(rounds, library, algorithm, nbytes):
    """Of each round: this library's time over Open MPI 5's."""
    here, first = (library, algorithm, nbytes), (FIRST, algorithm, nbytes)
    return [times[here] / times[first] for times in rounds if here in times and first in times]


def shown(numbers, digits):
    """Median (lowest to highest)."""
    if not numbers:
        return "not run"
    return (
        f"{statistics.median(numbers):,.{digits}f} ({min(numbers):,.{digits}f} to "
        f"{max(numbers):,.{digits}f})"
    )


def report(rounds, pythons, load):
    sizes = sorted({nbytes for times in rounds for *_, nbytes in times})
    others = [library for library in pythons if library != FIRST]
    parts = [
        "# One all-reduce, several MPI libraries",
        f"Written by `python benchmarks/bench_mpi.py`. {RANKS} ranks on one host. "
        f"{conditions(load)} Libraries: {', '.join(map(version, pythons.values()))}. {ROUNDS} "
        "rounds, each with all libraries.",
        f"Command: `mpirun -n {RANKS} python {COMMAND} ...`. Each call's time is the slowest "
        "rank's.",
        "![Time of an all-reduce over its size, one line for each library](mpi.png)",
        f"Time over that of {TITLES[FIRST]} in the same round: median (lowest to highest of the "
        "rounds). Below 1 is faster.",
    ]
    for algorithm, words in ALGORITHMS.items():
        rows = [
            [
                plots.bytes_text(n),
                *(shown(ratios(rounds, each, algorithm, n), 2) for each in others),
            ]
            for n in sizes
        ]
        parts += [f"**{words}**", table(["size", *(TITLES[each] for each in others)], rows)]
    rows = []
    for n in (sizes[1], sizes[-2]):
        for algorithm, words in ALGORITHMS.items():
            times = [[1e6 * t for t in values(rounds, (each, algorithm, n))] for each in pythons]
            rows.append([plots.bytes_text(n), words, *(shown(each, 0) for each in times)])
    header = ["size", "", *(TITLES[each] for each in pythons)]
    write_page("mpi", *parts, "Time in µs, over the rounds:", table(header, rows))


def draw(rounds, pythons):
    sizes = sorted({nbytes for times in rounds for *_, nbytes in times})
    fig, axes = plt.subplots(1, len(ALGORITHMS), figsize=(13, 4), sharey=True)
    for ax, (algorithm, words) in zip(axes, ALGORITHMS.items(), strict=True):
        for number, library in enumerate(pythons):
            times = {n: values(rounds, (library, algorithm, n)) for n in sizes}
            medians = {n: 1e6 * statistics.median(each) for n, each in times.items() if each}
            style = {"color": plots.rank_color(number), "label": TITLES[library]}
            ax.loglog(list(medians), list(medians.values()), "o-", **style)
        ax.set(title=words, xlabel="bytes")
    axes[0].set_ylabel("µs, median of the rounds")
    axes[0].legend()
    fig.savefig(HERE / "mpi.png", dpi=110, bbox_inches="tight")


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    load, pythons = os.getloadavg()[0], find_pythons()
    warn_if_busy(load)
    rounds = measure(pythons)
    draw(rounds, pythons)
    report(rounds, pythons, load)


if __name__ == "__main__":
    main()
