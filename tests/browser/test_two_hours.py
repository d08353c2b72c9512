"""The two-hour track as an attendee walks it, in one JupyterLab from beginning to end: an hour's clicks in some minutes.

In this order: notebooks 00, 01, 02; lab 1 with a wrong answer, a hint, the right ones; a cell that takes too long; a new kernel;
the browser closed and opened again; notebook 09. Pictures of each stop are kept in build/screens/, to be looked at.
"""

import re
from pathlib import Path

import nbformat
import psutil
import pytest

from .conftest import wait_until_open
from .test_lab import FOLDED, INSERT, KERNEL, ROOT, STATE, run_all, screenshot, wait_until_run

pytestmark = pytest.mark.nightly
LAB = "labs/01_pi"
SOLUTIONS = {
    cell.id: cell.source
    for cell in nbformat.read(ROOT / "solutions" / "01_pi.ipynb", as_version=4).cells
}
# An answer of tests/checks/pi_answers/alone.py that looks right.
WRONG = "%%px\ndef count_inside(n, rng):\n    x, y = rng.random(n), rng.random(n)\n    return int(np.sum(x + y < 1))"
CELL = (
    "id => window.jupyterapp.shell.currentWidget.content.widgets.findIndex(w => w.model.id === id)"
)
SHOW = f"""async id => {{
    const notebook = window.jupyterapp.shell.currentWidget.content;
    notebook.activeCellIndex = ({CELL})(id);
    await notebook.scrollToItem(notebook.activeCellIndex, 'center');
}}"""
TEXT = f"""id => window.jupyterapp.shell.currentWidget.content.widgets[({CELL})(id)].model.outputs.toJSON()
    .map(o => (o.text || '') + (o.traceback || []).join('\\n') + (o.data?.['text/plain'] || '')).join('')"""


@pytest.fixture(scope="module")
def desk(browser, lab):
    """The attendee's browser: one window after another, each with what JupyterLab remembers."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    yield context
    context.close()


@pytest.fixture(scope="module")
def tab(desk, lab):
    """The first window, as `make lab` opens it."""
    page = desk.new_page()
    page.goto(lab[0])
    wait_until_open(page, "notebooks/00_start_here")
    return page


def go_to(page, name):
    """Open a notebook as the links do."""
    page.evaluate(
        "async path => { await window.jupyterapp.commands.execute('docmanager:open', {path}); }",
        f"{name}.ipynb",
    )
    wait_until_open(page, name)


def walk(page, name):
    """Run it from top to bottom; the errors are those that the text announces."""
    cells = run_all(page)
    screenshot(page, f"walk_{Path(name).stem}")
    for cell in cells:
        assert bool(cell["errors"]) == ("raises-exception" in cell["tags"]), (
            cell["source"],
            cell["errors"],
        )
        assert cell["count"], f"did not run: {cell['source']}"


def leave(page):
    """Done with this notebook: shut its kernel down and close it."""
    page.evaluate(
        "async () => { await window.jupyterapp.shell.currentWidget.sessionContext.shutdown(); }"
    )
    page.evaluate(
        "window.jupyterapp.shell.currentWidget.context.save().then(() => jupyterapp.shell.currentWidget.dispose())"
    )


def run(page, cell, seconds=90):
    """Click into a cell and press Shift+Enter; what it shows when the kernel is idle again."""
    page.evaluate(SHOW, cell)
    page.evaluate(
        f"id => window.jupyterapp.shell.currentWidget.content.widgets[({CELL})(id)].model.outputs.clear()",
        cell,
    )
    before = page.evaluate(COUNT, cell)
    page.locator(".jp-Notebook:visible .jp-Cell.jp-mod-active .cm-content").click()
    page.keyboard.press("Shift+Enter")
    page.wait_for_function(
        f"([id, before]) => ({COUNT})(id) && ({COUNT})(id) !== before && {KERNEL} === 'idle'",
        arg=[cell, before],
        timeout=1000 * seconds,
    )
    return page.evaluate(TEXT, cell)


COUNT = f"id => window.jupyterapp.shell.currentWidget.content.widgets[({CELL})(id)].model.executionCount"


def write(page, cell, source):
    """Type an answer: the cell's text is selected and replaced."""
    page.evaluate(SHOW, cell)
    page.locator(".jp-Notebook:visible .jp-Cell.jp-mod-active .cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(source)
    assert (
        page.evaluate(
            f"id => jupyterapp.shell.currentWidget.content.widgets[({CELL})(id)].model.sharedModel.source",
            cell,
        )
        == source
    )


def solution(cell):
    return re.sub(
        r"^ *### (BEGIN|END) SOLUTION\n?", "", SOLUTIONS[cell], flags=re.MULTILINE
    ).rstrip()


# --- in this order -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["notebooks/00_start_here", "notebooks/01_monte_carlo_pi", "notebooks/02_mpi_pi"]
)
def test_the_notebooks_before_the_lab(tab, name):
    go_to(tab, name)
    screenshot(tab, f"walk_{Path(name).stem}_opened")
    walk(tab, name)
    assert not [cell for cell, (output, _) in tab.evaluate(FOLDED).items() if output], (
        "what was run is unfolded"
    )
    leave(tab)


