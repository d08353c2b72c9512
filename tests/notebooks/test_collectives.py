"""Notebook 03's ring and naive all-reduce on 1 to 5 ranks; the script's functions are the same."""

import ast

import pytest
from worlds import ROOT, mpi_checks, source

BOOK = "03_collectives"
FUNCTIONS = {"ring-allreduce": "ring_allreduce", "naive": "naive_allreduce"}  # cell id: function
WRONG = {
    "the sum is not stored": ("add += room", "add = add + room"),
    "a step is missing": ("range(p - 1):  # all", "range(p - 2):  # all"),
    "the wrong chunk": ("(rank - step + 1)", "(rank - step)"),
}
CHECKS = """
import numpy as np

comm = group


def is_right(allreduce, lengths):
    right = True
    for length in lengths:
        for dtype, tolerance in (("float64", 1e-13), ("float32", 1e-5), ("int64", 0)):
            x = (1000 * np.random.default_rng([comm.rank, length]).random(length)).astype(dtype)
            expected = np.empty_like(x)
            comm.Allreduce(x, expected)
            right &= allreduce(comm, x) is None and x.dtype == dtype
            right &= np.allclose(x, expected, rtol=tolerance, atol=0)
            right &= len(set(comm.allgather(x.tobytes()))) == 1  # equal to the last bit
    return right


for name, (function, text) in CELLS.items():
    exec(text)
    if not name.startswith("wrong"):
        tell(name, is_right(globals()[function], (0, 1, 2, 3, 4, 5, 7, 1001, 100_003)))
    elif comm.size == 3:  # of equal chunks, else a wrong ring's messages do not fit
        tell(name, is_right(globals()[function], (3, 99)))
"""


@pytest.mark.long
def test_equal_to_mpi_allreduce_for_any_length_on_any_number_of_ranks():
    cells = {cell: (name, source(BOOK, cell)) for cell, name in FUNCTIONS.items()}
    name, ring = cells["ring-allreduce"]
    assert len(ring.splitlines()) <= 14, "short enough to be read"
    assert all(right in ring for right, _ in WRONG.values())
    for what, (right, wrong) in WRONG.items():
        cells[f"wrong: {what}"] = name, ring.replace(right, wrong)
    by_size = mpi_checks([1, 2, 3, 4, 5], f"CELLS = {cells!r}\n{CHECKS}")
    found = {size: {k: ok for k, ok in by_size[size].items() if k in FUNCTIONS} for size in by_size}
    assert found == {size: dict.fromkeys(FUNCTIONS, True) for size in by_size}
    wrong = {name: ok for name, ok in by_size[3].items() if name.startswith("wrong")}
    assert wrong == {f"wrong: {what}": False for what in WRONG}


@pytest.mark.parametrize("cell_id", FUNCTIONS)
def test_the_scripts_functions_are_the_notebooks(cell_id):
    tree = ast.parse((ROOT / "scripts" / "allreduce_bench.py").read_text())
    script = {
        node.name: ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef)
    }
    assert script[FUNCTIONS[cell_id]] == ast.unparse(ast.parse(source(BOOK, cell_id)))
