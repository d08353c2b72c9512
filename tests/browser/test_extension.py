"""What the kit adds to JupyterLab: tools/lab_extensions."""

import json

import pytest

from .conftest import wait_until_restored
from .test_lab import (
    INSERT,
    KERNEL,
    SCROLL_TO_END,
    bring_to_front,
    close,
    open_notebook,
    screenshot,
    wait_until_run,
)

RUN = """async (id) => {
    const app = window.jupyterapp, notebook = app.shell.currentWidget.content;
    notebook.activeCellIndex = notebook.widgets.findIndex(w => w.model.id === id);
    await app.commands.execute('notebook:run-cell');
    notebook.scrollToItem(notebook.activeCellIndex);
}"""
CELL = """([id, name]) => window.jupyterapp.shell.currentWidget.content.widgets\
.find(w => w.model.id === id).node.classList.contains(name)"""
SOURCE = """id => window.jupyterapp.shell.currentWidget.content.widgets\
.find(w => w.model.id === id).model.sharedModel.getSource()"""
SCROLL = """id => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    return notebook.scrollToItem(notebook.widgets.findIndex(w => w.model.id === id));
}"""
RESTART = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
SAVE = "window.jupyterapp.commands.execute('docmanager:save').then(() => null)"
PI = "notebooks/01_monte_carlo_pi"
RIGHT = """def pi_array(samples, seed=1):
    x, y = np.random.default_rng(seed).random((2, samples))
    return float(4 * np.count_nonzero(x * x + y * y < 1) / samples)"""


def has(page, cell, name):
    return page.evaluate(CELL, [cell, name])


def wait_until(page, cell, name, expected=True):
    page.wait_for_function(
        f"([cell, name, expected]) => ({CELL})([cell, name]) === expected",
        arg=[cell, name, expected],
    )


def reload(page, name):
    """F5."""
    page.reload()
    wait_until_restored(page)
    bring_to_front(page, name)


def wait_for_ranks(page, words):
    page.wait_for_function(
        "words => document.querySelector('.pi2zero-ranks').textContent.includes(words)", arg=words
    )


def test_the_ranks_menu_and_the_status_bar(page):
    bring_to_front(page, "labs/01_pi")
    page.evaluate(INSERT, "import pi2zero\ncluster = pi2zero.start(n=2)")
    wait_for_ranks(page, "2 ranks, ready, ")
    page.evaluate(SAVE)
    reload(page, "labs/01_pi")
    wait_for_ranks(page, "2 ranks, ready, ")  # nothing was run since the page was loaded
    status = page.locator(".pi2zero-ranks button")

    def choose(action, words):
        status.click()
        screenshot(page, "ranks_menu")
        page.locator(".lm-Menu-itemLabel", has_text=action).click()
        dialog = page.locator(".jp-Dialog", has_text=words)
        dialog.wait_for(timeout=60_000)
        screenshot(page, f"ranks_{action.split()[0]}")
        dialog.get_by_role("button", name="Close").click()

    status.click()
    page.locator(".lm-Menu-itemLabel", has_text="rank 0: ").wait_for()
    page.keyboard.press("Escape")
    choose("Which ranks of mine", "01_pi.ipynb (process ")
    page.evaluate(INSERT, "%%px\nx = 1")
    choose("Restart ranks", "2 fresh ranks are up.")
    choose("Replay", "Replayed 1 of 1")
    choose("Stop ranks", "The 2 ranks have ended.")
    wait_for_ranks(page, "ranks stopped")
    choose("Replay", "This notebook has no ranks.")
    close(page)


def test_the_status_bar_says_what_a_running_cell_does(page):
    """A cell tells it in the metadata of what it displays; without that its seconds are counted."""
    bring_to_front(page, "labs/01_pi")
    page.evaluate(INSERT, "import pi2zero\ncluster = pi2zero.start(n=2)")
    wait_for_ranks(page, "2 ranks, ready, ")
    words = "2 ranks, working 4 s (1 waits in Barrier)"
    told = {"pi2zero": {"status": words}}
    cell = (
        "import time\nfrom IPython.display import display\ntime.sleep(6)\n"
        f"display({{'text/plain': ''}}, raw=True, metadata={told!r})\ntime.sleep(4)"
    )
    page.evaluate(f"({INSERT})({json.dumps(cell)}) && null")
    wait_for_ranks(page, "2 ranks; a cell runs, ")
    wait_for_ranks(page, words)
    screenshot(page, "status_bar_running")
    wait_for_ranks(page, "2 ranks, ready, ")
    close(page)


