"""What bench_zero.py runs on MPI ranks: `steps` times one training step of each variant; `fits`
trains under a memory limit; `peaks` reports how much memory each phase of a training run adds.
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

# One after the other, in the table of peaks
SAVINGS = {
    "bf16": "the model is built in bf16, not in fp32 first",
    "sharded": "stage 3: each layer is sharded when it is made (deepspeed.zero.Init)",
    "buckets": "buckets of four layers, not of a quarter of the model",
    "fused": "torch's fused Adam, which needs no temporary arrays",
    "groups": "stage 3: the update goes through the parameters in groups (sub_group_size)",
}
VARIANTS = ("DDP", "stage 0", "stage 1", "stage 2", "stage 3")


def build(variant, args):
    """The model; in bf16, or in fp32 first; zero.Init shards each layer when it is made."""
    torch.manual_seed(0)
    dtype, sharding = torch.float32, contextlib.nullcontext()
    if "bf16" in args.save:
        dtype = torch.bfloat16
    if "sharded" in args.save and variant == "stage 3":
        import deepspeed

        sharding = deepspeed.zero.Init(config_dict_or_path=settings(3, args))
    layer = {"bias": False, "dtype": dtype}
    with sharding:
        return nn.Sequential(
            *(nn.Linear(args.width, args.width, **layer) for _ in range(args.layers))
        )


def stepper(variant, args):
    """Functions that run forward and backward, update the parameters, and end the variant."""
    net = build(variant, args)
    x = torch.randn(args.batch, args.width, dtype=torch.bfloat16 if args.bf16 else torch.float32)
    if variant == "DDP":
        ddp = nn.parallel.DistributedDataParallel(net)
        adam = torch.optim.Adam(net.parameters(), lr=1e-4)

        def forward_backward():
            adam.zero_grad()
            ddp(x).square().mean().backward()

        return forward_backward, adam.step, lambda: None
    import deepspeed

    engine, *_ = deepspeed.initialize(
        model=net, config=settings(int(variant[-1]), args), model_parameters=net.parameters()
    )
    return lambda: engine.backward(engine(x).square().mean()), engine.step, engine.destroy


def settings(stage, args):
    """zero_check_mem's configuration, with what `--save` names."""
    args.bucket = args.width**2 * (4 if "buckets" in args.save else max(1, args.layers // 4))
    result = config(stage, args)
    result["bf16"]["enabled"] = args.bf16
    adam = result["optimizer"]["params"]
    adam["adam_w_mode"] = False  # otherwise "Adam" is AdamW, with weight decay
    if "fused" in args.save:
        adam["fused"] = True
    if "groups" in args.save:  # One rank's shards of four layers are as large as a layer.
        result["zero_optimization"]["sub_group_size"] = args.width**2
    return result


def writable_bytes():
    """Bytes that this process may write to, as RLIMIT_DATA counts them, without reserved pages and
    mapped files.
    """
    return psutil.Process().memory_info().data


def peaks(args):
    """{phase: bytes per parameter that it adds to the start at its peak}"""
    start, peak_of, phase = writable_bytes(), {}, "build"

    def sample():
        while current := phase:  # Read once, because the main thread changes it.
            peak_of[current] = max(peak_of.get(current, 0), writable_bytes() - start)
            time.sleep(0.0005)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    variant = f"stage {args.stage}"
    net, x = build(variant, args), torch.randn(args.batch, args.width, dtype=torch.bfloat16)
    phase = "initialize"
    import deepspeed

    engine, *_ = deepspeed.initialize(
        model=net, config=settings(args.stage, args), model_parameters=net.parameters()
    )
    for _ in range(2):
        phase = "forward and backward"
        engine.backward(engine(x).square().mean())
        phase = "step"
        engine.step()
    phase = None
    thread.join()
    parameters = args.layers * args.width**2
    return {phase: added / parameters for phase, added in peak_of.items()}


def step_times(args):
    """{variant: (median s of a step, bytes that this rank wrote in a step)}"""
    times = {}
    for variant in VARIANTS:
        train, update, end = stepper(variant, args)
        train(), update(), train(), update()
        seconds, written = [], psutil.Process().io_counters().write_chars
        for _ in range(args.steps):
            dist.barrier()
            start = time.perf_counter()
            train(), update()
            seconds.append(time.perf_counter() - start)
        written = (psutil.Process().io_counters().write_chars - written) / args.steps
        slowest = torch.tensor(seconds)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        times[variant] = (statistics.median(slowest.tolist()), written)
        end()
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["steps", "fits", "peaks"])
    sizes = {"width": 512, "layers": 8, "batch": 64, "steps": 8, "stage": 0}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument(
        "--limit", type=float, default=2**31, help="bytes that a rank may add to its start"
    )
    parser.add_argument("--save", nargs="*", default=[], choices=SAVINGS, help=f"memory: {SAVINGS}")
    args = parser.parse_args()
    args.bf16 = args.what != "steps"
    me = ranks.join(deepspeed=True)
    import deepspeed  # noqa: F401  The memory of the import belongs to the start.

    if args.what == "steps":
        report = step_times(args)
    elif args.what == "peaks":
        report = peaks(args)
    else:
        size = writable_bytes() + int(args.limit)
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))
        train, update, end = stepper(f"stage {args.stage}", args)
        train(), update(), train(), update()
        report = {"fits": True}
        end()
    if me.rank == 0:
        print(json.dumps(report), flush=True)
    ranks.leave()


if __name__ == "__main__":
    main()
