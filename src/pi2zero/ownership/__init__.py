"""Which processes and folders belong to the kit, and how they are ended and removed."""

from pi2zero.ownership.process_marks import (
    MARK,
    SCOPE,
    end_marked,
    end_processes,
    is_running,
    leftovers,
    marked_processes,
    owner_is_gone,
    owner_mark,
    scope_mark,
    spawn_daemons,
    wait_until_ended,
)
from pi2zero.ownership.run_dirs import (
    TMP_ON_EVERY_HOST,
    is_private,
    make_private_dir,
    make_run_dir,
    remove_run_dirs,
    run_dirs,
    stop_answer,
    stop_request,
    temporary_dir,
)
from pi2zero.ownership.shm import SHM_DIR, remove_unused_segments

__all__ = [
    "MARK",
    "SCOPE",
    "SHM_DIR",
    "TMP_ON_EVERY_HOST",
    "end_marked",
    "end_processes",
    "is_private",
    "is_running",
    "leftovers",
    "make_private_dir",
    "make_run_dir",
    "marked_processes",
    "owner_is_gone",
    "owner_mark",
    "remove_run_dirs",
    "remove_unused_segments",
    "run_dirs",
    "scope_mark",
    "spawn_daemons",
    "stop_answer",
    "stop_request",
    "temporary_dir",
    "wait_until_ended",
]
