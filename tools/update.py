#!/usr/bin/env python
"""`make update`: takes the corrections that the clone's origin has, and keeps every line that you have written.

A file that you did not touch becomes the new one. In a notebook that you edited, each cell does: one that only you changed stays
yours, one that only the correction changed becomes new, and where both did, yours stays and the corrected cell comes below it.
In another text file the changes are merged line by line; where that cannot be done, yours stays and the new file lies beside it,
as NAME.corrected. What you had edited is copied to build/before_update first. Nothing is committed and git need not be known.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTE = "**A correction.** The cell above is yours, and stays. The cell below is the corrected one."


class CannotUpdate(Exception):
    """Why nothing was changed, and what to do."""


def git(folder, *words, why=None):
    """What git prints, as bytes. With `why`: CannotUpdate with these words if it fails; without: None."""
    done = subprocess.run(
        ["git", *words],
        cwd=folder,
        capture_output=True,
        env=os.environ | {"GIT_TERMINAL_PROMPT": "0"},
    )
    if done.returncode == 0:
        return done.stdout
    if why:
        said = (done.stderr.decode(errors="replace").strip().splitlines() or ["nothing"])[-1]
        raise CannotUpdate(f"{why} Nothing was changed. (git says: {said})")
    return None


def update(folder):
    """Bring the clone to what its origin has. A list of (path, what happened to it); empty: there was nothing new."""
    if shutil.which("git") is None or git(folder, "rev-parse", "--show-prefix") != b"\n":
        raise CannotUpdate(
            f"{folder} is no clone, so it has no origin to ask. Get the kit again, into another folder."
        )
    if git(folder, "rev-parse", "--verify", "-q", "@{u}") is None:
        raise CannotUpdate(
            "This clone follows no branch of an origin. Try: git branch --set-upstream-to=origin/main"
        )
    git(
        folder,
        "fetch",
        "-q",
        why="The corrections could not be fetched: is there a network? Ask, and try again.",
    )
    if git(folder, "merge-base", "--is-ancestor", "HEAD", "@{u}") is None:
        raise CannotUpdate("This clone has commits of its own. Whoever made them merges: git pull")
    listed = (
        git(folder, "diff", "-z", "--name-only", "--no-renames", "HEAD", "@{u}")
        .decode()
        .split("\0")
    )
    versions = {
        path: [git(folder, "show", f"{tree}:{path}") for tree in ("HEAD", "@{u}")]
        for path in listed
        if path
    }
    plan = [(path, *decide(folder, path, old, new)) for path, (old, new) in versions.items()]
    save(folder, [path for path, _, kept in plan if kept])
    for path, files, _ in plan:
        for name, content in files.items():
            write(folder / name, content, executable(folder, path))
    git(
        folder,
        "reset",
        "-q",
        "@{u}",
        why="The files are new, but git could not note it: run make update again.",
    )
    return [(path, said(files, path, kept)) for path, files, kept in plan]


def decide(folder, path, old, new):
    """({name: new content or None}, whether the attendee had edited it) of one file that was `old` and is to be `new`."""
    file = folder / path
    mine = file.read_bytes() if file.is_file() else None
    if mine in (old, None):
        return {path: new}, False
    if mine == new:
        return {}, False
    if new is None:
        return {}, True
    together = None
    if old is not None:
        together = (
            merged_notebook(mine, old, new)
            if path.endswith(".ipynb")
            else merged_lines(mine, old, new)
        )
    return ({path: together} if together is not None else {beside(folder, path, new): new}), True


def beside(folder, path, new):
    """Where a new file lies whose place is taken: notebooks/x.corrected.ipynb, or with a number if that is taken, too."""
    for number in ["", *range(2, 100)]:
        name = str(Path(path).with_name(f"{Path(path).stem}.corrected{number}{Path(path).suffix}"))
        if not (folder / name).exists() or (folder / name).read_bytes() == new:
            return name
    raise CannotUpdate(
        f"{path}: a hundred corrections lie beside it. Move those that you have read. Nothing was changed."
    )


def merged_lines(mine, old, new):
    """Both changes of a text, or None where they meet in one place."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("mine", mine), ("old", old), ("new", new)):
            Path(folder, name).write_bytes(content)
        return git(folder, "merge-file", "-p", "-q", "mine", "old", "new")


