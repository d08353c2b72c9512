"""train_deepspeed.py as a user starts it: with mpirun, torchrun and deepspeed, killed and on a full disk, resumed.

One start of two ranks runs many trainings, and the tests look at what they left behind.
"""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from many_runs import SCRIPTS, many_runs

SINGLE, DEEPSPEED = SCRIPTS / "train_single.py", SCRIPTS / "train_deepspeed.py"
# With one rank the sums are the serial program's, with two they are DistributedDataParallel's: the tests ask for equal bits.
# bfloat16 has 3 digits: after three epochs its loss differs from float32's by a few thousandths.
BF16 = 0.01
# The serial program adds 64 gradients in one sum, two ranks in two: see test_train_scripts.py.
TOLERANCE = 1e-4


pytestmark = pytest.mark.usefixtures("mpi_set")


def run(*parts, **options):
    return subprocess.run(
        [str(part) for part in parts], capture_output=True, text=True, timeout=200, **options
    )


RESUME = """
import train_ddp, train_deepspeed, train_single
def resume(name, source, stage, *more):
    train(name, train_deepspeed, "--epochs", 3, "--stage", stage, "--checkpoint", copy(name, source), "--resume", *more)
"""
TWO = """
train("ddp", train_ddp, "--epochs", 3)
train("other options", train_deepspeed, "--lr", 0.1 * (1 + comm.rank))
train("no images for a rank", train_deepspeed, "--batch-size", 63)
for stage in range(4):
    train(f"stage {stage}", train_deepspeed, "--epochs", 3, "--stage", stage)
train("bf16", train_deepspeed, "--epochs", 3, "--bf16")
for stage in (0, 1, 3):
    (folder / f"saved {stage}" / "epoch1_kept").mkdir(parents=True, exist_ok=True)
    train(f"first half {stage}", train_deepspeed, "--epochs", 2, "--stage", stage, "--checkpoint", folder / f"saved {stage}")
    resume(f"second half {stage}", f"saved {stage}", stage)
    resume(f"as stage {(stage + 1) % 4}", f"saved {stage}", (stage + 1) % 4)
    resume(f"at no rate {stage}", f"saved {stage}", stage, "--lr", 1e-30)
    found[f"folders {stage}"] = sorted(path.name for path in (folder / f"saved {stage}").iterdir() if path.suffix != ".py")
    copy(f"host 0, {stage}", f"saved {stage}")
    if comm.rank:  # on a host of its own, with other folders
        (folder / f"host {comm.rank}").mkdir(exist_ok=True)
        os.chdir(folder / f"host {comm.rank}")
    else:
        os.chdir(folder)
    train(f"not shared {stage}", train_deepspeed, "--stage", stage, "--checkpoint", f"host 0, {stage}", "--resume")
resume("another batch", "saved 1", 1, "--batch-size", 32)
train("nothing there", train_deepspeed, "--epochs", 3, "--checkpoint", folder / "nothing", "--resume")
train("no --resume", train_deepspeed, "--checkpoint", folder / "saved 1")
save = torch.save
def full(state, path, **options):
    limit = 4096 if "epoch3" in str(path) else resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    save(state, path, **options)
torch.save = full
resume("disk full", "saved 1", 1)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
torch.save = save
resume("room again", "disk full", 1)
for what in ("zero_pp_rank_1_mp_rank_00_optim", "mp_rank_00_model"):
    for kind in ("cut short", "empty", "one bit"):
        name = f"{what} {kind}"
        file = copy(name + " source", "saved 1") / "epoch2" / f"{what}_states.pt"
        if comm.rank == 0:
            whole = file.read_bytes()
            at = len(whole) // 2
            bit = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
            file.write_bytes({"cut short": whole[:at], "empty": b"", "one bit": bit}[kind])
        comm.barrier()
        resume(name, name + " source", 1)
"""

