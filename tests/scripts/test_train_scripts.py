"""train_single.py and train_ddp.py as a user starts them: alone, launched, killed, resumed."""

import json
import os
import re
import runpy
import signal
import subprocess
import sys

import psutil
import pytest
from many_runs import OWN_STORE, SCRIPTS, TORCHRUN, assert_same_curve, many_runs, records, run

SINGLE, DDP = SCRIPTS / "train_single.py", SCRIPTS / "train_ddp.py"
pytestmark = pytest.mark.usefixtures("mpi_set")


@pytest.fixture(scope="module")
def alone(mpi_set):
    """Three epochs of the serial program."""
    return records(sys.executable, SINGLE, "--json", "--epochs", 3)


@pytest.fixture(scope="module")
def two(mpi_set):
    """The same epochs on two ranks of torchrun."""
    return records(*TORCHRUN, DDP, "--json", "--epochs", 3)


TWO = """
file = folder / "digits.pt"
train("whole", "train_ddp.py", "--epochs", 3)
train("first half", "train_ddp.py", "--epochs", 2, "--checkpoint", file)
train("second half", "train_ddp.py", "--epochs", 3, "--checkpoint", file, "--resume")
train("another seed", "train_ddp.py", "--seed", 1, "--checkpoint", file, "--resume")
train("20 epochs", "train_ddp.py", "--epochs", 20, "--batch-size", 16)
train("batch of 1", "train_ddp.py", "--batch-size", 1)
fingerprint, calls = common.fingerprint, []
def spoiling(model):
    calls.append(1)
    if len(calls) == 2 and comm.rank == 1:  # after training: one bit of one number
        model[0].weight.detach().view(torch.int32)[0, 0] ^= 1
    return fingerprint(model)
common.fingerprint = spoiling
train("one bit", "train_ddp.py", "--epochs", 2)
"""


@pytest.fixture(scope="module")
def mpi(mpi_set, tmp_path_factory):
    """Runs of train_ddp.py on two ranks of one mpirun."""
    return many_runs(tmp_path_factory.mktemp("ddp"), 2, TWO)


def test_single_learns(alone):
    losses = [record["loss"] for record in alone[:-1]]
    assert losses == sorted(losses, reverse=True)
    assert alone[-2]["accuracy"] > 0.9


NO_PROGRAMS = ("common", "tissue")
NO_TORCH = """
import runpy, sys
sys.modules["torch"] = sys.modules["tensorflow"] = sys.modules["transformers"] = None
sys.argv = {argv!r}
sys.path.insert(0, {folder!r})
runpy.run_path(sys.argv[0], run_name="__main__")
"""
WITH_OPTIONS = sorted(path.name for path in SCRIPTS.glob("*.py") if path.stem not in NO_PROGRAMS)


def without_torch(script, *options):
    argv = [str(SCRIPTS / script), *options]
    return run(sys.executable, "-c", NO_TORCH.format(argv=argv, folder=str(SCRIPTS)))


@pytest.mark.parametrize("script", WITH_OPTIONS)
def test_help_and_a_wrong_option_need_no_torch(script):
    done = without_torch(script, "--help")
    assert done.returncode == 0 and f"scripts/{script}" in done.stdout, done.stderr
    done = without_torch(script, "--no-such-option")
    assert done.returncode == 2 and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("script", "given", "message"),
    [
        ("train_single.py", ["--batch-size", "1438"], "must be in 1..1437"),
        ("train_single.py", ["--batch-size", "0"], "must be in 1..1437"),
        ("train_single.py", ["--lr", "-1"], "must be at least 0"),
        ("train_single.py", ["--momentum", "1"], "must be in 0..0.9999"),
        ("train_single.py", ["--resume"], "--resume needs --checkpoint PATH"),
        ("train_deepspeed.py", ["--stage", "4"], "invalid choice: 4"),
        ("train_pipeline.py", ["--layers", "0"], "must be at least 1"),
        ("train_tensor.py", ["--tensor", "129"], "must be in 1..128"),
        ("summarize.py", ["train", "run", "--steps", "0"], "must be at least 1"),
        ("summarize.py", ["train", "run", "--lr", "nan"], "must be at least"),
        ("summarize.py", ["train", "run", "--minutes", "-1"], "must be at least"),
    ],
)
def test_bad_options_are_named(script, given, message):
    assert message in without_torch(script, *given).stderr


@pytest.mark.long
def test_ranks_follow_the_serial_curve(alone, two, mpi):
    assert_same_curve(two, alone)
    assert_same_curve(mpi["whole"]["records"], alone)
    one_rank = records(sys.executable, DDP, "--json", "--epochs", 3)
    assert one_rank == alone, "one rank does what the serial program does, bit by bit"


@pytest.mark.long
def test_one_bit_is_noticed(mpi):
    message = "The parameters of rank 1 differ from rank 0's"
    assert mpi["one bit"]["messages"] == [message] * 2, "one that ends alone is waited for"


@pytest.mark.long
def test_resumed_run_ends_as_the_whole_one(mpi, two):
    assert mpi["first half"]["messages"] == [None, None]
    assert mpi["second half"]["records"] == two[2:]


