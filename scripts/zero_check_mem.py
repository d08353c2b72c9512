#!/usr/bin/env python
"""Which bytes each rank holds at a ZeRO stage, by component and moment, and the prediction. No GPU.

  mpirun -n 2 python scripts/zero_check_mem.py            stages 0 to 3, 8 million parameters
  mpirun -n 4 python scripts/zero_check_mem.py --stage 2 --params 25M --layers 6 --json

The model is a chain of square linear layers in bf16, trained for two steps by DeepSpeed with Adam.
Moments: after `initialize`; after `forward`; `backward`, when its last gradient appears; `update`,
as Adam begins; after the `step`. Bytes are those of live tensors (pi2zero.meters.Memory).
`resident` is the whole process's, which keeps freed memory; the stages share one process, so
compare it between runs of one --stage each. Predicted: ZeRO's formula (pi2zero.costs.zero_bytes),
without activations and buffers.
"""

import argparse
import json
import math
import os

from common import number, option, parser_of

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread per rank
SUFFIXES = {"K": 1e3, "M": 1e6, "B": 1e9}
SHOWN = ("parameters", "gradients", "master", "moments", "activations", "in flight")
ON_A_GPU = ("on the host", "allocated", "reserved", "peak")


def count(text):
    """'25M' -> 25,000,000."""
    scale = SUFFIXES.get(text[-1:].upper())
    try:
        return round(float(text[:-1] if scale else text) * (scale or 1))
    except ValueError:
        suffixes = "K, M and B stand for 1e3, 1e6 and 1e9"
        raise argparse.ArgumentTypeError(f"{text!r}: a number such as 25M ({suffixes})") from None


def parse():
    parser, stages = parser_of(__doc__), {"nargs": "+", "choices": range(4)}
    option(parser, "--stage", int, [0, 1, 2, 3], "of ZeRO", **stages)
    option(parser, "--params", count, 8_388_608, "parameters, e.g. 25M")
    option(parser, "--layers", number(int, 1), 32, "linear layers")
    option(parser, "--batch", number(int, 1), 4, "samples per step on each rank")
    option(parser, "--bucket", count, 0, "values in a bucket, 0 for one layer (DeepSpeed's: 500M)")
    parser.add_argument("--json", action="store_true", help="print JSON, one object per line")
    args = parser.parse_args()
    args.width = math.isqrt(max(0, args.params // args.layers))
    if args.width < 16:
        wanted = "give 256 parameters to each layer at least"
        parser.error(f"--params {args.params} in {args.layers} layers: {wanted}")
    args.bucket = args.bucket or args.width**2
    return args


if __name__ == "__main__":
    args = parse()  # before torch is imported, which takes seconds

import torch
import torch.distributed as dist
from torch import nn

from pi2zero import costs, ranks
from pi2zero.meters import Memory


def main(args):
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
    """DeepSpeed's configuration, with buckets of `--bucket` values instead of 500 million."""
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
    """Print what each rank held: one JSON object per rank, or a table in MB."""
    if as_json:
        return print(*map(json.dumps, everybody), sep="\n", flush=True)
    first = everybody[0]
    print(f"\nstage {first['stage']}, {first['ranks']} ranks, ", end="")
    print(f"{first['parameters']:,} parameters; MB on each rank")
    measured = next(iter(first["samples"].values()))
    columns = [*SHOWN, "resident", *(name for name in ON_A_GPU if name in measured)]
    print(f"{'rank':>4} {'moment':>10} " + " ".join(f"{name:>11}" for name in columns))
    for result in everybody:
        for moment, sample in result["samples"].items():
            values = " ".join(f"{sample[name] / 1e6:11.2f}" for name in columns)
            print(f"{result['rank']:4} {moment:>10} {values}")
    predicted = " ".join(f"{first['predicted'].get(name, 0) / 1e6:11.2f}" for name in SHOWN)
    print(f"{'':4} {'predicted':>10} {predicted}", flush=True)


if __name__ == "__main__":
    main(args)
