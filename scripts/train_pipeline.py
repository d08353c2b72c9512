#!/usr/bin/env python
"""Train a small network to read scikit-learn's handwritten digits (8 x 8 pixels), a stage of its layers on each rank.  # NEW

torchrun --standalone --nproc-per-node 2 scripts/train_pipeline.py --epochs 5  # NEW
mpirun -n 4 python scripts/train_pipeline.py --layers 4 --checkpoint digits.pt --resume  # NEW (each rank goes on from its file)
"""

import argparse
import hashlib
import json
import zipfile
from itertools import pairwise  # NEW
from pathlib import Path

import torch
import torch.distributed as dist  # NEW
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from pi2zero.ranks import gather_or_raise, join, leave  # NEW


def main():
    args = parse()
    rank, ranks = (me := join(on_cpu=True)).rank, me.world_size  # NEW
    check(ranks <= args.layers, f"{ranks} ranks, but only {args.layers} layers to deal out: --layers {ranks} or more")  # NEW
    torch.manual_seed(args.seed)
    device = torch.device("cpu")  # NEW (over nccl, 1F1B's messages need a group for each direction)

    train, test = digits()
    check(args.batch_size <= len(train), f"--batch-size {args.batch_size} is too large: there are {len(train)} training images")
    shuffle = torch.Generator()
    sampler = RandomSampler(train, generator=shuffle)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler, drop_last=True)

    sizes = [64, *[128] * (args.layers - 1), 10]  # NEW
    layers = [nn.Sequential(nn.Linear(a, b), nn.ReLU() if b == 128 else nn.Identity()) for a, b in pairwise(sizes)]  # NEW
    model = nn.Sequential(*layers[len(layers) * rank // ranks : len(layers) * (rank + 1) // ranks])  # NEW (this rank's stage)
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
            optimizer.zero_grad()
            total += one_f_one_b(model, images, labels, args.micro_batches)  # NEW
            optimizer.step()
        share = accuracy(lambda images: forward(model, images, wait=True)[1], test, device)  # NEW (all stages take part)
        if rank == ranks - 1:  # NEW (who has the loss)
            tell(args, epoch=epoch + 1, loss=total.item() / len(loader), accuracy=share)  # NEW
        if args.checkpoint:
            save(args.checkpoint, epoch + 1, order, model, optimizer)
    dist.all_gather_object(every, [p.detach() for p in model.parameters()])  # NEW
    if rank == ranks - 1:  # NEW
        tell(args, parameters=fingerprint(nn.ParameterList(p for stage in every for p in stage)))  # NEW
    leave()  # NEW


def forward(stage, images, wait=False):  # NEW
    """Take a micro-batch through this rank's stage. Returns its input, its output, and the message to the next rank."""  # NEW
    rank, x, sent = dist.get_rank(), images, None  # NEW
    if rank > 0:  # NEW
        dist.recv(x := torch.empty(len(images), 128), rank - 1)  # NEW
    y = stage(x.requires_grad_(rank > 0))  # NEW
    if rank < dist.get_world_size() - 1:  # NEW
        sent = dist.isend(y.detach(), rank + 1)  # NEW
        wait and sent.wait()  # NEW
    return x, y, sent  # NEW


def one_f_one_b(stage, images, labels, micro):  # NEW
    """Forward and backward of a batch, by 1F1B. Returns its loss on the last rank, elsewhere 0."""  # NEW
    rank, last = dist.get_rank(), dist.get_world_size() - 1  # NEW
    todo, targets, held, sent, total = iter(images.tensor_split(micro)), iter(labels.tensor_split(micro)), [], [], 0.0  # NEW
    ahead = min(last - rank, micro)  # NEW (forwards before the first backward)
    for kind in "F" * ahead + "FB" * (micro - ahead) + "B" * ahead:  # NEW
        if kind == "F":  # NEW
            held.append(forward(stage, next(todo)))  # NEW
            continue  # NEW
        x, y, message = held.pop(0)  # NEW
        if rank == last:  # NEW
            total += (loss := F.cross_entropy(y, next(targets), reduction="sum") / len(images)).detach()  # NEW
            loss.backward()  # NEW
        else:  # NEW
            dist.recv(gradient := torch.empty_like(y), rank + 1)  # NEW
            y.backward(gradient)  # NEW
        sent += [message, dist.isend(x.grad, rank - 1) if rank > 0 else None]  # NEW
    [message.wait() for message in sent if message]  # NEW
    return total  # NEW


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
    parser.add_argument("--micro-batches", type=int, default=4, help="parts of a batch (default: 4)")  # NEW
    parser.add_argument("--layers", type=int, default=2, help="of the network, at least as many as ranks (default: 2)")  # NEW
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate (default: 0.1)")
    parser.add_argument("--momentum", type=float, default=0.9, help="of SGD, 0 for none (default: 0.9)")
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and of the order of the images (default: 0)")
    parser.add_argument("--checkpoint", metavar="FILE", help="write the state to FILE after each epoch")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint if the file is there")
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    args = parser.parse_args()
    check(args.epochs >= 0 and args.batch_size >= 1, "--epochs must be at least 0 and --batch-size at least 1")
    check(args.lr > 0 and 0 <= args.momentum < 1, "--lr must be above 0 and --momentum in 0..1, without 1")
    check(args.micro_batches >= 1 and args.layers >= 1, "--micro-batches and --layers must be at least 1")  # NEW
    check(args.checkpoint or not args.resume, "--resume needs --checkpoint FILE: where to go on from")
    return args


if __name__ == "__main__":
    main()
