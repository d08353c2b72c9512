"""A film of two minutes at most, as a learner sees JupyterLab: `make screencast` stores it.

Each scene is one cell, typed, run and read, with a caption below. Frames are taken when the screen
has changed; waiting is shown for WAIT ms at most, so the film is shorter than what it shows.
"""

import io
import os
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image, ImageChops

from .conftest import PATIENCE, open_lab, wait_until_open
from .test_lab import KERNEL, close
from .test_newcomer import LAST, NEW_NOTEBOOK

ROOT = Path(__file__).parents[2]
FILM = Path(os.environ.get("PI2ZERO_SCREENCAST", ROOT / "build" / "screens" / "screencast.gif"))
LARGEST, LONGEST = 4_000_000, 120_000  # bytes, ms
WIDTH, HEIGHT, SCALE = 760, 560, 1.4  # letters of 20 px, which a phone shows half as large
TYPE, WAIT = 90, 2500  # ms of a frame while a cell is typed; at most, until its output changes
READ = 60  # ms for each letter of an output that is new
# Nothing but the notebook and a caption
STYLE = """
:root, body, [data-jp-theme-light] { --jp-code-font-size: 20px !important;
  --jp-content-font-size1: 20px !important; --jp-code-line-height: 1.3 !important;
  --jp-layout-color2: white !important; --jp-layout-color3: white !important }
#jp-top-panel, #jp-menu-panel, #jp-bottom-panel, .jp-SideBar { visibility: hidden !important }
.jp-NotebookPanel, .jp-Notebook { position: fixed !important; inset: 0 !important;
  width: auto !important; height: auto !important }
.jp-WindowedPanel-outer { padding: 6px !important }
.jp-Toolbar, .jp-cell-toolbar, .jp-Notebook-footer, .jp-Collapser, .jp-Cell ~ .jp-Cell,
.picture .jp-InputArea, .jp-InputPrompt, .jp-OutputPrompt { display: none !important }
.jp-RenderedText pre { word-break: normal !important; overflow-wrap: anywhere }
.jp-RenderedSVG img { width: 600px !important }
#caption { position: fixed; left: 0; right: 0; bottom: 0; height: 92px; z-index: 99999;
  display: flex; align-items: center; padding: 0 22px; background: #17233b; color: white;
  font: 26px/1.25 "DejaVu Sans", sans-serif }
"""
CAPTION = """words => {
    let bar = document.querySelector('#caption');
    if (!bar) {
        bar = document.createElement('div'); bar.id = 'caption'; document.body.append(bar);
    }
    bar.textContent = words;
}"""
# The notebook has one cell, at the top of the page.
NEW_CELL = """() => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    notebook.model.sharedModel.transact(() => {
        const shared = notebook.model.sharedModel;
        shared.insertCell(0, {cell_type: 'code'});
        shared.deleteCellRange(1, shared.cells.length);
    });
    notebook.activeCellIndex = 0;
}"""
WRITE = "text => window.jupyterapp.shell.currentWidget.content.activeCell\
.model.sharedModel.setSource(text)"
RUN = "window.jupyterapp.commands.execute('notebook:run-cell') && null"


