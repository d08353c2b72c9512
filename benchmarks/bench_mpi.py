"""`python benchmarks/bench_mpi.py`: scripts/allreduce_bench.py under each MPI library, side by
side. Writes benchmarks/mpi.md.

A round starts the program once under each library, one after the other, the next round in another
order: a machine that slows down slows all of them. Ratios are taken within a round. The
environments are those of tools/mpi_libraries.py.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from bench_collectives import RANKS, conditions
from figures import table

from pi2zero import plots

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools"))
from mpi_libraries import TITLES, variables, version  # noqa: E402

ROUNDS = 7
PACKAGES = ("numpy", "mpi4py", "torch")
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


def pythons():
    """{library: its Python} of those that are here."""
    others = {
        library: HERE.parent / f".venv-{library}" / "bin" / "python"
        for library in TITLES
        if library != FIRST
    }
    return {FIRST: Path(sys.executable)} | {
        library: python for library, python in others.items() if python.exists()
    }


def has_horovod(python):
    command = [python, "-c", "from horovod.torch import mpi_lib_v2"]
    return subprocess.run(command, env=variables(python), capture_output=True).returncode == 0


def run(python, algorithms):
    """{(algorithm, bytes): s} of one mpirun."""
    program = [python.with_name("mpirun"), "-n", str(RANKS), python, *COMMAND.split(), *algorithms]
    command = [python, "-c", PROGRAM, *program]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=HERE.parent, env=variables(python)
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, program))} failed:\n{done.stderr}")
    return {
        (row["algorithm"], row["bytes"]): row["seconds"]
        for row in json.loads(done.stdout)["results"]
    }


def measure(found):
    """[{(library, algorithm, bytes): s}], one for each round."""
    libraries = list(found)
    algorithms = {
        library: [a for a in ALGORITHMS if a != "horovod" or has_horovod(found[library])]
        for library in libraries
    }
    rounds = []
    for number in range(ROUNDS):
        rounds.append({})
        for at in range(len(libraries)):
            library = libraries[(at + number) % len(libraries)]
            print(f"round {number + 1} of {ROUNDS}: {TITLES[library]}", flush=True)
            rounds[-1] |= {
                (library, *key): t for key, t in run(found[library], algorithms[library]).items()
            }
    return rounds


def values(rounds, key):
    return [times[key] for times in rounds if key in times]


def ratios(rounds, library, algorithm, nbytes):
    """Of each round: this library's time over Open MPI 5's."""
    here, first = (library, algorithm, nbytes), (FIRST, algorithm, nbytes)
    return [times[here] / times[first] for times in rounds if here in times and first in times]


def shown(numbers, digits):
    """Median (smallest to largest)."""
    if not numbers:
        return "not run"
    return (
        f"{statistics.median(numbers):,.{digits}f} ({min(numbers):,.{digits}f} to "
        f"{max(numbers):,.{digits}f})"
    )


def report(rounds, found, load):
    sizes = sorted({nbytes for times in rounds for *_, nbytes in times})
    told = conditions(load, map(version, found.values()), PACKAGES)
    parts = [
        "# One all-reduce, several MPI libraries",
        f"Written by `python benchmarks/bench_mpi.py`. {told} {ROUNDS} rounds, each with all "
        f"libraries.",
        f"Command: `mpirun -n {RANKS} python {COMMAND} ...`. Each call's time is the slowest "
        f"rank's.",
        "![Time of an all-reduce over its size, one line for each library](mpi.png)",
        f"Time over that of {TITLES[FIRST]} in the same round: median (smallest to largest of "
        f"the rounds). Below 1 is faster.",
    ]
    for algorithm, words in ALGORITHMS.items():
        others = [library for library in found if library != FIRST]
        rows = [
            [
                plots.bytes_text(n),
                *(shown(ratios(rounds, each, algorithm, n), 2) for each in others),
            ]
            for n in sizes
        ]
        parts += [f"**{words}**", table(["size", *(TITLES[each] for each in others)], rows)]
    rows = [
        [
            plots.bytes_text(n),
            words,
            *(shown([1e6 * t for t in values(rounds, (each, a, n))], 0) for each in found),
        ]
        for n in (sizes[1], sizes[-2])
        for a, words in ALGORITHMS.items()
    ]
    parts += [
        "Time in µs, over the rounds:",
        table(["size", "", *(TITLES[each] for each in found)], rows),
    ]
    return "\n\n".join([*parts, (HERE / "mpi_explained.md").read_text()])


def draw(rounds, found):
    sizes = sorted({nbytes for times in rounds for *_, nbytes in times})
    fig, axes = plt.subplots(1, len(ALGORITHMS), figsize=(13, 4), sharey=True)
    for ax, (algorithm, words) in zip(axes, ALGORITHMS.items(), strict=True):
        for at, library in enumerate(found):
            there = [
                (n, 1e6 * statistics.median(v))
                for n in sizes
                if (v := values(rounds, (library, algorithm, n)))
            ]
            ax.loglog(
                *zip(*there, strict=True), "o-", color=plots.rank_color(at), label=TITLES[library]
            ) if there else None
        ax.set(title=words, xlabel="bytes")
    axes[0].set_ylabel("µs, median of the rounds")
    axes[0].legend()
    fig.savefig(HERE / "mpi.png", dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    before = os.getloadavg()[0]
    if before > 1:
        print(
            f"The machine is busy (load {before:.1f}). These figures need two free cores.",
            file=sys.stderr,
        )
    found = pythons()
    rounds = measure(found)
    draw(rounds, found)
    (HERE / "mpi.md").write_text(report(rounds, found, before))
    print("written: benchmarks/mpi.md, benchmarks/mpi.png")
