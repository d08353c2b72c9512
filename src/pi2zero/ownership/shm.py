"""Shared memory that MPI's ranks leave behind."""

import contextlib
import os
import socket
import tempfile
import time
from pathlib import Path

import psutil

OWN_DIR = f"pi2zero-{os.getuid()}"  # in a folder that others may use, but not list
NAME_AT_START = socket.gethostname()  # Open MPI's files have the host's name, which may change


def listable(folder: Path) -> Path:
    """The folder; where it may not be listed, this user's own folder in it."""
    if folder.name == OWN_DIR or os.access(folder, os.R_OK):
        return folder
    return folder / OWN_DIR


# Open MPI keeps here what the ranks of a host share: in a folder with the cluster's name.
SHM_DIR = Path("/dev/shm")
if not os.access(SHM_DIR, os.R_OK | os.W_OK | os.X_OK):
    SHM_DIR = listable(Path(tempfile.gettempdir()))


def remove_unused_segments(age: float = 10.0) -> None:
    """Remove files in SHM_DIR that this user's MPI processes have left and that no process maps.

    Each process that uses MPI without mpirun leaves 16 MB (Open MPI's issue 11123), each killed
    rank of MPICH 3 MB. A file younger than `age` seconds stays: a process may be about to map it.
    """
    if not Path("/proc").is_dir():
        return
    names = {NAME_AT_START, socket.gethostname()}
    hosts = names | {name.partition(".")[0] for name in names}
    patterns = ["mpich_shm_*", *(f"sm_segment.{host}.{os.getuid()}.*" for host in hosts)]
    left = []
    with contextlib.suppress(OSError):  # the folder cannot be read
        for path in (path for pattern in patterns for path in SHM_DIR.glob(pattern)):
            with contextlib.suppress(OSError):  # removed meanwhile
                status = path.lstat()
                if status.st_uid == os.getuid() and time.time() - status.st_mtime >= age:
                    left.append(path)
    maps = b""
    for pid in psutil.pids() if left else ():
        with contextlib.suppress(OSError):  # another user's, or gone
            maps += Path(f"/proc/{pid}/maps").read_bytes()
    for path in left:
        if os.fsencode(path) not in maps:
            path.unlink(missing_ok=True)
