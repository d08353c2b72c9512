"""scripts/train_tensorflow.py in the environment of its own that `make tensorflow` makes, against
itself on one rank.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import pi2zero

ROOT = Path(__file__).resolve().parents[2]
SCRIPT, BIN = ROOT / "scripts" / "train_tensorflow.py", ROOT / ".venv-tensorflow" / "bin"
# The ranks add up the same 64 gradients in another order. Float32 has 7 digits; momentum and 44
# steps enlarge the difference.
TOLERANCE = 1e-4


@pytest.fixture(autouse=True)
def _mpi():
    with mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):  # what mpi_env sets is taken back
        pi2zero.mpi_env()
        yield


def run(*parts):
    return subprocess.run(
        [str(part) for part in parts], capture_output=True, text=True, timeout=150
    )


here = pytest.mark.skipif(
    not (BIN / "python").exists(), reason="TensorFlow is optional and not here: make tensorflow"
)


@pytest.mark.long
@here
def test_two_ranks_follow_one():
    runs = []
    for launcher in ([], [BIN / "mpirun", "-n", 2]):
        done = run(*launcher, BIN / "python", SCRIPT, "--epochs", 2, "--json")
        assert done.returncode == 0, done.stderr
        runs.append([json.loads(line) for line in done.stdout.splitlines()])
    one, two = runs
    assert len(one) == len(two) == 3, "two epochs and the fingerprint, by one rank"
    assert one[1]["loss"] < one[0]["loss"] and one[1]["accuracy"] > 0.8
    for ours, theirs in zip(two[:-1], one[:-1], strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=TOLERANCE)
        assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=1.5 / 360), (
            "at most one image on the edge"
        )


@pytest.mark.long
@here
def test_tasks_of_srun_that_do_not_meet_are_refused():
    with mock.patch.dict(os.environ, SLURM_STEP_NUM_TASKS="2"):
        done = run(BIN / "python", SCRIPT)
    assert (
        done.returncode == 1
        and "Each task is a world of its own here" in done.stderr
        and "Traceback" not in done.stderr
    )


def test_without_tensorflow_the_script_says_what_to_do():
    """The kit's own environment has Horovod, perhaps, but no TensorFlow."""
    done = run(sys.executable, SCRIPT)
    assert (
        done.returncode == 1
        and "Run: make tensorflow" in done.stderr
        and "Traceback" not in done.stderr
    )