def test_stored_outputs_are_told_from_run_ones(page):
    bring_to_front(page, PI)
    wait_until(page, "loop", "pi2zero-stored")
    assert has(page, "darts", "pi2zero-stored") and not has(page, "array", "pi2zero-stored")
    page.evaluate(SCROLL, "loop")
    screenshot(page, "stored")
    for cell in ("imports", "loop"):
        page.evaluate(RUN, cell)
        assert not has(page, cell, "pi2zero-stored")
    screenshot(page, "run")
    page.evaluate(SAVE)
    reload(page, PI)
    wait_until(page, "darts", "pi2zero-stored")
    assert not has(page, "loop", "pi2zero-stored"), "its kernel is the same as before F5"
    page.evaluate(RESTART)
    wait_until(page, "loop", "pi2zero-stored")
    page.evaluate(RUN, "imports")
    assert not has(page, "imports", "pi2zero-stored") and has(page, "loop", "pi2zero-stored")
    close(page)


def test_a_predict_takes_a_guess_and_hides_its_answer(page):
    """The output and the text that explains it, until the cell is run."""
    bring_to_front(page, PI)
    page.evaluate(SCROLL, "array-time")
    explanation = page.locator("p", has_text="NumPy is more than ten times as fast")
    wait_until(page, "t16", "pi2zero-explanation")
    assert not explanation.is_visible() and not has(page, "t11", "pi2zero-explanation")
    answer = page.get_by_text("793 inside; 785 expected")
    assert not answer.first.is_visible(), "JupyterLab's own fold shows the first line"
    screenshot(page, "folded")
    page.evaluate(RUN, "imports")
    page.evaluate(SCROLL, "guess-inside-guess")
    form = page.locator(".pi2zero-guess:visible", has_text="how many of the 1,000?")
    form.get_by_role("textbox").fill("1,000")
    assert page.evaluate(SOURCE, "guess-inside-guess").startswith("inside_guess = 1000  # your")
    form.get_by_role("textbox").fill("800")
    form.get_by_role("textbox").press("Enter")
    for cell in ("darts", "darts-count"):
        page.evaluate(RUN, cell)
    page.get_by_text("You guessed 800 darts; it is 793 darts.").wait_for()
    screenshot(page, "guessed")
    page.evaluate(SCROLL, "guess-loop-guess")
    skipped = page.locator(".pi2zero-guess:visible", has_text="seconds for 10^8 darts")
    skipped.get_by_role("button", name="Skip").click()
    for cell in ("loop", "loop-time", "blank-pi-array", "array", "guess-array-guess", "array-time"):
        page.evaluate(RUN, cell)
    explanation.wait_for()
    assert not has(page, "t16", "pi2zero-explanation")
    screenshot(page, "unfolded")
    close(page)


def test_choices_are_buttons(page):
    bring_to_front(page, "notebooks/06_ddp")
    page.evaluate(SCROLL, "guess-read-guess")
    form = page.locator(".pi2zero-guess:visible", has_text="Read_at_all")
    form.get_by_role("button", name="Read_at_all", exact=True).click()
    page.wait_for_function(
        f"id => ({SOURCE})(id).startsWith('read_guess = \"Read_at_all\"  # ')",
        arg="guess-read-guess",
    )
    screenshot(page, "choices")
    close(page)


def test_a_long_output_scrolls_in_a_box(page):
    """Until it is opened by a click at its left; the next run counts its own lines."""
    bring_to_front(page, "labs/01_pi")
    page.evaluate(INSERT, "print(*range(150), sep='\\n')")
    box = page.locator(".jp-mod-outputsScrolled .jp-Cell-outputArea")
    box.wait_for()
    assert box.bounding_box()["height"] < 500
    screenshot(page, "long_output")
    page.locator(".jp-mod-outputsScrolled .jp-OutputArea-promptOverlay").first.click()
    box.wait_for(state="detached")
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-cell').then(() => null)")
    box.wait_for()
    page.evaluate(
        "window.jupyterapp.shell.currentWidget.content.activeCell"
        ".model.sharedModel.setSource('print(1)')"
    )
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-cell').then(() => null)")
    box.wait_for(state="detached")
    close(page)


