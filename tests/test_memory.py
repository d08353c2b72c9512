"""Which bytes a rank holds: each component at each ZeRO stage against the paper's formula, on real DeepSpeed ranks."""

import json
import subprocess
import sys

import pytest

from pi2zero.processes import mpi_env

# 32 layers of 256 x 256 weights: 2.1 million parameters in bf16, Adam, buckets of one layer.
PROGRAM = """
import json, sys
import torch
from torch import nn
from pi2zero import ranks
from pi2zero.meters import Memory
me = ranks.join(deepspeed=True)
import deepspeed
found = {}
for stage in range(4):
    net = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(32)))
    zero = {"stage": stage, "overlap_comm": False, "reduce_bucket_size": 2**16, "allgather_bucket_size": 2**16}
    zero |= {"stage3_prefetch_bucket_size": 2**16, "stage3_max_live_parameters": 2**16, "stage3_max_reuse_distance": 0}
    zero |= {"stage3_param_persistence_threshold": 0}
    adam = {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}}
    config = {"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "optimizer": adam, "zero_optimization": zero}
    memory = Memory()
    first = net[0].weight.register_post_accumulate_grad_hook(lambda p: memory.note("backward", engine))
    engine, *_ = deepspeed.initialize(model=net, config=config, model_parameters=net.parameters())
    memory.note("initialize", engine)
    for _ in range(2):
        with memory.activations():
            loss = engine(torch.ones(4, 256, dtype=torch.bfloat16)).sum()
        memory.note("forward", engine)
        engine.backward(loss)
        engine.step()
        memory.note("step", engine)
    found[stage] = memory.samples
    first.remove()
    engine.destroy()
    del engine, net, loss
if me.rank == me.world_size - 1:
    print(json.dumps(found))
ranks.leave()
"""
PSI = 32 * 256 * 256  # parameters
LAYER = 2 * 256 * 256  # bytes of one layer in bf16


@pytest.fixture(scope="module", params=[1, 2])
def measured(request):
    mpi_env()
    command = ["mpirun", "-n", str(request.param), sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()  # and no word of DeepSpeed's
    assert not done.stderr.strip()
    return request.param, {int(stage): samples for stage, samples in json.loads(line).items()}


def test_every_component_is_the_papers_within_3_percent(measured):
    ranks, stages = measured
    for stage, samples in stages.items():
        held = samples["backward"]
        share = {part: ranks if stage >= first else 1 for part, first in {"adam": 1, "gradients": 2, "parameters": 3}.items()}
        assert held["parameters"] == pytest.approx(2 * PSI / share["parameters"], rel=0.03), stage
        assert held["gradients"] == pytest.approx(2 * PSI / share["gradients"], rel=0.03), stage
        assert held["master"] == pytest.approx(4 * PSI / share["adam"], rel=0.03), stage
        assert held["moments"] == pytest.approx(8 * PSI / share["adam"], rel=0.03), stage
        # The bucket, the gradient that enters it, and at stage 3 the layer gathered for computing.
        assert held["in flight"] <= 3.1 * LAYER, stage


def test_moments_of_a_step(measured):
    ranks, stages = measured
    for stage, samples in stages.items():
        assert samples["step"]["gradients"] == pytest.approx(2 * PSI / ranks if stage == 3 else 0, rel=0.03)
        # Inputs of 32 layers, 4 samples x 256 values of 2 bytes; forward keeps them, backward lets go of them.
        assert samples["forward"]["activations"] == pytest.approx(32 * 4 * 256 * 2, rel=0.05)
        assert samples["step"]["activations"] == 0
        assert samples["step"]["resident"] > 16 * PSI / ranks


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
    assert forward["activations"] == 2 * 8 * 100 * 4  # the input, and the output for square's derivative
    assert step["in flight"] < 4_000 and before.sum() == 1000
    step["parameters"] = 0
    memory.note("step", net, optimizer)
    assert memory.samples["step"]["parameters"] == 40_000, "the larger sample stays"
