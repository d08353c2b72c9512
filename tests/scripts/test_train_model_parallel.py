"""train_pipeline.py and train_tensor.py on 1, 2 and 4 ranks: the serial curve, resumed, refused."""

import sys

import pytest
from many_runs import SCRIPTS, assert_same_curve, many_runs, records

SINGLE = SCRIPTS / "train_single.py"
RUNS = """
def resumed(kind, script, *options):
    file = folder / f"{kind} {comm.size}.pt"
    own, last = Path(f"{file}.{comm.rank}"), comm.rank == comm.size - 1
    train(f"{kind}, first half", script, "--epochs", 1, *options, "--checkpoint", file)
    options = *options, "--checkpoint", file, "--resume"
    if comm.rank == 0:
        Path(f"{file}.0.part").write_bytes(b"half of it")  # as if killed while it wrote
    train(f"{kind}, second half", script, "--epochs", 2, *options)
    train(f"{kind}, another batch", script, "--batch-size", 32, *options)
    if last:
        own.write_bytes(own.read_bytes()[:999])
    train(f"{kind}, one damaged", script, *options)
    if last:
        own.unlink()
    train(f"{kind}, one file gone", script, *options)
pipeline, tensor = "train_pipeline.py", "train_tensor.py"
train("pipeline, two layers", pipeline, "--epochs", 2)
train("pipeline", pipeline, "--epochs", 2, "--layers", 4)
uneven = "--batch-size", 61, "--micro-batches", 7, "--layers", 5
train("pipeline, uneven", pipeline, "--epochs", 2, *uneven)
train("pipeline, one micro-batch", pipeline, "--epochs", 1, "--micro-batches", 1, "--layers", 4)
resumed("pipeline", pipeline, "--layers", 4)
results = comm.bcast(results, root=comm.size - 1)  # the last rank prints
train("tensor", tensor, "--epochs", 2)
resumed("tensor", tensor)
if comm.size > 1:
    train("tensor, groups", tensor, "--epochs", 2, "--tensor", comm.size // 2)
    odd = "--tensor", comm.size // 2, "--batch-size", 61
    train("tensor, odd batch", tensor, "--epochs", 1, *odd)
    train("no groups of 3", tensor, "--tensor", 3)
"""
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def by_ranks(mpi_set, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model parallel")
    return {ranks: many_runs(folder, ranks, RUNS) for ranks in (1, 2, 4)}


@pytest.fixture(scope="module")
def alone(mpi_set):
    """What the serial program prints, for a batch of 64 and one of 61 images."""
    command = [sys.executable, SINGLE, "--json", "--epochs"]
    return {64: records(*command, 2), 61: records(*command, 1, "--batch-size", 61)}


@pytest.mark.parametrize(
    ("ranks", "run", "batch"),
    [
        (1, "pipeline, two layers", 64),
        (2, "pipeline, two layers", 64),
        (2, "tensor", 64),
        (4, "tensor", 64),
        (2, "tensor, groups", 64),
        (4, "tensor, groups", 64),
        (4, "tensor, odd batch", 61),
    ],
)
def test_it_follows_the_serial_curve(by_ranks, alone, ranks, run, batch):
    assert_same_curve(by_ranks[ranks][run]["records"], alone[batch])


def test_one_rank_does_what_the_serial_program_does_bit_by_bit(by_ranks, alone):
    assert by_ranks[1]["tensor"]["records"] == alone[64]


@pytest.mark.parametrize("run", ["pipeline", "pipeline, uneven", "pipeline, one micro-batch"])
def test_any_number_of_stages_gives_the_same_parameters(by_ranks, run):
    one, two, four = (by_ranks[ranks][run]["records"] for ranks in (1, 2, 4))
    assert one == two == four and "parameters" in one[-1]


@pytest.mark.parametrize("kind", ["pipeline", "tensor"])
def test_a_resumed_run_ends_as_the_whole_one(by_ranks, kind):
    for runs in by_ranks.values():
        assert runs[f"{kind}, second half"]["records"] == runs[kind]["records"][1:]


@pytest.mark.parametrize("kind", ["pipeline", "tensor"])
def test_a_checkpoint_that_does_not_fit_is_refused_by_all_ranks(by_ranks, kind):
    runs = {run: by_ranks[4][f"{kind}, {run}"]["messages"] for run in MESSAGES}
    for run, messages in runs.items():
        assert len(messages) == 4 and all(MESSAGES[run] in message for message in messages), run


MESSAGES = {
    "another batch": "was made with --seed 0 --batch-size 64, not with --seed 0 --batch-size 32",
    "one damaged": "4.pt.3 is damaged",
    "one file gone": "The ranks' checkpoints are from different epochs: [2, 2, 2, 0].",
}


def test_what_cannot_be_is_refused_by_all_ranks(by_ranks):
    layers, groups = "4 ranks need --layers 4 or more", "4 ranks are not a multiple of --tensor 3"
    assert by_ranks[4]["pipeline, two layers"] == {"records": [], "messages": [layers] * 4}
    assert by_ranks[4]["no groups of 3"] == {"records": [], "messages": [groups] * 4}
