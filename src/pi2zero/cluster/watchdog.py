"""`python -m pi2zero.cluster.watchdog OWNER`: waits until the owner has ended, then cleans up after
it.

A kernel that is killed cannot end its ranks itself; this small process does it. It starts with the
first cluster.
"""

import os
import subprocess
import sys
import time

from pi2zero import log
from pi2zero.hosts.slurm import cancel_job_in
from pi2zero.ownership import (
    MARK,
    REFRESH_INTERVAL,
    end_marked,
    keep_fresh,
    owner_is_gone,
    owner_mark,
    remove_run_dirs,
    remove_unused_segments,
    run_dirs,
)

_watchdogs: dict[str, subprocess.Popen] = {}  # by owner: a forked child has another owner mark


def ensure_watchdog() -> None:
    """Start, once, the process that cleans up after this one."""
    owner = owner_mark()
    if owner in _watchdogs and _watchdogs[owner].poll() is None:
        return
    _watchdogs[owner] = subprocess.Popen(
        [sys.executable, "-P", "-m", "pi2zero.cluster.watchdog", owner],
        env={name: value for name, value in os.environ.items() if name != MARK},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def main(owner: str) -> None:
    """Wait for the owner's end; then end its processes, cancel its jobs, and remove its folders."""
    refreshed = time.monotonic()
    while not owner_is_gone(owner, here=True):
        time.sleep(0.5)
        if time.monotonic() - refreshed > REFRESH_INTERVAL:
            refreshed = time.monotonic()
            keep_fresh(run_dirs(owner))
    folders = run_dirs(owner)
    for folder in folders[-1:]:
        log.write_to(folder, "watchdog")
    try:
        log.logger.info("the kernel has ended; %d run folders are left", len(folders))
        log.logger.info("ended %d processes", end_marked(owner))
        for folder in folders:
            cancel_job_in(folder)
            log.keep(folder)
        remove_run_dirs(owner)
        remove_unused_segments()
    except BaseException:
        log.logger.exception("cannot clean up")
        raise


if __name__ == "__main__":
    main(sys.argv[1])
