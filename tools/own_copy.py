"""A person's own copy of the notebooks where the kit is somebody else's: a hub, a container."""

from pathlib import Path

import update

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("notebooks", "labs", "solutions", "scripts", "data")  # they use relative paths
IGNORED = {"__pycache__", ".ipynb_checkpoints"}
ORIGINALS = ".originals"  # in the copy: each file as the kit had it, to find the person's changes


def make_own_copy(folder: Path) -> Path:
    """Copy the notebooks and what they read. Corrections arrive as with `make update`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for source in (path for part in PARTS for path in (ROOT / part).rglob("*") if path.is_file()):
        if not IGNORED & set(source.parts):
            name = str(source.relative_to(ROOT))
            try:
                copy_file(folder, source, name)
            except OSError as error:  # with a full disk, the notebooks that are there still work
                print(f"{name} is not brought up to date: {error}")
    return folder


def copy_file(folder: Path, source: Path, name: str) -> None:
    """Copy a file that is missing; merge one that the kit has corrected."""
    new, original = source.read_bytes(), folder / ORIGINALS / name
    old = original.read_bytes() if original.exists() else None
    if old == new and (folder / name).exists():
        return
    if old is None and (folder / name).exists() and (folder / name).read_bytes() != new:
        return  # an older kit wrote no originals: the person's changes cannot be found
    update.apply(folder, name, old, new, bool(source.stat().st_mode & 0o100))
    update.write(original, new, executable=False)
