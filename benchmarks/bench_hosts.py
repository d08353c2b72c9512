"""Ranks on two hosts of this machine: start, `%%px` and stop, and what they cost beside the kernel.

Writes benchmarks/hosts.md.

python tools/hosts.py -- python benchmarks/bench_hosts.py
"""

import argparse
import os
import statistics
import subprocess
import time
from pathlib import Path

import psutil
from bench import conditions
from figures import table
from IPython.core.interactiveshell import InteractiveShell

import pi2zero
from pi2zero import ownership

HERE = Path(__file__).parent
NODES = ("node1", "node2")
RANKS, ROUNDS, REPEATS = [4, 16, 32, 64], 30, 2
WATCHED = 5  # s of the cell whose watching is measured
PSS = "cat /proc/[0-9]*/smaps_rollup 2>/dev/null | awk '/^Pss:/ {sum += $2} END {print sum}'"
HEADER = (
    "ranks",
    "start, s",
    "of it work beside the kernel, s",
    "`%%px` with `pass`, ms",
    "watching, % of a core",
    "stop, s",
)
HEADER += (
    "kernel, MB more",
    "beside it, MB",
    "most open files of a process beside it",
    "a rank on its host, MB",
)
FAR = 1024  # ranks, on paper
PAPER = {
    "work": "work beside the kernel at the start, s",
    "px": "`%%px` with `pass`, ms",
    "watching": "watching, % of a core",
}
PAPER |= {
    "kernel": "kernel, MB more",
    "beside": "beside it, MB",
    "files": "most open files of a process",
}


def beside() -> list[psutil.Process]:
    """What the kernel has started on its own host: the controller, mpirun, ssh, the watchdog."""
    return [
        *ownership.marked_processes(ownership.owner_mark()),
        *psutil.Process().children(recursive=True),
    ]


def work() -> float:
    """Seconds of processor time that the kernel and what it has started here have used."""
    return sum(sum(process.cpu_times()[:2]) for process in {psutil.Process(), *beside()})


def on_hosts() -> float:
    """MB that all processes of both hosts hold, shared pages counted once."""
    return (
        sum(float(subprocess.check_output(["ssh", node, PSS], text=True)) for node in NODES) / 1e3
    )


def measure(n, shell) -> dict:
    """One start, ROUNDS cells, one cell that is watched, and one stop, of n ranks."""
    memory, hosts, busy = psutil.Process().memory_info().rss, on_hosts(), work()
    begin = time.perf_counter()
    cluster = pi2zero.start(n=n, on={node: n // 2 for node in NODES})
    found = {"start": time.perf_counter() - begin, "work": work() - busy, "cells": []}
    shell.run_cell("%%px\npass").raise_error()
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        shell.run_cell("%%px\npass").raise_error()
        found["cells"].append(1e3 * (time.perf_counter() - begin))
    busy = work()
    shell.run_cell(f"%%px\nimport time\ntime.sleep({WATCHED})").raise_error()
    found["watching"] = 100 * (work() - busy) / WATCHED
    found["kernel"] = (psutil.Process().memory_info().rss - memory) / 1e6
    found["beside"] = sum(process.memory_full_info().pss for process in set(beside())) / 1e6
    found["files"] = max(process.num_fds() for process in set(beside()))
    found["rank"] = (on_hosts() - hosts) / n
    begin = time.perf_counter()
    cluster.stop()
    found["stop"] = time.perf_counter() - begin
    return found


def middle(runs, name):
    return statistics.median(run[name] for run in runs)


def row(n, runs) -> list[str]:
    starts = " and ".join(f"{run['start']:.1f}" for run in runs)
    cells = [cell for run in runs for cell in run["cells"]]
    px = f"{statistics.median(cells):.0f} ({min(cells):.0f} to {max(cells):.0f})"
    others = [f"{middle(runs, name):.0f}" for name in ("kernel", "beside", "files", "rank")]
    return [
        str(n),
        starts,
        f"{middle(runs, 'work'):.1f}",
        px,
        f"{middle(runs, 'watching'):.0f}",
        f"{middle(runs, 'stop'):.1f}",
        *others,
    ]


def paper(measured) -> str:
    """What FAR ranks would cost on the kernel's host: a line through the fewest and the most ranks
    that were measured.
    """
    (few, a), (many, b) = min(measured.items()), max(measured.items())
    rows = []
    for runs in (a, b):
        for run in runs:
            run["px"] = statistics.median(run["cells"])
    for name, words in PAPER.items():
        each = (middle(b, name) - middle(a, name)) / (many - few)
        rows.append([words, f"{each:.3g}", f"{middle(b, name) + each * (FAR - many):.0f}"])
    return table(("on the kernel's host", "for each rank more", f"{FAR:,} ranks"), rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="*", default=RANKS)
    options = parser.parse_args()
    shell, measured, load = InteractiveShell.instance(), {}, os.getloadavg()[0]
    measure(2, shell)  # so that this process has loaded what every start needs
    for n in options.ranks:
        measured[n] = [measure(n, shell) for _ in range(REPEATS)]
        print(*row(n, measured[n]), flush=True)
    text = "\n\n".join(
        [
            "# Ranks on two hosts",
            f"Written by `python tools/hosts.py -- python benchmarks/bench_hosts.py`. "
            f"{conditions()} Load before: {load:.1f} (0 "
            f"is idle). Both hosts share these cores. {REPEATS} starts of each size, both "
            f"given; of the rest the median, and of "
            f"the {ROUNDS} cells after each start the least and the most, too.",
            table(HEADER, [row(n, runs) for n, runs in measured.items()]),
            f"On paper, from the slopes between {min(measured)} and {max(measured)} ranks:",
            paper(measured),
            (HERE / "hosts_explained.md").read_text(),
        ]
    )
    (HERE / "hosts.md").write_text(text)
    print(f"\n{text}\nwritten to benchmarks/hosts.md")


if __name__ == "__main__":
    main()