def test_a_wrong_answer_first(tab):
    go_to(tab, LAB)
    for cell in ("start", "imports", "task-1-answer"):
        run(tab, cell)
    assert "is still to do" in run(tab, "task-1-check"), "before anything is written"
    write(tab, "task-1-answer", WRONG)
    run(tab, "task-1-answer")
    said = run(tab, "task-1-check")
    screenshot(tab, "walk_lab_wrong")
    assert (
        "Task 1 is not right yet" in said
        and "2 is what x + y < 1 gives" in said
        and "Traceback" not in said
    )


def test_the_hint_opens(tab):
    tab.evaluate(SHOW, "task-1-hints")
    hint = tab.locator("details", has_text="Hint 1: what to think of").first
    text = hint.get_by_text("A dart has two coordinates")
    assert not text.is_visible()
    hint.locator("summary").click()
    text.wait_for()
    screenshot(tab, "walk_lab_hint")


def test_the_right_answers(tab):
    for number in range(1, 7):
        write(tab, f"task-{number}-answer", solution(f"task-{number}-answer"))
        run(tab, f"task-{number}-answer")
        assert f"Task {number} is right." in run(tab, f"task-{number}-check"), number
        if number == 1:
            run(tab, "task-1-run")
            tab.evaluate(SHOW, "task-1-run")
            screenshot(tab, "walk_lab_right")


def insert_and_start(page, source):
    """A new cell at the end, begun; its id."""
    page.evaluate(f"({INSERT})({source!r}) && null")
    page.wait_for_function(f"{KERNEL} === 'busy'", timeout=20_000)
    return page.evaluate(
        "window.jupyterapp.shell.currentWidget.content.widgets.findLast(w => w.model.sharedModel.source).model.id"
    )


def test_a_long_cell_is_stopped(tab):
    cell = insert_and_start(tab, "%%px\nimport time\nwhile True:\n    time.sleep(0.1)")
    tab.wait_for_timeout(3000)
    tab.locator(
        '.jp-NotebookPanel-toolbar:visible [data-command="notebook:interrupt-kernel"]'
    ).click()
    tab.wait_for_function(f"{KERNEL} === 'idle'", timeout=60_000)
    tab.wait_for_timeout(500)
    tab.evaluate(SHOW, cell)
    screenshot(tab, "walk_stopped")
    assert "You interrupted the cell; it has ended on the ranks, too." in tab.evaluate(TEXT, cell)
    assert "rank 3 of 4" in run(tab, "imports"), "and the ranks go on"


def ranks():
    """Processes of this session's ranks."""
    mine = psutil.Process().children(recursive=True)
    return [child.pid for child in mine if "ipyparallel.engine" in " ".join(child.cmdline())]


def test_the_kernel_is_restarted(tab):
    before = set(ranks())
    assert before
    tab.locator(
        '.jp-NotebookPanel-toolbar:visible [data-command="notebook:restart-kernel"]'
    ).click()
    tab.locator(".jp-Dialog button.jp-mod-accept").click()
    tab.wait_for_function(f"{KERNEL} === 'idle'", timeout=60_000)
    assert "NameError" in run(tab, "imports") or "not found" in run(tab, "imports"), (
        "the cell magic went with the kernel"
    )
    screenshot(tab, "walk_restarted")
    run(tab, "start")
    assert "rank 3 of 4" in run(tab, "imports")
    assert not before & set(ranks()), "the old kernel's ranks are gone"


def test_the_browser_is_closed_and_opened_again(tab, desk, lab):
    insert_and_start(tab, "import time\nkept = 42\ntime.sleep(12)")
    tab.evaluate("window.jupyterapp.shell.currentWidget.context.save()")
    tab.wait_for_timeout(1500)
    cells = len(tab.evaluate(STATE))
    tab.close()
    back = desk.new_page()
    back.goto(lab[0])
    wait_until_open(back, "notebooks/00_start_here")
    go_to(back, LAB)  # idle again: the cell went on without a browser
    screenshot(back, "walk_back")
    assert len(back.evaluate(STATE)) == cells, "what was saved is there"
    back.evaluate(INSERT, "print(kept)\nprint(cluster.n)")
    assert wait_until_run(back, 30)[-1]["text"] == "42\n4\n"
    assert "rank 3 of 4" in run(back, "imports")
    leave(back)
    desk.pages[-1].goto(lab[0])


def test_notebook_09(desk, lab):
    page = desk.pages[-1]
    wait_until_open(page, "notebooks/00_start_here")
    go_to(page, "notebooks/09_zero")
    walk(page, "notebooks/09_zero")
    leave(page)
