"""Each part of a rank's memory at each ZeRO stage against the paper's formula, on DeepSpeed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pi2zero import costs
from pi2zero.mpi import mpi_env

SCRIPT = Path(__file__).parents[2] / "scripts" / "zero_check_mem.py"
PSI = 32 * 256 * 256  # parameters
LAYER = 2 * 256 * 256  # bytes of one layer in bf16


def run(ranks, *options):
    mpi_env()
    command = ["mpirun", "-n", str(ranks), sys.executable, SCRIPT, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


@pytest.fixture(scope="module", params=[1, 2, 4])
def measured(request):
    """(ranks, {stage: what the last rank held})"""
    done = run(request.param, "--params", str(PSI), "--json")
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]  # and no word of DeepSpeed's
    assert not done.stderr.strip()
    assert [(r["stage"], r["rank"]) for r in results] == [
        (s, r) for s in range(4) for r in range(request.param)
    ]
    assert all(r["parameters"] == PSI and r["ranks"] == request.param for r in results)
    return request.param, {r["stage"]: r["samples"] for r in results}


@pytest.mark.long
def test_every_component_is_the_papers_within_3_percent(measured):
    ranks, stages = measured
    for stage, samples in stages.items():
        held = samples["backward"]
        for part, size in costs.zero_bytes(PSI, ranks, stage).items():
            assert held[part] == pytest.approx(size, rel=0.03), (stage, part)
        # The bucket, the gradient that enters it, and at stage 3 the layer gathered for computing.
        assert held["in flight"] <= 3.1 * LAYER, stage


@pytest.mark.long
def test_moments_of_a_step(measured):
    ranks, stages = measured
    for stage, samples in stages.items():
        assert samples["step"]["gradients"] == pytest.approx(
            2 * PSI / ranks if stage == 3 else 0, rel=0.03
        )
        # Inputs of 32 layers, 4 samples x 256 values of 2 bytes: forward keeps, backward frees them
        assert samples["forward"]["activations"] == pytest.approx(32 * 4 * 256 * 2, rel=0.05)
        assert samples["step"]["activations"] == 0
        assert samples["step"]["resident"] > 16 * PSI / ranks
        # Adam reads fp32 gradients: 4 more bytes per parameter of its shard, or of all at stage 0.
        assert samples["update"]["gradients"] >= 4 * PSI / ranks


@pytest.mark.long
def test_every_option_is_honoured():
    done = run(
        1, "--stage", "1", "3", "--params", "1M", "--layers", "4", "--bucket", "3M", "--batch", "8"
    )
    text = " ".join(done.stdout.split())
    assert (
        text.count("1,000,000 parameters") == 2
        and "stage 1, 1 ranks" in text
        and "stage 3, 1 ranks" in text
    ), done.stderr
    (forward, *_) = [line.split() for line in done.stdout.splitlines() if "forward" in line]
    assert float(forward[6]) == pytest.approx(4 * 8 * 500 * 2 / 1e6, abs=0.01), (
        "activations of 4 layers, 8 samples"
    )
    (backward, *_) = [line.split() for line in done.stdout.splitlines() if "backward" in line]
    assert 0.5 <= float(backward[7]) <= 7, (
        "in flight: what DeepSpeed has made of its bucket by then"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--stage", "4"], "invalid choice: 4"),
        (["--params", "many"], "a number such as 25M"),
        (["--params", "1K"], "give 256 parameters to each layer"),
        (["--layers", "0"], "--layers"),
    ],
)
def test_bad_options_say_what_is_expected(monkeypatch, capsys, options, words):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import zero_check_mem

    monkeypatch.setattr(sys, "argv", [SCRIPT.name, *options])
    with pytest.raises(SystemExit) as ended:
        zero_check_mem.parse()
    assert ended.value.code == 2 and words in capsys.readouterr().err


FSDP = """
import json
import torch
from torch.distributed.fsdp import fully_shard
from pi2zero import ranks
from pi2zero.meters import Memory
me, memory = ranks.join(), Memory()
net = torch.nn.Linear(256, 256, bias=False)
fully_shard(net, reshard_after_forward=False)
adam = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = net(torch.ones(4, 256)).sum()
    memory.note("forward", net, adam)
    loss.backward()
    adam.step()
    memory.note("step", net, adam)
if me.rank == 0:
    print(json.dumps(memory.samples))
ranks.leave()
"""


@pytest.mark.long
def test_fsdp2_holds_shards_and_its_gathered_parameters_are_in_flight():
    mpi_env()
    command = ["mpirun", "-n", "2", sys.executable, "-c", FSDP]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    samples, psi = json.loads(done.stdout.splitlines()[-1]), 256 * 256
    for moment in ("forward", "step"):
        assert samples[moment]["parameters"] == 4 * psi / 2 and samples[moment]["master"] == 0
        assert samples[moment]["moments"] == pytest.approx(8 * psi / 2, rel=0.01)
    assert samples["forward"]["in flight"] == pytest.approx(4 * psi, rel=0.05)


def test_torch_and_what_was_there_before():
    import torch

    from pi2zero.meters import Memory

    before = torch.ones(1000)
    memory, net = Memory(), torch.nn.Linear(100, 100, bias=False)
    optimizer = torch.optim.Adam(net.parameters())
    with memory.activations():
        loss = net(torch.ones(8, 100)).square().sum()
    memory.note("forward", net, optimizer)
    loss.backward()
    optimizer.step()
    memory.note("step", net, optimizer)
    forward, step = memory.samples["forward"], memory.samples["step"]
    assert forward["parameters"] == step["parameters"] == step["gradients"] == 40_000
    assert step["moments"] == pytest.approx(80_000, abs=16) and step["master"] == 0
    assert (
        forward["activations"] == 2 * 8 * 100 * 4
    )  # the input, and the output for square's derivative
    assert step["in flight"] < 4_000 and before.sum() == 1000
    step["parameters"] = 0
    memory.note("step", net, optimizer)
    assert memory.samples["step"]["parameters"] == 40_000, "the larger sample stays"


def test_a_tensor_that_another_thread_is_about_to_release_does_not_count(monkeypatch):
    """As gloo's: a collective has returned, and its thread still holds the tensor."""
    import torch

    from pi2zero.meters import Memory, memory

    meter, net, held = Memory(), torch.nn.Linear(1, 1), [torch.ones(1000) for _ in range(3)]
    # While the meter waits, the other thread releases one.
    monkeypatch.setattr(memory.time, "sleep", lambda seconds: held and held.pop())
    meter.note("after", net)
    assert meter.samples["after"]["in flight"] == 0