class Film:
    """Scenes in a notebook of their own, and the frames taken of them: [(picture, ms)]."""

    def __init__(self, page):
        self.page, self.frames = page, []
        path = page.evaluate(NEW_NOTEBOOK)
        wait_until_open(page, path.removesuffix(".ipynb"))
        page.evaluate(
            "window.jupyterapp.shell.collapseLeft(); window.jupyterapp.shell.mode ="
            " 'single-document'"
        )
        page.add_style_tag(content=STYLE)

    def take(self, milliseconds):
        """A frame; if nothing has changed, the last one stays on longer, WAIT ms at most."""
        picture = Image.open(io.BytesIO(self.page.screenshot(caret="hide"))).convert("RGB")
        if self.frames and not ImageChops.difference(self.frames[-1][0], picture).getbbox():
            before = self.frames[-1][1]
            self.frames[-1] = (picture, max(before, min(before + milliseconds, WAIT)))
        else:
            self.frames.append((picture, milliseconds))

    def say(self, words):
        self.page.evaluate(CAPTION, words)
        self.take(len(words) * 45)

    def show(self, picture, caption, then):
        """A picture that a notebook has stored, alone on the screen."""
        self.page.evaluate("document.body.classList.add('picture')")
        self.page.evaluate(NEW_CELL)
        self.page.evaluate(
            WRITE, f"from IPython.display import SVG\nSVG(filename={str(picture)!r})"
        )
        self.page.evaluate(RUN)
        self.finish(seen=False)
        for words in (caption, then):
            self.say(words)
            self.frames[-1] = (self.frames[-1][0], 5000)

    def scene(self, cell, caption, then=None):
        """Type a cell word by word, run it, and read. then: the caption once it has ended."""
        self.page.evaluate(NEW_CELL)
        self.say(caption)
        words = cell.split(" ")
        for count in range(1, len(words) + 1):
            self.page.evaluate(WRITE, " ".join(words[:count]))
            self.take(TYPE)
        self.page.evaluate(RUN)
        output = self.finish()
        if then:
            self.say(then)
        self.frames[-1] = (self.frames[-1][0], 1500 + min(len(output), 80) * READ)
        return output

    def finish(self, seen=True):
        """The cell's output, once the kernel is idle. seen: what is shown meanwhile is filmed."""
        self.page.wait_for_timeout(200)
        for _ in range(PATIENCE // 200):
            if seen:
                self.take(200)
            if self.page.evaluate(KERNEL) == "idle":
                break
            self.page.wait_for_timeout(200)
        self.page.wait_for_timeout(500)  # the last output may still be on its way
        if seen:
            self.take(200)
        return self.page.evaluate(LAST)

    def store(self, path):
        """Write the film as GIF, which GitHub, Sphinx and all browsers play; its length in ms."""
        path.parent.mkdir(parents=True, exist_ok=True)
        pictures, durations = zip(*self.frames, strict=True)
        width, height = pictures[0].size
        all_colours = Image.new("RGB", (width, height * len(pictures)))
        for number, picture in enumerate(pictures):
            all_colours.paste(picture, (0, number * height))
        palette = all_colours.quantize(128)
        first, *others = (
            picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures
        )
        first.save(path, save_all=True, append_images=others, duration=durations, loop=0)
        return sum(durations)


@pytest.fixture
def film(browser, lab):
    page = open_lab(browser, lab[0], WIDTH, HEIGHT, SCALE)
    wait_until_open(page, "notebooks/00_start_here")  # it would come to the front later
    close(page)
    yield Film(page)
    close(page)
    page.close()


COMM = "%%px\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\n"


@pytest.mark.nightly
def test_the_film_shows_ranks_a_hang_and_the_bytes_of_each_stage(film):
    film.say("From π to ZeRO: MPI processes in a notebook, on a laptop without a GPU")
    film.scene("import pi2zero\ncluster = pi2zero.start(n=4)", "Start four MPI ranks.")
    said = film.scene(
        COMM + "print('rank', comm.rank, 'of', comm.size)",
        "A cell that begins with %%px runs on every rank.",
    )
    assert "rank 3 of 4" in said.replace("\xa0", " ")
    said = film.scene(
        "%%px\nif comm.rank != 2:\n    comm.Barrier()",
        "A bug: rank 2 leaves out the barrier. The others wait for it forever.",
        "The kit sees the hang, ends the cell, and reports who waited where.",
    )
    assert "ranks 0, 1 and 3: cell line 2" in said.replace("\xa0", " ")
    said = film.scene(
        COMM + "print('sum', comm.allreduce(comm.rank))",
        "New ranks are ready. The notebook goes on.",
    )
    assert "sum 6" in said.replace("\xa0", " ")
    film.show(
        ROOT / "docs" / "pictures" / "zero.svg",
        "Notebook 09 trains with DeepSpeed at each ZeRO stage, and measures the memory.",
        "Higher stages shard more. You predict the bytes before you measure them.",
    )
    film.say("20 notebooks, 7 labs, slides: from π to a summarizer trained with ZeRO")
    film.frames[-1] = (film.frames[-1][0], 5000)
    length = film.store(FILM)
    print(f"{FILM}: {length / 1000:.0f} s, {FILM.stat().st_size / 1e6:.2f} MB")
    assert length < LONGEST and FILM.stat().st_size < LARGEST
    assert all(ms > 0 for _, ms in film.frames) and len(film.frames) > 40
    assert all(one[0].size == other[0].size for one, other in pairwise(film.frames))
