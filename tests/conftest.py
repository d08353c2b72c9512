"""What many tests share."""

import os

import pytest

import pi2zero
from pi2zero import marks

os.environ[marks.SCOPE] = f"tests-{os.getpid()}"  # a test that resets ends nobody else's ranks, not another worker's either
pytest.register_assert_rewrite("lab_checks", "pictures")


@pytest.fixture(scope="session")
def cluster():
    """Four ranks, for tests that leave them whole. Started once, because that takes seconds."""
    ranks = pi2zero.start(n=4)
    yield ranks
    ranks.stop()


@pytest.fixture
def close_pictures():
    """Afterwards no figure is open, and the style is the usual one."""
    import matplotlib.pyplot as plt

    from pi2zero import plots

    yield
    plt.close("all")
    plots.use_style()
