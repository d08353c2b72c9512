"""What bench_zero.py runs on MPI ranks: `steps` times one training step of each variant; `fits`
trains under a memory limit; `peaks` says how much each phase of a training adds at its fullest
moment.
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import sys
import threading
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

SAVINGS = {
    "bf16": "the model is built in bf16, not in fp32 first",
    "dealt": "stage 3: each layer is dealt out as it is made (deepspeed.zero.Init)",
    "buckets": "buckets of four layers, not of a quarter of the model",
    "fused": "torch's fused Adam, which needs no temporary arrays",
    "groups": "stage 3: the update goes through the parameters in groups (sub_group_size)",
}
VARIANTS = ("DDP", "stage 0", "stage 1", "stage 2", "stage 3")


def build(variant, args):
    """The model; in bf16, or in fp32 first; under zero.Init each layer is dealt out when it is
    made.
    """
    torch.manual_seed(0)
    kind = torch.bfloat16 if "bf16" in args.save else torch.float32
    with (
        dealing(variant, args)
        if "dealt" in args.save and variant == "stage 3"
        else contextlib.nullcontext()
    ):
        return nn.Sequential(
            *(nn.Linear(args.width, args.width, bias=False, dtype=kind) for _ in range(args.layers))
        )


def dealing(variant, args):
    import deepspeed

    return deepspeed.zero.Init(config_dict_or_path=settings(int(variant[-1]), args))


def stepper(variant, args):
    """(a function that runs forward and backward, one that updates, one that ends the variant)"""
    net = build(variant, args)
    x = torch.randn(args.batch, args.width, dtype=torch.bfloat16 if args.bf16 else torch.float32)
    if variant == "DDP":
        ddp = nn.parallel.DistributedDataParallel(net)
        adam = torch.optim.Adam(net.parameters(), lr=1e-4)

        def learn():
            adam.zero_grad()
            ddp(x).square().mean().backward()

        return learn, adam.step, lambda: None
    import deepspeed

    engine, *_ = deepspeed.initialize(
        model=net, config=settings(int(variant[-1]), args), model_parameters=net.parameters()
    )
    return lambda: engine.backward(engine(x).square().mean()), engine.step, engine.destroy


def settings(stage, args):
    """zero_check_mem's configuration, with what `--save` names."""
    args.bucket = args.width**2 * (4 if "buckets" in args.save else max(1, args.layers // 4))
    made = config(stage, args)
    made["bf16"]["enabled"] = args.bf16
    adam = made["optimizer"]["params"]
    adam["adam_w_mode"] = False  # else "Adam" is AdamW, with weight decay
    if "fused" in args.save:
        adam["fused"] = True
    if "groups" in args.save:
        made["zero_optimization"]["sub_group_size"] = (
            args.width**2
        )  # a layer of one rank's share is four layers of the model
    return made


def held():
    """Bytes that this process may write to, as RLIMIT_DATA counts them: not what is only reserved,
    nor files.
    """
    return psutil.Process().memory_info().data


def peaks(args):
    """{phase: bytes that it adds to the start at its fullest moment, of each parameter of the
    model}
    """
    start, found, phase = held(), {}, "build"

    def watch():
        while now := phase:  # read once: it changes under this thread
            found[now] = max(found.get(now, 0), held() - start)
            time.sleep(0.0005)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    variant = f"stage {args.stage}"
    net, given = build(variant, args), torch.randn(args.batch, args.width, dtype=torch.bfloat16)
    phase = "initialize"
    import deepspeed

    engine, *_ = deepspeed.initialize(
        model=net, config=settings(args.stage, args), model_parameters=net.parameters()
    )
    for _ in range(2):
        phase = "forward and backward"
        engine.backward(engine(given).square().mean())
        phase = "step"
        engine.step()
    phase = None
    thread.join()
    parameters = args.layers * args.width**2
    return {phase: added / parameters for phase, added in found.items()}


def timed(me, args):
    """{variant: (median s of a step, bytes that this rank wrote in a step)}"""
    found = {}
    for variant in VARIANTS:
        learn, update, end = stepper(variant, args)
        learn(), update(), learn(), update()
        seconds, written = [], psutil.Process().io_counters().write_chars
        for _ in range(args.steps):
            dist.barrier()
            start = time.perf_counter()
            learn(), update()
            seconds.append(time.perf_counter() - start)
        written = (psutil.Process().io_counters().write_chars - written) / args.steps
        slowest = torch.tensor(seconds)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        found[variant] = (statistics.median(slowest.tolist()), written)
        end()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["steps", "fits", "peaks"])
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--stage", type=int, default=0)
    parser.add_argument(
        "--limit", type=float, default=2**31, help="bytes that a rank may add to its start"
    )
    parser.add_argument("--save", nargs="*", default=[], choices=SAVINGS, help=f"memory: {SAVINGS}")
    args = parser.parse_args()
    args.bf16 = args.what != "steps"
    me = ranks.join(deepspeed=True)
    import deepspeed  # noqa: F401  what it maps belongs to the start

    if args.what == "steps":
        found = timed(me, args)
    elif args.what == "peaks":
        found = peaks(args)
    else:
        size = held() + int(args.limit)
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))
        learn, update, end = stepper(f"stage {args.stage}", args)
        learn(), update(), learn(), update()
        found = {"fits": True}
        end()
    if me.rank == 0:
        print(json.dumps(found), flush=True)
    ranks.leave()


if __name__ == "__main__":
    main()
