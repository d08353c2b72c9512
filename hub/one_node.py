"""JupyterHub for a room of people on one node: `make hub` starts it.

Each person works as their own ordinary user, within limits. systemdspawner and The Littlest
JupyterHub limit by the same control groups, but need systemd as process 1, which containers do not
have; sudospawner has no limits.
"""

import asyncio
import os
import pwd
import sys
from pathlib import Path

from jupyterhub.spawner import LocalProcessSpawner
from traitlets import Integer

sys.path.insert(0, str(Path(__file__).resolve().parent))
from person_group import PersonGroup, end_person

GRACE = 15.0  # s in which the kit ends its ranks and removes their files, once kernels are gone

c = get_config()  # noqa: F821
load_subconfig("common.py")  # noqa: F821


class PersonSpawner(LocalProcessSpawner):
    """A person's server in a control group of its own. When it stops, nothing is left of it."""

    process_limit = Integer(
        None, allow_none=True, config=True, help="processes and threads of a person"
    )

    async def start(self):
        group = PersonGroup(self.user.name)
        await asyncio.to_thread(group.end)  # a server that died may have left processes
        group.make(self.mem_limit, self.cpu_limit, self.process_limit)
        return await super().start()

    def make_preexec_fn(self, name):
        become_user, group = super().make_preexec_fn(name), PersonGroup(self.user.name)

        def enter_group():
            group.enter()
            become_user()

        return enter_group

    async def stop(self, now=False):
        await super().stop(now)
        uid = pwd.getpwnam(self.user.name).pw_uid
        await end_person(PersonGroup(self.user.name), uid, GRACE)


c.JupyterHub.spawner_class = PersonSpawner
# Measured with ten people: docs/room.md. Notebook 06, with torch on four ranks, takes 3 GB.
c.Spawner.mem_limit = "4G"
c.Spawner.cpu_limit = min(4.0, os.cpu_count() or 1)
c.PersonSpawner.process_limit = 1000
