"""Whether the disks have the room that a start of ranks needs."""

import os
import shutil
import tempfile
from pathlib import Path

from pi2zero import ownership

FILES, SEGMENT = (
    1e6,
    17e6,
)  # bytes: of a cluster's own files; of shared memory, without which Open MPI does not begin


def too_little() -> str:
    """A sentence on the folder of this machine that is full; empty if none is."""
    temporary = "Free some space there, or name a folder on another disk in TMPDIR before the kernel starts."
    shared = f"Remove what nobody uses (ls -l {ownership.SHM_DIR}); a container has more with --shm-size=1g."
    places = [
        (Path(folder), FILES, temporary)
        for folder in {os.environ.get("TMPDIR") or "/", tempfile.gettempdir()} - {"/"}
    ]
    for folder, needed, remedy in [*places, (ownership.SHM_DIR, SEGMENT, shared)]:
        if folder.exists() and (free := shutil.disk_usage(folder).free) < needed:
            return f"{folder} is full: {free / 1e6:.1f} MB are free there, and ranks need {needed / 1e6:.0f}. {remedy}"
    return ""
