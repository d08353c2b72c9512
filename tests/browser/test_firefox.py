"""Firefox beside Chromium: the first page, every cell of the first notebook, a broken cell, the ranks' state."""

import pytest

from .conftest import wait_until_open
from .firefox import FIREFOX, Tab
from .test_lab import (
    INSERT,
    SCROLL_TO_END,
    close,
    open_notebook,
    run_all,
    screenshot,
    wait_until_run,
)

BREAKS = "%%px\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\nif comm.rank == 1:\n    1 / 0\ncomm.Barrier()"


@pytest.fixture(scope="module")
def page(lab, tmp_path_factory):
    if FIREFOX is None:
        pytest.skip("no Firefox on the PATH (Debian: apt-get install firefox-esr)")
    tab = Tab(tmp_path_factory.mktemp("firefox"))
    tab.goto(lab[0])
    wait_until_open(tab, "notebooks/00_start_here")
    yield tab
    tab.close()


def test_every_cell_of_the_first_notebook(page):
    screenshot(page, "firefox_first_page")
    open_notebook(page, "notebooks/00_start_here")
    cells = run_all(page)
    screenshot(page, "firefox_notebook_00")
    for cell in cells:
        assert bool(cell["errors"]) == ("raises-exception" in cell["tags"]), (
            cell["source"],
            cell["errors"],
        )
        assert cell["count"], f"did not run: {cell['source']}"


def test_a_cell_is_broken_and_the_next_one_works(page):
    page.evaluate(INSERT, "import pi2zero\ncluster = pi2zero.start(n=2)")
    assert not wait_until_run(page, 60)[-1]["errors"]
    page.evaluate(INSERT, BREAKS)
    assert wait_until_run(page, 60)[-1]["errors"] == [
        "RankError: rank 1 raised ZeroDivisionError: division by zero"
    ]
    page.evaluate(SCROLL_TO_END)
    page.wait_for_timeout(1000)
    screenshot(page, "firefox_broken")
    says = (
        "words => document.querySelector('#jp-main-statusbar .pi2zero-ranks').textContent === words"
    )
    page.wait_for_function(says, "2 ranks, ready", timeout=60_000)
    page.evaluate(INSERT, "%%px\nfrom mpi4py import MPI\nprint(MPI.COMM_WORLD.allreduce(1))")
    assert wait_until_run(page, 60)[-1]["text"] == "[stdout:0] 2\n[stdout:1] 2\n"
    close(page)