ONE = """
train("one rank", train_deepspeed, "--epochs", 3, "--stage", 1)
train("single", train_single, "--epochs", 3)
for stage in (0, 1, 3):
    resume(f"saved by two {stage}", f"saved {stage}", stage)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trainings")


@pytest.fixture(scope="module")
def two(mpi_set, folder):
    """Trainings on two ranks."""
    return many_runs(folder, 2, RESUME + TWO, silent=True)


@pytest.fixture(scope="module")
def one(mpi_set, folder, two):
    """Trainings on one rank, also from the checkpoints of two."""
    return many_runs(folder, 1, RESUME + ONE, silent=True)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--batch-size", "0"], "--batch-size at least 1"),
        (["--lr", "0"], "--lr must be above 0"),
        (["--momentum", "1"], "--momentum in 0..1, without 1"),
        (["--resume"], "--resume needs --checkpoint"),
        (["--stage", "4"], "2"),  # argparse's exit code; it prints the choices
    ],
)
def test_bad_options_are_named_before_any_rank_is_met(monkeypatch, capsys, given, says):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "argv", ["train_deepspeed.py", *given])
    import train_deepspeed

    with pytest.raises(SystemExit, match=re.escape(says)):
        train_deepspeed.parse()
    if given[0] == "--stage":
        assert "invalid choice: 4 (choose from 0, 1, 2, 3)" in capsys.readouterr().err


@pytest.mark.long
def test_every_stage_ends_with_the_bits_of_ddp(two):
    assert two["ddp"]["said"] == [None, None]
    assert len(two["ddp"]["records"]) == 4
    for stage in range(4):
        assert two[f"stage {stage}"] == two["ddp"], stage


@pytest.mark.long
def test_one_rank_ends_with_the_bits_of_the_serial_program(one, two):
    assert one["one rank"] == one["single"]
    for ours, theirs in zip(
        two["stage 1"]["records"][:-1], one["single"]["records"][:-1], strict=True
    ):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=TOLERANCE)
        assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=1.5 / 360), (
            "at most one image on the edge"
        )


@pytest.mark.long
def test_bfloat16_follows_the_curve(two):
    pairs = list(zip(two["bf16"]["records"], two["ddp"]["records"], strict=True))
    for ours, theirs in pairs[:-1]:
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=BF16)
        assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=BF16)
    assert pairs[-1][0] != pairs[-1][1], "and is another number format"


@pytest.mark.long
@pytest.mark.parametrize("stage", [0, 1, 3])
def test_resumed_run_ends_as_the_whole_one(two, stage):
    whole = two[f"stage {stage}"]["records"]
    assert two[f"first half {stage}"]["records"][:2] == whole[:2]
    assert two[f"second half {stage}"] == {"records": whole[2:], "said": [None, None]}
    assert two[f"folders {stage}"] == ["epoch1_kept", "epoch2", "latest"], (
        "former ones would fill the disk"
    )


@pytest.mark.long
@pytest.mark.parametrize("stage", [0, 1, 3])
def test_a_resumed_run_learns_at_its_own_rate(two, stage):
    *_, parameters = two[f"first half {stage}"]["records"]
    assert two[f"at no rate {stage}"]["records"][-1] == parameters, (
        "a step of 1e-30 moves no weight"
    )


@pytest.mark.long
@pytest.mark.parametrize("stage", [0, 1, 3])
def test_a_folder_that_not_all_hosts_see_ends_all_ranks(two, stage):
    assert two[f"not shared {stage}"] == {
        "records": [],
        "said": ["The ranks do not have the same checkpoint"] * 2,
    }


@pytest.mark.long
def test_a_resumed_run_takes_the_same_images(two):
    for said in two["another batch"]["said"]:
        assert said.endswith(
            "latest was made with --seed 0 --batch-size 64, not with --seed 0 --batch-size 32"
        )


@pytest.mark.long
def test_resume_without_a_checkpoint_starts_anew(two):
    assert two["nothing there"] == two["stage 0"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["cut short", "empty", "one bit"])
@pytest.mark.parametrize("what", ["zero_pp_rank_1_mp_rank_00_optim", "mp_rank_00_model"])
def test_damaged_checkpoint_is_refused_by_all_ranks(two, folder, what, kind):
    why = "wrong checksum" if kind == "one bit" else "File is not a zip file"
    path = folder / f"{what} {kind}" / "latest"
    says = f"Cannot resume: {path} is damaged, or of another stage or number of ranks ({why})"
    assert two[f"{what} {kind}"] == {"records": [], "said": [says, says]}


@pytest.mark.long
def test_checkpoint_of_another_stage_or_number_of_ranks_is_refused_where_it_does_not_fit(one, two):
    # Stage 0 keeps nothing by rank: its checkpoint fits any number of ranks.
    assert one["saved by two 0"]["said"] == [None]
    assert one["saved by two 0"]["records"][0]["epoch"] == 3
    for stage in (1, 3):
        (said,) = one[f"saved by two {stage}"]["said"]
        assert (
            said.startswith("Cannot resume: ") and "or of another stage or number of ranks" in said
        )
    assert (
        "used a DP world size of 2 but the current world size is 1"
        in one["saved by two 1"]["said"][0]
    )
    for stage in (1, 0):  # from 0 to 1, from 3 to 0
        assert all(said.startswith("Cannot resume: ") for said in two[f"as stage {stage}"]["said"])
    assert two["as stage 2"]["said"] == [None, None], "stages 1 and 2 save the same"


@pytest.mark.long
def test_checkpoint_is_not_overwritten_unasked(two, folder):
    assert two["no --resume"] == {
        "records": [],
        "said": [f"--resume, or delete {folder / 'saved 1'} first"] * 2,
    }


@pytest.mark.long
def test_batch_that_the_ranks_cannot_share_is_refused(two):
    assert (
        two["no images for a rank"]["said"]
        == ["--batch-size 63 is not a multiple of the 2 ranks"] * 2
    )


@pytest.mark.long
def test_ranks_with_other_options_are_refused(two):
    assert two["other options"] == {
        "records": [],
        "said": ["The ranks do not have the same options"] * 2,
    }


@pytest.mark.long
def test_full_disk_leaves_the_former_checkpoint(two, folder):
    assert all("unexpected pos" in said for said in two["disk full"]["said"]), (
        "torch's words for a file that cannot grow"
    )
    assert (folder / "disk full" / "latest").read_text() == "epoch2"
    partial = [file.stat().st_size for file in (folder / "disk full" / "epoch3").glob("*.pt")]
    assert partial and max(partial) <= 4096, "the disk was full in the middle of a file"
    assert two["room again"] == two["second half 1"]


# In the first start, rank 1 is killed when it has written half of its part of the second checkpoint.
KILLED = """
import os, signal, sys
sys.path.insert(0, {scripts!r})
import torch, train_deepspeed
save = torch.save
def half(state, path, **options):
    save(state, path, **options)
    if "epoch2" in str(path) and os.environ["RANK"] == "1":
        os.truncate(path, os.path.getsize(path) // 2)
        os.kill(os.getpid(), signal.SIGKILL)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    torch.save = half
sys.argv = ["train_deepspeed.py", "--json", "--epochs", "3", "--stage", "1", "--resume", "--checkpoint", {folder!r}]
train_deepspeed.main()
"""


@pytest.mark.long
def test_kill_while_saving_leaves_the_former_checkpoint(tmp_path, two):
    program, folder = tmp_path / "program.py", tmp_path / "digits"
    program.write_text(KILLED.format(scripts=str(SCRIPTS), folder=str(folder)))
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        2,
        "--max-restarts",
        1,
    ]
    done = run(*torchrun, program, env=dict(os.environ, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1"))
    assert done.returncode == 0, done.stderr
    records, whole = (
        [json.loads(line) for line in done.stdout.splitlines()],
        two["stage 1"]["records"],
    )
    assert [record.get("epoch") for record in records] == [1, 2, 2, 3, None], (
        "the second epoch is done twice"
    )
    assert all(record in whole for record in records) and records[-1] == whole[-1]
    assert (folder / "latest").read_text() == "epoch3"


@pytest.mark.long
def test_deepspeeds_own_launcher(tmp_path, two):
    launcher = Path(sys.executable).with_name("deepspeed")
    with socket.socket() as free:  # its default is 29500, for everybody on the host
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--stage", 1, "--epochs", 3, "--json", "--checkpoint", tmp_path / "digits"]
    command = [launcher, "--num_gpus", 2, "--master_port", port, "--quiet", DEEPSPEED, *options]
    done = run(*command, env=dict(os.environ, DS_ACCELERATOR="cpu"))
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == two["stage 1"]["records"]
    assert not done.stderr.strip()
    assert (tmp_path / "digits" / "latest").read_text() == "epoch3"
    assert not list(Path("/dev/shm").glob(f"deepspeed_*_{port}_*")), (
        "DeepSpeed's shared memory is left: 69 MB of each rank"
    )
