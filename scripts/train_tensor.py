#!/usr/bin/env python
"""Train a small network to read scikit-learn's handwritten digits (8 x 8 pixels), a part of each layer on each rank.  # NEW

torchrun --standalone --nproc-per-node 2 scripts/train_tensor.py --epochs 5  # NEW
mpirun -n 4 python scripts/train_tensor.py --tensor 2 --checkpoint digits.pt --resume  # NEW (two groups of two)
"""

import argparse
import hashlib
import json
import zipfile
from pathlib import Path

import torch
import torch.distributed as dist  # NEW
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.distributed.device_mesh import init_device_mesh  # NEW
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from pi2zero.ranks import gather_or_raise, join, leave  # NEW


def main():
    args = parse()
    rank, ranks = (me := join()).rank, me.world_size  # NEW
    width = args.tensor or ranks  # NEW (ranks that share one model; the other groups have replicas of it)
    check(ranks % width == 0, f"--tensor {width}: the {ranks} ranks are not a multiple of it")  # NEW
    check(width <= 128, f"{width} ranks, but only 128 hidden values to deal out: --tensor 128 or fewer")  # NEW
    device = torch.device(me.device)  # NEW
    mesh = init_device_mesh(device.type, (ranks // width, width), mesh_dim_names=("data", "tensor"))  # NEW
    data, tensor = mesh["data"].get_group(), mesh["tensor"].get_group()  # NEW
    torch.manual_seed(args.seed)

    train, test = digits()
    check(args.batch_size <= len(train), f"--batch-size {args.batch_size} is too large: there are {len(train)} training images")
    shuffle = torch.Generator()
    sampler = RandomSampler(train, generator=shuffle)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler, drop_last=True)

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    model = nn.Sequential(*split(model, width, rank % width))  # NEW
    args.checkpoint = args.checkpoint and f"{args.checkpoint}.{rank}"  # NEW
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    order = f"--seed {args.seed} --batch-size {args.batch_size}"  # decides which images a step takes: a resumed run keeps it
    every = gather_or_raise(lambda: load(args.checkpoint, order, model, optimizer) if args.resume else 0)  # NEW
    if every[rank] < max(every) and Path(part := f"{args.checkpoint}.part").exists():  # NEW (a kill came between the renames)
        Path(part).replace(args.checkpoint)  # NEW
    done = load(args.checkpoint, order, model, optimizer) if args.resume else 0
    dist.all_gather_object(every, done)  # NEW
    check(len(set(every)) == 1, f"The ranks' checkpoints are from different epochs: {every}. Delete them to start anew.")  # NEW
    optimizer.param_groups[0].update(lr=args.lr, momentum=args.momentum)  # of this call, not the checkpoint's

    for epoch in range(done, args.epochs):
        shuffle.manual_seed(args.seed + epoch)  # a resumed run draws the same batches
        total = torch.zeros((), device=device)
        for images, labels in loader:
            mine, targets = (whole.tensor_split(ranks // width)[rank // width].to(device) for whole in (images, labels))  # NEW
            loss = F.cross_entropy(Sum.apply(model(mine), tensor), targets, reduction="sum") / len(images)  # NEW
            optimizer.zero_grad()
            loss.backward()
            for parameter in model.parameters():  # NEW
                dist.all_reduce(parameter.grad, group=data)  # NEW (over the replicas of this part)
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total, group=data)  # NEW
        share = accuracy(lambda images: Sum.apply(model(images), tensor), test, device)  # NEW (all ranks take part)
        if rank == 0:  # NEW
            tell(args, epoch=epoch + 1, loss=total.item() / len(loader), accuracy=share)  # NEW
        if args.checkpoint:
            save(args.checkpoint, epoch + 1, order, model, optimizer)
    dist.all_gather_object(every, [p.detach().cpu() for p in model.parameters()])  # NEW
    prints = [fingerprint(joined(every[begin : begin + width])) for begin in range(0, ranks, width)]  # NEW
    check(len(set(prints)) == 1, f"The replicas have different parameters: {prints}")  # NEW
    if rank == 0:  # NEW
        tell(args, parameters=prints[0])  # NEW
    leave()  # NEW


def split(model, width, part):  # NEW
    """This rank's part of the layers: the first by columns (its outputs), the second by rows (its inputs)."""  # NEW
    up, relu, down = model  # NEW
    for layer, dim in ((up, 0), (down, 1)):  # NEW
        layer.weight = nn.Parameter(layer.weight.detach().tensor_split(width, dim)[part].clone())  # NEW
    up.bias = nn.Parameter(up.bias.detach().tensor_split(width)[part].clone())  # NEW
    down.bias = down.bias if part == 0 else None  # NEW (added once)
    return up, relu, down  # NEW


class Sum(torch.autograd.Function):  # NEW
    """The row layer's parts, added up; backward, each gets the sum's gradient. (The images need none.)"""  # NEW

    @staticmethod  # NEW
    def forward(ctx, y, group):  # NEW
        dist.all_reduce(y := y.clone(), group=group)  # NEW
        return y  # NEW

    @staticmethod  # NEW
    def backward(ctx, gradient):  # NEW
        return gradient, None  # NEW


def joined(parts):  # NEW
    """The whole model's parameters, from those of a group's ranks."""  # NEW
    up, bias, down = zip(*(part[:3] for part in parts), strict=True)  # NEW
    return nn.ParameterList([torch.cat(up), torch.cat(bias), torch.cat(down, dim=1), parts[0][3]])  # NEW


def digits():
    """1,437 training and 360 test images: float32 in 0..1, shape (n, 64), and their labels 0..9."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split((images / 16).astype("float32"), labels, test_size=360, random_state=0)
    train_x, test_x, train_y, test_y = map(torch.from_numpy, parts)
    return TensorDataset(train_x, train_y), TensorDataset(test_x, test_y)


@torch.no_grad()
def accuracy(model, data, device):
    """The share of images that the model reads correctly."""
    images, labels = data.tensors
    return (model(images.to(device)).argmax(dim=1) == labels.to(device)).float().mean().item()


def save(path, epochs, order, model, optimizer):
    """Write the checkpoint beside its place, then rename: a kill at any moment leaves the former one whole."""
    state = {"epochs": epochs, "order": order, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, f"{path}.part")
    dist.barrier()  # NEW (all parts are whole before the first has its name: what a kill leaves can be ended)
    Path(f"{path}.part").replace(path)


def load(path, order, model, optimizer):
    """Fill model and optimizer from the checkpoint; returns the epochs that are done (0 without a file)."""
    if not Path(path).exists():
        return 0
    try:
        with zipfile.ZipFile(path) as archive:  # torch.save writes a zip file; torch.load does not compare its checksums
            check(archive.testzip() is None, "wrong checksum")
        state = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        epochs, former = state["epochs"], state.get("order", order)  # earlier versions kept no order
    except (Exception, SystemExit) as error:  # what a damaged file raises depends on where the damage is
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SystemExit(f"Cannot resume: {path} is damaged, or of another network ({what}). Delete it to start anew.") from None
    check(former == order, f"Cannot resume: {path} was made with {former}, not with {order}")
    return epochs


def fingerprint(model):
    """16 hex digits that differ if one bit of one parameter differs."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def tell(args, **what):
    """Print one line: JSON with --json, else words."""
    words = ", ".join(f"{name} {value:.4f}" if isinstance(value, float) else f"{name} {value}" for name, value in what.items())
    print(json.dumps(what) if args.json else words, flush=True)


def check(true, message):
    """End the program with the message unless it is true."""
    if not true:
        raise SystemExit(message)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5, help="times through the training images (default: 5)")
    parser.add_argument("--batch-size", type=int, default=64, help="images in a step, over all ranks (default: 64)")
    parser.add_argument("--tensor", type=int, help="ranks that share one model, 1 or more (default: all ranks)")  # NEW
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate (default: 0.1)")
    parser.add_argument("--momentum", type=float, default=0.9, help="of SGD, 0 for none (default: 0.9)")
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and of the order of the images (default: 0)")
    parser.add_argument("--checkpoint", metavar="FILE", help="write the state to FILE after each epoch")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint if the file is there")
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    args = parser.parse_args()
    check(args.epochs >= 0 and args.batch_size >= 1, "--epochs must be at least 0 and --batch-size at least 1")
    check(args.lr > 0 and 0 <= args.momentum < 1, "--lr must be above 0 and --momentum in 0..1, without 1")
    check(args.tensor is None or args.tensor >= 1, "--tensor must be at least 1")  # NEW
    check(args.checkpoint or not args.resume, "--resume needs --checkpoint FILE: where to go on from")
    return args


if __name__ == "__main__":
    main()
