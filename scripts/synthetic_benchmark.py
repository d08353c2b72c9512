#!/usr/bin/env python
"""Images per second of data-parallel training, on random images: no data set, no download.

  python scripts/synthetic_benchmark.py                                             one rank
  mpirun -n 2 --bind-to none python scripts/synthetic_benchmark.py --method ddp     (hand, horovod)
  torchrun --standalone --nproc-per-node 2 scripts/synthetic_benchmark.py --method hand
  horovodrun -np 2 --gloo python scripts/synthetic_benchmark.py --method horovod

methods: ddp (torch DistributedDataParallel), horovod (DistributedOptimizer), hand (one flat
all-reduce after backward), single (no communication: independent runs, the ceiling for all others).
A step is forward, backward, reduction and update; it begins with --pause, as if its data had to be
fetched. The step of the whole is that of its slowest rank; of independent runs it is the mean.
Warm-up is not counted.
"""

import json
import os
import statistics
import sys
import time

from common import check, number, option, parser_of

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # weights are random; nothing is to be fetched
BASIC = {"layer_type": "basic"}
MODELS = {
    "resnet50": {},  # the library's default: 25.6 M parameters
    "resnet18": {"hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2]} | BASIC,
    "small": {"embedding_size": 32, "hidden_sizes": [32, 64, 128, 256], "depths": [1] * 4} | BASIC,
    "tiny": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]} | BASIC,
}


def parse():
    parser, count = parser_of(__doc__), number(int, 1)
    methods = ("single", "ddp", "horovod", "hand")
    option(parser, "--method", str, "single", "see above", choices=methods)
    option(parser, "--model", str, "resnet50", "all are ResNets", choices=MODELS)
    option(parser, "--batch-size", count, 8, "images per step on EACH rank")
    option(parser, "--image-size", number(int, 32), 224, "pixels, height and width")
    option(parser, "--threads", count, 1, "per rank, on the CPU")
    option(parser, "--pause", number(float, 0), 0.0, "ms of sleep in each step")
    option(parser, "--iterations", count, 10, "steps that are counted")
    option(parser, "--warmup", number(int, 0), 3, "steps before, not counted")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    allowed = f"this rank may use {cores} of the cores: mpirun --bind-to none"
    check(args.threads <= cores, f"--threads {args.threads}, but {allowed}")
    enough = args.batch_size > 1 or args.image_size > 32
    check(enough, "BatchNorm needs 2 values per channel: --batch-size 2, or larger images")
    return args


if __name__ == "__main__":
    args = parse()  # before torch is imported, which takes seconds

import torch
import torch.distributed as dist
import torch.nn.functional as F
from transformers import ResNetConfig, ResNetForImageClassification


def main(args):
    torch.set_num_threads(args.threads)
    rank, ranks, device = join(args.method)
    step, parameters = training(args, rank, device)
    seconds = torch.zeros(args.iterations, dtype=torch.float64)
    for i in range(-args.warmup, args.iterations):
        if i == 0:
            worked = time.process_time()
        start = time.perf_counter()
        time.sleep(args.pause / 1e3)
        step()
        if device.type == "cuda":
            torch.cuda.synchronize()  # a GPU call only starts the work
        if i >= 0:
            seconds[i] = time.perf_counter() - start
    mine = torch.tensor([*seconds, time.process_time() - worked], dtype=torch.float64)
    everyone = gather(args.method, mine, ranks)  # (ranks, iterations + 1)
    if rank == 0:
        report(args, everyone.numpy(), parameters, device)
    leave(args.method)


def training(args, rank, device):
    """step(), one step of args.method on this rank's own images; and the number of parameters."""
    torch.manual_seed(0)  # the same weights on every rank
    config = ResNetConfig(num_labels=1000, **MODELS[args.model])
    model = ResNetForImageClassification(config).to(device)
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
        problem = "torchrun does not start Horovod's ranks; use mpirun or horovodrun"
        check(started != "torchrun", f"--method horovod: {problem}")
        hvd = horovod()
        hvd.init()
        return hvd.rank(), hvd.size(), pick_device(hvd)
    problem = "horovodrun starts Horovod's ranks only; use mpirun or torchrun"
    check(started != "horovodrun", f"--method {method}: {problem}")
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
        # Buffers are BatchNorm's averages. By default DDP broadcasts rank 0's before each forward.
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
        # gloo's thread frees the gathered tensors a moment after the call, and needs the GIL.
        # A process that ends meanwhile waits for that thread with the GIL: forever, in 1 run of 10.
        time.sleep(0.1)
        dist.destroy_process_group()


def horovod():
    try:
        import horovod.torch as hvd
    except ImportError as error:
        sys.exit(f"--method horovod: Horovod is not installed ({error}); `make horovod` builds it")
    return hvd


def report(args, seconds, parameters, device):
    """Print images/s of each rank and in all, mean and standard deviation over the iterations.

    seconds: (ranks, iterations + 1); the last column is the processor time.
    """
    seconds, worked = seconds[:, :-1], seconds[:, -1]
    rates = [mean_sd(args.batch_size / own) for own in seconds]
    if args.method == "single":  # nobody waits: each rank goes at its own pace
        mean, sd = sum(mean for mean, _ in rates), sum(sd**2 for _, sd in rates) ** 0.5
        step = len(seconds) / sum(1 / statistics.median(own.tolist()) for own in seconds)
    else:
        mean, sd = mean_sd(args.batch_size * len(seconds) / seconds.max(axis=0))
        step = statistics.median(seconds.max(axis=0).tolist())
    idle = float(1 - worked.sum() / seconds.sum())  # the share of the cores' time
    values = {**vars(args), "ranks": len(seconds), "device": device.type, "parameters": parameters}
    values |= {"idle": idle, "step_seconds": step}
    values |= {"images_per_second": mean, "images_per_second_sd": sd}
    values["per_rank"] = [{"images_per_second": rate, "sd": rate_sd} for rate, rate_sd in rates]
    if args.json:
        print(json.dumps(values), flush=True)
        return
    print(f"{args.model} ({parameters / 1e6:.2f} M parameters), {args.method}, ", end="")
    print(f"{len(seconds)} ranks on {device.type}, {args.batch_size} images of ", end="")
    print(f"{args.image_size} x {args.image_size} per rank, {args.threads} threads per rank")
    for rank, (rate, rate_sd) in enumerate(rates):
        print(f"rank {rank}: {rate:8.1f} ± {rate_sd:.1f} images/s")
    print(f"in all: {mean:8.1f} ± {sd:.1f} images/s, {1e3 * step:.1f} ms per step ", end="")
    idle = f", {idle:.0%} of a core's time left idle" if device.type == "cpu" else ""
    print(f"(median of {args.iterations}){idle if args.threads == 1 else ''}")


def mean_sd(values):
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0


if __name__ == "__main__":
    main(args)
