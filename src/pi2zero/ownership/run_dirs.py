"""Private folders whose names say who owns them: `pi2zero-<kind>@<host>@<scope>@<pid>:<start>@...`.

Several hosts may share the temporary folder, so the host is in the name. Folders are found by their
names; in a temporary folder that cannot be listed they are in one of this user's own.
"""

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from pi2zero.ownership.process_marks import host_id, owner_is_gone, owner_mark, scope_mark
from pi2zero.ownership.shm import OWN_DIR, SHM_DIR, listable

REFRESH_INTERVAL = 3600.0  # s; cleaners remove what was not used for a day or more
ABANDONED = 30 * 86400.0  # s without a change: then a folder of another boot or host is nobody's
TMP_ON_EVERY_HOST = Path("/tmp")  # the folder that TMPDIR names may be missing on other hosts


def cache_dir() -> Path:
    """$XDG_CACHE_HOME/pi2zero, else ~/.cache/pi2zero: hosts that share the home share it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "pi2zero"


def make_run_dir(within: Path | None = None) -> Path:
    """A private folder (0700) for one cluster's files. `remove_run_dirs` removes it.

    within: SHM_DIR, TMP_ON_EVERY_HOST, cache_dir(), or by default the temporary folder.
    """
    parent = _existing(within or Path(tempfile.gettempdir()))
    return Path(tempfile.mkdtemp(prefix=_folder_name("run", owner_mark()), dir=parent))


def stop_request(run_dir: str | Path) -> Path:
    """The file of a cluster that is empty until the stop button is pressed in its notebook."""
    return Path(run_dir) / "stop-request"


def stop_answer(run_dir: str | Path, rank: int) -> Path:
    """The file in which a rank says that it is in a loop that asks, or at which step it left."""
    return Path(run_dir) / f"stop-answer-{rank}"


def is_private(path: Path) -> bool:
    """Whether it is this user's own folder, no link, and closed to all others."""
    try:
        status = path.lstat()
    except OSError:
        return False
    closed = not status.st_mode & 0o077
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and closed


def make_private_dir(path: Path) -> None:
    """Make the folder, unless it exists. Raises PermissionError if others could use it.

    In a shared folder another user may have made one of that name, or a link.
    """
    if path.parent.name == OWN_DIR:
        make_private_dir(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    if not is_private(path):
        raise PermissionError(
            f"{path} is not a private folder of this user's; somebody else may have made it. "
            "Start again."
        )


def temporary_dir(kind: str, within: Path | None = None) -> tempfile.TemporaryDirectory:
    """A private folder (0700) that is removed when this process ends.

    Also removes those of the same kind whose process was killed. within: as for `make_run_dir`.
    """
    for folder in _folders(kind):
        if owner_is_gone("/".join(folder.name.split("@")[1:])) or _is_abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)
    parent = _existing(within or Path(tempfile.gettempdir()))
    return tempfile.TemporaryDirectory(prefix=_folder_name(kind, owner_mark()), dir=parent)


def keep_fresh(folders: Iterable[Path]) -> None:
    """Set the times of all files to now: cleaners of temporary files remove what looks unused."""
    for folder in folders:
        with contextlib.suppress(OSError):  # the folder is gone
            for path in (folder, *folder.rglob("*")):
                with contextlib.suppress(OSError):  # a file is gone
                    os.utime(path, follow_symlinks=False)


def run_dirs(owner: str | None = None) -> list[Path]:
    """Run folders of this scope, or those of one owner's mark. Not those of another host."""
    return _folders("run", scope_mark() if owner is None else owner)


def remove_run_dirs(owner: str | None = None) -> None:
    """Remove the folders that `run_dirs` gives, and those that a boot long ago has left."""
    for folder in (*run_dirs(owner), *filter(_is_abandoned, _folders("run"))):
        shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    """Whether it is none of this boot's, and old. (What is in use looks fresh: `keep_fresh`.)"""
    with contextlib.suppress(OSError):  # removed meanwhile
        age = time.time() - folder.lstat().st_mtime
        return age > ABANDONED and folder.name.split("@")[1] != host_id()
    return False


def _folders(kind: str, prefix: str = "") -> list[Path]:
    folders = []
    parents = {*map(listable, (Path(tempfile.gettempdir()), SHM_DIR, TMP_ON_EVERY_HOST))}
    with contextlib.suppress(RuntimeError):  # a user without a home
        parents.add(cache_dir())
    for parent in parents:
        with contextlib.suppress(OSError):  # the parent cannot be read
            for folder in parent.glob(f"{_folder_name(kind, prefix)}*"):
                with contextlib.suppress(OSError):  # removed meanwhile
                    if folder.lstat().st_uid == os.getuid():
                        folders.append(folder)
    return folders


def _existing(parent: Path) -> Path:
    """Where to make a folder that can be found again."""
    if (parent := listable(parent)).name == OWN_DIR:
        make_private_dir(parent)
    return parent


def _folder_name(kind: str, mark: str) -> str:
    return f"pi2zero-{kind}@{mark.replace('/', '@')}"
