"""The scripts as a user starts them: with mpirun, and as spawned children."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import pi2zero

ROOT = Path(__file__).resolve().parents[2]
CPI = ROOT / "scripts" / "cpi.py"
SPAWN = """
import sys
import numpy as np
from mpi4py import MPI

for _ in range({times}):
    children = MPI.COMM_SELF.Spawn(sys.executable, args=[{script!r}], maxprocs={ranks})
    children.Bcast(np.array([{n}]), root=MPI.ROOT)
    pi = np.zeros(1)
    children.Reduce(None, pi, op=MPI.SUM, root=MPI.ROOT)
    children.Disconnect()
    print(repr(float(pi[0])))
"""


@pytest.fixture(autouse=True)
def _mpi():
    with mock.patch.dict(os.environ):  # what mpi_env sets is taken back
        pi2zero.mpi_env()
        yield


def run(*command):
    return subprocess.run(
        [str(part) for part in command], check=False, capture_output=True, text=True, timeout=150
    )


def mpirun(ranks, *options, script=CPI):
    return run("mpirun", "-n", ranks, sys.executable, script, *options)


@pytest.mark.long
def test_a_compiled_cpi_gives_pi():
    done = mpirun(2, "--n", 1_000_001, script=CPI.with_name("cpi_compiled.py"))
    assert done.returncode == 0, done.stderr
    match = re.match(r"pi = (\S+), error \S+, n = 1,000,001, 2 ranks, \S+ s$", done.stdout.strip())
    assert match, done.stdout
    assert float(match[1]) == pytest.approx(math.pi, abs=1e-8)


@pytest.mark.long
@pytest.mark.parametrize(("ranks", "n"), [(1, 100_000), (2, 1_000_000), (3, 200_001)])
def test_cpi_with_mpirun_gives_pi(ranks, n):
    done = mpirun(ranks, "--n", n)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert len(lines) == 1, "only rank 0 prints"
    match = re.match(rf"pi = (\S+), error (\S+), n = {n:,}, {ranks} ranks?, \S+ s$", lines[0])
    assert match, lines[0]
    assert float(match[1]) == pytest.approx(math.pi, abs=1e-8)
    assert float(match[2]) < 1e-8


@pytest.mark.long
@pytest.mark.parametrize("script", ["cpi.py", "cpi_compiled.py", "allreduce_bench.py"])
def test_a_world_of_one_under_srun_is_refused(monkeypatch, script):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    done = run(sys.executable, CPI.with_name(script))
    assert (
        done.returncode
        and "srun has started 4 tasks, and each is an MPI world of its own" in done.stderr
    ), done.stderr


@pytest.mark.long
def test_cpi_says_what_is_wrong_once_and_ends():
    for given, says in [
        ("0", "0 slices are not possible; give a number from 1 to"),
        ("-3", "-3 slices are not possible"),
        ("1e6", "'1e6' is not a whole number; write it out, such as 1000000"),
        ("99999999999999999999", "give a number from 1 to 4503599627370496"),
    ]:
        done = mpirun(2, f"--n={given}")
        assert done.returncode != 0
        assert done.stderr.count("cpi.py: error:") == 1, done.stderr
        assert says in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""


def spawn(ranks, n, times=1):
    """What a parent gets from `ranks` spawned children, `times` times."""
    done = run(sys.executable, "-c", SPAWN.format(script=str(CPI), ranks=ranks, n=n, times=times))
    assert done.returncode == 0, done.stderr
    return [float(line) for line in done.stdout.split()]


@pytest.mark.long
def test_cpi_spawned_gives_pi_again_and_again():
    assert spawn(ranks=2, n=1_000_000, times=3) == pytest.approx([math.pi] * 3, abs=1e-8)


@pytest.mark.long
def test_cpi_spawned_with_fewer_slices_than_ranks():
    (pi,) = spawn(ranks=4, n=2)
    assert pi == pytest.approx((4 / (1 + 0.25**2) + 4 / (1 + 0.75**2)) / 2)


@pytest.mark.long
@pytest.mark.parametrize("n", [0, -1, 2**60])
def test_cpi_spawned_answers_nan_to_a_bad_n_instead_of_leaving_the_parent_waiting(n):
    (pi,) = spawn(ranks=2, n=n)
    assert math.isnan(pi)


def test_cpi_partial_sums_are_the_midpoint_rule():
    sys.path.insert(0, str(CPI.parent))
    try:
        from cpi import CHUNK, partial_pi
    finally:
        sys.path.remove(str(CPI.parent))
    for n, size in [(1, 1), (10, 3), (CHUNK * 3 + 7, 3), (CHUNK * 2, 1)]:
        loop = sum(4 / (1 + ((i + 0.5) / n) ** 2) for i in range(n)) / n
        assert sum(partial_pi(n, rank, size) for rank in range(size)) == pytest.approx(
            loop, rel=1e-12
        )
