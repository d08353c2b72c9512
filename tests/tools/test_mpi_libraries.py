"""MPI libraries other than the wheel's Open MPI 5: world, spawn, notebook 03's ring, watched cells.

`tools/mpi_libraries.py --test` runs far more under each.
"""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from test_scripts import SPAWN
from worlds import source

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from mpi_libraries import TITLES, variables  # noqa: E402

pytestmark = pytest.mark.long
LIMIT = 300  # s for a program, on a machine that has other work, too
WATCHED = """
import json, time
import pi2zero

cluster = pi2zero.start(n=3)
cluster.run("from mpi4py import MPI\\ncomm = MPI.COMM_WORLD\\nsum = comm.allreduce(comm.rank)")
told = {"library": cluster.info[0]["library"], "sum": cluster.view["sum"]}
for name, does in {"raises": "1 / 0", "dies": "import os; os.kill(os.getpid(), 9)"}.items():
    try:
        cluster.run(f"from mpi4py import MPI\\n\
if MPI.COMM_WORLD.rank == 1:\\n    {does}\\nMPI.COMM_WORLD.Barrier()")
    except pi2zero.RankError as error:
        told[name] = str(error)
cluster.run("from mpi4py import MPI\\nsum = MPI.COMM_WORLD.allreduce(1)")
told["afterwards"] = cluster.view["sum"]
cluster.stop()
print(json.dumps(told))
"""


RING = """
import numpy as np
from mpi4py import MPI

{source}
comm = MPI.COMM_WORLD
for length in (0, 1, 4, 1001, 100_003):
    x = np.random.default_rng([comm.rank, length]).random(length)
    expected = np.empty_like(x)
    comm.Allreduce(x, expected)
    ring_allreduce(comm, x)
    assert np.allclose(x, expected, rtol=1e-13, atol=0), (comm.rank, length)
comm.Barrier()
if comm.rank == 0:
    print("right on", comm.size)
"""


@pytest.fixture(scope="module", params=["openmpi4", "mpich"])
def library(request, tmp_path_factory):
    """(its short name, the Python of an environment with it)."""
    folder = tmp_path_factory.mktemp(request.param)
    command = [
        sys.executable,
        ROOT / "tools" / "mpi_libraries.py",
        request.param,
        "--folder",
        folder,
    ]
    made = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    if made.returncode:
        pytest.skip(f"{TITLES[request.param]} cannot be had here: {' '.join(made.stderr.split())}")
    return request.param, folder / "bin" / "python"


@pytest.fixture
def run(library):
    """Run a program in that environment; what it printed."""

    def run(*words, ranks=0):
        _, python = library
        start = [python.with_name("mpirun"), "-n", str(ranks)] if ranks else []
        settings = (
            "import os, sys, pi2zero; pi2zero.mpi_env(); os.execvp(sys.argv[1], sys.argv[1:])"
        )
        command = [python, "-c", settings, *start, python, *words]
        done = subprocess.run(
            command, env=variables(python), capture_output=True, text=True, timeout=LIMIT
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_four_ranks_are_one_world(run):
    said = run(ROOT / "scripts" / "cpi.py", "--n", "1000000", ranks=4)
    assert said.startswith("pi = 3.14159265") and " 4 ranks" in said and len(said.splitlines()) == 1


def test_spawned_children_give_pi(run):
    program = SPAWN.format(times=2, script=str(ROOT / "scripts" / "cpi.py"), ranks=3, n=1_000_000)
    assert [float(line) for line in run("-c", program).split()] == pytest.approx(
        [math.pi] * 2, abs=1e-8
    )


def test_the_ring_of_notebook_03(run):
    program = RING.format(source=source("03_collectives", "ring-allreduce"))
    assert run("-m", "mpi4py", "-c", program, ranks=3).strip() == "right on 3"


def test_cells_are_watched(run, library):
    told = json.loads(run("-c", WATCHED).splitlines()[-1])
    assert told["library"].startswith(TITLES[library[0]])
    assert told["sum"] == told["afterwards"] == [3, 3, 3]
    assert told["raises"].startswith("rank 1 raised ZeroDivisionError")
    who, _, why = told["dies"].splitlines()[0].partition(" died: ")
    assert (who, why.split()[:2]) == ("rank 1", ["signal", "SIGKILL"]) or library[0] == "mpich"
    assert "1" in who, "MPICH's mpirun does not say which rank died first"


def test_the_doctor_names_it_and_says_what_it_cannot_do(run, library):
    report = (
        "import json, time; from pi2zero.doctor import checks, probes; "
        "r = checks.check_mpi(probes.Probe(time.monotonic() + 60))"
    )
    name, status, detail, remedy = json.loads(
        run("-c", f"{report}; print(json.dumps([r.name, r.status, r.detail, r.remedy]))")
    )
    assert (name, detail.startswith(TITLES[library[0]])) == ("MPI", True)
    assert status == "warning" and "With it the kit cannot start ranks on other hosts" in remedy
