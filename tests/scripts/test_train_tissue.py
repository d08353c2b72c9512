"""scripts/train_tissue.py on 1, 2 and 4 ranks: whatever way the network is cut, it is one process's
training; and its slides.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import worlds
from torch.nn import functional as F

from pi2zero.mpi import mpi_env

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import tissue

SCRIPTS = Path(__file__).parents[2] / "scripts"
SCRIPT = SCRIPTS / "train_tissue.py"
SIZES = [1, 2, 4]
# Gradients of four images, in double precision, against one process's; sides that no number of
# strips divides.
CHECKS = """
from tissue import Line, classify, network
from train_tissue import SCHEDULES, Trainer

n, found = me.world_size, {}
torch.set_default_dtype(torch.float64)
for side in (101, 64):
    images = [torch.rand(3, side, side, generator=torch.Generator().manual_seed(k)) \
for k in range(4)]
    labels, serial = torch.tensor([0, 1, 1, 0]), network()
    F.cross_entropy(classify(serial, torch.stack(images), Line([me.rank], 0)), labels).backward()
    for data in (1, 2, 4):
        for stages in (1, 2, 4):
            space = n // (data * stages)
            if data * stages * space != n:
                continue
            for schedule in SCHEDULES if stages > 1 else SCHEDULES[:1]:
                if schedule == "gems" and 4 // data % 2:
                    continue
                trainer = Trainer(data, stages, space, schedule)
                strips, its = trainer.mine(images)
                trainer.gradients(strips, labels[list(its)], side)
                pairs = [(p.grad, q.grad) for a, b in trainer.beside(serial) \
for p, q in zip(a.parameters(), b.parameters())]
                near = max(((p - q).abs().max() / q.abs().max()).item() for p, q in pairs) < 1e-10
                tell(f"{side}: {data} copies, {stages} stages, {space} strips, {schedule}", near)
"""
WRONG = {
    "the head is added up over the strips, too": ("if not isinstance(part, Head)", "if True"),
    "two directions that do not add up": ("(self.mirror, every)", "(None, every)"),
    "a mean where a sum is due": ('reduction="sum") / total', "reduction='mean')"),
    "a halo without backward": ("part.add_(came)", "pass"),
}


@pytest.fixture(scope="module")
def by_size(tmp_path_factory):
    return worlds.checks(SIZES, CHECKS, tmp_path_factory.mktemp("worlds"))


@pytest.mark.long
@pytest.mark.parametrize(("n", "ways"), [(1, 1), (2, 6), (4, 15)])
def test_every_way_gives_one_process_s_gradients(by_size, n, ways):
    assert [name for name, held in by_size[n].items() if not held] == []
    assert len(by_size[n]) == 2 * ways


@pytest.mark.long
def test_a_wrong_sum_is_told_from_the_right_one(tmp_path):
    text = f"""
source = open({str(SCRIPTS / "tissue.py")!r}).read() \
+ open({str(SCRIPT)!r}).read().replace("from tissue import", "#")
source = source.partition("def main(")[0]
torch.set_default_dtype(torch.float64)
images = [torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(k)) for k in range(4)]
labels = torch.tensor([0, 1, 1, 0])
for name, (was, becomes) in { ({"right": ("", "")} | WRONG)!r}.items():
    space = dict(globals())
    exec(source.replace(was, becomes, 1), space)
    serial = space["network"]()
    F.cross_entropy(space["classify"](serial, torch.stack(images), \
space["Line"]([me.rank], 0)), labels).backward()
    trainer = space["Trainer"](stages=2, space=2, schedule="gems")
    strips, its = trainer.mine(images)
    trainer.gradients(strips, labels[list(its)], 64)
    pairs = [(p.grad, q.grad) for a, b in trainer.beside(serial) \
for p, q in zip(a.parameters(), b.parameters())]
    tell(name, max(((p - q).abs().max() / q.abs().max()).item() for p, q in pairs) < 1e-10)
torch.set_default_dtype(torch.float32)
"""
    source = (SCRIPTS / "tissue.py").read_text() + SCRIPT.read_text()
    assert all(source.count(was) == 1 for was, _ in WRONG.values())
    found = worlds.checks([4], text, tmp_path)[4]
    assert found == {"right": True} | dict.fromkeys(WRONG, False)


def run(ranks, *options):
    mpi_env()
    command = [
        "mpirun",
        "-n",
        ranks,
        sys.executable,
        SCRIPT,
        "--json",
        "--size",
        256,
        "--steps",
        3,
        *options,
    ]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.nightly
@pytest.mark.long
def test_the_script_trains_alike_on_one_rank_and_on_four_and_holds_less():
    alone = run(1)
    for options in (
        ("--space", 4),
        ("--stages", 2, "--space", 2, "--schedule", "gems"),
        ("--data", 2, "--stages", 2),
    ):
        four = run(4, *options)
        assert [step["loss"] for step in four] == pytest.approx(
            [step["loss"] for step in alone], abs=1e-4
        )
        assert four[0]["fullest_rank_MB"] < alone[0]["fullest_rank_MB"]
    assert run(4, "--space", 4)[0]["fullest_rank_MB"] < 0.4 * alone[0]["fullest_rank_MB"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--help"], "--schedule"),
        (["--space", "3"], "1 ranks, but data x stages x space = 3"),
        (["--images", "0"], "must be at least 1"),
        (["--size", "60"], "must be at least 64"),
        (["--schedule", "zero"], "invalid choice"),
    ],
)
def test_help_and_bad_options(options, says):
    done = subprocess.run(
        [sys.executable, SCRIPT, *options], capture_output=True, text=True, timeout=60
    )
    assert says in done.stdout + done.stderr and "Traceback" not in done.stderr
    assert done.returncode == 0 if options == ["--help"] else done.returncode != 0


def test_a_small_part_of_a_slide_does_not_tell_its_kind_and_a_seed_gives_the_same_one():
    """Tiles of 32 pixels: those of islands are as dark as those of even slides; whole slides with
    islands lie in between.
    """
    pairs = [tissue.slide(seed, 512) for seed in range(24)]
    assert [label for _, label in pairs] == [0, 1] * 12
    again = tissue.slide(3, 512)[0]
    assert (
        torch.equal(again, pairs[3][0])
        and again.shape == (3, 512, 512)
        and again.min() >= 0
        and again.max() <= 1
    )
    tiles = {
        kind: torch.cat(
            [F.avg_pool2d(image[None, 1], 32).flatten() for image, label in pairs if label == kind]
        )
        for kind in (0, 1)
    }
    middle = torch.cat([*tiles.values()]).median()
    assert all(0.4 < (dark > middle).float().mean() < 0.6 for dark in tiles.values()), (
        "dark in half of both"
    )
    whole = [[image[1].mean().item() for image, label in pairs if label == kind] for kind in (0, 1)]
    few, many = (
        np.array(whole[1])[np.array(whole[1]) < middle.item()],
        np.array(whole[1])[np.array(whole[1]) > middle.item()],
    )
    assert few.max() < min(whole[0]) and max(whole[0]) < many.min()
