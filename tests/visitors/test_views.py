"""A notebook in the style of ipyparallel's own for MPI, unchanged but for the start of the cluster."""

import pytest

from .conftest import ran

pytestmark = pytest.mark.long

START = """
import pi2zero
rc = pi2zero.start(n=4).client
view = rc[:]
view.block = True
"""
# What a cell prints on four ranks, in this order.
CELLS = [
    ("print(rc.ids, len(view))", "[0, 1, 2, 3] 4"),
    (
        "words = 'eight words that are dealt out and counted'.split()\nview.scatter('mine', words)\nprint(view['mine'])",
        "[['eight', 'words'], ['that', 'are'], ['dealt', 'out'], ['and', 'counted']]",
    ),
    (
        "view.execute('lengths = [len(word) for word in mine]')\nprint(view.gather('lengths'))",
        "[5, 5, 4, 3, 5, 3, 3, 7]",
    ),
    (
        "import numpy as np\nview.scatter('part', np.arange(10.0), flatten=True)\n"
        "view.execute('''from mpi4py import MPI\n"
        "import numpy as np\n"
        "def whole_sum(x):\n"
        "    total = np.zeros(1)\n"
        "    MPI.COMM_WORLD.Allreduce(np.array([x.sum()]), total)\n"
        "    return float(total[0])''')\n"
        "print(view.apply(lambda: whole_sum(part)))",
        "[45.0, 45.0, 45.0, 45.0]",
    ),
    ("import os\nprint(len(set(view.apply_sync(os.getpid))))", "4"),
    ("print(view.map_sync(lambda x: x**2, range(8)))", "[0, 1, 4, 9, 16, 25, 36, 49]"),
    (
        "@view.parallel(block=True)\ndef double(part):\n    return [2 * x for x in part]\nprint(double(list(range(6))))",
        "[0, 2, 4, 6, 8, 10]",
    ),
    (
        "@view.remote(block=True)\ndef my_rank():\n    from mpi4py import MPI\n    return MPI.COMM_WORLD.rank\nprint(my_rank())",
        "[0, 1, 2, 3]",
    ),
    (
        "later = view.apply_async(lambda a, b=1: a + b, 2, b=3)\nprint(later.get(), later.done())",
        "[5, 5, 5, 5] True",
    ),
    (
        "rc[0].push({'only': 1})\nprint(rc[0]['only'], rc[1::2].apply_sync(lambda: 'only' in globals()))",
        "1 [False, False]",
    ),
    (
        "import ipyparallel as ipp\nprint(view.apply_sync(lambda words: len(words), ipp.Reference('mine')))",
        "[2, 2, 2, 2]",
    ),
    (
        "balanced = rc.load_balanced_view()\nprint(sum(balanced.map_sync(lambda x: x, range(20))))",
        "190",
    ),
    (
        "@balanced.parallel(ordered=True)\ndef third(x):\n    return x / 3\nprint(list(third.map([3, 6, 9])))",
        "[1.0, 2.0, 3.0]",
    ),
    (
        "with view.sync_imports():\n    import math\nprint(view.apply_sync(lambda: math.floor(2.5)))",
        "importing math on engine(s)\n[2, 2, 2, 2]",
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


def test_what_a_function_raised_is_shown_with_its_rank(book):
    reply = book.run("rc[2:].apply_sync(lambda: 1 / 0)")
    assert (
        not reply.ok
        and "ZeroDivisionError" in reply.text
        and "[2:apply]" in reply.text
        and "[1:apply]" not in reply.text
    )
