"""What torch compiles when it is first loaded, without the wait that a killed compiler leaves behind.

On CPUs DeepSpeed's operators are there already (`pi2zero.native_build`); with a GPU, offload compiles its Adam in the first cell that
uses it.

torch.utils.cpp_extension marks a build with a file `lock`, also when all is compiled already. Who is killed meanwhile leaves it,
and everybody who loads that operator afterwards waits for ever. It keeps the file open: so a lock that nobody has open is stale.
(On this host. A compiler on another host that shares the home folder is not seen.)
"""

import contextlib
import hashlib
import os
import sys
from pathlib import Path

import psutil

from pi2zero.mpi import mpi_settings

__all__ = ["drop_stale_locks", "use_folder"]


def use_folder() -> None:
    """Keep operators inside the environment, unless TORCH_EXTENSIONS_DIR says where. Before DeepSpeed is imported.

    Where that may not be written, as in a room whose people share one: in the home folder, under a name of its own. Where torch
    keeps them otherwise, two environments would compile them anew at each change of use. So would two versions of ninja:
    mpi_settings puts the environment's own first.
    """
    mpi_settings()
    folder = Path(sys.prefix) / "torch_extensions"
    if not os.access(sys.prefix, os.W_OK):
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        environment = hashlib.sha1(sys.prefix.encode(), usedforsecurity=False).hexdigest()[:8]
        folder = cache / "pi2zero" / f"extensions-{environment}"
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(folder))


def drop_stale_locks() -> list[Path]:
    """Remove the locks in torch's folder of extensions that no process of this host has open. Returns them."""
    folder = Path(os.environ["TORCH_EXTENSIONS_DIR"])  # use_folder has set it
    locks = [lock.resolve() for lock in folder.glob("*/lock")]
    before = {
        lock: made(lock) for lock in locks if lock.parent.parent == folder.resolve()
    }  # no link leads out of it
    unused = set(before) - (open_files() if before else set())
    # Looking took a moment. A lock that was made meanwhile, at the same place, is somebody's.
    stale = [lock for lock in sorted(unused) if before[lock] and made(lock) == before[lock]]
    for lock in stale:
        lock.unlink(missing_ok=True)
    return stale


def made(lock: Path) -> int:
    """When the file was made, in ns; 0 if it is not there."""
    with contextlib.suppress(OSError):
        return lock.stat().st_mtime_ns
    return 0


def open_files() -> set[Path]:
    """The files that processes of this user have open."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found |= {Path(file.path) for file in process.open_files()}
    return found
