"""train_deepspeed.py as a user starts it: launched, killed, on a full disk, resumed.

One start of two ranks runs many trainings, and the tests look at what they left behind.
"""

import socket
import sys
from pathlib import Path

import pytest
from many_runs import OWN_STORE, SCRIPTS, TORCHRUN, assert_same_curve, many_runs, records

DEEPSPEED = SCRIPTS / "train_deepspeed.py"
# bfloat16 has 3 digits: after three epochs its loss differs from float32's by a few thousandths.
BF16 = 0.01
RESUME = """
ours = "train_deepspeed.py"
def resume(name, source, stage, *more):
    checkpoint = copy(name, source)
    more = "--checkpoint", checkpoint, "--resume", *more
    train(name, ours, "--epochs", 3, "--stage", stage, *more)
"""
TWO = """
train("ddp", "train_ddp.py", "--epochs", 3)
train("other options", ours, "--lr", 0.1 * (1 + comm.rank))
train("no images for a rank", ours, "--batch-size", 63)
for stage in range(4):
    train(f"stage {stage}", ours, "--epochs", 3, "--stage", stage)
train("bf16", ours, "--epochs", 3, "--bf16")
for stage in (0, 1, 3):
    saved = f"saved {stage}"
    (folder / saved / "epoch1_kept").mkdir(parents=True, exist_ok=True)
    options = "--stage", stage, "--checkpoint", folder / saved
    train(f"first half {stage}", ours, "--epochs", 2, *options)
    resume(f"second half {stage}", saved, stage)
    resume(f"as stage {(stage + 1) % 4}", saved, (stage + 1) % 4)
    results[f"folders {stage}"] = sorted(path.name for path in (folder / saved).iterdir())
resume("at no rate", "saved 1", 1, "--lr", 1e-30)
copy("host 0", "saved 1")
if comm.rank:  # on a host of its own, with other folders
    (folder / "host 1").mkdir()
os.chdir(folder / "host 1" if comm.rank else folder)
train("not shared", ours, "--stage", 1, "--checkpoint", "host 0", "--resume")
resume("another batch", "saved 1", 1, "--batch-size", 32)
train("nothing there", ours, "--epochs", 3, "--checkpoint", folder / "nothing", "--resume")
train("no --resume", ours, "--checkpoint", folder / "saved 1")
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
            damage(file, kind)
        comm.barrier()
        resume(name, name + " source", 1)
"""
ONE = """
train("one rank", ours, "--epochs", 3, "--stage", 1)
train("single", "train_single.py", "--epochs", 3)
for stage in (0, 1, 3):
    resume(f"saved by two {stage}", f"saved {stage}", stage)
"""
pytestmark = [pytest.mark.long, pytest.mark.usefixtures("mpi_set")]


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


def test_every_stage_ends_with_the_bits_of_ddp(two):
    assert two["ddp"]["messages"] == [None, None]
    assert len(two["ddp"]["records"]) == 4
    for stage in range(4):
        assert two[f"stage {stage}"] == two["ddp"], stage


def test_one_rank_ends_with_the_bits_of_the_serial_program(one, two):
    assert one["one rank"] == one["single"]
    assert_same_curve(two["stage 1"]["records"], one["single"]["records"])


def test_bfloat16_follows_the_curve(two):
    assert_same_curve(two["bf16"]["records"], two["ddp"]["records"], BF16)
    assert two["bf16"]["records"] != two["ddp"]["records"], "it is another number format"


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_resumed_run_ends_as_the_whole_one(two, stage):
    whole = two[f"stage {stage}"]["records"]
    assert two[f"first half {stage}"]["records"][:2] == whole[:2]
    assert two[f"second half {stage}"] == {"records": whole[2:], "messages": [None, None]}
    left = [name for name in two[f"folders {stage}"] if not name.startswith("zero_to_")]
    assert left == ["epoch1_kept", "epoch2", "latest"], "former ones would fill the disk"


def test_a_resumed_run_learns_at_its_own_rate(two):
    parameters = two["first half 1"]["records"][-1]
    assert two["at no rate"]["records"][-1] == parameters, "a step of 1e-30 moves no weight"


REFUSED = {
    "not shared": "The checkpoints of rank 1 differ from rank 0's",
    "another batch": "made with --seed 0 --batch-size 64, not with --seed 0 --batch-size 32",
    "no --resume": "--resume, or delete ",
    "no images for a rank": "--batch-size 63 is not a multiple of the 2 ranks",
    "other options": "The options of rank 1 differ from rank 0's",
}


