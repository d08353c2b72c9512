"""What many tests share."""

import os
import signal
from pathlib import Path
from unittest import mock

import pytest
from fault_tables import account, pytest_addoption, pytest_terminal_summary  # noqa: F401

import pi2zero
from pi2zero import ownership

# A test that resets ends nobody else's ranks, and not another worker's.
os.environ[ownership.SCOPE] = f"tests-{os.getpid()}"
os.environ["PI2ZERO_SITE"] = os.devnull  # ranks run here, whatever this machine's site file says
os.environ["PI2ZERO_ROOM"] = (
    os.devnull
)  # and no test notes anything, whatever this user has agreed to
os.environ["PI2ZERO_PROGRESS"] = os.devnull
# It makes `print` write its arguments one by one, and mpirun mixes what several ranks write.
os.environ.pop("PYTHONUNBUFFERED", None)
# A shell's background jobs ignore Ctrl-C, and so does all that they start; some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)
pytest.register_assert_rewrite("pictures")

HERE = Path(__file__).parent
# All tests there are long: they start kernels, browsers, or environments, build decks, or train.
LONG = (
    *("browser/", "faults/", "packaging/", "several_hosts/", "visitors/"),
    *("scripts/test_train_scripts.py", "slides/test_slides.py"),
)
# Of the long tests, those that `make test` runs.
CORE = (
    "checks/test_blanks_on_ranks.py",
    "checks/test_framework.py",
    "cluster/",
    "deepspeed_support/",
    "faults/test_cells.py",
    "notebooks/test_collectives.py",
    "notebooks/test_training.py",
    "ranks/",
)
# Begun first, so that no worker is left with one of them at the end: a file's tests run on one
# worker, for what they share.
FIRST = (
    "test_extension",  # and with it all of browser/
    *("test_notebooks", "test_summarize", "test_lab_answers", "test_horovod"),
    *("test_train_scripts", "test_train_deepspeed", "test_native_build", "test_setup"),
    *("test_memory", "test_doctor", "test_labs", "test_cells", "test_slides", "test_site"),
)


def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadFileScheduling

    class OneBrowser(LoadFileScheduling):
        """A worker for each file. Three browsers at a time would be too slow on two cores."""

        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return "tests/browser" if file.startswith("tests/browser/") else file

    return OneBrowser(config, log)


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items):
    for item in items:
        path = item.path.relative_to(HERE).as_posix() if item.path.is_relative_to(HERE) else ""
        if path.startswith(LONG) or "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.long)
        if path.startswith(CORE):
            item.add_marker(pytest.mark.core)
    items.sort(key=lambda item: [*FIRST, item.path.stem].index(item.path.stem))


@pytest.fixture(scope="session")
def shared_clusters():
    """The cluster of four ranks that files share, if there is one; it ends with the tests."""
    clusters = []
    yield clusters
    for ranks in clusters:
        ranks.stop()


@pytest.fixture(scope="module")
def cluster(shared_clusters):
    """Four ranks, for tests that leave them whole.

    Many files share them, because a start takes seconds. A test that starts its own ends these, and
    then the next file gets new ones.
    """
    if not (shared_clusters and shared_clusters[-1].runs()):
        shared_clusters[:] = [pi2zero.start(n=4)]
    return shared_clusters[-1]


@pytest.fixture(scope="module")
def mpi_set():
    """For files that start programs by mpirun: the kit's settings, and one thread per rank."""
    with mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):
        pi2zero.mpi_env()
        yield


@pytest.fixture
def close_pictures():
    """Afterwards no figure is open, and the style is the usual one."""
    import matplotlib.pyplot as plt

    from pi2zero import plots

    yield
    plt.close("all")
    plots.use_style()
