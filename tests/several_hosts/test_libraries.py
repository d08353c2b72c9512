"""Faults in the hands of MPI, torch and DDP, as in tests/faults, with three ranks on two hosts."""

import pytest

from tests.faults.test_libraries import test_library_fault  # noqa: F401
from tests.several_hosts.conftest import fresh
from tests.several_hosts.test_tables import THREE


@pytest.fixture(scope="module")
def book():
    """A kernel with three ranks; the last is alone on its host."""
    yield from fresh(THREE)
