"""GPUs that lie idle, and worlds of one: no program keeps quiet about them.

The devices are pretended.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pi2zero.mpi import LAUNCHED, refuse_worlds_of_one
from pi2zero.ranks import gpus

HERE = Path(__file__).parents[1] / "helpers"
ABCD = ("a", "b", "c", "d")
IDLE = "GPUs LIE IDLE:"


class Horovod:
    """What for_horovod asks of Horovod, on rank 0."""

    rank = local_rank = staticmethod(lambda: 0)

    def __init__(self, nccl, *sees):
        self.views = [
            gpus.VisibleGpus("node1", rank, tuple(seen)) for rank, seen in enumerate(sees)
        ]
        self.nccl_built = lambda: nccl

    def size(self):
        return len(self.views)

    def allgather_object(self, _):
        return self.views


@pytest.mark.parametrize(
    ("nccl", "sees", "device", "says"),
    [
        (True, [ABCD] * 4, "cuda:0", ""),
        (True, [ABCD] * 2, "cuda:0", f"{IDLE} 2 of 4 on node1. Start 4 ranks to use all of them"),
        (
            True,
            [["a"]] * 2,
            "cpu",
            f"{IDLE} all 1. Horovod computes on the CPU: its NCCL wants one",
        ),
        (
            False,
            [ABCD] * 4,
            "cpu",
            f"{IDLE} all 4. Horovod computes on the CPU: it was built witho",
        ),
        (True, [["a"], []], "cpu", "Rank 1 sees no GPU, the others do: all ranks compute on the C"),
        (False, [[], []], "cpu", ""),
    ],
)
def test_horovod_s_device_and_what_is_said(capsys, monkeypatch, nccl, sees, device, says):
    monkeypatch.setattr(gpus, "detect", lambda local_rank: None)
    assert gpus.for_horovod(Horovod(nccl, *sees)) == device
    said = capsys.readouterr().err
    assert said.startswith(says) and bool(said) == bool(says)


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("SLURM_STEP_NUM_TASKS", "srun has started 4 tasks, and each is an MPI world of its own"),
        ("OMPI_COMM_WORLD_SIZE", "mpirun (Open MPI's) has started 4 tasks"),
        ("PMI_SIZE", "mpirun (MPICH's, or one of its family) has started 4 tasks"),
    ],
)
def test_a_world_of_one_is_refused_whoever_started_it(monkeypatch, variable, says):
    for name in (*LAUNCHED, "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    refuse_worlds_of_one(1)
    monkeypatch.setenv(variable, "4")
    refuse_worlds_of_one(4)
    with pytest.raises(RuntimeError, match=re.escape(says)):
        refuse_worlds_of_one(1)
    with pytest.raises(RuntimeError, match=re.escape(says)):
        gpus.for_horovod(Horovod(True, []))
    monkeypatch.setenv("WORLD_SIZE", "4")  # torchrun beneath srun
    refuse_worlds_of_one(1)


SCRIPTS_ON_CPU = {
    "train_pipeline.py --epochs 1": "This program computes on the CPU.",
    "train_tissue.py --size 64 --images 1 --steps 1": "This program computes on the CPU.",
    "train_horovod.py --epochs 1": "Horovod computes on the CPU: it was built without NCCL.",
    "synthetic_benchmark.py --method horovod --model tiny --image-size 32 --batch-size 2 "
    "--iterations 1": "Horovod computes",
}
RUN_SCRIPTS = """
import runpy, sys
sys.path[:0] = sys.argv[1:3]
import pretended_gpus
pretended_gpus.pretend(["a", "b"])
folder = sys.argv[2]
for line in sys.argv[3:]:
    sys.argv[:] = line.split()
    sys.stderr.write(f"{line} | ")
    runpy.run_path(f"{folder}/{sys.argv[0]}", run_name="__main__")
    sys.stderr.write(chr(10))
"""


@pytest.mark.long
def test_scripts_that_leave_gpus_idle_say_so():
    lines = [
        line
        for line in SCRIPTS_ON_CPU
        if "horovod" not in line or importlib.util.find_spec("horovod")
    ]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("WORLD_SIZE", "RANK")
    }
    command = [sys.executable, "-c", RUN_SCRIPTS, HERE, HERE.parents[1] / "scripts", *lines]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr
    for line in lines:
        assert f"{line} | GPUs LIE IDLE: all 2. {SCRIPTS_ON_CPU[line]}" in done.stderr, done.stderr
