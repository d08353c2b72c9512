"""A person's own copy of the notebooks, where the kit itself is somebody else's: a room's server, a read-only container."""

from pathlib import Path

import update

ROOT = Path(__file__).resolve().parents[1]
PARTS = (
    "notebooks",
    "labs",
    "solutions",
    "scripts",
    "data",
)  # they find each other by relative paths
NOT = ("__pycache__", ".ipynb_checkpoints")
ORIGINALS = ".originals"  # in the copy: each file as the kit had it, so that a correction can be told from the person's own work


def own_copy(folder: Path) -> Path:
    """Copy the notebooks and what they read there. Nobody's work is overwritten: corrections arrive as by `make update`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for source in (path for part in PARTS for path in (ROOT / part).rglob("*") if path.is_file()):
        if not set(NOT) & set(source.parts):
            try:
                bring(folder, source, str(source.relative_to(ROOT)))
            except (
                OSError
            ) as error:  # a full disk must not keep the person from the notebooks that are there
                print(f"{source.relative_to(ROOT)} is not brought up to date: {error}")
    return folder


def bring(folder, source, name):
    """One file: copied if it is missing, merged if the kit has corrected it."""
    new, original = source.read_bytes(), folder / ORIGINALS / name
    old = original.read_bytes() if original.exists() else None
    if old == new and (folder / name).exists():
        return
    if old is None and (folder / name).exists() and (folder / name).read_bytes() != new:
        return  # a copy from before there were originals: what is the person's cannot be told
    files, edited = update.decide(folder, name, old, new)
    update.save(folder, [name] * edited)
    for path, content in files.items():
        update.write(folder / path, content, program=bool(source.stat().st_mode & 0o100))
    update.write(original, new, program=False)
