#!/usr/bin/env python
"""Train a small network to read handwritten digits, a stage of its layers per rank.  # NEW

torchrun --standalone --nproc-per-node 2 scripts/train_pipeline.py --epochs 5  # NEW
mpirun -n 4 python scripts/train_pipeline.py --layers 4 --checkpoint digits.pt --resume  # NEW
"""

from itertools import chain, pairwise  # NEW

import common

parser = common.options(__doc__)
for name, default in {"--micro-batches": 4, "--layers": 2}.items():  # NEW
    common.option(parser, name, common.number(int, 1), default, "")  # NEW
args = common.parse(parser)  # before torch is imported, which takes seconds

import torch
import torch.distributed as dist  # NEW
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, RandomSampler

from pi2zero.ranks import gather_or_raise, join, leave  # NEW


def main():
    rank, ranks = (me := join(on_cpu=True)).rank, me.world_size  # NEW
    common.check(ranks <= args.layers, f"{ranks} ranks need --layers {ranks} or more")  # NEW
    torch.manual_seed(args.seed)
    device = torch.device("cpu")  # NEW (nccl would need a group for each direction)

    train, test = common.digits()
    shuffle = torch.Generator()
    sampler = RandomSampler(train, generator=shuffle)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler, drop_last=True)

    sizes = [64, *[128] * (args.layers - 1), 10]  # NEW
    layers = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(sizes)]  # NEW
    layers[-1] = layers[-1][0]  # NEW (no ReLU after the last one)
    first, end = (len(layers) * r // ranks for r in (rank, rank + 1))  # NEW
    model = nn.Sequential(*layers[first:end])  # NEW (this rank's stage)
    args.checkpoint = args.checkpoint and f"{args.checkpoint}.{rank}"  # NEW
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    epochs = gather_or_raise(lambda: common.resume(args, model, optimizer))  # NEW (of each rank)
    epochs_done = common.check_epochs(epochs)  # NEW

    for epoch in range(epochs_done, args.epochs):
        shuffle.manual_seed(args.seed + epoch)  # a resumed run draws the same batches
        total = torch.zeros((), device=device)
        for images, labels in loader:
            optimizer.zero_grad()
            total += one_f_one_b(model, images, labels, args.micro_batches)  # NEW
            optimizer.step()
        mean = total.item() / len(loader)
        correct = common.accuracy(lambda images: forward(model, images, wait=True)[1], test)  # NEW
        if rank == ranks - 1:  # NEW (it has the loss)
            common.report(args, epoch=epoch + 1, loss=mean, accuracy=correct)  # NEW
        common.save(args, epoch + 1, model, optimizer, dist.barrier)  # NEW (before renaming)
    dist.all_gather_object(stages := [None] * ranks, list(model.parameters()))  # NEW
    if rank == ranks - 1:  # NEW
        common.report(args, parameters=common.fingerprint(nn.ParameterList(chain(*stages))))  # NEW
    leave()  # NEW


def forward(stage, images, wait=False):  # NEW
    """Run a micro-batch through this stage. Returns both ends, and the message."""  # NEW
    rank, x, message = dist.get_rank(), images, None  # NEW
    if rank > 0:  # NEW
        dist.recv(x := torch.empty(len(images), 128), rank - 1)  # NEW
    y = stage(x.requires_grad_(rank > 0))  # NEW
    if rank < dist.get_world_size() - 1:  # NEW
        message = dist.isend(y.detach(), rank + 1)  # NEW
        wait and message.wait()  # NEW
    return x, y, message  # NEW


def one_f_one_b(stage, images, labels, micro):  # NEW
    """A batch forward and backward, by 1F1B. Returns the loss on the last rank, else 0."""  # NEW
    rank, last = dist.get_rank(), dist.get_world_size() - 1  # NEW
    inputs, targets = (iter(part.tensor_split(micro)) for part in (images, labels))  # NEW
    waiting, messages, total = [], [], 0.0  # NEW
    warmup = min(last - rank, micro)  # NEW (forwards before the first backward)
    for kind in "F" * warmup + "FB" * (micro - warmup) + "B" * warmup:  # NEW
        if kind == "F":  # NEW
            waiting.append(forward(stage, next(inputs)))  # NEW
            continue  # NEW
        x, y, message = waiting.pop(0)  # NEW
        if rank < last:  # NEW
            dist.recv(gradient := torch.empty_like(y), rank + 1)  # NEW
            y.backward(gradient)  # NEW
        else:  # NEW
            loss = F.cross_entropy(y, next(targets), reduction="sum") / len(images)  # NEW
            total += loss.detach()  # NEW
            loss.backward()  # NEW
        messages += [message, dist.isend(x.grad, rank - 1) if rank > 0 else None]  # NEW
    [message.wait() for message in messages if message]  # NEW
    return total  # NEW


if __name__ == "__main__":
    main()
