"""JupyterHub for a room of people on one node: `make hub` starts it. Each person works as their own ordinary user, within limits.

Why not systemdspawner, which limits by the same control groups: it needs systemd as process 1, and so runs neither in a container
nor where this was tried. sudospawner has no limits.
"""

import asyncio
import os
import pwd
import shutil
import sys
import time
from pathlib import Path

import psutil
from jupyterhub.spawner import LocalProcessSpawner
from traitlets import Integer

sys.path.insert(0, str(Path(__file__).resolve().parent))
from groups import Group

GRACE = 15.0  # s in which the kit ends its ranks and removes their files, once their kernels are gone; the rest is killed
REST = (
    "/dev/shm/sm_segment.*",
    "/tmp/ompi.*",
    "/tmp/pi2zero-*",
    "/tmp/torchelastic_*",
    "/tmp/torchinductor_*",
)

c = get_config()  # noqa: F821
load_subconfig("both.py")  # noqa: F821


class PersonSpawner(LocalProcessSpawner):
    """A person's server in a control group of its own. When it stops, nothing that it started is left."""

    process_limit = Integer(
        None, allow_none=True, config=True, help="processes and threads of a person"
    )

    @property
    def group(self):
        return Group(self.user.name)

    def make_preexec_fn(self, name):
        become = super().make_preexec_fn(name)
        group = self.group
        group.end()  # what a server that died has left
        group.make(self.mem_limit, self.cpu_limit, self.process_limit)

        def start():
            group.enter()
            become()

        return start

    async def stop(self, now=False):
        await super().stop(now)
        deadline = time.monotonic() + GRACE
        while self.group.pids() and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        self.group.end()
        sweep(pwd.getpwnam(self.user.name).pw_uid)


def sweep(uid: int) -> None:
    """Remove what MPI and torch have left in shared folders, of a user who has no process here any more: it holds memory."""
    for process in psutil.process_iter(["uids", "status"]):
        if (
            process.info["uids"]
            and process.info["uids"].real == uid
            and process.info["status"] != psutil.STATUS_ZOMBIE
        ):
            return
    for path in (
        path for names in REST for path in Path("/").glob(names[1:]) if path.lstat().st_uid == uid
    ):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


c.JupyterHub.spawner_class = PersonSpawner
# Measured with ten people: docs/room.md. Notebook 06, with torch on four ranks, takes 3 GB.
c.Spawner.mem_limit = "4G"
c.Spawner.cpu_limit = min(4.0, os.cpu_count() or 1)
c.PersonSpawner.process_limit = 1000
