"""train_single.py and train_ddp.py as a user starts them: alone, with torchrun, with mpirun, killed, resumed."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys

import psutil
import pytest
from many_runs import SCRIPTS, many_runs

SINGLE, DDP = SCRIPTS / "train_single.py", SCRIPTS / "train_ddp.py"
# The ranks add up the same 64 gradients in another order. Float32 has 7 digits; momentum and 66 steps enlarge the difference.
TOLERANCE = 1e-4


pytestmark = pytest.mark.usefixtures("mpi_set")


COMMANDS = {
    "single": [sys.executable, SINGLE],
    "python": [sys.executable, DDP],
    "torchrun": [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        DDP,
    ],
}


def run(*parts, **options):
    return subprocess.run(
        [str(part) for part in parts], capture_output=True, text=True, timeout=200, **options
    )


def train(launcher, *options):
    """The records that a run printed: one an epoch, then the fingerprint of the parameters."""
    done = run(*COMMANDS[launcher], "--json", *options)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def alone(mpi_set):
    """Three epochs of the serial program."""
    return train("single", "--epochs", 3)


@pytest.fixture(scope="module")
def two(mpi_set):
    """The same epochs on two ranks."""
    return train("torchrun", "--epochs", 3)


TWO = """
import train_ddp
train("whole", train_ddp, "--epochs", 3)
train("first half", train_ddp, "--epochs", 2, "--checkpoint", folder / "digits.pt")
train("second half", train_ddp, "--epochs", 3, "--checkpoint", folder / "digits.pt", "--resume")
train("another seed", train_ddp, "--seed", 1, "--checkpoint", folder / "digits.pt", "--resume")
train("20 epochs", train_ddp, "--epochs", 20, "--batch-size", 16)
train("batch of 1", train_ddp, "--batch-size", 1)
fingerprint, calls = train_ddp.fingerprint, []
def spoiling(model):
    calls.append(1)
    if len(calls) == 2 and comm.rank == 1:  # after training: one bit of one number
        model[0].weight.detach().view(torch.int32)[0, 0] ^= 1
    return fingerprint(model)
