"""train_tensor.py on 1, 2 and 4 ranks: the serial curve, groups of ranks, resumed, and what it refuses."""

import json
import os
import subprocess
import sys
from unittest import mock

import pytest
from many_runs import SCRIPTS, many_runs

import pi2zero

SINGLE, TENSOR = SCRIPTS / "train_single.py", SCRIPTS / "train_tensor.py"
RUNS = """
import train_tensor
file = folder / f"{comm.size}.pt"
train("whole", train_tensor, "--epochs", 2)
train("first half", train_tensor, "--epochs", 1, "--checkpoint", file)
train("second half", train_tensor, "--epochs", 2, "--checkpoint", file, "--resume")
train("before the kill", train_tensor, "--epochs", 1, "--checkpoint", folder / "killed")
replace = Path.replace
if comm.rank == comm.size - 1:
    Path.replace = lambda *_: None  # as if killed when the others' new files have their names, and its own has not
train("killed", train_tensor, "--epochs", 2, "--checkpoint", folder / "killed", "--resume")
Path.replace = replace
train("after the kill", train_tensor, "--epochs", 2, "--checkpoint", folder / "killed", "--resume")
if comm.rank == 0:
    Path(f"{file}.0.part").write_bytes(b"half of it")  # as if killed while it wrote
train("after another", train_tensor, "--epochs", 2, "--checkpoint", file, "--resume")
train("another batch", train_tensor, "--batch-size", 32, "--checkpoint", file, "--resume")
mine = Path(f"{file}.{comm.rank}")
if comm.rank == comm.size - 1:
    mine.write_bytes(mine.read_bytes()[:999])
train("one damaged", train_tensor, "--checkpoint", file, "--resume")
if comm.rank == comm.size - 1:
    mine.unlink()
if comm.size > 1:
    train("groups", train_tensor, "--epochs", 2, "--tensor", comm.size // 2)
    train("odd batch", train_tensor, "--epochs", 1, "--tensor", comm.size // 2, "--batch-size", 61)
    train("one file gone", train_tensor, "--checkpoint", file, "--resume")
    train("no groups of 3", train_tensor, "--tensor", 3)
"""


@pytest.fixture(scope="module")
def by_ranks(tmp_path_factory):
    with mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):
        pi2zero.mpi_env()
        return {
            ranks: many_runs(tmp_path_factory.mktemp("tensor"), ranks, RUNS) for ranks in (1, 2, 4)
        }


@pytest.fixture(scope="module")
def alone(mpi_set):
    """What the serial program prints, by its options."""

    def single(*options):
        done = subprocess.run(
            [sys.executable, SINGLE, *options, "--json"],
            capture_output=True,
            text=True,
            timeout=200,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    return {
        "whole": single("--epochs", "2"),
        "odd batch": single("--epochs", "1", "--batch-size", "61"),
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("ranks", "run"),
    [(1, "whole"), (2, "whole"), (4, "whole"), (2, "groups"), (4, "groups"), (4, "odd batch")],
)
def test_it_follows_the_serial_curve(by_ranks, alone, ranks, run):
    ours, theirs = by_ranks[ranks][run]["records"], alone.get(run, alone["whole"])
    assert len(ours) == len(theirs) > 1, "one rank prints"
    for one, other in zip(ours[:-1], theirs[:-1], strict=True):
        assert one["epoch"] == other["epoch"] and one["loss"] == pytest.approx(
            other["loss"], abs=1e-4
        )
        assert one["accuracy"] == pytest.approx(other["accuracy"], abs=1.5 / 360), (
            "at most one image on the edge"
        )


@pytest.mark.long
def test_one_rank_does_what_the_serial_program_does_bit_by_bit(by_ranks, alone):
    assert by_ranks[1]["whole"]["records"] == alone["whole"]


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_resumed_run_ends_as_the_whole_one(by_ranks, ranks):
    assert by_ranks[ranks]["second half"]["records"] == by_ranks[ranks]["whole"]["records"][1:]


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_kill_while_the_ranks_save_leaves_files_of_one_epoch(by_ranks, ranks):
    last = by_ranks[ranks]["whole"]["records"][-1:]
    assert by_ranks[ranks]["killed"]["records"][1:] == last
    for run in ("after the kill", "after another"):
        assert by_ranks[ranks][run] == {"records": last, "said": [None] * ranks}, run


@pytest.mark.long
def test_other_images_and_one_damaged_file_are_refused_by_all_ranks(by_ranks):
    for said in by_ranks[4]["another batch"]["said"]:
        assert said.endswith(
            "was made with --seed 0 --batch-size 64, not with --seed 0 --batch-size 32"
        )
    (said,) = set(by_ranks[4]["one damaged"]["said"])
    assert "4.pt.3 is damaged" in said


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 4])
def test_what_cannot_be_is_refused_by_all_ranks(by_ranks, ranks):
    done = [2] * (ranks - 1) + [0]
    gone = f"The ranks' checkpoints are from different epochs: {done}. Delete them to start anew."
    assert by_ranks[ranks]["one file gone"] == {"records": [], "said": [gone] * ranks}
    three = f"--tensor 3: the {ranks} ranks are not a multiple of it"
    assert by_ranks[ranks]["no groups of 3"] == {"records": [], "said": [three] * ranks}


@pytest.mark.parametrize(
    ("given", "says"), [(["--help"], "--tensor"), (["--tensor", "0"], "must be at least 1")]
)
def test_help_and_bad_options(given, says):
    done = subprocess.run(
        [sys.executable, TENSOR, *given], capture_output=True, text=True, timeout=60
    )
    assert says in done.stdout + done.stderr
