"""Finished parts in the user's cache folder, so that the next clone has them in seconds.

An entry is a folder `<key>` with its files and manifest.json, which lists what they were made of and their checksums. It
appears whole or not at all: written under another name, brought to the disk, then renamed. What does not agree with its manifest
is removed.
"""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

MANIFEST = "manifest.json"


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/pi2zero, else ~/.cache/pi2zero."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "pi2zero"


def take(part) -> list[Path]:
    """The files of a part, made of just what it would be made of now; [] if there are none, or something is wrong with them."""
    entry = cache_folder() / part.key()
    if not entry.is_dir() or not is_private(entry):
        return []
    try:
        manifest = json.loads((entry / MANIFEST).read_text())
        files = {path.name: checksum(path) for path in entry.iterdir() if path.name != MANIFEST}
        good = manifest == {"made_of": part.made_of(), "files": files} and files
    except (OSError, ValueError):
        good = False
    if not good:
        shutil.rmtree(entry, ignore_errors=True)
        return []
    return [entry / name for name in sorted(files)]


def keep(part, files: list[Path]) -> None:
    """Store the files of a part. A full disk or a folder that cannot be written is no reason to fail: nothing is stored."""
    entry = cache_folder() / part.key()
    with contextlib.suppress(OSError):
        entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        forget_killed(entry.parent)
        with tempfile.TemporaryDirectory(
            prefix=".new-", dir=entry.parent, ignore_cleanup_errors=True
        ) as made:
            new = Path(made) / entry.name
            new.mkdir(mode=0o700)
            for file in files:
                shutil.copyfile(file, new / file.name)
            sums = {file.name: checksum(new / file.name) for file in files}
            (new / MANIFEST).write_text(
                json.dumps({"made_of": part.made_of(), "files": sums}, indent=1)
            )
            for path in (*new.iterdir(), new):
                to_disk(path)
            drop(part)
            new.rename(entry)  # fails if another environment was quicker: as good
            to_disk(entry.parent)


def forget_killed(cache: Path) -> None:
    """Remove what those have left who were killed while they wrote."""
    for rest in cache.glob(".new-*"):
        if time.time() - rest.stat().st_mtime > 3600:
            shutil.rmtree(rest, ignore_errors=True)


def drop(part) -> None:
    """Forget a part, if it is stored."""
    shutil.rmtree(cache_folder() / part.key(), ignore_errors=True)


def is_private(entry: Path) -> bool:
    """Whether only this user can have written it: programs will load what is in it."""
    return all(
        path.stat().st_uid == os.getuid() and not path.stat().st_mode & 0o022
        for path in (entry, entry.parent)
    )


def checksum(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def to_disk(path: Path) -> None:
    """Return when a file, or the list of a folder, is on the disk and no longer in memory alone."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
