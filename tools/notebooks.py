#!/usr/bin/env python
"""Run notebooks top to bottom on a fresh kernel each, and write their outputs in place.

  python tools/notebooks.py                             all of notebooks/
  python tools/notebooks.py notebooks/02_mpi_pi.ipynb   this one; --only-run writes nothing

What changes with every run without meaning (times of execution, versions) is left out, so that a
diff shows what changed. If a cell fails, the file stays as it was, and the message names the cell.
"""

import argparse
import json
import re
import socket
import sys
import tempfile
import time
from pathlib import Path

import nbformat
import needs
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

ROOT = Path(__file__).resolve().parent.parent
# As JupyterLab would write it, by the kernel's name: opening a notebook does not change it.
METADATA = {
    "python3": {
        "kernelspec": {
            "display_name": "Python 3 (ipykernel)",
            "language": "python",
            "name": "python3",
        },
        "language_info": {
            "codemirror_mode": {"name": "ipython", "version": 3},
            "file_extension": ".py",
            "mimetype": "text/x-python",
            "name": "python",
            "nbconvert_exporter": "python",
            "pygments_lexer": "ipython3",
            "version": "3",  # course/ipython_config.py
        },
    },
    "ir": {
        "kernelspec": {"display_name": "R", "language": "R", "name": "ir"},
        "language_info": {"name": "R"},
    },
}


SVG = "image/svg+xml"
# Sent to a kernel before the first cell: draw pictures as vectors, too. Text in them stays text.
VECTORS = {
    "python3": "get_ipython().config.InlineBackend.update(figure_formats={'png', 'svg'}, "
    "rc={'svg.fonttype': 'none', 'svg.hashsalt': 'pi2zero'})",
    "ir": "options(jupyter.plot_mimetypes = c('text/plain', 'image/png', 'image/svg+xml'))",
}
PREDICT = re.compile(
    r"(?<!see )\*\*Predict"
)  # notebook 00 explains what to do where you "see **Predict**"
SOLUTION = "blank-solution"  # the tag of the kit's answer to a blank
THIS_HOST = "this-host"  # what this machine is called in stored outputs
MAX_LINES = 40  # of text; JupyterLab and the site fold longer outputs
OF_LEARNERS = {"blank", "blank-check", SOLUTION, "guess"}


class NotebookError(Exception):
    """A notebook did not run to its end. The message names the notebook, the cell and the error."""


def run(path, timeout, store=True):
    """Run one notebook in its own folder; what came of it. timeout: s for one cell."""
    book = nbformat.read(path, as_version=4)
    if why := needs.why_not(book):
        return f"skipped: {why}"
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as sockets:
        client = Client(
            book,
            kernel_name=kernel_of(book),
            timeout=timeout,
            resources={"metadata": {"path": str(path.parent)}},
        )
        client.sockets = sockets
        client.record_timing = False
        client.coalesce_streams = True
        try:
            client.execute()
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            raise NotebookError(describe_failure(path, client, error)) from None
    if store:
        keep_vectors(book, in_decks(path))
        clean(book)
        nbformat.write(book, path)
    return f"{time.monotonic() - start:.0f} s"


class Client(NotebookClient):
    """Remembers which cell runs. Its sockets are in a private folder: ports are open to all."""

    current = 0
    sockets = ""

    def create_kernel_manager(self):
        manager = super().create_kernel_manager()
        manager.transport, manager.ip = "ipc", f"{self.sockets}/kernel"
        return manager

    async def async_start_new_kernel_client(self, **options):
        client = await super().async_start_new_kernel_client(**options)
        if code := VECTORS.get(self.kernel_name):
            await client.execute(code, silent=True, reply=True, timeout=60)
        return client

    async def async_execute_cell(self, cell, cell_index, **options):
        self.current = cell_index
        return await super().async_execute_cell(cell, cell_index, **options)


def describe_failure(path, client, error):
    where = f"{path.name}: cell {client.current + 1} of {len(client.nb.cells)} failed"
    if isinstance(error, CellExecutionError):
        return f"{where}: {error.ename}: {error.evalue}\n{error.traceback}"
    what = (
        "its kernel died"
        if isinstance(error, DeadKernelError)
        else f"it ran for more than {client.timeout} s (--timeout)"
    )
    return f"{where}: {what}\n{client.nb.cells[client.current].source}"


def kernel_of(book):
    return book.metadata.get("kernelspec", {}).get("name", "python3")


def in_decks(path):
    """Ids and tags of this notebook's cells whose pictures the decks show."""
    name = re.escape(f"{path.parent.name}/{path.name}")
    decks = "".join(deck.read_text(encoding="utf-8") for deck in ROOT.glob("slides/*/deck.md"))
    return set(re.findall(rf"\(picture:{name}#([\w-]+)\)", decks))


