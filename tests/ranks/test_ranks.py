"""Ranks that join torch.distributed, as real processes."""

import os
import subprocess
import sys

import pytest

from pi2zero import ownership
from pi2zero.mpi import mpi_env, one_host_env

PROGRAM = """
import os, sys, psutil, torch, torch.distributed as dist
from pi2zero import ownership, ranks
for _ in range(2):  # called again, it changes nothing
    me = ranks.join()
assert (me.rank, me.world_size) == (dist.get_rank(), dist.get_world_size())
assert os.environ["RANK"] == str(me.rank) and os.environ["WORLD_SIZE"] == str(me.world_size)
x = torch.full((3,), me.rank + 1.0, device=me.device)
dist.all_reduce(x)
ports = [None] * me.world_size
dist.all_gather_object(ports, os.environ["MASTER_PORT"])
assert len(set(ports)) == 1 and int(ports[0]) > 0
listens = {c.laddr.ip for c in psutil.Process().net_connections("inet") \
if c.status == psutil.CONN_LISTEN}
assert listens <= {"127.0.0.1"}, listens
if me.rank == 0:
    print(me.backend, x.tolist())
    [folder] = ownership.SHM_DIR.glob(f"pi2zero-meeting@*@{os.getpid()}:*")
    assert folder.stat().st_mode & 0o777 == 0o700
ranks.leave()
me = ranks.join()  # and after an end, it joins anew
dist.barrier()
ranks.leave()
ranks.leave()  # nothing to leave
assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} & os.environ.keys(), "taken back"
"""


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 3])
def test_mpi_ranks_join_torch_distributed(n):
    mpi_env()
    command = ["mpirun", "-n", str(n), "-x", "OMPI_MCA_btl=self,sm", sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command,
        env=dict(os.environ, PI2ZERO_SCOPE=f"meet-{os.getpid()}"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    total = float(n * (n + 1) / 2)
    assert done.stdout.split(maxsplit=1)[1].strip() == str([total] * 3)
    left = list(ownership.SHM_DIR.glob(f"pi2zero-meeting@*@meet-{os.getpid()}@*"))
    assert not left, "the file where the ranks met is gone with them"


OF_ANOTHER = """
from pi2zero import ranks
try:
    ranks.join()
except RuntimeError as error:
    print(error, flush=True)
"""


@pytest.mark.long
def test_numbers_of_another_launcher_are_refused_on_all_ranks(tmp_path):
    """Else two worlds of one would train, each alone."""
    (tmp_path / "program.py").write_text(OF_ANOTHER)
    left = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    mpi_env()
    done = subprocess.run(
        ["mpirun", "-n", "2", sys.executable, tmp_path / "program.py"],
        env=os.environ | left,
        capture_output=True,
        text=True,
        timeout=100,
    )
    lines = sorted(done.stdout.splitlines())
    assert done.returncode == 0 and len(lines) == 2, done.stderr
    for rank, line in enumerate(lines):
        assert f"has started 2 ranks, and this is rank {rank}. But RANK=0 and WORLD_SIZE=1" in line
        assert "unset RANK WORLD_SIZE" in line


ENDS_EARLY = """
import sys, torch, torch.distributed as dist
from pi2zero import ranks
me = ranks.join()
torch.optim.SGD([torch.zeros(1)])  \
# imports torch._dynamo, which in torch 2.14.1 keeps the world open to the end of the process
if me.rank == 1:
    sys.exit("rank 1 has no checkpoint")  # its world is still there
dist.barrier()
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "launcher", [["mpirun", "-n", "2"], ["torchrun", "--standalone", "--nproc-per-node=2"]]
)
def test_a_rank_that_ends_by_an_error_ends_the_others(launcher, tmp_path):
    mpi_env()
    (program := tmp_path / "ends_early.py").write_text(ENDS_EARLY)
    python = [sys.executable] if launcher[0] == "mpirun" else []
    done = subprocess.run([*launcher, *python, program], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "rank 1 has no checkpoint" in done.stderr, done.stderr


def test_no_rank_of_one_host_uses_the_network_but_what_is_set_already_wins(mpi_set, monkeypatch):
    """Open MPI with UCX or OFI and a fast network would take their pml, and ignore the btl."""
    names = ("btl", "pml", "btl_sm_backing_directory")
    for name in names:
        monkeypatch.delenv(f"OMPI_MCA_{name}", raising=False)
    found = one_host_env("/dev/shm/ours")
    assert [found[f"OMPI_MCA_{name}"] for name in names] == ["self,sm", "ob1", "/dev/shm/ours"]
    assert found["UCX_NET_DEVICES"] == "lo"
    monkeypatch.setenv("OMPI_MCA_btl", "self,sm,tcp")
    assert one_host_env("/dev/shm/ours")["OMPI_MCA_btl"] == "self,sm,tcp"
