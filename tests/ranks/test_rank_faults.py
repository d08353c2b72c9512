"""Faults of programs on ranks that no other file injects: Spawn without slots, Horovod's
mismatches, hostile checkpoints.
"""

import json
import os
import re
import runpy
import socket
import subprocess
import sys
import zipfile

import pytest
from many_runs import SCRIPTS
from summarize_runs import Payload

pytestmark = pytest.mark.usefixtures("mpi_set")


def run(*command, **env):
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=100, env=os.environ | env
    )


@pytest.mark.long
def test_spawn_without_slots_says_so():
    program = "from mpi4py import MPI\nimport sys\nprint('one', flush=True)\n"
    program += "MPI.COMM_SELF.Spawn(sys.executable, ['-c', ''], maxprocs=4)"
    strict = {"PRTE_MCA_rmaps_default_mapping_policy": "slot", "OMPI_MCA_btl": "self,sm,tcp"}
    done = run("mpirun", "-n", 1, "--host", "localhost:1", sys.executable, "-c", program, **strict)
    assert done.stdout == "one\n", "it was the spawn that failed, not mpirun's own start"
    assert done.returncode != 0 and "allocated for this job are already filled" in done.stderr, (
        done.stderr
    )


HOROVOD = """
import json, torch, horovod.torch as hvd
hvd.init()
rank, said = hvd.rank(), {}
wrong = {
    "shapes": lambda: hvd.allreduce(torch.ones(2 + rank), name="a"),
    "types": lambda: hvd.allreduce(\
torch.ones(2, dtype=torch.float64 if rank else torch.float32), name="b"),
    "roots": lambda: hvd.broadcast(torch.ones(2), root_rank=rank, name="c"),
}
for name, call in wrong.items():
    try:
        call()
    except Exception as error:
        said[name] = f"{type(error).__name__}: {error}"
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum, name="right after " + name).item() == hvd.size()
print("SAID", json.dumps(said), flush=True)
hvd.shutdown()
"""


@pytest.fixture(scope="module")
def horovod():
    """What each of two ranks was told, by mistake; after each the next all-reduce was right."""
    pytest.importorskip("horovod.torch.mpi_lib_v2", reason="Horovod is not there: make horovod")
    done = run("mpirun", "-n", 2, sys.executable, "-c", HOROVOD)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in re.findall(r"SAID (.*)", done.stdout)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        ("shapes", "Mismatched ALLREDUCE tensor shapes"),
        ("types", "Mismatched data types"),
        ("roots", "Mismatched BROADCAST root ranks"),
    ],
    ids=["shapes", "types", "roots"],
)
def test_horovod_names_what_differs(horovod, mistake, says):
    assert len(horovod) == 2 and all(
        said[mistake].startswith("HorovodInternalError") and says in said[mistake]
        for said in horovod
    )


@pytest.mark.long
def test_a_port_that_is_taken_is_said():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", 2]
        launcher += ["--master-addr", "127.0.0.1", "--master-port", port]
        done = run(sys.executable, *launcher, SCRIPTS / "train_ddp.py", "--epochs", 1)
    assert done.returncode != 0 and "EADDRINUSE" in done.stderr, done.stderr


def resumed(monkeypatch, path):
    """How train_single.py ends with that checkpoint."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "argv", ["train_single.py", "--checkpoint", str(path), "--resume"])
    with pytest.raises(SystemExit, match="Cannot resume: ") as end:
        runpy.run_path(str(SCRIPTS / "train_single.py"), run_name="__main__")
    return str(end.value)


def test_a_checkpoint_with_a_pickle_runs_nothing(monkeypatch, tmp_path):
    import torch

    torch.save({"epochs": 1, "model": Payload(tmp_path / "it ran")}, tmp_path / "c.pt")
    assert "is damaged" in resumed(monkeypatch, tmp_path / "c.pt")
    assert not (tmp_path / "it ran").exists()
    torch.load(tmp_path / "c.pt", weights_only=False)
    assert (tmp_path / "it ran").exists(), "the test's own trap works"


EXPLODES = """
import resource, sys
sys.path.insert(0, {scripts!r})
import psutil, runpy, sklearn.datasets, sklearn.model_selection, torch
most = psutil.Process().memory_info().vms + (200 << 20)  # bytes
resource.setrlimit(resource.RLIMIT_AS, (most, most))
runpy.run_path({scripts!r} + "/train_single.py", run_name="__main__")
"""


@pytest.mark.long
def test_a_checkpoint_that_explodes_is_refused(tmp_path):
    """A zip file of 1 MB, of which one part unfolds to 300 MB, where the process may take 200 MB
    more.
    """
    with zipfile.ZipFile(tmp_path / "c.pt", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("c/data.pkl", bytes(300 << 20))
    program = EXPLODES.format(scripts=str(SCRIPTS))
    done = run(sys.executable, "-c", program, "--checkpoint", tmp_path / "c.pt", "--resume")
    assert done.returncode == 1 and re.search(r"Cannot resume: \S+ is damaged", done.stderr), (
        done.stderr
    )
    assert "Traceback" not in done.stderr