def keep_vectors(book, shown):
    """Keep the SVG of pictures that a deck shows; others would only make the notebook larger."""
    for cell in book.cells:
        wanted = shown & {cell.get("id"), *cell.metadata.get("tags", [])}
        for output in cell.get("outputs", []):
            if {SVG, "image/png"} <= output.get("data", {}).keys():
                svg = output.data.pop(SVG)
                if wanted:  # without the time at which it was drawn
                    output.data[SVG] = re.sub(
                        r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL
                    )


def clean(book):
    """Remove what differs on every machine and at every run: paths, host names, times."""
    kept = {key: book.metadata[key] for key in ("needs",) if key in book.metadata}
    book.metadata = nbformat.from_dict(METADATA[kernel_of(book)] | kept)
    for cell in book.cells:
        if is_of_learner(cell):  # what is stored would contradict what the learner does
            cell.outputs, cell.execution_count = [], None
        if cell.get("outputs"):
            cell.outputs = [
                nbformat.from_dict(nameless(o))
                for o in json.loads(json.dumps(cell.outputs).replace(f"{ROOT}/", ""))
            ]
        kept = {key: cell.metadata[key] for key in ("tags", "slideshow") if cell.metadata.get(key)}
        if SOLUTION in kept.get("tags", []):
            kept["jupyter"] = {"source_hidden": True}
        cell.metadata = nbformat.from_dict(kept)
    fold(book)


def is_of_learner(cell) -> bool:
    """Whether what a cell says depends on what the learner has written. nbval runs it, and
    compares nothing."""
    return bool(OF_LEARNERS & set(cell.metadata.get("tags", []))) or cell.source == "blanks_left()"


def nameless(output, host=None):
    """An output whose text calls this machine THIS_HOST, and the home "~"."""
    name = re.compile(named(host or socket.gethostname()))
    output = json.loads(json.dumps(output).replace(f"{Path.home()}/", "~/"))
    for holder, key in ((output, "text"), (output.get("data", {}), "text/plain")):
        if key in holder:
            holder[key] = name.sub(THIS_HOST, holder[key])
    return output


def named(host):
    """A regular expression for a host's name as a word."""
    return rf"(?<![\w.-]){re.escape(host)}(?![\w-])"


def fold(book):
    """Mark outputs that are shown only when the learner has run their cells, and long ones."""
    for cell in book.cells:
        cell.metadata.pop("scrolled", None)
        if is_long(cell):
            cell.metadata["scrolled"] = True
        cell.metadata.get("jupyter", {}).pop("outputs_hidden", None)
        if not cell.metadata.get("jupyter", True):
            del cell.metadata["jupyter"]
    for cell in to_fold(book):
        cell.metadata.setdefault("jupyter", {})["outputs_hidden"] = True


def is_long(cell) -> bool:
    """Whether its output has more than MAX_LINES lines of text."""
    texts = [
        output.get("text", "") or "\n".join(output.get("traceback", []))
        for output in cell.get("outputs", [])
    ]
    return sum(len(text.splitlines()) for text in texts) > MAX_LINES


def to_fold(book):
    """The code cells whose output answers a **Predict**, until the next text.

    JupyterLab unfolds it when the learner has run the cell. Blanks and guesses are not folded.
    """
    asked, found = False, []
    for cell in book.cells:
        if cell.cell_type == "markdown":
            asked = bool(PREDICT.search(cell.source)) or (asked and not found)
            found = []
        elif asked and cell.get("outputs") and not OF_LEARNERS & set(cell.metadata.get("tags", [])):
            found.append(cell)
            yield cell


def notebooks(given):
    """The paths to run, in order. Raises NotebookError for one that is not there."""
    paths = [Path(name).resolve() for name in given] or sorted((ROOT / "notebooks").glob("*.ipynb"))
    for path in paths:
        if path.suffix != ".ipynb" or not path.is_file():
            raise NotebookError(
                f"{path}: no such notebook. Give the path of an .ipynb file, or nothing to run all."
            )
    return paths


def main():
    description, ways = __doc__.split("\n\n", 1)
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        description=description, epilog=ways, formatter_class=formatter
    )
    parser.add_argument(
        "notebook", nargs="*", help="path of a notebook (default: all of notebooks/)"
    )
    parser.add_argument(
        "--timeout", type=int, default=300, help="seconds for one cell (default: 300)"
    )
    parser.add_argument("--only-run", action="store_true", help="write nothing")
    parser.add_argument(
        "--fold",
        action="store_true",
        help="run nothing; only fold the outputs that answer a **Predict**",
    )
    options = parser.parse_args()
    try:
        for path in notebooks(options.notebook):
            if options.fold:
                book = nbformat.read(path, as_version=4)
                fold(book)
                nbformat.write(book, path)
                continue
            print(f"{path.name} ...", end=" ", flush=True)
            print(run(path, options.timeout, not options.only_run), flush=True)
    except NotebookError as error:
        print(error, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
