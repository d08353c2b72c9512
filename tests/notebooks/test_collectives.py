"""The ring all-reduce as the learner reads it in notebook 03, on 1 to 5 ranks; the script's is the same one."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import pi2zero

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = json.loads((ROOT / "notebooks" / "03_collectives.ipynb").read_text())
FUNCTIONS = {"ring-allreduce": "ring_allreduce", "naive": "naive_allreduce"}  # cell id: function
CHECK = """
import numpy as np
from mpi4py import MPI

{source}
comm = MPI.COMM_WORLD
for length in (0, 1, 2, 3, 4, 5, 7, 1001, 100_003):
    for dtype, tolerance in (("float64", 1e-13), ("float32", 1e-5), ("int64", 0)):
        x = (1000 * np.random.default_rng([comm.rank, length]).random(length)).astype(dtype)
        expected = np.empty_like(x)
        comm.Allreduce(x, expected)
        assert {function}(comm, x) is None, "it works in place"
        assert x.dtype == dtype and np.allclose(x, expected, rtol=tolerance, atol=0), (comm.rank, length, dtype)
        same = comm.gather(x.tobytes())
        assert comm.rank > 0 or len(set(same)) == 1, "ranks differ in some bits"
comm.Barrier()
if comm.rank == 0:
    print("right on", comm.size)
"""


def cell(cell_id):
    """The source of a `%%px` cell without its first line and without `@solution`."""
    (found,) = [c for c in NOTEBOOK["cells"] if c["id"] == cell_id]
    magic, source = "".join(found["source"]).split("\n", 1)
    assert magic == "%%px"
    return source.removeprefix("@solution\n")


def check_on_ranks(ranks, source, function):
    with mock.patch.dict(os.environ):  # what mpi_env sets is taken back
        pi2zero.mpi_env()
        program = CHECK.format(source=source, function=function)
        command = [
            "mpirun",
            "-n",
            str(ranks),
            sys.executable,
            "-m",
            "mpi4py",
            "-c",
            program,
        ]  # -m mpi4py: an error ends all ranks
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.long
@pytest.mark.parametrize(
    ("cell_id", "ranks"),
    [*(("ring-allreduce", p) for p in (1, 2, 3, 4, 5)), ("naive", 1), ("naive", 3)],
)
def test_equal_to_mpi_allreduce_for_any_length_on_any_number_of_ranks(cell_id, ranks):
    done = check_on_ranks(ranks, cell(cell_id), FUNCTIONS[cell_id])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"right on {ranks}"


@pytest.mark.long
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("add += room", "add = add + room"),
        ("range(p - 1):  # all", "range(p - 2):  # all"),
        ("(rank - step + 1)", "(rank - step)"),
    ],
)
def test_the_check_rejects_a_wrong_ring(right, wrong):
    source = cell("ring-allreduce")
    assert right in source
    done = check_on_ranks(3, source.replace(right, wrong), "ring_allreduce")
    assert done.returncode != 0
    assert "AssertionError" in done.stderr


def test_the_ring_is_short_enough_to_be_read():
    assert len(cell("ring-allreduce").splitlines()) <= 14


@pytest.mark.parametrize("cell_id", FUNCTIONS)
def test_the_scripts_functions_are_the_notebooks(cell_id):
    tree = ast.parse((ROOT / "scripts" / "allreduce_bench.py").read_text())
    script = {
        node.name: ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef)
    }
    assert script[FUNCTIONS[cell_id]] == ast.unparse(ast.parse(cell(cell_id)))
