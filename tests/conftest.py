"""What many tests share."""

import pytest

import pi2zero

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
