"""What many tests share: one set of real ranks, because starting them takes seconds."""

import pytest

import pi2zero


@pytest.fixture(scope="session")
def cluster():
    """Four ranks, for tests that leave them whole. Started once."""
    ranks = pi2zero.start(n=4)
    yield ranks
    ranks.stop()
