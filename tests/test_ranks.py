"""Ranks that join torch.distributed, as real processes."""

import subprocess
import sys

import pytest

from pi2zero.mpi import mpi_env

pytestmark = pytest.mark.long

PROGRAM = """
import os, torch, torch.distributed as dist
from pi2zero import ranks
for _ in range(2):  # called again, it changes nothing
    me = ranks.join()
assert (me.rank, me.world_size) == (dist.get_rank(), dist.get_world_size())
assert os.environ["RANK"] == str(me.rank) and os.environ["WORLD_SIZE"] == str(me.world_size)
x = torch.full((3,), me.rank + 1.0, device=me.device)
dist.all_reduce(x)
ports = [None] * me.world_size
dist.all_gather_object(ports, os.environ["MASTER_PORT"])
assert len(set(ports)) == 1 and int(ports[0]) > 0
if me.rank == 0:
    print(me.backend, x.tolist())
ranks.leave()
me = ranks.join()  # and after an end, it joins anew
dist.barrier()
ranks.leave()
ranks.leave()  # nothing to leave
"""


@pytest.mark.parametrize("n", [1, 3])
def test_mpi_ranks_join_torch_distributed(n):
    mpi_env()
    command = ["mpirun", "-n", str(n), sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    total = float(n * (n + 1) / 2)
    assert done.stdout.split(maxsplit=1)[1].strip() == str([total] * 3)
