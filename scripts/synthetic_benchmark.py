#!/usr/bin/env python
"""Images per second of data-parallel training, on random images and random weights: no data set, no download.

  python scripts/synthetic_benchmark.py                                             one rank
  mpirun -n 2 --bind-to none python scripts/synthetic_benchmark.py --method ddp     also: hand, horovod, single
  torchrun --standalone --nproc-per-node 2 scripts/synthetic_benchmark.py --method hand
  horovodrun -np 2 --gloo python scripts/synthetic_benchmark.py --method horovod

methods: ddp (torch DistributedDataParallel), horovod (DistributedOptimizer), hand (one flat all-reduce after backward),
single (no communication: on several ranks these are independent runs side by side, the ceiling for all others).
A step is forward, backward, reduction and update. The step of the whole is that of its slowest rank (but independent runs wait
for nobody: theirs is the mean). Warm-up is not counted.
A step begins with --pause, as if its data had to be fetched.
"""

import argparse
import json
import os
import statistics
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # weights are random; nothing is to be fetched

import torch
import torch.distributed as dist
import torch.nn.functional as F
from transformers import ResNetConfig, ResNetForImageClassification

MODELS = {
    "resnet50": {},  # the library's default: 25.6 M parameters
    "resnet18": {
        "hidden_sizes": [64, 128, 256, 512],
        "depths": [2, 2, 2, 2],
        "layer_type": "basic",
    },
    "small": {
        "embedding_size": 32,
        "hidden_sizes": [32, 64, 128, 256],
        "depths": [1, 1, 1, 1],
        "layer_type": "basic",
    },
    "tiny": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
}


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    rank, ranks, device = join(args.method)
    step, parameters = training(args, rank, device)
    seconds = torch.zeros(args.iterations, dtype=torch.float64)
    for number in range(-args.warmup, args.iterations):
        if number == 0:
            worked = time.process_time()
        start = time.perf_counter()
        time.sleep(args.pause / 1e3)
        step()
        if device.type == "cuda":
            torch.cuda.synchronize()  # a GPU call only starts the work
        if number >= 0:
            seconds[number] = time.perf_counter() - start
    mine = torch.tensor([*seconds, time.process_time() - worked], dtype=torch.float64)
    everyone = gather(args.method, mine, ranks)  # (ranks, iterations + 1)
    if rank == 0:
        tell(args, everyone.numpy(), parameters, device)
    leave(args.method)