train_ddp.fingerprint = spoiling
train("one bit", train_ddp, "--epochs", 2)
last = []
train_ddp.fingerprint = lambda model: last.append(fingerprint(model)) or last[-1]
train("equal", train_ddp, "--epochs", 2)
found["fingerprints"] = comm.allgather(last[-1])
"""


@pytest.fixture(scope="module")
def mpi(mpi_set, tmp_path_factory):
    """Runs of train_ddp.py on two ranks of one mpirun."""
    return many_runs(tmp_path_factory.mktemp("ddp"), 2, TWO)


def test_single_learns(alone):
    losses = [record["loss"] for record in alone[:-1]]
    assert losses == sorted(losses, reverse=True)
    assert alone[-2]["accuracy"] > 0.9


@pytest.mark.parametrize("script", ["train_single", "train_ddp"])
def test_help(monkeypatch, capsys, script):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "argv", [f"{script}.py", "--help"])
    with pytest.raises(SystemExit, match="0"):
        importlib.import_module(script).main()
    assert f"scripts/{script}.py" in (said := capsys.readouterr().out) and "--batch-size" in said


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            ["--batch-size", "1438"],
            "--batch-size 1438 is too large: there are 1437 training images",
        ),
        (["--batch-size", "0"], "--batch-size at least 1"),
        (["--lr", "0"], "--lr must be above 0"),
        (["--momentum", "1"], "--momentum in 0..1, without 1"),
        (["--resume"], "--resume needs --checkpoint FILE"),
    ],
)
def test_bad_options_are_named(monkeypatch, given, says):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "argv", ["train_single.py", *given])
    import train_single

    with pytest.raises(SystemExit, match=re.escape(says)):
        train_single.main()


@pytest.mark.long
@pytest.mark.parametrize(("launcher", "ranks"), [("python", 1), ("torchrun", 2), ("mpirun", 2)])
def test_ranks_follow_the_serial_curve(alone, two, mpi, launcher, ranks):
    records = {"torchrun": two, "mpirun": mpi["whole"]["records"]}.get(launcher) or train(
        launcher, "--epochs", 3
    )
    assert len(records) == len(alone), "one rank prints"
    for ours, theirs in zip(records[:-1], alone[:-1], strict=True):
        assert ours["epoch"] == theirs["epoch"]
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=TOLERANCE)
        assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=1.5 / 360), (
            "at most one image on the edge"
        )
    if ranks == 1:
        assert records == alone, "one rank does what the serial program does, bit by bit"


@pytest.mark.long
def test_parameters_are_bit_equal_on_all_ranks(mpi):
    assert mpi["equal"]["said"] == [None, None] and len(set(mpi["fingerprints"])) == 1
    assert (
        mpi["equal"]["records"][-1]
        == {"parameters": mpi["fingerprints"][0]}
        == mpi["first half"]["records"][-1]
    )


@pytest.mark.long
def test_one_bit_is_noticed(mpi):
    assert mpi["one bit"]["said"] == ["The parameters of rank 1 differ from rank 0's"] * 2, (
        "one that ends alone is waited for"
    )


@pytest.mark.long
def test_resumed_run_ends_as_the_whole_one(mpi, two):
    assert mpi["second half"]["records"] == two[2:]


@pytest.mark.long
def test_killed_rank_restarts_from_the_checkpoint_and_ends_the_same(tmp_path, mpi):
    options, whole = ["--epochs", 20, "--batch-size", 16, "--json"], mpi["20 epochs"]["records"]
    parts = [
        *COMMANDS["torchrun"][:-1],
        "--max-restarts",
        2,
        DDP,
        *options,
        "--checkpoint",
        tmp_path / "c.pt",
        "--resume",
    ]
    # Without it all starts share one store, where a rank may read the address of one that is dead: one run in four hung.
    env = dict(os.environ, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    with subprocess.Popen(
        [str(part) for part in parts],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as launcher:
        try:
            lines = [json.loads(next(launcher.stdout)) for _ in range(5)]
            (victim,) = [
                p for p in psutil.Process(launcher.pid).children() if p.environ().get("RANK") == "1"
            ]
            victim.send_signal(signal.SIGKILL)
            lines += [json.loads(line) for line in launcher.stdout]
            assert launcher.wait(timeout=60) == 0
        finally:
            launcher.terminate()  # nothing, if it has ended
    assert not victim.is_running(), "it was killed, not finished"
    assert lines[-1] == whole[-1], "the same parameters, bit by bit"
    assert {line["epoch"]: line for line in lines[:-1]} == {
        line["epoch"]: line for line in whole[:-1]
    }
    epochs = [line["epoch"] for line in lines[:-1]]
    again = len(epochs) - len(set(epochs))
    assert again <= 1, "at most the epoch that was printed but not yet saved is done again"


def damaged(whole, kind):
    """The bytes of a checkpoint, damaged; the bit is one of a weight's."""
    at = len(whole) // 4
    return {
        "cut short": whole[: len(whole) // 2],
        "empty": b"",
        "one bit": whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :],
    }[kind]


@pytest.fixture(scope="module")
def saved(tmp_path_factory, mpi_set):
    """Checkpoints of the serial program after one and after two epochs; in processes of one thread, for equal bits."""
    folder = tmp_path_factory.mktemp("saved")
    for epochs in (1, 2):
        train("single", "--epochs", epochs, "--checkpoint", folder / f"{epochs}.pt")
    return {epochs: (folder / f"{epochs}.pt").read_bytes() for epochs in (1, 2)}


@pytest.mark.parametrize("kind", ["cut short", "empty", "one bit"])
def test_damaged_checkpoint_is_refused(monkeypatch, tmp_path, saved, kind):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import train_single

    monkeypatch.setattr(
        sys, "argv", ["train_single.py", "--checkpoint", str(tmp_path / "c.pt"), "--resume"]
    )
    (tmp_path / "c.pt").write_bytes(damaged(saved[1], kind))
    with pytest.raises(
        SystemExit, match=re.escape(f"Cannot resume: {tmp_path / 'c.pt'} is damaged")
    ):
        train_single.main()


