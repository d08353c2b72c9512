"""Ranks on two hosts of this machine: start, `%%px` and stop, and their cost on the kernel's host.

Writes benchmarks/hosts.md: python tools/hosts.py -- python benchmarks/bench_hosts.py
"""

import argparse
import os
import statistics
import subprocess
import time

import psutil
from figures import conditions, table, write_page
from IPython.core.interactiveshell import InteractiveShell

import pi2zero
from pi2zero import ownership

NODES = ("node1", "node2")
RANKS, ROUNDS, REPEATS = [4, 16, 32, 64], 30, 2
SLEEP = 5  # s of the cell during which the hang detection is measured
PSS = "cat /proc/[0-9]*/smaps_rollup 2>/dev/null | awk '/^Pss:/ {sum += $2} END {print sum}'"
FAR = 1024  # ranks, extrapolated
# What is measured on the kernel's host, and its digits after the point
MEASURED = {
    "start": ("start, s", 1),
    "work": ("CPU time of the start on the kernel's host, s", 1),
    "px": ("`%%px` with `pass`, ms", 0),
    "detection": ("hang detection, % of a core", 0),
    "stop": ("stop, s", 1),
    "kernel": ("kernel, MB more", 0),
    "helpers": ("its helper processes, MB", 0),
    "files": ("most open files of a helper process", 0),
    "rank": ("a rank on its host, MB", 0),
}
EXTRAPOLATED = ("work", "px", "detection", "kernel", "helpers", "files")


def helpers() -> list[psutil.Process]:
    """What the kernel has started on its own host: the controller, mpirun, ssh, the watchdog."""
    marked = ownership.marked_processes(ownership.owner_mark())
    return list({*marked, *psutil.Process().children(recursive=True)})


def work() -> float:
    """Seconds of CPU time that the kernel and its helper processes have used."""
    return sum(sum(process.cpu_times()[:2]) for process in {psutil.Process(), *helpers()})


def on_hosts() -> float:
    """MB of all processes of both hosts, shared pages counted once."""
    return (
        sum(float(subprocess.check_output(["ssh", node, PSS], text=True)) for node in NODES) / 1e3
    )


def clock(function, *arguments, **options):
    """(seconds of a call, what it returned)."""
    begin = time.perf_counter()
    result = function(*arguments, **options)
    return time.perf_counter() - begin, result


def measure(n, shell) -> dict:
    """One start, ROUNDS empty cells, one cell that sleeps, and one stop, of n ranks."""

    def cell(code):
        return clock(lambda: shell.run_cell(f"%%px\n{code}").raise_error())[0]

    memory, hosts, busy = psutil.Process().memory_info().rss, on_hosts(), work()
    start, cluster = clock(pi2zero.start, n=n, on={node: n // 2 for node in NODES})
    result = {"start": start, "work": work() - busy}
    cell("pass")
    result["cells"] = [1e3 * cell("pass") for _ in range(ROUNDS)]
    result["px"] = statistics.median(result["cells"])
    busy = work()
    cell(f"import time\ntime.sleep({SLEEP})")
    result["detection"] = 100 * (work() - busy) / SLEEP
    result["kernel"] = (psutil.Process().memory_info().rss - memory) / 1e6
    result["helpers"] = sum(process.memory_full_info().pss for process in helpers()) / 1e6
    result["files"] = max(process.num_fds() for process in helpers())
    result["rank"] = (on_hosts() - hosts) / n
    result["stop"] = clock(cluster.stop)[0]
    return result


def median(runs, name):
    return statistics.median(run[name] for run in runs)


def row(n, runs) -> list[str]:
    shown = {name: f"{median(runs, name):.{digits}f}" for name, (_, digits) in MEASURED.items()}
    cells = [cell for run in runs for cell in run["cells"]]
    shown["start"] = " and ".join(f"{run['start']:.1f}" for run in runs)
    shown["px"] += f" ({min(cells):.0f} to {max(cells):.0f})"
    return [str(n), *shown.values()]


def extrapolated(measured) -> list[list[str]]:
    """What FAR ranks would cost: a line through the fewest and the most measured ranks."""
    (few, a), (many, b) = min(measured.items()), max(measured.items())
    rows = []
    for name in EXTRAPOLATED:
        slope = (median(b, name) - median(a, name)) / (many - few)
        far = median(b, name) + slope * (FAR - many)
        rows.append([MEASURED[name][0], f"{slope:.3g}", f"{far:.0f}"])
    return rows


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    shell, measured, load = InteractiveShell.instance(), {}, os.getloadavg()[0]
    measure(2, shell)  # Loads what every start needs.
    for n in RANKS:
        measured[n] = [measure(n, shell) for _ in range(REPEATS)]
        print(*row(n, measured[n]), flush=True)
    header = ["ranks", *(words for words, _ in MEASURED.values())]
    write_page(
        "hosts",
        "# Ranks on two hosts",
        f"Written by `python tools/hosts.py -- python benchmarks/bench_hosts.py`. "
        f"{conditions(load)} Both hosts share these cores. {REPEATS} starts of each size, both "
        f"shown; of the rest the median, and of the {ROUNDS} cells after each start also the "
        "lowest and the highest.",
        table(header, [row(n, runs) for n, runs in measured.items()]),
        f"Extrapolated from {min(measured)} and {max(measured)} ranks:",
        table(("", "for each rank more", f"{FAR:,} ranks"), extrapolated(measured)),
    )


if __name__ == "__main__":
    main()