def test_progress_shows_in_menu_launcher_and_file_browser(page):
    bring_to_front(page, PI)
    page.evaluate(RUN, "imports")
    page.evaluate(INSERT, f"{RIGHT}\ncheck.pi_array(pi_array)")
    page.get_by_text("pi_array is right").first.wait_for()
    page.wait_for_timeout(1000)
    page.locator(".lm-MenuBar-item", has_text="From π to ZeRO").click()
    page.locator(".lm-Menu-item", has_text="1 · π and MPI").click()
    page.get_by_text("01 · Monte Carlo π, 45 min, 1 of 3 blanks right").wait_for()
    screenshot(page, "progress_menu")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.evaluate("window.jupyterapp.commands.execute('launcher:create').then(() => null)")
    page.get_by_role("tab", name="Launcher").last.click()
    page.locator(".jp-LauncherCard", has_text="2 · Data parallelism: 0 of 8 done").wait_for()
    screenshot(page, "progress_launcher")
    page.locator(".jp-DirListing-itemText", has_text="Lab 1 · π on four ranks").or_(
        page.locator(".jp-DirListing-itemText", has_text="01 · Monte Carlo π")
    ).first.wait_for()
    bring_to_front(page, PI)
    close(page)


def test_a_diagram_follows_the_theme(page):
    def sources():
        return page.eval_on_selector_all(
            ".jp-RenderedMermaid img", "all => all.map(image => image.src)"
        )

    page.locator(".jp-RenderedMermaid img").first.wait_for()
    before = sources()
    change = "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})"
    page.evaluate(change, "JupyterLab Dark")
    page.wait_for_function(
        "src => document.querySelector('.jp-RenderedMermaid img').src !== src", arg=before[0]
    )
    screenshot(page, "dark")
    page.evaluate(change, "JupyterLab Light")
    page.wait_for_timeout(1000)
    assert sources() == before or len(sources()) == len(before)


@pytest.mark.parametrize("width", [1024])
def test_an_explorer_follows_the_finger_and_survives_a_reload(page, width):
    page.set_viewport_size({"width": width, "height": 1000})
    name = "notebooks/09_zero"
    open_notebook(page, name)
    page.evaluate(
        INSERT, "from pi2zero.widgets import ZeroExplorer\nexplorer = ZeroExplorer()\nexplorer"
    )
    wait_until_run(page, 60)
    page.evaluate(SCROLL_TO_END)
    cells = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
    cells.locator("b", has_text="64 x 32 GB at stage 1").wait_for()
    third = cells.get_by_role("button", name="3", exact=True)
    label = cells.locator(".widget-toggle-buttons .widget-label", has_text="stage").bounding_box()
    assert abs(label["y"] - third.bounding_box()["y"]) < 15, "the label is left of its buttons"
    third.click()
    cells.locator("b", has_text="64 x 32 GB at stage 3").wait_for()
    screenshot(page, f"explorer_{width}")
    slider = cells.locator(".widget-hslider, .jupyter-widget-hslider", has_text="ranks")
    box = slider.locator(".noUi-handle").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + box["height"] / 2, steps=5)
    moved = slider.locator(".widget-readout")
    page.wait_for_function("readout => readout.textContent !== '64'", arg=moved.element_handle())
    ranks = f"{int(moved.text_content()):,}"
    cells.locator("b", has_text=f"{ranks} x 32 GB at stage 3").wait_for()  # before it is let go
    page.mouse.up()
    screenshot(page, f"explorer_moved_{width}")
    reload(page, name)  # it was saved when the explorer was shown, and not since
    page.evaluate(SCROLL_TO_END)
    cells.locator("b", has_text=f"{ranks} x 32 GB at stage 3").wait_for()
    assert slider.locator(".widget-readout").text_content() == str(int(ranks.replace(",", "")))
    screenshot(page, f"explorer_reloaded_{width}")
    assert page.evaluate(KERNEL) == "idle"
    close(page)