def merged_notebook(mine, old, new):
    """The new notebook with all that is the attendee's, or None if one of them is no notebook whose cells have ids."""
    try:
        return _merged_notebook(mine, old, new)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ):  # JSON of any other shape
        return None


def _merged_notebook(mine, old, new):
    mine, old, new = (json.loads(text) for text in (mine, old, new))
    mine_by, old_by, new_by = (
        {cell["id"]: cell for cell in book["cells"]} for book in (mine, old, new)
    )
    if any(
        len(by) != len(book["cells"])
        for by, book in ((mine_by, mine), (old_by, old), (new_by, new))
    ):
        return None
    cells = []
    for cell in new["cells"]:
        cells += merged_cell(mine_by.get(cell["id"]), old_by.get(cell["id"]), cell, mine_by)
    put_back(cells, mine["cells"], old_by, new_by)
    return (json.dumps(new | {"cells": cells}, indent=1, ensure_ascii=False) + "\n").encode()


def merged_cell(mine, old, new, all_mine):
    """What becomes of one cell of the new notebook: a list of cells."""
    text = {"mine": source(mine), "old": source(old), "new": source(new)}
    if mine is None:
        return (
            [new] if text["old"] != text["new"] else []
        )  # taken out by the attendee: it comes back if it was corrected
    if text["old"] == text["new"] or text["mine"] == text["new"]:
        return [mine | {"metadata": new["metadata"]}]  # with the outputs that are there
    if text["mine"] == text["old"]:
        return [new]
    name = new["id"][:50]
    below = all_mine.get(f"{name}-corrected")  # of an earlier correction; put_back brings it
    if below is not None and source(below) in (text["old"], text["new"]):
        below |= new | {"id": below["id"]}
        return [mine]
    note = {"cell_type": "markdown", "id": f"{name}-note", "metadata": {}, "source": NOTE}
    return [mine, *unused([note, new | {"id": f"{name}-corrected"}], all_mine)]


def unused(cells, taken):
    """The cells, under ids that nobody has."""
    for cell in cells:
        number = 2
        while cell["id"] in taken:
            cell["id"], number = f"{cell['id'].rstrip('0123456789')}{number}", number + 1
    return cells


def put_back(cells, mine, old_by, new_by):
    """Cells that only the attendee has, own ones and edited ones that are gone now, each after the one that it stood after."""
    before = None
    for cell in mine:
        gone = cell["id"] not in new_by and cell["id"] in old_by
        if cell["id"] not in new_by and not (gone and source(cell) == source(old_by[cell["id"]])):
            place = next((i for i, other in enumerate(cells) if other["id"] == before), -1)
            cells.insert(place + 1, cell)
        if any(other["id"] == cell["id"] for other in cells):
            before = cell["id"]


def source(cell):
    return None if cell is None else "".join(cell["source"])


def save(folder, paths):
    """Copies of what the attendee has edited, under the time of now."""
    copies = folder / "build" / "before_update" / time.strftime("%Y-%m-%d_%H.%M.%S")
    for path in paths:
        copy = copies / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / path, copy)


def write(path, content, program):
    """All of it or nothing: whoever reads meanwhile sees the old file or the new one."""
    if content is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(content)
    part.chmod(part.stat().st_mode | 0o100 * program)
    part.replace(path)


def executable(folder, path):
    return (git(folder, "ls-tree", "@{u}", "--", path) or b"").startswith(b"100755")


def said(files, path, kept):
    if not kept:
        return "new" if files else "was new already"
    if not files:
        return "gone in the correction; yours stays"
    return (
        "your changes and the correction, together"
        if path in files
        else f"yours stays; the new one is {next(iter(files))}"
    )


def main(folder=ROOT):
    try:
        changed = update(folder)
    except CannotUpdate as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(
            f"A file could not be written ({error}). What you wrote is as it was. Mend it, then run make update again."
        )
    for path, what in changed:
        print(f"{path}: {what}")
    if any(path.startswith("requirements") for path, _ in changed):
        print("Packages have changed: end JupyterLab, then run make lab.")
    if any(path.endswith(".ipynb") for path, _ in changed):
        print("In JupyterLab: a notebook that is open wants File > Reload Notebook from Disk.")
    print(f"{len(changed)} files were corrected." if changed else "Nothing new.")


if __name__ == "__main__":
    main()
