"""`python -m pi2zero.cluster.warden OWNER`: waits until the owner has ended, then ends what it left behind.

A kernel that is killed cannot clean up after itself; this small process does it. It is started with the first cluster.
"""

import os
import subprocess
import sys
import time

from pi2zero.hosts.slurm import cancel_job_in
from pi2zero.ownership import (
    MARK,
    end_marked,
    owner_is_gone,
    owner_mark,
    remove_run_dirs,
    remove_unused_segments,
    run_dirs,
)

_wardens: dict[str, subprocess.Popen] = {}  # by owner: a forked child is not its parent


def ensure_warden() -> None:
    """Start, once, the process that cleans up when this one is killed, when nothing in it can run any more."""
    owner = owner_mark()
    if owner in _wardens and _wardens[owner].poll() is None:
        return
    _wardens[owner] = subprocess.Popen(
        [sys.executable, "-m", "pi2zero.cluster.warden", owner],
        env={k: v for k, v in os.environ.items() if k != MARK},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def main(owner: str) -> None:
    """Wait for the owner's end; then end its processes, cancel its Slurm jobs, and remove its folders."""
    while not owner_is_gone(owner):
        time.sleep(0.5)
    end_marked(owner)
    for folder in run_dirs(owner):
        cancel_job_in(folder)
    remove_run_dirs(owner)
    remove_unused_segments()


if __name__ == "__main__":
    main(sys.argv[1])
