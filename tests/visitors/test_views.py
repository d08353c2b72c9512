"""A notebook in ipyparallel's own style for MPI, unchanged but for the start of the cluster."""

import pytest

from .conftest import ran

pytestmark = pytest.mark.long

START = """
import pi2zero
rc = pi2zero.start(n=4).client
view = rc[:]
view.block = True
"""
CELLS = [  # what a cell prints on four ranks, in this order
    ("print(rc.ids, len(view))", "[0, 1, 2, 3] 4"),
    (
        "view.scatter('mine', 'eight words that are scattered and counted'.split())\n"
        "print(view['mine'])",
        "[['eight', 'words'], ['that', 'are'], ['scattered', 'and'], ['counted']]",
    ),
    (
        "view.execute('lengths = [len(word) for word in mine]')\nprint(view.gather('lengths'))",
        "[5, 5, 4, 3, 9, 3, 7]",
    ),
    ("import os\nprint(len(set(view.apply_sync(os.getpid))))", "4"),
    ("print(view.map_sync(lambda x: x**2, range(8)))", "[0, 1, 4, 9, 16, 25, 36, 49]"),
    ("rc[0].push({'only': 1})\nprint(rc[0]['only'])", "1"),
    (
        "balanced = rc.load_balanced_view()\nprint(sum(balanced.map_sync(lambda x: x, range(20))))",
        "190",
    ),
    ("view.run('pi_part.py')\nprint(round(sum(view['pi_part']), 6))", "3.141593"),
    (
        "view.clear()\nprint(view.apply_sync(lambda: 'mine' in globals()))",
        "[False, False, False, False]",
    ),
]
PROGRAM = """from mpi4py import MPI
rank, size, n = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, 10_000
pi_part = sum(4 / (1 + ((i + 0.5) / n) ** 2) for i in range(rank, n, size)) / n
"""


@pytest.fixture(scope="module")
def book(visitor):
    ran(visitor, START, timeout=120)
    ran(visitor, f"open('pi_part.py', 'w').write({PROGRAM!r})")
    return visitor


@pytest.mark.parametrize(("cell", "said"), CELLS, ids=range(len(CELLS)))
def test_cell(book, cell, said):
    printed = [line for line in ran(book, cell).splitlines() if line]
    assert "\n".join(printed[-len(said.splitlines()) :]) == said
