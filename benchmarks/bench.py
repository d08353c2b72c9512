"""`make bench`: how fast π is, and how fast the kit starts. Writes benchmarks/pi.md.

Every figure is a median of ROUNDS rounds; each round runs all variants one after another, and a
ratio is the median of the rounds' ratios, because the speed of a machine drifts from minute to
minute.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import figures
import ipyparallel
import nbformat
import numpy as np
from figures import HERE, conditions, of, on_ranks, table
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient

import pi2zero
from pi2zero.mpi import mpi_env

WORKER = HERE / "pi_worker.py"
N = 10**8
N_LOOP = 10**6  # the per-sample loops run on this many, and are scaled to N
ROUNDS = 3


def classic_monte_carlo(n):
    """Seconds of the serial loop of introductions: a circle in a square, a Python step per dart."""
    start = time.perf_counter()
    inside = 0
    for _ in range(n):
        x, y = random.uniform(-1, 1), random.uniform(-1, 1)
        if math.sqrt(x**2 + y**2) <= 1:
            inside += 1
    assert abs(4 * inside / n - math.pi) < 5 * 1.642 / n**0.5
    return time.perf_counter() - start


def lean_monte_carlo(n):
    """Seconds of the leanest such loop (notebook 01): a quarter circle and no square root."""
    start = time.perf_counter()
    inside = 0
    for _ in range(n):
        x, y = random.random(), random.random()
        if x * x + y * y < 1:
            inside += 1
    assert abs(4 * inside / n - math.pi) < 5 * 1.642 / n**0.5
    return time.perf_counter() - start


def classic_cpi(n):
    """Seconds of the classic cpi loop: one Python step for each slice."""
    start = time.perf_counter()
    total, h = 0.0, 1.0 / n
    for i in range(n):
        x = h * (i + 0.5)
        total += 4.0 / (1.0 + x * x)
    assert abs(total * h - math.pi) < 1e-8
    return time.perf_counter() - start


def pi_on_ranks(method, ranks):
    """Seconds of computing on `ranks` MPI ranks: the median of three repeats in one mpirun."""
    return statistics.median(json.loads(on_ranks(ranks, WORKER, method, N, 3)))


def two_independent(method):
    """Seconds of two independent programs, each with half of the work: the slower one's."""
    command = [sys.executable, str(WORKER), method, str(N // 2), "9"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    seconds = [json.loads(program.communicate(timeout=300)[0]) for program in both]
    return statistics.median(map(max, *seconds))


def bare_start(imports):
    """Seconds of `mpirun -n 4 python -c "import ..."`: what any four MPI ranks in Python cost."""
    start = time.perf_counter()
    subprocess.run(
        ["mpirun", "-n", "4", sys.executable, "-c", f"import {imports}"], check=True, timeout=120
    )
    return time.perf_counter() - start


def controller_start():
    """Seconds until an ipyparallel controller takes a client."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        cluster = ipyparallel.Cluster(
            profile_dir=f"{folder}/profile", load_profile=False, log_level=50
        )
        cluster.start_controller_sync()
        cluster.connect_client_sync().close()
        seconds = time.perf_counter() - start
        cluster.stop_cluster_sync()
    return seconds


def kit_start():
    """Seconds of pi2zero.start(n=4)."""
    start = time.perf_counter()
    cluster = pi2zero.start(n=4)
    seconds = time.perf_counter() - start
    cluster.stop()
    return seconds


def first_pi():
    """Seconds from the first cell of notebook 02 to the first π, without the kernel's own start."""
    path = HERE.parent / "notebooks" / "02_mpi_pi.ipynb"
    sockets = tempfile.TemporaryDirectory()
    kernel = AsyncKernelManager(transport="ipc", ip=f"{sockets.name}/kernel")
    place = {"metadata": {"path": path.parent}}
    client = NotebookClient(
        nbformat.read(path, as_version=4), km=kernel, timeout=120, resources=place
    )
    with sockets, client.setup_kernel():
        start = time.perf_counter()
        for index, cell in enumerate(client.nb.cells):
            client.execute_cell(cell, index)
            if cell.cell_type == "code" and "3.141" in json.dumps(cell.outputs):
                return time.perf_counter() - start
    raise SystemExit("notebook 02 shows no π")


VARIANTS = {
    "classic Monte Carlo loop": lambda: classic_monte_carlo(N_LOOP) * N / N_LOOP,
    "lean Monte Carlo loop (notebook 01)": lambda: lean_monte_carlo(N_LOOP) * N / N_LOOP,
    "classic cpi loop": lambda: classic_cpi(N_LOOP) * N / N_LOOP,
    "Monte Carlo, NumPy in chunks, 1 rank": lambda: pi_on_ranks("monte_carlo", 1),
    "Monte Carlo, NumPy in chunks, 2 ranks": lambda: pi_on_ranks("monte_carlo", 2),
    "midpoint rule, NumPy in chunks, 1 rank": lambda: pi_on_ranks("midpoint", 1),
    "midpoint rule, NumPy in chunks, 2 ranks": lambda: pi_on_ranks("midpoint", 2),
    "Monte Carlo, two independent programs at once": lambda: two_independent("monte_carlo"),
    "midpoint rule, two independent programs at once": lambda: two_independent("midpoint"),
    'mpirun -n 4 python -c "import ipyparallel, mpi4py"': lambda: bare_start("ipyparallel, mpi4py"),
    "the same, importing the engine": lambda: bare_start("ipyparallel.engine.app, mpi4py.MPI"),
    "the controller alone": controller_start,
    "pi2zero.start(n=4)": kit_start,
    "notebook 02, first cell to first π": first_pi,
}


def measure():
    """{variant: [seconds of each round]}."""
    seconds = {name: [] for name in VARIANTS}
    for number in range(ROUNDS):
        for name, run in VARIANTS.items():
            seconds[name].append(run())
            print(f"round {number + 1} of {ROUNDS}: {name}: {seconds[name][-1]:.3f} s", flush=True)
    return seconds


def ratios(t):
    """The figures, from {variant: [seconds of each round]}."""
    (
        loop,
        lean,
        cpi,
        mc1,
        mc2,
        mid1,
        mid2,
        mc_apart,
        mid_apart,
        bare,
        engine,
        control,
        kit,
        first,
    ) = map(np.array, t.values())

    def speedup(what, slow, fast, wanted=None):
        reference = "two cores alone: 2; the rest is NumPy's loop in C"
        more = {"less_is_better": False, "wanted": wanted, "reference": reference}
        return of(what, "times", slow / fast, **more)

    def efficiency(what, one, two, apart):
        independent = np.median(one / apart / 2)
        reference = f"two independent programs at once, the slower one: {independent:.3g}"
        more = {"less_is_better": False, "wanted": 0.95, "reference": reference}
        return of(what, "of 1", one / two / 2, **more)

    only, start = "nothing but that import: 1", f"a start of ranks in it: {np.median(kit):.1f} s"
    bare, engine = kit / (bare + control), kit / (engine + control)
    return [
        speedup("classic Monte Carlo loop / midpoint rule on 2 ranks", loop, mid2, 300),
        speedup("lean Monte Carlo loop / midpoint rule on 2 ranks", lean, mid2),
        speedup("classic cpi loop / midpoint rule on 2 ranks", cpi, mid2),
        speedup("classic Monte Carlo loop / NumPy Monte Carlo on 2 ranks", loop, mc2),
        efficiency("efficiency of 2 ranks, midpoint rule", mid1, mid2, mid_apart),
        efficiency("efficiency of 2 ranks, Monte Carlo", mc1, mc2, mc_apart),
        of("kit's start / (bare import + controller)", "times", bare, wanted=1.3, reference=only),
        of("kit's start / (engine's import + controller)", "times", engine, reference=only),
        of("notebook 02, first cell to first π", "s", first, wanted=20, reference=start),
    ]


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    mpi_env()
    load, seconds = os.getloadavg()[0], measure()
    results = ratios(seconds)
    times = [
        [name, *(f"{summary(values):.3f}" for summary in (min, statistics.median, max))]
        for name, values in seconds.items()
    ]
    rows = [[each.what, f"{each.value:.2f}", figures.bound(each)] for each in results]
    figures.write_page(
        "pi",
        "# How fast is π, and how fast does the kit start",
        f"Written by `make bench`. {conditions(load)} Medians of {ROUNDS} rounds; each round runs "
        "everything once.",
        table(("seconds", "min", "median", "max"), times),
        f"N = 10^8 throughout. The three loops ran on {N_LOOP:,} samples or slices and are scaled. "
        "On ranks: computing time, from the barrier after the start to the reduced sum, median of "
        "three in one `mpirun`.",
        table(("ratio (median of the rounds' ratios)", "measured", "wanted"), rows),
    )
    figures.keep("pi", results, load)


if __name__ == "__main__":
    main()
