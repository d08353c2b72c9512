"""A newcomer's first hour in JupyterLab, careless acts included: each ends in seconds and in words.

Cells are typed and run by the keyboard, in a notebook of the newcomer's own. Pictures of what was
seen lie in build/screens/newcomer_*.png.
"""

import time

import pytest

from .conftest import wait_until_open
from .test_lab import KERNEL, close, screenshot

NEW_NOTEBOOK = """async () => {
    const app = window.jupyterapp;
    const model = await app.commands.execute('docmanager:new-untitled', {type: 'notebook'});
    await app.commands.execute('docmanager:open', {path: model.path, kernel: {name: 'python3'}});
    return model.path;
}"""
LAST = """() => {
    const cells = window.jupyterapp.shell.currentWidget.content.widgets;
    const ran = cells.filter(w => w.model.type === 'code' && w.model.sharedModel.source);
    return ran[ran.length - 1].outputArea.node.innerText;
}"""
RESTART = "window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()"
STOP = "window.jupyterapp.commands.execute('notebook:interrupt-kernel') && null"
ALONE = "%%px --timeout 4\nif comm.rank:\n    comm.Barrier()"


class Newcomer:
    """Types cells into a notebook and reads what is below them."""

    def __init__(self, page):
        self.page, self.pictures = page, 0
        path = page.evaluate(NEW_NOTEBOOK)
        wait_until_open(page, path.removesuffix(".ipynb"))

    def type(self, cell):
        self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell .cm-content").last.click()
        self.page.keyboard.insert_text(cell)
        self.page.keyboard.press("Shift+Enter")

    def run(self, cell, seconds=60):
        """What is shown below the cell, once it has ended."""
        self.type(cell)
        return self.read(seconds)

    def read(self, seconds=60):
        deadline = time.monotonic() + seconds
        self.page.wait_for_timeout(200)
        while self.page.evaluate(KERNEL) != "idle":
            assert time.monotonic() < deadline, f"not ended after {seconds} s"
            self.page.wait_for_timeout(200)
        self.page.wait_for_timeout(300)  # the last output may still be on its way
        self.pictures += 1
        screenshot(self.page, f"newcomer_{self.pictures:02}")
        return self.page.evaluate(LAST)

    def press_stop(self):
        self.page.evaluate(
            "window.jupyterapp.commands.execute('notebook:interrupt-kernel') && null"
        )


@pytest.fixture
def newcomer(page):
    yield Newcomer(page)
    close(page)


def test_a_first_hour_with_careless_acts(newcomer):
    said = newcomer.run("%%px\nprint('hello')")
    assert "pi2zero.start" in said and "not found" not in said, said
    newcomer.run("import pi2zero\ncluster = pi2zero.start(n=4)")
    said = newcomer.run("%%px\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\nprint(comm.rank)")
    assert all(f"[stdout:{rank}] {rank}" in said.replace("\xa0", " ") for rank in range(4)), said
    said = newcomer.run("print(comm.rank)")
    assert "NameError" in said and "%%px" in said, said
    said = newcomer.run("%%px\nprnt(comm.rank)")
    assert "NameError" in said and said.count("NameError: name 'prnt'") == 1, said
    newcomer.run("def here():\n    return 1")
    said = newcomer.run("%%px\nhere()")
    assert "is defined in this notebook" in said, said
    newcomer.type("%%px\nwhile True:\n    pass")
    newcomer.page.wait_for_timeout(4000)
    newcomer.press_stop()
    said = newcomer.read(30)
    assert "You interrupted the cell" in said and "while True" in said, said
    said = newcomer.run(ALONE, 40)
    assert "Barrier" in said and "Rank 0 had finished" in said, said
    said = newcomer.run("%%px\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\nprint(comm.size)")
    assert said.count("4") >= 4, said
    said = newcomer.run("%%px\nimport sys\nsys.exit()")
    assert said.count("To exit") == 0, said
    said = newcomer.run("%%px\nname = input('your name')")
    assert "rank" in said and "input" in said and len(said.splitlines()) < 15, said
    newcomer.page.evaluate(f"{RESTART}.then(() => null)")
    newcomer.page.wait_for_function(f"{KERNEL} === 'idle'", timeout=60_000)
    said = newcomer.run("%%px\nprint(comm.rank)")
    assert "pi2zero.start" in said and "not found" not in said, said
