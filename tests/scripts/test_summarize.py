"""summarize.py as a user starts it: with mpirun, torchrun and deepspeed, killed, on a full disk,
resumed otherwise than it began.

The commands are in summarize_runs.py; the tests look at what they left behind.
"""

import errno
import json
import os
import pickle
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from summarize_runs import (
    BAD_OPTIONS,
    DAMAGED,
    ROOT,
    SCRIPT,
    STEPS,
    TINY,
    Payload,
    losses,
    on_one,
    on_two,
    train_and_kill,
)

from pi2zero.deepspeed_support import checkpoints
from pi2zero.mpi import mpi_env
from pi2zero_course.summarization.data import news
from pi2zero_course.summarization.scores import sentences

# Stages and numbers of ranks add the same float32 numbers in other orders. The losses are 3 to 8,
# where neighbouring floats
# are 2.4e-7 to 4.8e-7 apart; after 20 steps they differ by about 1e-6.
TOLERANCE = 1e-5
WRITER = ROOT / "tests/helpers/summarize_killed_writer.py"
ALL_STAGES = range(4)


@pytest.fixture(scope="module", autouse=True)
def _mpi():
    with mock.patch.dict(
        os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1"
    ):  # what mpi_env sets is taken back
        mpi_env()
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("summaries")
    (folder / "story.txt").write_text(news.story("test", 0)["article"])
    (folder / "empty").write_text(" \n")
    (folder / "latin").write_bytes("Zoë was here.".encode("latin-1"))
    return folder


@pytest.fixture(scope="module")
def killed(_mpi, base):
    return train_and_kill(base)


@pytest.fixture(scope="module")
def one(base, killed):
    return on_one(base)


@pytest.fixture(scope="module")
def two(base, one):
    return on_two(base)


def assert_goes_on_as(found, whole, after=10, tolerance=TOLERANCE):
    """The losses of a command after that step are those of another."""
    assert set(found["said"]) == {None}
    ours, theirs = losses(found["records"]), losses(whole["records"])
    assert (
        list(ours) == list(range(after + 1, STEPS + 1)) and found["records"][-1]["steps"] == STEPS
    )
    assert ours == pytest.approx({step: theirs[step] for step in ours}, abs=tolerance)
    assert theirs[STEPS] < theirs[1] - 1, "it learns"


@pytest.mark.long
def test_a_run_is_killed_on_its_way(killed):
    assert list(killed) == list(range(1, max(killed) + 1)) and 12 <= max(killed) < STEPS


@pytest.mark.long
@pytest.mark.parametrize("stage", [1, 3])
def test_a_killed_run_of_two_ranks_goes_on_on_one(one, stage):
    found = one[f"killed, one rank, {stage}"]
    assert_goes_on_as(found, one["one rank"], after=min(losses(found["records"])) - 1)


@pytest.mark.long
@pytest.mark.parametrize("stage", ALL_STAGES)
def test_every_stage_on_two_ranks_is_as_one_rank(one, two, stage):
    assert_goes_on_as(two[f"stage {stage}"], one["one rank"], after=0)


@pytest.mark.long
def test_a_killed_run_loses_no_more_than_since_the_last_checkpoint(killed, two):
    first = min(losses(two["killed, 1"]["records"]))
    assert (first - 1) % 5 == 0 and max(killed) - (first - 1) <= 5
    assert killed == pytest.approx(
        {step: losses(two["stage 1"]["records"])[step] for step in killed}, abs=TOLERANCE
    )


@pytest.mark.long
@pytest.mark.parametrize("stage", ALL_STAGES)
def test_a_killed_run_goes_on_at_any_stage(two, stage):
    found = two[f"killed, {stage}"]
    assert_goes_on_as(found, two["stage 1"], after=min(losses(found["records"])) - 1)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["3, then 0", "by one, then two", "torn, resumed", "room again", "with pickles"]
)
def test_a_stopped_run_goes_on(two, name):
    assert_goes_on_as(two[name], two["stage 1"])