@pytest.mark.long
def test_damaged_checkpoint_is_refused_by_the_rank_that_has_it(tmp_path, saved):
    done = two_hosts(tmp_path, saved[1], damaged(saved[1], "one bit"))
    assert done.stderr.count("Cannot resume: c.pt is damaged") == 2, (
        "rank 0 learns it, and does not wait"
    )
    assert "(rank 1: " in done.stderr and "(rank 0: " not in done.stderr


def two_hosts(folder, first, second):
    """Resume on two ranks, each with a disk of its own that holds these bytes as its checkpoint. The run has to fail."""
    for name, content in [("1", first), ("2", second)]:
        (folder / name).mkdir()
        (folder / name / "c.pt").write_bytes(content)
    options = [sys.executable, DDP, "--checkpoint", "c.pt", "--resume"]
    done = run(
        "mpirun",
        "-n",
        1,
        "-wdir",
        folder / "1",
        *options,
        ":",
        "-n",
        1,
        "-wdir",
        folder / "2",
        *options,
    )
    assert done.returncode != 0
    return done


@pytest.mark.long
def test_ranks_with_different_checkpoints_are_refused(tmp_path, saved):
    said = two_hosts(tmp_path, saved[1], saved[2]).stderr
    assert (
        said.count("The epochs and parameters of rank 1 differ from rank 0's: share one checkpoint")
        == 2
    ), "by both ranks"


@pytest.mark.long
def test_batch_smaller_than_the_number_of_ranks_is_refused(mpi):
    assert mpi["batch of 1"] == {
        "records": [],
        "said": ["--batch-size 1 is not a multiple of the 2 ranks"] * 2,
    }


@pytest.fixture
def resume(monkeypatch, tmp_path, saved):
    """A function that resumes the serial program after its first epoch, with these options; returns the checkpoint of its end."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import torch
    import train_single

    file = tmp_path / "c.pt"
    file.write_bytes(saved[1])

    def resume(*options):
        monkeypatch.setattr(
            sys, "argv", ["train_single.py", "--checkpoint", str(file), "--resume", *options]
        )
        train_single.main()
        return torch.load(file, weights_only=True)

    return resume


@pytest.mark.parametrize(
    ("option", "order"),
    [("--seed", "--seed 1 --batch-size 64"), ("--batch-size", "--seed 0 --batch-size 1")],
)
def test_a_resumed_run_takes_the_same_images(resume, option, order):
    with pytest.raises(
        SystemExit, match=f"c.pt was made with --seed 0 --batch-size 64, not with {order}"
    ):
        resume(option, "1")


@pytest.mark.long
def test_ranks_resume_with_the_same_images_only(mpi):
    for said in mpi["another seed"]["said"]:
        assert said.endswith(
            "digits.pt was made with --seed 0 --batch-size 64, not with --seed 1 --batch-size 64"
        )


def test_a_resumed_run_learns_at_its_own_rate(resume):
    (group,) = resume("--epochs", "2", "--lr", "0.01", "--momentum", "0.5")["optimizer"][
        "param_groups"
    ]
    assert (group["lr"], group["momentum"]) == (0.01, 0.5)


def test_a_checkpoint_of_an_earlier_version_is_read(resume, tmp_path):
    """It kept no order."""
    import torch

    state = torch.load(tmp_path / "c.pt", weights_only=True)
    del state["order"]
    torch.save(state, tmp_path / "c.pt")
    assert resume("--epochs", "2")["epochs"] == 2


SAVE = """
import sys, torch
sys.path.insert(0, {scripts!r})
import train_single
def half(state, path):
    open(path, "wb").write(b"half of it")
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
torch.save = half
sys.argv = ["train_single.py", "--epochs", "2", "--resume", "--checkpoint", {file!r}]
train_single.main()
"""


def test_kill_while_saving_leaves_the_former_checkpoint(tmp_path, alone, saved):
    file = tmp_path / "c.pt"
    file.write_bytes(saved[1])
    assert (
        run(sys.executable, "-c", SAVE.format(scripts=str(SCRIPTS), file=str(file))).returncode
        == -signal.SIGKILL
    )
    assert file.read_bytes() == saved[1]
    assert train("single", "--epochs", 3, "--checkpoint", file, "--resume") == alone[1:]
