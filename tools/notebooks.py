#!/usr/bin/env python
"""Run notebooks top to bottom on a fresh kernel each, and write their outputs in place.

  python tools/notebooks.py                             all of notebooks/
  python tools/notebooks.py notebooks/02_mpi_pi.ipynb   this one; with --only-run the file stays as it is

What changes from run to run without meaning (times of execution, versions in the metadata) is left out, so that a
diff shows what changed. If a cell fails, the file stays as it was, and the message names the notebook and the cell.
"""

import argparse
import json
import os
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
# By the kernel's name, as JupyterLab would write it: so a notebook that is only opened is not changed.
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
# Said to a kernel before the first cell: draw pictures as vectors, too. (Text stays text: a deck sets it in its own typeface.)
VECTORS = {
    "python3": "get_ipython().config.InlineBackend.update(figure_formats={'png', 'svg'}, "
    "rc={'svg.fonttype': 'none', 'svg.hashsalt': 'pi2zero'})",
    "ir": "options(jupyter.plot_mimetypes = c('text/plain', 'image/png', 'image/svg+xml'))",
}
PREDICT = re.compile(
    r"(?<!see )\*\*Predict"
)  # notebook 00 tells what is meant where you "see **Predict**"
SOLUTION = "blank-solution"  # the tag of the kit's answer to a blank
THIS_HOST = "this-host"  # what this machine is called in stored outputs
LONG = 40  # lines of text, beyond which JupyterLab shows an output in a box of its own, and the site folded
OF_LEARNERS = {"blank", "blank-check", SOLUTION, "guess"}


class NotebookFailed(Exception):
    """A notebook did not run to its end. The message names the notebook, the cell and the error."""


def run(path, timeout, store=True):
    """Execute one notebook in its own folder. timeout: s for one cell. store: write it back. Returns what to say of it."""
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
            raise NotebookFailed(account(path, client, error)) from None
    if store:
        keep_vectors(book, in_decks(path))
        clean(book)
        nbformat.write(book, path)
    return f"{time.monotonic() - start:.0f} s"


class Client(NotebookClient):
    """Remembers which cell runs, and talks to its kernel through sockets in a private folder, not through TCP ports."""

    current = 0
    sockets = ""

    def create_kernel_manager(self):
        manager = super().create_kernel_manager()
        manager.transport, manager.ip = "ipc", f"{self.sockets}/kernel"
        return manager

    async def async_start_new_kernel_client(self, **options):
        client = await super().async_start_new_kernel_client(**options)
        if asked := VECTORS.get(self.kernel_name):
            await client.execute(asked, silent=True, reply=True, timeout=60)
        return client

    async def async_execute_cell(self, cell, cell_index, **options):
        self.current = cell_index
        return await super().async_execute_cell(cell, cell_index, **options)


def account(path, client, error):
    """What failed, and where."""
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
    """Keep the SVG beside the PNG where a deck shows the picture; elsewhere it would only make the notebook larger."""
    for cell in book.cells:
        wanted = shown & {cell.get("id"), *cell.metadata.get("tags", [])}
        for output in cell.get("outputs", []):
            if SVG in output.get("data", {}):
                svg = output.data.pop(SVG)
                if wanted:  # without the hour at which it was drawn
                    output.data[SVG] = re.sub(
                        r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL
                    )


def clean(book):
    """Remove what is different on every machine and at every run: also where this clone lies and what this host is called."""
    kept = {key: book.metadata[key] for key in ("needs",) if key in book.metadata}
    book.metadata = nbformat.from_dict(METADATA[kernel_of(book)] | kept)
    for cell in book.cells:
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


def nameless(output, host=None):
    """An output in whose text this machine is called THIS_HOST, and the home "~"."""
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
    """Mark in the metadata which outputs are shown only when the learner has run their cells, and which are long."""
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
    """Whether its output has more lines of text than one wants to scroll past."""
    texts = [
        output.get("text", "") or "\n".join(output.get("traceback", []))
        for output in cell.get("outputs", [])
    ]
    return sum(len(text.splitlines()) for text in texts) > LONG


def to_fold(book):
    """The code cells whose output answers a **Predict**: JupyterLab unfolds it when the learner has run the cell.

    From the Predict on, the first run of code cells with an output, up to the next text. Blanks and guesses are not of it.
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
    """The paths to run, in order. Raises NotebookFailed for one that is not there."""
    paths = [Path(name).resolve() for name in given] or sorted((ROOT / "notebooks").glob("*.ipynb"))
    for path in paths:
        if path.suffix != ".ipynb" or not path.is_file():
            raise NotebookFailed(
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
    os.environ["PI2ZERO_LIVE"] = "0"  # lines for a person who watches are not stored
    try:
        for path in notebooks(options.notebook):
            if options.fold:
                book = nbformat.read(path, as_version=4)
                fold(book)
                nbformat.write(book, path)
                continue
            print(f"{path.name} ...", end=" ", flush=True)
            print(run(path, options.timeout, not options.only_run), flush=True)
    except NotebookFailed as error:
        print(error, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