@pytest.mark.long
def test_dropout_is_another_on_each_rank_and_in_each_step_and_a_resumed_run_has_the_same(two):
    assert_goes_on_as(two["dropout, resumed"], two["dropout"])
    assert losses(two["dropout"]["records"]) != pytest.approx(
        losses(two["stage 1"]["records"]), abs=0.01
    ), "there is dropout"
    whole, half, rest = (
        [seeds[a:b] for seeds in two["seeds"]]
        for a, b in ((0, STEPS), (STEPS, STEPS + 10), (STEPS + 10, None))
    )
    assert len({seed for seeds in whole for seed in seeds}) == 2 * STEPS
    assert [first + second for first, second in zip(half, rest, strict=True)] == whole


@pytest.mark.long
def test_half_written_folders_are_cleared_away(two, base):
    assert sorted(path.name for path in (base / "torn, resumed").iterdir()) == [
        "latest",
        f"step{STEPS}",
    ]


@pytest.mark.long
def test_bfloat16_follows_the_curve_and_resumes(two):
    assert_goes_on_as(
        two["bf16"], two["stage 1"], after=0, tolerance=0.05
    )  # it has 3 digits, and the losses are 3 to 8
    assert losses(two["bf16"]["records"]) != pytest.approx(
        losses(two["stage 1"]["records"]), abs=TOLERANCE
    )
    assert_goes_on_as(two["bf16, resumed"], two["bf16"])


def test_a_kill_at_any_file_operation_of_a_save_leaves_a_whole_checkpoint(tmp_path):
    done = subprocess.run(
        [sys.executable, WRITER, tmp_path], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    former, latter = map(int, done.stdout.split())
    assert former >= 10 and latter >= 3, "kills that left the former, and the new one"


def test_a_former_checkpoint_that_cannot_be_removed_ends_nothing(tmp_path, monkeypatch):
    """NFS keeps an open file under another name, and its folder with it."""
    rmdir = os.rmdir

    def busy(path, *arguments, **options):
        if Path(path).name == "step5":
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
        rmdir(path, *arguments, **options)

    monkeypatch.setattr(os, "rmdir", busy)
    stub = SimpleNamespace(save_pretrained=lambda folder: None)
    for step in (5, 10, 15):
        checkpoints._write(tmp_path / "run", {}, {}, stub, stub, {"step": step})
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "latest",
        "step15",
        "step5",
    ]
    assert checkpoints.find(tmp_path / "run").name == "step15"


@pytest.mark.long
def test_a_full_disk_ends_all_ranks_and_leaves_the_former_checkpoint(two, base):
    says, again = two["disk full"]["said"]
    assert says == again and says.startswith(
        f"Cannot write the checkpoint {base / 'disk full' / 'step15'}: "
    )
    assert "File too large" in says and says.endswith(
        "The former one, if any, is whole. Make room and go on with --resume."
    )


@pytest.mark.long
def test_nothing_in_a_checkpoint_is_run(two, base, tmp_path):
    for name in ("generated by two", "with pickles"):
        assert two[name]["said"] == [None, None] and two[name]["records"]
        arrays = {"numpy._core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype"}
        assert set(two[name]["unpickled"]) <= {"summarize.train"} | arrays, (
            "the ranks tell each other options and tokens, only"
        )
    assert not (base / "it ran").exists()
    pickle.loads(pickle.dumps(Payload(tmp_path / "it ran")))
    assert (tmp_path / "it ran").exists(), "the test's own trap works"


@pytest.mark.long
@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_checkpoint_is_named(two, base, name):
    _, _, is_read = DAMAGED[name]
    step = "step11" if "latest" in name else "step10"
    assert losses(two[name + ", resumed"]["records"]) == {}
    says = [*two[name + ", resumed"]["said"], *two[name + ", used"]["said"]][: 4 if is_read else 2]
    for said, folder in zip(
        says, [base / (name + ", resumed")] * 2 + [base / name] * 2, strict=False
    ):
        assert re.fullmatch(re.escape(f"{folder / step} is damaged (") + r".+\)", said)
    assert is_read or two[name + ", used"]["said"] == [None, None], (
        "who only reads the model needs no more"
    )


