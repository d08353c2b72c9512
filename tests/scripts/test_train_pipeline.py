"""train_pipeline.py on 1, 2 and 4 ranks: the serial curve, the same parameters bit by bit, resumed, and what it refuses."""

import json
import os
import subprocess
import sys
from unittest import mock

import pytest
from many_runs import SCRIPTS, many_runs

import pi2zero

SINGLE, PIPELINE = SCRIPTS / "train_single.py", SCRIPTS / "train_pipeline.py"
RUNS = """
import train_pipeline
train("two layers", train_pipeline, "--epochs", 3)
train("uneven", train_pipeline, "--epochs", 2, "--batch-size", 61, "--micro-batches", 7, "--layers", 5)
train("one micro-batch", train_pipeline, "--epochs", 1, "--micro-batches", 1, "--layers", 4)
train("whole", train_pipeline, "--epochs", 2, "--layers", 4)
train("first half", train_pipeline, "--epochs", 1, "--layers", 4, "--checkpoint", folder / f"{comm.size}.pt")
train("second half", train_pipeline, "--epochs", 2, "--layers", 4, "--checkpoint", folder / f"{comm.size}.pt", "--resume")
train("before the kill", train_pipeline, "--epochs", 1, "--layers", 4, "--checkpoint", folder / "killed")
replace = Path.replace
if comm.rank == comm.size - 1:
    Path.replace = lambda *_: None  # as if killed when the others' new files have their names, and its own has not
train("killed", train_pipeline, "--epochs", 2, "--layers", 4, "--checkpoint", folder / "killed", "--resume")
Path.replace = replace
train("after the kill", train_pipeline, "--epochs", 2, "--layers", 4, "--checkpoint", folder / "killed", "--resume")
if comm.rank == 0:
    Path(f"{folder}/{comm.size}.pt.0.part").write_bytes(b"half of it")  # as if killed while it wrote
train("after another", train_pipeline, "--epochs", 2, "--layers", 4, "--checkpoint", folder / f"{comm.size}.pt", "--resume")
train("another batch", train_pipeline, "--batch-size", 32, "--layers", 4, "--checkpoint", folder / f"{comm.size}.pt", "--resume")
mine = Path(f"{folder}/{comm.size}.pt.{comm.rank}")
if comm.rank == comm.size - 1:
    mine.write_bytes(mine.read_bytes()[:999])
train("one damaged", train_pipeline, "--layers", 4, "--checkpoint", folder / f"{comm.size}.pt", "--resume")
if comm.rank == comm.size - 1:
    mine.unlink()
train("one file gone", train_pipeline, "--epochs", 2, "--layers", 4, "--checkpoint", folder / f"{comm.size}.pt", "--resume")
found = comm.bcast(found, root=comm.size - 1)  # the last rank prints
"""


@pytest.fixture(scope="module")
def by_ranks(tmp_path_factory):
    with mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):
        pi2zero.mpi_env()
        return {
            ranks: many_runs(tmp_path_factory.mktemp("pipeline"), ranks, RUNS)
            for ranks in (1, 2, 4)
        }


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 2])
def test_it_follows_the_serial_curve(by_ranks, ranks):
    done = subprocess.run(
        [sys.executable, SINGLE, "--epochs", "3", "--json"],
        capture_output=True,
        text=True,
        timeout=200,
    )
    alone, ours = (
        [json.loads(line) for line in done.stdout.splitlines()],
        by_ranks[ranks]["two layers"]["records"],
    )
    assert len(ours) == len(alone) == 4
    for one, other in zip(ours[:-1], alone[:-1], strict=True):
        assert one["epoch"] == other["epoch"] and one["loss"] == pytest.approx(
            other["loss"], abs=1e-4
        )
        assert one["accuracy"] == pytest.approx(other["accuracy"], abs=1.5 / 360), (
            "at most one image on the edge"
        )


@pytest.mark.long
@pytest.mark.parametrize("run", ["uneven", "one micro-batch", "whole"])
def test_any_number_of_ranks_gives_the_same_parameters(by_ranks, run):
    records = [by_ranks[ranks][run]["records"] for ranks in (1, 2, 4)]
    assert records[0] == records[1] == records[2] and "parameters" in records[0][-1]


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
def test_what_cannot_be_is_refused_by_all_ranks(by_ranks):
    few = "4 ranks, but only 2 layers to deal out: --layers 4 or more"
    gone = (
        "The ranks' checkpoints are from different epochs: [2, 2, 2, 0]. Delete them to start anew."
    )
    assert by_ranks[4]["two layers"] == {"records": [], "said": [few] * 4}
    assert by_ranks[4]["one file gone"] == {"records": [], "said": [gone] * 4}


@pytest.mark.parametrize(
    ("given", "says"), [(["--help"], "--micro-batches"), (["--layers", "0"], "must be at least 1")]
)
def test_help_and_bad_options(given, says):
    done = subprocess.run(
        [sys.executable, PIPELINE, *given], capture_output=True, text=True, timeout=60
    )
    assert says in done.stdout + done.stderr
