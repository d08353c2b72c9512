#!/usr/bin/env python
"""Which bytes each rank holds at a ZeRO stage, by component and moment, beside the prediction. No GPU needed.

  mpirun -n 2 python scripts/zero_check_mem.py                          stages 0 to 3, 8 million parameters in 32 layers
  mpirun -n 4 python scripts/zero_check_mem.py --stage 2 --params 25M --layers 6 --json

The model is a chain of square linear layers in bf16, trained for two steps by DeepSpeed with Adam. Moments: after `initialize`;
after `forward`; `backward`, when its last gradient appears; `update`, as Adam begins; after the `step`. Bytes are those of
live tensors (pi2zero.meters.Memory); `resident` is the whole process's, which keeps freed memory: the stages share one
process, so compare it between runs of one --stage each. Predicted: ZeRO's formula (pi2zero.costs.zero_bytes), without
activations and buffers.
"""

import argparse
import json
import math
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one rank, one thread: ranks do not fight for cores

import torch
import torch.distributed as dist
from torch import nn

from pi2zero import costs, ranks
from pi2zero.meters import Memory

SUFFIXES = {"K": 1e3, "M": 1e6, "B": 1e9}
SHOWN = ("parameters", "gradients", "master", "moments", "activations", "in flight")
ON_A_GPU = ("on the host", "allocated", "reserved", "peak")


def main():
    args = parse()
    me = ranks.join(deepspeed=True)
    for stage in args.stage:
        result = measure(me, stage, args)
        everybody = [None] * me.world_size
        dist.all_gather_object(everybody, result)
        if me.rank == 0:
            report(everybody, args.json)
    ranks.leave()


def measure(me, stage, args):
    """Two training steps at this stage; what this rank held at each moment."""
    import deepspeed

    torch.manual_seed(0)
    memory = Memory()
    net = nn.Sequential(
        *(nn.Linear(args.width, args.width, bias=False) for _ in range(args.layers))
    )
    parameters = sum(p.numel() for p in net.parameters())
    # The first layer's gradient is the last to appear: then stage 1 still holds all of them.
    peak = net[0].weight.register_post_accumulate_grad_hook(
        lambda p: memory.note("backward", engine)
    )
    engine, *_ = deepspeed.initialize(
        model=net, config=config(stage, args), model_parameters=net.parameters()
    )
    adam = getattr(engine.optimizer, "optimizer", engine.optimizer)
    update = adam.register_step_pre_hook(lambda *_: memory.note("update", engine))
    memory.note("initialize", engine)
    for _ in range(2):
        x = torch.randn(args.batch, args.width, device=me.device, dtype=torch.bfloat16)
        with memory.activations():
            loss = engine(x).square().mean()
        memory.note("forward", engine)
        engine.backward(loss)
        engine.step()
        memory.note("step", engine)
    peak.remove()
    update.remove()
    engine.destroy()
    predicted = costs.zero_bytes(parameters, me.world_size, stage)
    return {
        "ranks": me.world_size,
        "rank": me.rank,
        "stage": stage,
        "parameters": parameters,
        "predicted": predicted,
        "samples": memory.samples,
    }


def config(stage, args):
    """DeepSpeed's configuration. Its buckets, made for billions of parameters, are cut to `--bucket`."""
    zero = {"stage": stage, "overlap_comm": False, "contiguous_gradients": True}
    zero |= {"reduce_bucket_size": args.bucket, "allgather_bucket_size": args.bucket}
    zero |= {"stage3_prefetch_bucket_size": args.bucket, "stage3_max_live_parameters": args.bucket}
    zero |= {"stage3_max_reuse_distance": 0, "stage3_param_persistence_threshold": 0}
    return {
        "train_micro_batch_size_per_gpu": args.batch,
        "gradient_clipping": 0.0,
        "bf16": {"enabled": True},
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": zero,
    }


def report(everybody, as_json):
    """Print what each rank held: JSON, one object for each rank; or a table in MB."""
    if as_json:
        return print(*map(json.dumps, everybody), sep="\n", flush=True)
    one = everybody[0]
    print(
        f"\nstage {one['stage']}, {one['ranks']} ranks, {one['parameters']:,} parameters; MB on each rank"
    )
    columns = [
        *SHOWN,
        "resident",
        *(name for name in ON_A_GPU if name in next(iter(one["samples"].values()))),
    ]
    print(f"{'rank':>4} {'moment':>10} " + " ".join(f"{name:>11}" for name in columns))
    for result in everybody:
        for moment, sample in result["samples"].items():
            values = " ".join(f"{sample[name] / 1e6:11.2f}" for name in columns)
            print(f"{result['rank']:4} {moment:>10} {values}")
    print(
        f"{'':4} {'predicted':>10} "
        + " ".join(f"{one['predicted'].get(name, 0) / 1e6:11.2f}" for name in SHOWN),
        flush=True,
    )


def count(text):
    """'25M' -> 25,000,000."""
    number, scale = (
        (text[:-1], SUFFIXES[text[-1].upper()]) if text[-1:].upper() in SUFFIXES else (text, 1)
    )
    try:
        return round(float(number) * scale)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: a number such as 25M (K, M and B stand for 1e3, 1e6 and 1e9)"
        ) from None


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--stage",
        type=int,
        nargs="+",
        default=[0, 1, 2, 3],
        choices=range(4),
        help="default: all four",
    )
    parser.add_argument(
        "--params", type=count, default=8_388_608, help="parameters, e.g. 25M (default: 8.4M)"
    )
    parser.add_argument("--layers", type=int, default=32, help="linear layers (default: 32)")
    parser.add_argument(
        "--batch", type=int, default=4, help="samples in a step on each rank (default: 4)"
    )
    parser.add_argument(
        "--bucket",
        type=count,
        default=0,
        help="values in a bucket (default: one layer; DeepSpeed's: 500M)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    args = parser.parse_args()
    if args.layers < 1 or args.batch < 1 or args.bucket < 0:
        parser.error("--layers and --batch must be at least 1, --bucket not negative")
    args.width = math.isqrt(max(0, args.params // args.layers))
    if args.width < 16:
        parser.error(
            f"--params {args.params} in {args.layers} layers: give 256 parameters to each layer at least"
        )
    args.bucket = args.bucket or args.width**2
    return args


if __name__ == "__main__":
    main()
