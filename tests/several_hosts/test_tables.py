"""The tables of reports/hangs.md over two hosts: the cases and the tests of tests/faults, with
ranks on node1 and node2.
"""

import pytest

from tests.faults.test_alive import test_lives  # noqa: F401
from tests.faults.test_cells import FAULTS, test_fault  # noqa: F401
from tests.faults.test_ended import test_ends  # noqa: F401
from tests.several_hosts.conftest import START, fresh

# the last rank is alone on its host
THREE = 'import pi2zero\ncluster = pi2zero.start(n=3, on=["node1:2", "node2:1"])'


# Where mpirun tells only of a rank that this cut off, on another host, the first to end is known,
# but not how it ended;
# and not which of its host's it was (rank 1, or 0 and 1), if both were gone in the same moment.
for name in ("SIGKILL", "segfault", "os._exit", "out of memory, C code does not"):
    cell, _, restarts = FAULTS[name]
    FAULTS[name] = cell, ["1 died: "], restarts


@pytest.fixture(scope="module")
def book():
    yield from fresh()


@pytest.fixture
def shared(book):
    """The kernel, with four ranks."""
    return started(book, START)


@pytest.fixture
def ranks(book):
    """The kernel, with three ranks."""
    return started(book, THREE)


def started(book, start):
    if book.__dict__.get("start") != start:
        assert (reply := book.run(start)).ok, reply.text
        book.start = start
    return book
