#!/usr/bin/env python
"""Train a small network to read scikit-learn's handwritten digits (8 x 8 pixels), on several ranks.  # NEW

torchrun --standalone --nproc-per-node 2 scripts/train_ddp.py --epochs 5  # NEW
mpirun -n 2 python scripts/train_ddp.py --epochs 9 --checkpoint digits.pt --resume  # NEW (goes on where a former run stopped)
"""

import argparse
import hashlib
import json
import time  # NEW
import zipfile
from pathlib import Path

import torch
import torch.distributed as dist  # NEW
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel  # NEW
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset  # NEW

from pi2zero.ranks import gather_or_raise  # NEW


def main():
    args = parse()
    device = join()  # NEW
    rank, ranks = dist.get_rank(), dist.get_world_size()  # NEW
    check(args.batch_size % ranks == 0, f"--batch-size {args.batch_size} is not a multiple of the {ranks} ranks")  # NEW
    torch.manual_seed(args.seed)

    train, test = digits()
    check(args.batch_size <= len(train), f"--batch-size {args.batch_size} is too large: there are {len(train)} training images")
    sampler = DistributedSampler(train, seed=args.seed, drop_last=True)  # NEW
    loader = DataLoader(train, batch_size=args.batch_size // ranks, sampler=sampler, drop_last=True)  # NEW

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    order = f"--seed {args.seed} --batch-size {args.batch_size}"  # decides which images a step takes: a resumed run keeps it
    done = gather_or_raise(lambda: load(args.checkpoint, order, model, optimizer) if args.resume else 0)[rank]  # NEW
    optimizer.param_groups[0].update(lr=args.lr, momentum=args.momentum)  # of this call, not the checkpoint's
    same((done, fingerprint(model)), "epochs and parameters", ": share one checkpoint")  # NEW
    ddp = DistributedDataParallel(model)  # NEW

    for epoch in range(done, args.epochs):
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
        tell(args, epoch=epoch + 1, loss=total.item() / len(loader), accuracy=accuracy(model, test, device))
        if args.checkpoint:
            save(args.checkpoint, epoch + 1, order, model, optimizer)
    same(fingerprint(model), "parameters")  # NEW
    if rank == 0:  # NEW
        tell(args, parameters=fingerprint(model))  # NEW
    time.sleep(0.1)  # NEW (gloo's thread needs Python's lock to let go of the last tensor; without, 1 in 20 aborts at exit)
    dist.destroy_process_group()  # NEW


def join():  # NEW
    """Enter the world of torchrun or of mpirun, or a world of one. Returns this rank's device."""  # NEW
    from pi2zero import ranks  # NEW (init_process_group: nccl if each rank has a GPU, else gloo)

    return torch.device(ranks.join().device)  # NEW


def same(mine, what, advice=""):  # NEW
    """End all ranks where one differs: if it ended alone, the others would wait for it."""  # NEW
    dist.all_gather_object(every := [None] * dist.get_world_size(), mine)  # NEW
    for rank, theirs in enumerate(every):  # NEW
        check(theirs == every[0], f"The {what} of rank {rank} differ from rank 0's{advice}")  # NEW


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
        what = f"rank {dist.get_rank()}: {(str(error) or type(error).__name__).splitlines()[0]}"  # NEW
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
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate (default: 0.1)")
    parser.add_argument("--momentum", type=float, default=0.9, help="of SGD, 0 for none (default: 0.9)")
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and of the order of the images (default: 0)")
    parser.add_argument("--checkpoint", metavar="FILE", help="write the state to FILE after each epoch")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint if the file is there")
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    args = parser.parse_args()
    check(args.epochs >= 0 and args.batch_size >= 1, "--epochs must be at least 0 and --batch-size at least 1")
    check(args.lr > 0 and 0 <= args.momentum < 1, "--lr must be above 0 and --momentum in 0..1, without 1")
    check(args.checkpoint or not args.resume, "--resume needs --checkpoint FILE: where to go on from")
    return args


if __name__ == "__main__":
    main()
