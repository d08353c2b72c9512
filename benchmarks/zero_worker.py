"""What bench_zero.py runs on MPI ranks: `steps` times one training step of each variant; `fits` trains under a memory limit."""

import argparse
import json
import os
import resource
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import psutil
import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
from zero_check_mem import config

from pi2zero import ranks

VARIANTS = ("DDP", "stage 0", "stage 1", "stage 2", "stage 3")


def build(width, layers):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))


def stepper(variant, me, args):
    """A function that trains one step, and one that ends the variant. All in fp32: the same arithmetic for all."""
    net = build(args.width, args.layers)
    x = torch.randn(args.batch, args.width, dtype=torch.bfloat16 if args.bf16 else torch.float32)
    if variant == "DDP":
        ddp = nn.parallel.DistributedDataParallel(net)
        adam = torch.optim.Adam(net.parameters(), lr=1e-4)

        def step():
            adam.zero_grad()
            ddp(x).square().mean().backward()
            adam.step()

        return step, lambda: None
    import deepspeed

    engine, *_ = deepspeed.initialize(model=net, config=settings(int(variant[-1]), args), model_parameters=net.parameters())

    def step():
        engine.backward(engine(x).square().mean())
        engine.step()

    return step, engine.destroy


def settings(stage, args):
    """zero_check_mem's configuration in fp32, with buckets of a quarter of the model."""
    args.bucket = args.width**2 * max(1, args.layers // 4)
    made = config(stage, args)
    made["bf16"]["enabled"] = args.bf16
    made["optimizer"]["params"]["adam_w_mode"] = False  # else "Adam" is AdamW, with weight decay
    return made


def timed(me, args):
    """{variant: (median s of a step, bytes that this rank wrote in a step)}"""
    found = {}
    for variant in VARIANTS:
        step, end = stepper(variant, me, args)
        step(), step()
        seconds, written = [], psutil.Process().io_counters().write_chars
        for _ in range(args.steps):
            dist.barrier()
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        written = (psutil.Process().io_counters().write_chars - written) / args.steps
        slowest = torch.tensor(seconds)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        found[variant] = (statistics.median(slowest.tolist()), written)
        end()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["steps", "fits"])
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--stage", type=int, default=0)
    parser.add_argument("--limit", type=float, default=2**31, help="bytes of address space that a rank may add to its start")
    args = parser.parse_args()
    args.bf16 = args.what == "fits"
    me = ranks.join(deepspeed=True)
    if args.what == "steps":
        found = timed(me, args)
    else:
        import deepspeed  # noqa: F401  what it maps belongs to the start

        size = psutil.Process().memory_info().vms + int(args.limit)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        step, end = stepper(f"stage {args.stage}", me, args)
        step(), step()
        found = {"fits": True}
        end()
    if me.rank == 0:
        print(json.dumps(found), flush=True)
    ranks.leave()


if __name__ == "__main__":
    main()
