#!/usr/bin/env python
"""Train a small network to read handwritten digits (8 x 8 pixels), in one process.

python scripts/train_single.py --epochs 5
python scripts/train_single.py --epochs 9 --checkpoint digits.pt --resume     (goes on from it)
"""

import common

parser = common.options(__doc__)
args = common.parse(parser)  # before torch is imported, which takes seconds

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, RandomSampler


def main():
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    train, test = common.digits()
    shuffle = torch.Generator()
    sampler = RandomSampler(train, generator=shuffle)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler, drop_last=True)

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    epochs_done = common.resume(args, model, optimizer)

    for epoch in range(epochs_done, args.epochs):
        shuffle.manual_seed(args.seed + epoch)  # a resumed run draws the same batches
        total = torch.zeros((), device=device)
        for images, labels in loader:
            loss = F.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        mean = total.item() / len(loader)
        correct = common.accuracy(model, test, device)
        common.report(args, epoch=epoch + 1, loss=mean, accuracy=correct)
        common.save(args, epoch + 1, model, optimizer)
    common.report(args, parameters=common.fingerprint(model))


if __name__ == "__main__":
    main()
