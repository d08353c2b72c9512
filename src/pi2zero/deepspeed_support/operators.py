"""What torch compiles when it is first loaded, without the wait that a killed compiler leaves.

On CPUs DeepSpeed's operators are there already (`pi2zero.native_build`); with a GPU, offload
compiles its Adam in the first cell that uses it. torch.utils.cpp_extension marks a build with a
file `lock`. A process that is killed meanwhile leaves it, and then everybody who loads that
operator waits forever. A living compiler keeps the file open, so a lock that no process has open is
stale. This host sees its own processes alone: each host has a folder of its own, also because
operators are compiled for its processor.
"""

import contextlib
import hashlib
import os
import socket
import sys
import time
from pathlib import Path

import psutil

from pi2zero.mpi import mpi_settings

SHARED_LOCK_AGE = 3600.0  # s; where other hosts may compile, an older lock counts as stale

__all__ = ["drop_stale_locks", "use_folder"]


def use_folder() -> None:
    """Keep operators inside the environment, unless TORCH_EXTENSIONS_DIR says where.

    Call it before DeepSpeed is imported. If the environment may not be written, as in a room whose
    people share one: in the home folder, under the environment's own name. (torch's default folder
    is shared by all environments, which would compile anew at each change of use.)
    """
    mpi_settings()  # the environment's own ninja comes first: another version would compile anew
    folder = Path(sys.prefix) / "torch_extensions"
    if not os.access(sys.prefix, os.W_OK):
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        environment = hashlib.sha1(sys.prefix.encode(), usedforsecurity=False).hexdigest()[:8]
        folder = cache / "pi2zero" / f"extensions-{environment}"
    given = os.environ.get("TORCH_EXTENSIONS_DIR")
    if not given or Path(given).parent == folder:  # handed over from another host
        os.environ["TORCH_EXTENSIONS_DIR"] = str(folder / socket.gethostname())


def drop_stale_locks() -> list[Path]:
    """Remove the locks in torch's folder of extensions that no process has open; returns them."""
    folder = Path(os.environ["TORCH_EXTENSIONS_DIR"]).resolve()  # use_folder has set it
    age = 0.0 if folder.name == socket.gethostname() else SHARED_LOCK_AGE
    locks = [lock.resolve() for lock in folder.glob("*/lock")]
    # No link leads out of the folder.
    made = {lock: made_at(lock) for lock in locks if lock.parent.parent == folder}
    old = {lock for lock in made if made[lock] <= time.time_ns() - age * 1e9}
    unused = old - open_files() if old else set()
    # Looking took a moment: a lock that was made meanwhile at the same place is in use.
    stale = [lock for lock in sorted(unused) if made[lock] and made_at(lock) == made[lock]]
    for lock in stale:
        lock.unlink(missing_ok=True)
    return stale


def made_at(lock: Path) -> int:
    """When the file was made, in ns; 0 if it is not there."""
    with contextlib.suppress(OSError):
        return lock.stat().st_mtime_ns
    return 0


def open_files() -> set[Path]:
    """The files that processes of this user have open."""
    files = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            files |= {Path(file.path) for file in process.open_files()}
    return files
