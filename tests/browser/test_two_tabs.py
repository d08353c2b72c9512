"""One notebook in two tabs, of two people or of one: who saves last is asked; the ranks are shared.

And in one tab that is closed while a cell runs, and opened again.
"""

import json
import shutil

import pytest

from .conftest import open_lab, wait_until_open
from .test_lab import INSERT, KERNEL, STATE, open_notebook, screenshot, wait_until_run

NAME = "notebooks/two_tabs"
FIRST = "window.jupyterapp.shell.currentWidget.content.widgets[0].model.sharedModel"
SAVE = "window.jupyterapp.commands.execute('docmanager:save') && null"
CLEAN = "() => !window.jupyterapp.shell.currentWidget.context.model.dirty"
SHUTDOWN = "async () => { await window.jupyterapp.serviceManager.sessions.shutdownAll(); }"
BREAKS = (
    "%%px\nfrom mpi4py import MPI\n"
    "if MPI.COMM_WORLD.rank == 1:\n    1 / 0\nMPI.COMM_WORLD.Barrier()"
)
LONG = """import pathlib, time
while not pathlib.Path({!r}).exists():
    time.sleep(0.1)
kept = 42"""
WORKS = "%%px\nfrom mpi4py import MPI\nprint(MPI.COMM_WORLD.allreduce(1))"


@pytest.fixture
def file(browser, lab):
    """The notebook's file. The kernels and tabs of the tests before are gone."""
    tab = open_lab(browser, f"{lab[0]}&reset")
    tab.evaluate(SHUTDOWN)
    tab.close()
    file = lab[1].parent / f"{NAME}.ipynb"
    shutil.copy(lab[1].parent / "notebooks" / "01_monte_carlo_pi.ipynb", file)
    yield file
    file.unlink()


def opened(browser, lab):
    """A tab with the notebook in front."""
    tab = open_lab(browser, lab[0])
    wait_until_open(tab, "notebooks/00_start_here")
    open_notebook(tab, NAME)
    return tab


@pytest.fixture
def tabs(browser, lab, file):
    """Two tabs with it."""
    both = [opened(browser, lab) for _ in range(2)]
    yield *both, file
    both[0].evaluate(SHUTDOWN)  # also the kernel of notebook 00, with which JupyterLab opens
    for tab in both:
        tab.close()


def test_the_browser_is_closed_in_mid_cell_and_opened_again(browser, lab, file, tmp_path):
    """The cell goes on without it; what was saved is there, and so is what the kernel has."""
    tab, go_on = opened(browser, lab), tmp_path / "go_on"
    try:
        tab.evaluate(f"({INSERT})({LONG.format(str(go_on))!r}) && null")
        tab.wait_for_function(f"{KERNEL} === 'busy'")
        tab.evaluate(SAVE)
        tab.wait_for_function(CLEAN)
        cells = len(tab.evaluate(STATE))
        assert tab.evaluate(KERNEL) == "busy"
        tab.close()
        go_on.touch()
        tab = opened(browser, lab)
        assert len(tab.evaluate(STATE)) == cells
        tab.evaluate(INSERT, "print(kept)")
        assert wait_until_run(tab, 60)[-1]["text"] == "42\n"
    finally:
        tab.evaluate(SHUTDOWN)
        tab.close()


def test_a_notebook_edited_by_two(tabs):
    one, other, file = tabs

    def on_disk():
        return "".join(json.loads(file.read_text())["cells"][0]["source"])

    other.evaluate(f"text => {{ {FIRST}.setSource(text); }}", "of the other")
    other.evaluate(SAVE)
    other.wait_for_function(CLEAN)
    assert on_disk() == "of the other"
    one.wait_for_timeout(1500)  # JupyterLab takes half a second's difference for the same moment
    one.evaluate(f"text => {{ {FIRST}.setSource(text); }}", "of the one")
    one.evaluate(SAVE)
    asked = one.locator(".jp-Dialog-content")
    asked.get_by_text("has changed on disk").wait_for()
    screenshot(one, "two_tabs_one_file")
    assert on_disk() == "of the other", "nothing is overwritten before somebody decides"
    asked.get_by_role("button", name="Revert").click()
    one.wait_for_function(f"() => {FIRST}.getSource() === 'of the other'")


def test_two_tabs_have_one_kernel_and_its_ranks(tabs):
    one, other, _ = tabs
    one.evaluate(INSERT, "import pi2zero\ncluster = pi2zero.start(n=2)")
    assert not wait_until_run(one, 60)[-1]["errors"]
    other.evaluate(INSERT, BREAKS)
    assert wait_until_run(other, 60)[-1]["errors"] == [
        "RankError: rank 1 raised ZeroDivisionError: division by zero"
    ]
    for tab in (one, other):
        tab.evaluate(INSERT, WORKS)
        assert wait_until_run(tab, 60)[-1]["text"] == "[stdout:0] 2\n[stdout:1] 2\n"
