"""benchmarks/bench_parallel.py: what its tables say of what its worker found; and the worker runs
every program.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pi2zero.mpi import mpi_env

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import bench_parallel as bench

BENCHMARKS = Path(bench.__file__).parent
NAMES = {name.strip() for name in bench.AGAINST} | {other for other, _ in bench.AGAINST.values()}
NAMES |= {f"{name}: {whose}" for name in bench.BY_HAND for whose in ("by hand", "library")}


def test_a_ratio_is_taken_within_its_round():
    """A machine that is ten times slower in the second round changes the milliseconds, not the
    ratios.
    """
    first = dict.fromkeys(NAMES, 0.2) | {"MLP, columns and rows: by hand": 0.1}
    rounds = [{name: pace * value for name, value in first.items()} for pace in (1, 10, 1)]
    found = {
        "ideal": {"GPipe": 1.0},
        "schedules": [{"GPipe": 1.1}, {"GPipe": 1.3}, {"GPipe": 1.2}],
        "pairs": rounds,
    }
    assert list(bench.schedules(found))[2:] == ["| GPipe | 1000 | 1200 | 1.20 | 1.10 to 1.30 |"]
    (hand,) = (row for row in bench.hands(found) if row.startswith("| MLP"))
    assert hand == "| MLP, columns and rows | 100.0 | 200.0 | 0.50 | 0.50 to 0.50 | 2.00 |"
    assert [row.split(" | ")[4] for row in list(bench.kernels(found))[2:]] == ["1.00"] * len(
        bench.AGAINST
    )


@pytest.mark.long
def test_the_worker_runs_every_schedule_and_program(tmp_path):
    mpi_env()
    output = tmp_path / "found.json"
    worker = [
        sys.executable,
        "-m",
        "mpi4py",
        BENCHMARKS / "parallel_worker.py",
        "--rounds",
        1,
        "--repeats",
        1,
        "--output",
        output,
    ]
    done = subprocess.run(
        ["mpirun", "-n", "4", *map(str, worker)], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(output.read_text())
    (schedules,), (pairs,) = found["schedules"], found["pairs"]
    assert schedules.keys() == found["ideal"].keys() and len(schedules) == 9
    assert all(schedules[name] > 0.99 * ideal for name, ideal in found["ideal"].items()), (
        "nothing beats the ideal"
    )
    assert pairs.keys() == NAMES and min(pairs.values()) > 0