@pytest.mark.long
@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_bad_options_end_all_ranks(two, name):
    assert all(BAD_OPTIONS[name][1] in said and "Error(" not in said for said in two[name]["said"])
    assert losses(two[name]["records"]) == {}


@pytest.mark.long
def test_what_else_cannot_be_done_ends_all_ranks(two, base):
    says = {
        "other options": "The ranks do not have the same options",
        "not shared": "The ranks do not have the same checkpoint in run: share it",
        "not shared, resumed": "The ranks do not have the same checkpoint in run: share it",
        "half of one": f"{base / 'half of one'} has a checkpoint: add --resume, or choose "
        f"another folder",
        "nothing to evaluate": f"{base / 'nothing'} holds no checkpoint: run `summarize.py "
        f"train` first",
        "nothing to generate": f"{base / 'nothing'} holds no checkpoint: run `summarize.py "
        f"train` first",
        "empty": f"There is no text to summarize: {base / 'empty'} is empty",
        "latin": f"{base / 'latin'} is not text in UTF-8 (",
        "absent": f"No such file or directory: '{base / 'absent'}'",
        "resumed with another rate": f"{base / 'resumed with another rate' / 'step10'} was made "
        f"with the options ",
    }
    for name, message in says.items():
        assert all(message in said for said in two[name]["said"]) and len(two[name]["said"]) == 2, (
            name
        )


@pytest.mark.long
def test_evaluate_compares_with_lead_3_and_is_the_same_on_any_number_of_ranks(one, two):
    _, lead, model = one["evaluated by one"]["records"]
    assert two["evaluated by two"]["records"][1:] == [lead, model]
    assert (lead["summaries"], model["summaries"], lead["stories"], model["stories"]) == (
        "lead-3",
        "model",
        12,
        12,
    )
    for name in ("rouge1", "rouge2", "rougeL", "rougeLsum", "facts"):
        for low, mean, high in (lead[name], model[name]):
            assert 0 <= low <= mean <= high <= 100
    assert model["rouge2"][1] > lead["rouge2"][1], (
        "the checkpoint of the kit writes better summaries than three first sentences"
    )


@pytest.mark.long
def test_generate_writes_a_few_sentences(one, two):
    (record,) = one["generated"]["records"]
    assert 2 <= len(sentences(record["summary"])) <= 4
    assert (two["from stdin"]["records"], two["from stdin"]["said"]) == ([record], [None, None]), (
        "the standard input is rank 0's"
    )


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_other_launchers(tmp_path, two, launcher):
    start = {
        "torchrun": [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
        ],
        "deepspeed": [
            Path(sys.executable).with_name("deepspeed"),
            "--num_gpus",
            "2",
            "--master_port",
            str(free_port()),
            "--quiet",
        ],
    }[launcher]
    env = dict(os.environ, DS_ACCELERATOR="cpu", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    command = [*start, SCRIPT, "train", tmp_path / "run", "--json", *TINY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=env)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert_goes_on_as({"records": records, "said": [None]}, two["stage 1"], after=0)
    assert (tmp_path / "run" / "latest").read_text() == f"step{STEPS}"


FAILING = """
import sys
sys.path.insert(0, {scripts!r})
import summarize
pick = summarize.pick
def failing(rows, step, args, me):
    if me.rank == 1 and step == 2:
        raise MemoryError("no room on this rank")
    return pick(rows, step, args, me)
summarize.pick, sys.argv = failing, {words!r}
summarize.main(summarize.parse())
"""


@pytest.mark.long
def test_an_error_on_one_rank_ends_all(tmp_path, killed):
    program = FAILING.format(
        scripts=str(SCRIPT.parent), words=["summarize.py", "train", str(tmp_path / "run"), *TINY]
    )
    command = ["mpirun", "-n", "2", sys.executable, "-c", program]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200
    )  # each would wait for the other
    assert done.returncode == 1 and "MemoryError: no room on this rank" in done.stderr