@pytest.mark.parametrize("run", REFUSED)
def test_what_cannot_be_is_refused_by_all_ranks(two, run):
    assert two[run]["records"] == []
    assert [REFUSED[run] in message for message in two[run]["messages"]] == [True, True]


def test_resume_without_a_checkpoint_starts_anew(two):
    assert two["nothing there"] == two["stage 0"]


@pytest.mark.parametrize("kind", ["cut short", "empty", "one bit"])
@pytest.mark.parametrize("what", ["zero_pp_rank_1_mp_rank_00_optim", "mp_rank_00_model"])
def test_damaged_checkpoint_is_refused_by_all_ranks(two, folder, what, kind):
    cause = "wrong checksum" if kind == "one bit" else "File is not a zip file"
    problem = "is damaged, or of another stage or number of ranks"
    for rank, message in enumerate(two[f"{what} {kind}"]["messages"]):
        assert f"{problem} (rank {rank}: {cause})" in message


def test_checkpoint_of_another_stage_or_number_of_ranks_is_refused_where_it_does_not_fit(one, two):
    # Stage 0 keeps nothing by rank: its checkpoint fits any number of ranks.
    assert one["saved by two 0"]["messages"] == [None]
    assert one["saved by two 0"]["records"][0]["epoch"] == 3
    for stage in (1, 3):
        (message,) = one[f"saved by two {stage}"]["messages"]
        assert "or of another stage or number of ranks" in message
    (message,) = one["saved by two 1"]["messages"]
    assert "used a DP world size of 2 but the current world size is 1" in message
    for stage in (1, 0):  # from 0 to 1, from 3 to 0
        messages = two[f"as stage {stage}"]["messages"]
        assert all(message.startswith("Cannot resume: ") for message in messages)
    assert two["as stage 2"]["messages"] == [None, None], "stages 1 and 2 save the same"


def test_full_disk_leaves_the_former_checkpoint(two, folder):
    messages = two["disk full"]["messages"]
    assert all("unexpected pos" in message for message in messages), "torch's words for a full disk"
    assert (folder / "disk full" / "latest").read_text() == "epoch2"
    partial = [file.stat().st_size for file in (folder / "disk full" / "epoch3").glob("*.pt")]
    assert partial and max(partial) <= 4096, "the disk was full in the middle of a file"
    assert two["room again"] == two["second half 1"]


# In the first start, rank 1 is killed when half of its part of the second checkpoint is written.
KILLED = """
import os, runpy, signal, sys
import torch
save = torch.save
def half(state, path, **options):
    save(state, path, **options)
    if "epoch2" in str(path) and os.environ["RANK"] == "1":
        os.truncate(path, os.path.getsize(path) // 2)
        os.kill(os.getpid(), signal.SIGKILL)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    torch.save = half
sys.argv = ["train_deepspeed.py", "--json", "--epochs", "3", "--stage", "1", "--resume"]
sys.argv += ["--checkpoint", {folder!r}]
sys.path.insert(0, {scripts!r})
runpy.run_path({scripts!r} + "/train_deepspeed.py", run_name="__main__")
"""


def test_kill_while_saving_leaves_the_former_checkpoint(tmp_path, two):
    program, folder = tmp_path / "program.py", tmp_path / "digits"
    program.write_text(KILLED.format(scripts=str(SCRIPTS), folder=str(folder)))
    lines = records(*TORCHRUN, "--max-restarts", 1, program, **OWN_STORE)
    whole = two["stage 1"]["records"]
    epochs = [line.get("epoch") for line in lines]
    assert epochs == [1, 2, 2, 3, None], "the second epoch is done twice"
    assert all(line in whole for line in lines) and lines[-1] == whole[-1]
    assert (folder / "latest").read_text() == "epoch3"


def test_deepspeeds_own_launcher(tmp_path, two):
    launcher = Path(sys.executable).with_name("deepspeed")
    with socket.socket() as free:  # its default is 29500, for everybody on the host
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--stage", 1, "--epochs", 3, "--json", "--checkpoint", tmp_path / "digits"]
    start = [launcher, "--num_gpus", 2, "--master_port", port, "--quiet", DEEPSPEED]
    assert records(*start, *options, DS_ACCELERATOR="cpu") == two["stage 1"]["records"]
    assert (tmp_path / "digits" / "latest").read_text() == "epoch3"
    left = list(Path("/dev/shm").glob(f"deepspeed_*_{port}_*"))
    assert not left, "DeepSpeed's shared memory: 69 MB of each rank"
