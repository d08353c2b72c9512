"""`make bench`: how fast π is, and how fast the kit starts. Writes benchmarks/pi.md.

Every figure is a median of ROUNDS rounds; each round runs all variants one after another, and a
ratio is the median of the rounds' ratios, because the speed of a machine drifts from minute to
minute.
"""

import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import figures
import ipyparallel
import nbformat
import numpy
import psutil
from figures import of, table
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient

import pi2zero
from pi2zero.mpi import mpi_env, mpi_library

HERE = Path(__file__).parent
N = 10**8
N_LOOP = 10**6  # the per-sample loops run on this many, and are scaled to N
ROUNDS = 3


def classic_monte_carlo(n):
    """Seconds of the serial loop as introductions print it: a circle in a square, one Python step
    for each sample.
    """
    start = time.perf_counter()
    inside = 0
    for _ in range(n):
        x, y = random.uniform(-1, 1), random.uniform(-1, 1)
        if math.sqrt(x**2 + y**2) <= 1:
            inside += 1
    assert abs(4 * inside / n - math.pi) < 5 * 1.642 / n**0.5
    return time.perf_counter() - start


def lean_monte_carlo(n):
    """Seconds of the leanest such loop (notebook 01): a quarter circle, no square root, no
    uniform().
    """
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


def on_ranks(method, ranks):
    """Seconds of computing on `ranks` MPI ranks: the median of three repeats in one mpirun."""
    command = [
        "mpirun",
        "-n",
        str(ranks),
        sys.executable,
        str(HERE / "pi_worker.py"),
        method,
        str(N),
        "3",
    ]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    return statistics.median(json.loads(out))


def on_two_alone(method):
    """Seconds of two programs at once that share nothing, each with half of the work: of each
    repeat the slower one's.
    """
    command = [sys.executable, str(HERE / "pi_worker.py"), method, str(N // 2), "9"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    return statistics.median(
        map(max, *(json.loads(one.communicate(timeout=300)[0]) for one in both))
    )


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
    "Monte Carlo, NumPy in chunks, 1 rank": lambda: on_ranks("monte_carlo", 1),
    "Monte Carlo, NumPy in chunks, 2 ranks": lambda: on_ranks("monte_carlo", 2),
    "midpoint rule, NumPy in chunks, 1 rank": lambda: on_ranks("midpoint", 1),
    "midpoint rule, NumPy in chunks, 2 ranks": lambda: on_ranks("midpoint", 2),
    "Monte Carlo, two programs at once that share nothing": lambda: on_two_alone("monte_carlo"),
    "midpoint rule, two programs at once that share nothing": lambda: on_two_alone("midpoint"),
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
        classic,
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
    ) = t.values()

    def ratio(a, b, factor=1.0):
        return [x / y / factor for x, y in zip(a, b, strict=True)]

    def both(a, b):
        return [x + y for x, y in zip(a, b, strict=True)]

    def more(what, values, wanted=None):
        beside = "two cores alone: 2; the rest is NumPy's loop in C"
        return of(what, "times", values, less_is_better=False, wanted=wanted, beside=beside)

    def efficiency(what, one, two, apart):
        alone = statistics.median(ratio(one, apart, 2))
        beside = (
            f"two programs at once that share nothing, the slower one of each repeat: {alone:.3g}"
        )
        return of(
            what, "of 1", ratio(one, two, 2), less_is_better=False, wanted=0.95, beside=beside
        )

    bound, alone = "nothing but that import: 1", statistics.median(kit)
    return [
        more("classic Monte Carlo loop / midpoint rule on 2 ranks", ratio(classic, mid2), 300),
        more("lean Monte Carlo loop / midpoint rule on 2 ranks", ratio(lean, mid2)),
        more("classic cpi loop / midpoint rule on 2 ranks", ratio(cpi, mid2)),
        more("classic Monte Carlo loop / NumPy Monte Carlo on 2 ranks", ratio(classic, mc2)),
        efficiency("efficiency of 2 ranks, midpoint rule", mid1, mid2, mid_apart),
        efficiency("efficiency of 2 ranks, Monte Carlo", mc1, mc2, mc_apart),
        of(
            "kit's start / (bare import + controller)",
            "times",
            ratio(kit, both(bare, control)),
            wanted=1.3,
            beside=bound,
        ),
        of(
            "kit's start / (engine's import + controller)",
            "times",
            ratio(kit, both(engine, control)),
            beside=bound,
        ),
        of(
            "notebook 02, first cell to first π",
            "s",
            first,
            wanted=20,
            beside=f"a start of ranks in it: {alone:.1f} s",
        ),
    ]


def conditions():
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores ({platform.machine()}), "
        f"{memory:.0f} GiB, {platform.system()}, "
        f"Python {platform.python_version()}, NumPy {numpy.__version__}, {mpi_library()}, "
        f"ipyparallel {ipyparallel.__version__}; no GPU used."
    )


def report(seconds):
    times = [
        (
            f"`{name}`" if name.startswith(("mpirun", "pi2zero")) else name,
            *(f"{figure(values):.3f}" for figure in (min, statistics.median, max)),
        )
        for name, values in seconds.items()
    ]
    rows = [(each.what, f"{each.value:.2f}", figures.bound(each)) for each in ratios(seconds)]
    explanation = (HERE / "pi_explained.md").read_text()
    return "\n\n".join(
        [
            "# How fast is π, and how fast does the kit start",
            f"Written by `make bench`. {conditions()} Medians of {ROUNDS} rounds; each round "
            f"runs everything once.",
            table(("seconds", "min", "median", "max"), times),
            f"N = 10^8 throughout. The three loops ran on {N_LOOP:,} samples or slices and are "
            f"scaled. On ranks: computing time, "
            "from the barrier after the start to the reduced sum, median of three in one `mpirun`.",
            table(("ratio (median of the rounds' ratios)", "measured", "wanted"), rows),
            explanation,
        ]
    )


if __name__ == "__main__":
    mpi_env()
    load, seconds = os.getloadavg()[0], measure()
    text = report(seconds)
    (HERE / "pi.md").write_text(text)
    figures.keep("pi", ratios(seconds), load)
    print(f"\n{text}\nwritten to benchmarks/pi.md")
