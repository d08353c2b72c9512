#!/usr/bin/env python
"""Train a small network to read handwritten digits (8 x 8 pixels), on several ranks.  # NEW

torchrun --standalone --nproc-per-node 2 scripts/train_ddp.py --epochs 5  # NEW
mpirun -n 2 python scripts/train_ddp.py --epochs 9 --checkpoint digits.pt --resume  # NEW
"""

import common

parser = common.options(__doc__)
args = common.parse(parser)  # before torch is imported, which takes seconds

import torch
import torch.distributed as dist  # NEW
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel  # NEW
from torch.utils.data import DataLoader, DistributedSampler  # NEW

from pi2zero.ranks import gather_or_raise, join, leave  # NEW


def main():
    rank, ranks = (me := join()).rank, me.world_size  # NEW (init_process_group)
    share = common.batch_share(args, ranks)  # NEW
    torch.manual_seed(args.seed)
    device = torch.device(me.device)  # NEW

    train, test = common.digits()
    sampler = DistributedSampler(train, seed=args.seed, drop_last=True)  # NEW
    loader = DataLoader(train, batch_size=share, sampler=sampler, drop_last=True)  # NEW

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    epochs_done = gather_or_raise(lambda: common.resume(args, model, optimizer))[rank]  # NEW
    state = epochs_done, common.fingerprint(model)  # NEW
    common.check_equal(state, "epochs and parameters", ": share one checkpoint")  # NEW
    ddp = DistributedDataParallel(model)  # NEW

    for epoch in range(epochs_done, args.epochs):
        sampler.set_epoch(epoch)  # NEW (a resumed run draws the same batches)
        total = torch.zeros((), device=device)
        for images, labels in loader:
            loss = F.cross_entropy(ddp(images.to(device)), labels.to(device))  # NEW
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total.div_(ranks))  # NEW (the mean over the ranks)
        if rank > 0:  # NEW
            continue  # NEW (one rank writes)
        mean = total.item() / len(loader)
        correct = common.accuracy(model, test, device)
        common.report(args, epoch=epoch + 1, loss=mean, accuracy=correct)
        common.save(args, epoch + 1, model, optimizer)
    common.check_equal(common.fingerprint(model), "parameters")  # NEW
    if rank == 0:  # NEW
        common.report(args, parameters=common.fingerprint(model))  # NEW
    leave()  # NEW (destroy_process_group)


if __name__ == "__main__":
    main()
