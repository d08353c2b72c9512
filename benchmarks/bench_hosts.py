"""Start, an empty cell and stop of 4, 16 and 64 ranks on two hosts of this machine. Writes benchmarks/hosts.md.

python tools/hosts.py -- python benchmarks/bench_hosts.py
"""

import datetime
import os
import platform
import statistics
import time
from pathlib import Path

import psutil

import pi2zero

PAGE = Path(__file__).with_name("hosts.md")
SIZES, CELLS = (4, 16, 64), 20
TEXT = """# Ranks on two hosts

`python tools/hosts.py -- python benchmarks/bench_hosts.py`, {when}; {machine}, which both hosts share: so what grows with
the number of ranks is above all what as many Python processes cost two cores. The kernel is on a third host, without ranks.

| ranks | start, s | `%%px pass`, ms: median (min to max of {cells}) | stop, s | the kernel's memory, MB more |
|---|---|---|---|---|
{rows}

**On paper, 1,024 ranks on 32 nodes.** At the kernel a cell costs {cell:.2f} ms a rank (the slope from {few} to {many} ranks):
{cells_paper:.0f} ms a cell. Memory: {memory:.2f} MB a rank, {memory_paper:.0f} MB. The start is each node's own work, 32 Python
processes at once, and the registration of all with one controller. What is not known from here: how a site's file system
stands 1,024 processes that import the same files.
"""


def measure(n):
    """(s of the start, s of each cell, s of the stop, MB that the kernel holds more)"""
    before = psutil.Process().memory_info().rss
    start = time.perf_counter()
    cluster = pi2zero.start(n=n, on={"node1": n // 2, "node2": n // 2})
    started = time.perf_counter() - start
    cluster.run("pass")
    cells = []
    for _ in range(CELLS):
        begin = time.perf_counter()
        cluster.run("pass")
        cells.append(time.perf_counter() - begin)
    held = psutil.Process().memory_info().rss - before
    start = time.perf_counter()
    cluster.stop()
    return started, cells, time.perf_counter() - start, held / 1e6


def main():
    measured = {n: measure(n) for n in SIZES}
    rows = [
        f"| {n} | {started:.1f} | {1e3 * statistics.median(cells):.0f} ({1e3 * min(cells):.0f} to {1e3 * max(cells):.0f}) "
        f"| {stopped:.1f} | {held:.0f} |"
        for n, (started, cells, stopped, held) in measured.items()
    ]
    few, many = SIZES[0], SIZES[-1]
    memory = (measured[many][3] - measured[few][3]) / (many - few)
    cell = 1e3 * (statistics.median(measured[many][1]) - statistics.median(measured[few][1])) / (many - few)
    text = TEXT.format(
        when=datetime.date.today(),
        machine=f"{os.cpu_count()} cores, {platform.system()}",
        cells=CELLS,
        rows="\n".join(rows),
        few=few,
        many=many,
        cell=cell,
        cells_paper=cell * 1024,
        memory=memory,
        memory_paper=memory * 1024,
    )
    PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
