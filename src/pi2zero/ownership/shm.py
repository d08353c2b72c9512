"""Shared memory that MPI's ranks leave behind."""

import contextlib
import os
import socket
import tempfile
import time
from pathlib import Path

import psutil

# Open MPI keeps here what the ranks of a host share: in a folder with the cluster's name.
SHM_DIR = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())


def remove_unused_segments(age: float = 10.0) -> None:
    """Remove files in SHM_DIR that this user's MPI processes have left and that no process maps.

    Each process that uses MPI without mpirun leaves 16 MB (Open MPI's issue 11123), each killed
    rank of MPICH 3 MB. A file younger than `age` seconds stays: a process may be about to map it.
    """
    if not Path("/proc").is_dir():
        return
    hosts = {socket.gethostname(), socket.gethostname().partition(".")[0]}
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