def training(args, rank, device):
    """step(), one step of args.method on this rank's own images; and the number of parameters."""
    torch.manual_seed(0)  # the same weights on every rank
    model = ResNetForImageClassification(ResNetConfig(num_labels=1000, **MODELS[args.model])).to(
        device
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = stepper(args.method, model, optimizer)

    torch.manual_seed(1 + rank)  # other images on every rank
    images = torch.randn(args.batch_size, 3, args.image_size, args.image_size, device=device)
    labels = torch.randint(1000, (args.batch_size,), device=device)
    return lambda: step(images, labels), sum(p.numel() for p in model.parameters())


def join(method):
    """Enter the launcher's world. Returns rank, number of ranks, and this rank's device."""
    launcher = {
        "OMPI_COMM_WORLD_SIZE": "mpirun",
        "TORCHELASTIC_RUN_ID": "torchrun",
        "HOROVOD_SIZE": "horovodrun",
    }
    started = next((name for variable, name in launcher.items() if variable in os.environ), None)
    if method == "horovod":
        check(
            started != "torchrun",
            "--method horovod: torchrun does not start Horovod's ranks; use mpirun or horovodrun",
        )
        hvd = horovod()
        hvd.init()
        return hvd.rank(), hvd.size(), pick_device(hvd)
    check(
        started != "horovodrun",
        f"--method {method}: horovodrun starts Horovod's ranks only; use mpirun or torchrun",
    )
    from pi2zero import ranks

    here = ranks.join()  # several ranks share a GPU if there are not enough
    return here.rank, here.world_size, torch.device(here.device)


def pick_device(hvd):
    """This rank's own GPU, if each has one and Horovod has NCCL; else the CPU."""
    from pi2zero.ranks import gpus

    device = torch.device(gpus.for_horovod(hvd))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def stepper(method, model, optimizer):
    """step(images, labels): one step of training by the method."""
    forward, aggregate = model, lambda: None
    if method == "ddp":
        # Buffers are BatchNorm's averages. DDP sends rank 0's before each forward unless told not to; the others never do.
        ids = [model.device.index] if model.device.type == "cuda" else None
        forward = torch.nn.parallel.DistributedDataParallel(
            model, ids, broadcast_buffers=False, gradient_as_bucket_view=True
        )
    elif method == "horovod":
        hvd = horovod()
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    elif method == "hand":
        aggregate = lambda: average_gradients(model)  # noqa: E731

    def step(images, labels):
        loss = F.cross_entropy(forward(images).logits, labels)
        optimizer.zero_grad()
        loss.backward()
        aggregate()
        optimizer.step()

    return step


def average_gradients(model):
    """All gradients in one flat array, one all-reduce, and back."""
    gradients = [p.grad for p in model.parameters()]
    flat = torch.cat([g.reshape(-1) for g in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def gather(method, seconds, ranks):
    """Every rank's times, (ranks, iterations), on all ranks."""
    if method == "horovod":
        return horovod().allgather(seconds[None], name="seconds")
    everyone = [torch.zeros_like(seconds) for _ in range(ranks)]
    dist.all_gather(everyone, seconds)
    return torch.stack(everyone)


def leave(method):
    if method == "horovod":
        horovod().shutdown()
    else:
        # gloo's thread lets go of the gathered tensors a moment after the call has returned, and needs Python's lock for it.
        # A process that ends meanwhile waits for that thread, with the lock: for ever, in one run of ten.
        time.sleep(0.1)
        dist.destroy_process_group()


def horovod():
    try:
        import horovod.torch as hvd
    except ImportError as error:
        sys.exit(
            f"--method horovod: Horovod is not installed ({error}); `make horovod` builds it, the other methods work without"
        )
    return hvd


def tell(args, seconds, parameters, device):
    """Print images/s of each rank and in all, mean and standard deviation over the iterations.

    seconds: (ranks, iterations + 1), at the end what the processor worked.
    """
    seconds, worked = seconds[:, :-1], seconds[:, -1]
    rates = [mean_sd(args.batch_size / own) for own in seconds]
    if args.method == "single":  # nobody waits: each rank goes at its own pace
        mean, sd = sum(mean for mean, _ in rates), sum(sd**2 for _, sd in rates) ** 0.5
        step = len(seconds) / sum(1 / statistics.median(own.tolist()) for own in seconds)
    else:
        mean, sd = mean_sd(args.batch_size * len(seconds) / seconds.max(axis=0))
        step = statistics.median(seconds.max(axis=0).tolist())
    report = {
        **vars(args), "ranks": len(seconds), "device": device.type, "parameters": parameters,
        "idle": float(1 - worked.sum() / seconds.sum()),  # of a processor's time for each rank, what it left
        "step_seconds": step,
        "images_per_second": mean, "images_per_second_sd": sd,
        "per_rank": [{"images_per_second": m, "sd": s} for m, s in rates],
    }  # fmt: skip
    if args.json:
        print(json.dumps(report), flush=True)
        return
    print(
        f"{args.model} ({parameters / 1e6:.2f} M parameters), {args.method}, {len(seconds)} ranks on {device.type}, ",
        end="",
    )
    print(
        f"{args.batch_size} images of {args.image_size} x {args.image_size} per rank, {args.threads} threads per rank"
    )
    for rank, (m, s) in enumerate(rates):
        print(f"rank {rank}: {m:8.1f} ± {s:.1f} images/s")
    print(
        f"in all: {mean:8.1f} ± {sd:.1f} images/s, {1e3 * report['step_seconds']:.1f} ms a step (median of {args.iterations})",
        end="",
    )
    print(
        f", {report['idle']:.0%} of a core's time left idle"
        if device.type == "cpu" and args.threads == 1
        else ""
    )


def mean_sd(values):
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0


def check(true, message):
    """End the program with the message unless it is true."""
    if not true:
        raise SystemExit(message)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--method",
        choices=("single", "ddp", "horovod", "hand"),
        default="single",
        help="(default: single)",
    )
    parser.add_argument(
        "--model", choices=MODELS, default="resnet50", help="all are ResNets (default: resnet50)"
    )
    parser.add_argument(
        "--batch-size", type=int, default=8, help="images in a step on EACH rank (default: 8)"
    )
    parser.add_argument(
        "--image-size", type=int, default=224, help="pixels, height and width (default: 224)"
    )
    parser.add_argument("--threads", type=int, default=1, help="per rank, on the CPU (default: 1)")
    parser.add_argument(
        "--pause",
        type=float,
        default=0.0,
        help="ms of sleep in each step, before it computes (default: 0)",
    )
    parser.add_argument(
        "--iterations", type=int, default=10, help="steps that are counted (default: 10)"
    )
    parser.add_argument(
        "--warmup", type=int, default=3, help="steps before, not counted (default: 3)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    for name in ("batch_size", "threads", "iterations"):
        check(
            getattr(args, name) >= 1,
            f"--{name.replace('_', '-')} has to be 1 or more; got {getattr(args, name)}",
        )
    check(args.pause >= 0, f"--pause has to be 0 or more; got {args.pause}")
    check(args.warmup >= 0, f"--warmup has to be 0 or more; got {args.warmup}")
    check(
        args.image_size >= 32,
        f"--image-size has to be 32 or more (a ResNet halves it five times); got {args.image_size}",
    )
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    )  # macOS binds nothing
    check(
        args.threads <= cores,
        f"--threads {args.threads}, but this rank may use {cores} of the cores: mpirun --bind-to none",
    )
    check(
        args.batch_size > 1 or args.image_size > 32,
        "BatchNorm needs 2 values a channel: --batch-size 2, or larger images",
    )
    return args


if __name__ == "__main__":
    main()