@pytest.mark.long
def test_killed_rank_restarts_from_the_checkpoint_and_ends_the_same(tmp_path, mpi):
    whole = mpi["20 epochs"]["records"]
    options = ["--epochs", 20, "--batch-size", 16, "--json", "--checkpoint", tmp_path / "c.pt"]
    command = [*TORCHRUN, "--max-restarts", 2, DDP, *options, "--resume"]
    with subprocess.Popen(
        [str(part) for part in command],
        env=os.environ | OWN_STORE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as launcher:
        try:
            lines = [json.loads(next(launcher.stdout)) for _ in range(5)]
            children = psutil.Process(launcher.pid).children()
            (victim,) = [child for child in children if child.environ().get("RANK") == "1"]
            victim.send_signal(signal.SIGKILL)
            lines += [json.loads(line) for line in launcher.stdout]
            assert launcher.wait(timeout=60) == 0
        finally:
            launcher.terminate()  # does nothing if it has ended
    assert lines[-1] == whole[-1], "the same parameters, bit by bit"
    epochs = {line["epoch"]: line for line in lines[:-1]}
    assert epochs == {line["epoch"]: line for line in whole[:-1]}
    assert len(lines) - 1 - len(epochs) <= 1, "at most the epoch that was not yet saved is repeated"


def damaged(whole, kind):
    """The bytes of a checkpoint, damaged; the bit is one of a weight's."""
    at = len(whole) // 4
    bit = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    return {"cut short": whole[: len(whole) // 2], "empty": b"", "one bit": bit}[kind]


@pytest.fixture(scope="module")
def saved(tmp_path_factory, mpi_set):
    """Checkpoints of the serial program after one and after two epochs."""
    folder = tmp_path_factory.mktemp("saved")
    for epochs in (1, 2):
        file = folder / f"{epochs}.pt"
        records(sys.executable, SINGLE, "--json", "--epochs", epochs, "--checkpoint", file)
    return {epochs: (folder / f"{epochs}.pt").read_bytes() for epochs in (1, 2)}


@pytest.fixture
def resume(monkeypatch, tmp_path, saved):
    """A function: resume the serial program with these options. Returns its last checkpoint."""
    import torch

    monkeypatch.syspath_prepend(str(SCRIPTS))
    file = tmp_path / "c.pt"
    file.write_bytes(saved[1])

    def resume(*options):
        argv = ["train_single.py", "--checkpoint", str(file), "--resume", *options]
        monkeypatch.setattr(sys, "argv", argv)
        runpy.run_path(str(SINGLE), run_name="__main__")
        return torch.load(file, weights_only=True)

    return resume


@pytest.mark.parametrize("kind", ["cut short", "empty", "one bit"])
def test_damaged_checkpoint_is_refused(resume, tmp_path, saved, kind):
    (tmp_path / "c.pt").write_bytes(damaged(saved[1], kind))
    with pytest.raises(SystemExit, match=re.escape(f"{tmp_path / 'c.pt'} is damaged")):
        resume()


def two_hosts(folder, first, second):
    """What is said when two ranks resume, each from a disk of its own with these bytes."""
    command = ["mpirun"]
    for name, content in (("1", first), ("2", second)):
        (folder / name).mkdir()
        (folder / name / "c.pt").write_bytes(content)
        command += ["-n", 1, "-wdir", folder / name, sys.executable, DDP]
        command += ["--checkpoint", "c.pt", "--resume", ":"]
    done = run(*command[:-1])
    assert done.returncode != 0
    return done.stderr


@pytest.mark.long
def test_damaged_checkpoint_is_refused_by_the_rank_that_has_it(tmp_path, saved):
    message = two_hosts(tmp_path, saved[1], damaged(saved[1], "one bit"))
    assert message.count("Cannot resume: c.pt is damaged") == 2, "rank 0 ends, too"
    assert "(rank 1: " in message and "(rank 0: " not in message


@pytest.mark.long
def test_ranks_with_different_checkpoints_are_refused(tmp_path, saved):
    message = two_hosts(tmp_path, saved[1], saved[2])
    differ = "The epochs and parameters of rank 1 differ from rank 0's: share one checkpoint"
    assert message.count(differ) == 2, "by both ranks"


@pytest.mark.long
def test_batch_smaller_than_the_number_of_ranks_is_refused(mpi):
    messages = ["--batch-size 1 is not a multiple of the 2 ranks"] * 2
    assert mpi["batch of 1"] == {"records": [], "messages": messages}


def test_a_resumed_run_takes_the_same_images(resume):
    message = "c.pt was made with --seed 0 --batch-size 64, not with --seed 1 --batch-size 64"
    with pytest.raises(SystemExit, match=message):
        resume("--seed", "1")


def test_a_resumed_run_learns_at_its_own_rate(resume):
    state = resume("--epochs", "2", "--lr", "0.01", "--momentum", "0.5")
    (group,) = state["optimizer"]["param_groups"]
    assert (group["lr"], group["momentum"]) == (0.01, 0.5)


SAVE = """
import runpy, sys, torch
def half(state, path):
    open(path, "wb").write(b"half of it")
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
torch.save = half
sys.argv = ["train_single.py", "--epochs", "2", "--resume", "--checkpoint", {file!r}]
sys.path.insert(0, {scripts!r})
runpy.run_path({scripts!r} + "/train_single.py", run_name="__main__")
"""


def test_kill_while_saving_leaves_the_former_checkpoint(tmp_path, alone, saved):
    file = tmp_path / "c.pt"
    file.write_bytes(saved[1])
    done = run(sys.executable, "-c", SAVE.format(scripts=str(SCRIPTS), file=str(file)))
    assert done.returncode == -signal.SIGKILL
    assert file.read_bytes() == saved[1]
    options = ["--json", "--epochs", 3, "--checkpoint", file, "--resume"]
    assert records(sys.executable, SINGLE, *options) == alone[1:]
