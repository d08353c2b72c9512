#!/usr/bin/env python
"""Train a small network to read handwritten digits (8 x 8 pixels), with Horovod.  # NEW

mpirun -n 2 python scripts/train_horovod.py --epochs 5  # NEW
horovodrun --gloo -np 2 python scripts/train_horovod.py --checkpoint digits.pt --resume  # NEW
"""

import common

parser = common.options(__doc__)
parser.add_argument("--fp16", action="store_true", help="send gradients as 16-bit numbers")  # NEW
args = common.parse(parser)  # before torch is imported, which takes seconds

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler  # NEW

try:  # NEW
    import horovod.torch as hvd  # NEW
except ImportError as error:  # NEW
    raise SystemExit(f"Horovod is not there ({error}). Run: make horovod") from None  # NEW

from pi2zero.ranks import gpus  # NEW


def main():
    hvd.init()  # NEW
    rank, ranks = hvd.rank(), hvd.size()  # NEW
    share = common.batch_share(args, ranks)  # NEW
    torch.manual_seed(args.seed)
    device = torch.device(gpus.for_horovod(hvd))  # NEW (a GPU of its own, or the CPU)
    if device.type == "cuda":  # NEW
        torch.cuda.set_device(device)  # NEW

    train, test = common.digits()
    sampler = DistributedSampler(train, ranks, rank, seed=args.seed, drop_last=True)  # NEW
    loader = DataLoader(train, batch_size=share, sampler=sampler, drop_last=True)  # NEW

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    numbers = hvd.Compression.fp16 if args.fp16 else hvd.Compression.none  # NEW
    more = {"named_parameters": model.named_parameters(), "compression": numbers}  # NEW
    optimizer = hvd.DistributedOptimizer(optimizer, **more)  # NEW
    epochs_done = common.resume(args, model, optimizer) if rank == 0 else 0  # NEW
    epochs_done = hvd.broadcast_object(epochs_done, root_rank=0)  # NEW (of rank 0)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # NEW
    if epochs_done:  # NEW (with a fresh optimizer it would take a step, and Adam counts its steps)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)  # NEW

    for epoch in range(epochs_done, args.epochs):
        sampler.set_epoch(epoch)  # NEW (a resumed run draws the same batches)
        total = torch.zeros((), device=device)
        for images, labels in loader:
            loss = F.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        total = hvd.allreduce(total)  # NEW (the mean over the ranks)
        if rank > 0:  # NEW
            continue  # NEW (one rank writes)
        mean = total.item() / len(loader)
        correct = common.accuracy(model, test, device)
        common.report(args, epoch=epoch + 1, loss=mean, accuracy=correct)
        common.save(args, epoch + 1, model, optimizer)
    same = len(set(hvd.allgather_object(common.fingerprint(model)))) == 1  # NEW
    common.check(same, f"The parameters of rank {rank} differ from another rank's")  # NEW
    if rank == 0:  # NEW
        common.report(args, parameters=common.fingerprint(model))  # NEW
    hvd.shutdown()  # NEW


if __name__ == "__main__":
    main()
