"""What an attendee does: open JupyterLab, run all cells of every notebook, break one, go on."""

import re
import time
from pathlib import Path

from .conftest import wait_until_open

ROOT = Path(__file__).parents[2]
SCREENS = ROOT / "build" / "screens"
# The state of all code cells: whether it has run, and the errors shown.
STATE = """() => {
    const cells = window.jupyterapp.shell.currentWidget.content.widgets\
.filter(w => w.model.type === 'code');
    return cells.map(w => ({
        count: w.model.executionCount,
        source: w.model.sharedModel.source,
        tags: w.model.metadata.tags || [],
        errors: w.model.outputs.toJSON().filter(o => o.output_type === 'error')\
.map(o => o.ename + ': ' + o.evalue),
        text: w.model.outputs.toJSON().map(o => o.text || '').join(''),
    }));
}"""
SCROLL_TO_END = """() => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    notebook.scrollToItem(notebook.widgets.length - 1);
}"""
KERNEL = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status"
INSERT = """async (source) => {
    const app = window.jupyterapp, notebook = app.shell.currentWidget.content;
    notebook.activeCellIndex = notebook.widgets.length - 1;
    await app.commands.execute('notebook:insert-cell-below');
    notebook.activeCell.model.sharedModel.setSource(source);
    await app.commands.execute('notebook:run-cell');
}"""


def bring_to_front(page, name):
    """As a person does: again, if JupyterLab still brings its first page to the front."""
    page.wait_for_function(
        "path => window.jupyterapp.commands.execute('docmanager:open', {path})"
        ".then(() => new Promise(resolve => setTimeout(resolve, 1500)))"
        ".then(() => window.jupyterapp.shell.currentWidget?.context?.path === path)",
        arg=f"{name}.ipynb",
        polling=500,
    )
    wait_until_open(page, name)


def open_notebook(page, name):
    bring_to_front(page, name)
    page.evaluate("window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs') && null")


def wait_until_run(page, seconds):
    """The state of the cells once every code cell has run, or the kernel has been idle for 5 s."""
    deadline, idle_since = time.monotonic() + seconds, time.monotonic()
    while time.monotonic() < deadline:
        page.wait_for_timeout(300)
        if page.evaluate(KERNEL) != "idle":
            idle_since = time.monotonic()
        elif (
            all(cell["count"] for cell in page.evaluate(STATE)) or time.monotonic() - idle_since > 5
        ):
            return page.evaluate(STATE)
    raise AssertionError(f"the kernel is still {page.evaluate(KERNEL)} after {seconds} s")


def run_all(page):
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells') && null")
    return wait_until_run(page, 180)


def close(page):
    page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    page.evaluate("window.jupyterapp.shell.currentWidget.dispose()")


def screenshot(page, name):
    SCREENS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENS / f"{name.replace('/', '_')}.png")


def test_it_opens_on_the_first_notebook(page):
    page.wait_for_timeout(2000)  # time for a pop-up to appear
    screenshot(page, "first_page")
    assert page.locator(".jp-toast").count() == 0 and page.locator(".Toastify__toast").count() == 0


def test_a_notebook_that_is_opened_is_not_changed(page):
    """Its metadata are what JupyterLab would write: no mark on its tab, no git diff when saved."""
    for name in ("notebooks/00_start_here", "labs/01_pi", "notebooks/09_zero"):
        bring_to_front(page, name)
        page.wait_for_timeout(1500)
        assert not page.evaluate("window.jupyterapp.shell.currentWidget.context.model.dirty"), name


def test_the_menu_and_the_map_lead_to_the_right_notebook(page):
    page.locator(".lm-MenuBar-item", has_text="From π to ZeRO").click()
    page.locator(".lm-Menu-item", has_text="1 · π and MPI").click()
    lab = page.locator(".lm-Menu-item", has_text="Lab 1 · π on four ranks, 50 min")
    lab.wait_for()
    screenshot(page, "menu")
    lab.click()
    wait_until_open(page, "labs/01_pi")
    page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Toolbar").get_by_text(
        "Map", exact=True
    ).click()
    wait_until_open(page, "notebooks/00_start_here")


def test_the_launcher_has_a_tile_that_leads_to_the_first_notebook(page):
    page.evaluate("window.jupyterapp.commands.execute('launcher:create').then(() => null)")
    page.get_by_role("tab", name="Launcher").last.click()
    tile = page.locator(".jp-LauncherCard", has_text="Start here")
    tile.wait_for()
    screenshot(page, "launcher")
    tile.click()
    wait_until_open(page, "notebooks/00_start_here")


def test_the_status_bar_says_where_one_is_and_leads_to_the_next(page):
    place = page.locator("#jp-main-statusbar .pi2zero-place")
    place.get_by_text("1 · π and MPI: 1 of 4").wait_for()
    place.get_by_role("button", name="next: 01 · Monte Carlo π").press("Enter")
    wait_until_open(page, "notebooks/01_monte_carlo_pi")
    bring_to_front(page, "labs/01_pi")
    place.get_by_text("1 · π and MPI: 4 of 4").wait_for()
    place.get_by_role("button", name="next: 03 · Collectives, and the ring").press("Enter")
    wait_until_open(page, "notebooks/03_collectives")
    place.get_by_text("2 · Data parallelism: 1 of 8").wait_for()
    screenshot(page, "place")


def test_the_status_bar_tells_the_state_of_the_ranks(page):
    """Of the notebook in front, after its last cell; it follows a restart of ranks by itself."""
    sign = page.locator("#jp-main-statusbar .pi2zero-ranks")

    def says(words):
        page.wait_for_function(
            "words => document.querySelector('#jp-main-statusbar .pi2zero-ranks')"
            ".textContent.split(', ').slice(0, 2).join(', ') === words",
            arg=words,
            timeout=60_000,
        )

    says("")
    page.evaluate(INSERT, "import pi2zero\ncluster = pi2zero.start(n=2)")
    says("2 ranks, ready")
    alone = (
        "%%px\nfrom mpi4py import MPI\n"
        "if MPI.COMM_WORLD.rank == 0:\n    raise ValueError\nMPI.COMM_WORLD.Barrier()"
    )
    page.evaluate(f"({INSERT})({alone!r}) && null")
    says("2 ranks, being restarted")
    screenshot(page, "status_bar")
    says("2 ranks, ready")
    page.evaluate(INSERT, "cluster.stop()")
    says("ranks stopped")
    assert sign.get_attribute("role") == "status"
    close(page)


def test_every_cell_does_what_the_text_says(page):
    """Of one notebook; nbval runs all of them, without a browser."""
    name = "notebooks/00_start_here"
    open_notebook(page, name)
    cells = run_all(page)
    screenshot(page, name)
    close(page)
    for cell in cells:
        expected = "raises-exception" in cell["tags"]
        assert bool(cell["errors"]) == expected, (cell["source"], cell["errors"])
        assert cell["count"], f"did not run: {cell['source']}"


def test_the_unsolved_lab_says_what_is_missing(page):
    open_notebook(page, "labs/01_pi")
    for cell in run_all(page):
        assert not [
            e
            for e in cell["errors"]
            if not re.search("NotImplementedError|not solved|RankError|CheckError", e)
        ]
    screenshot(page, "labs/01_pi")
    close(page)


def test_no_kernel_spoke_over_open_ports(lab):
    assert "without encryption" not in lab[1].read_text()
