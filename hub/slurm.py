"""JupyterHub on a cluster's login node: `make hub CONFIG=slurm` starts it (root).

Each person's server is a Slurm job of theirs. A person gets what the job asks for. Slurm enforces
these limits if its control groups are on (cgroup.conf: ConstrainCores, ConstrainRAMSpace); ask your
site. The nodes must see the clone, too.
"""

import subprocess
import sys
from pathlib import Path

import batchspawner  # noqa: F401  (adds the hub's API by which a server on a node reports its port)

from pi2zero.hosts.place import local_address_towards

c = get_config()  # noqa: F821
load_subconfig("common.py")  # noqa: F821

HERE = Path(__file__).resolve().parent
c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
# The address at which nodes reach this host. Its own name may lead elsewhere (127.0.1.1 on Debian).
nodes = subprocess.run(["sinfo", "-hN", "-o", "%N"], capture_output=True, text=True).stdout.split()
c.JupyterHub.hub_ip = local_address_towards(nodes[0]) if nodes else ""
if c.JupyterHub.hub_ip.startswith("127.") or not nodes:
    sys.exit(
        "Slurm names no node other than this machine, so no node would reach the hub. "
        "Is slurmctld running? (sinfo -N)"
    )
c.Spawner.cmd = [str(HERE / "person.py")]
c.BatchSpawnerBase.batchspawner_singleuser_cmd = str(
    Path(sys.executable).with_name("batchspawner-singleuser")
)
c.BatchSpawnerBase.exec_prefix = "runuser -u {username} --"
c.SlurmSpawner.env_keep.append("SLURM_CONF")

c.SlurmSpawner.req_nprocs = "4"
c.SlurmSpawner.req_memory = "4G"
c.SlurmSpawner.req_runtime = "8:00:00"
c.SlurmSpawner.req_prologue = "ulimit -u 1000"  # processes and threads
c.SlurmSpawner.req_srun = (
    ""  # the server runs in the job itself, not in a step: its ranks find the whole allocation
)
c.Spawner.start_timeout = 600  # the queue
