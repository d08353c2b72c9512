"""`python -m pi2zero.cluster.warden OWNER`: waits until the owner has ended, then ends what it left behind.

A kernel that is killed cannot clean up after itself; this small process does it. It is started with the first cluster.
"""

import sys
import time

from pi2zero.marks import end_marked, owner_is_gone, remove_run_dirs


def main(owner: str) -> None:
    while not owner_is_gone(owner):
        time.sleep(0.5)
    end_marked(owner)
    remove_run_dirs(owner)


if __name__ == "__main__":
    main(sys.argv[1])
