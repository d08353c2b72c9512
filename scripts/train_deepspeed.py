#!/usr/bin/env python
"""Train a small network to read scikit-learn's handwritten digits (8 x 8 pixels), on several ranks, with DeepSpeed.  # NEW

deepspeed --num_gpus 2 scripts/train_deepspeed.py --checkpoint digits --resume  # NEW (or: mpirun -n 2 python; or: torchrun)
"""

import argparse
import hashlib
import json
import shutil  # NEW
import zipfile
from pathlib import Path

import torch
import torch.distributed as dist  # NEW
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset  # NEW

from pi2zero import ranks  # NEW


def main():
    args = parse()
    device, size = join()  # NEW
    import deepspeed  # NEW (after join(), which keeps DeepSpeed's words about compilers to itself)

    same({**vars(args), "local_rank": None}, "options")  # NEW (ranks with other options wait for each other for ever)
    check(args.batch_size % size == 0, f"--batch-size {args.batch_size} is not a multiple of the {size} ranks")  # NEW
    torch.manual_seed(args.seed)

    train, test = digits()
    check(args.batch_size <= len(train), f"--batch-size {args.batch_size} is too large: there are {len(train)} training images")
    sampler = DistributedSampler(train, seed=args.seed, drop_last=True)  # NEW
    loader = DataLoader(train, batch_size=args.batch_size // size, sampler=sampler, drop_last=True)  # NEW

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    model.register_forward_pre_hook(lambda model, images: images[0].to(model[0].weight.dtype))  # NEW (for --bf16)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    config = {"train_batch_size": args.batch_size, "gradient_clipping": 0.0, "bf16": {"enabled": args.bf16}}  # NEW
    config |= {"zero_optimization": {"stage": args.stage}, "zero_allow_untested_optimizer": True}  # NEW
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)  # NEW
    order = f"--seed {args.seed} --batch-size {args.batch_size}"  # decides which images a step takes: a resumed run keeps it
    same(Path(f"{args.checkpoint}/latest").exists(), "checkpoint")  # NEW (to load it, all ranks have to begin)
    done = load(f"{args.checkpoint}/latest", order, engine) if args.resume else 0  # NEW
    optimizer.param_groups[0].update(lr=args.lr, momentum=args.momentum)  # of this call, not the checkpoint's
    same([done, fingerprint(model)], "checkpoint")  # NEW

    for epoch in range(done, args.epochs):
        sampler.set_epoch(epoch)  # NEW (a resumed run draws the same batches)
        total = torch.zeros((), device=device)
        for images, labels in loader:
            loss = F.cross_entropy(engine(images.to(device)), labels.to(device))  # NEW
            engine.backward(loss)  # NEW
            engine.step()  # NEW (and zero_grad)
            total += loss.detach()
        dist.all_reduce(total.div_(size))  # NEW (the mean over the ranks)
        tell(args, epoch=epoch + 1, loss=total.item() / len(loader), accuracy=accuracy(model, test, device))
        if args.checkpoint:
            save(f"{args.checkpoint}/latest", epoch + 1, order, engine)  # NEW (all ranks: each has a part of the state)
    same(fingerprint(model), "parameters")  # NEW
    tell(args, parameters=fingerprint(model))
    ranks.leave()  # NEW


def join():  # NEW
    """Enter the world of torchrun or deepspeed, else of MPI, and start DeepSpeed. Returns device and number of ranks."""  # NEW
    me = ranks.join(deepspeed=True)  # NEW
    return torch.device(me.device), me.world_size  # NEW


def same(mine, what):  # NEW
    dist.all_gather_object(every := [None] * dist.get_world_size(), mine)  # NEW
    check(all(theirs == every[0] for theirs in every), f"The ranks do not have the same {what}")  # NEW


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


def save(path, epochs, order, engine):  # NEW
    """Write into a folder of its own, then rename `latest`: a kill at any moment leaves the former checkpoint whole."""  # NEW
    engine.save_checkpoint(Path(path).parent, f"epoch{epochs}", {"epochs": epochs, "order": order}, save_latest=False)  # NEW
    if dist.get_rank() == 0:  # NEW (save_checkpoint returns when all ranks have written)
        Path(f"{path}.part").write_text(f"epoch{epochs}")  # NEW
        Path(f"{path}.part").replace(path)  # NEW
        for former in Path(path).parent.glob("epoch*"):  # NEW
            if former.name[5:].isdigit() and former.name != f"epoch{epochs}":  # NEW (not what you have put aside)
                shutil.rmtree(former, ignore_errors=True)  # NEW (or a long run fills the disk)


def load(path, order, engine):  # NEW
    """Fill model and optimizer from the checkpoint; returns the epochs that are done (0 without a file)."""
    if not Path(path).exists():
        return 0
    try:
        files = list(Path(path).with_name(Path(path).read_text()).glob("*.pt"))  # NEW (whose checksums nobody else compares)
        check(all(zipfile.ZipFile(file).testzip() is None for file in files), "wrong checksum")  # NEW
        _, state = engine.load_checkpoint(Path(path).parent)  # NEW
        epochs, former = state["epochs"], state.get("order", order)  # earlier versions kept no order
    except (Exception, SystemExit) as error:  # what a damaged file raises depends on where the damage is
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SystemExit(f"Cannot resume: {path} is damaged, or of another stage or number of ranks ({what})") from None  # NEW
    check(former == order, f"Cannot resume: {path} was made with {former}, not with {order}")
    return epochs


def fingerprint(model):
    """16 hex digits that differ if one bit of one parameter differs."""
    import deepspeed  # NEW

    digest = hashlib.sha256()
    for parameter in model.parameters():
        with deepspeed.zero.GatheredParameters(parameter):  # NEW (at stage 3, each rank has a part of it)
            digest.update(parameter.detach().cpu().float().numpy().tobytes())  # NEW
    return digest.hexdigest()[:16]


def tell(args, **what):
    """Print one line: JSON with --json, else words."""
    if dist.get_rank() > 0:  # NEW
        return  # NEW
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
    parser.add_argument("--checkpoint", metavar="FOLDER", help="keep the state in FOLDER (pickles: resume only your own)")  # NEW
    parser.add_argument("--stage", type=int, choices=range(4), default=0, help="of ZeRO (default: 0, see notebook 09)")  # NEW
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16")  # NEW
    parser.add_argument("--local_rank", help=argparse.SUPPRESS)  # NEW (deepspeed passes it; LOCAL_RANK says the same)
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint if the file is there")
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    args = parser.parse_args()
    check(args.resume or not Path(f"{args.checkpoint}/latest").exists(), f"--resume, or delete {args.checkpoint} first")  # NEW
    check(args.epochs >= 0 and args.batch_size >= 1, "--epochs must be at least 0 and --batch-size at least 1")
    check(args.lr > 0 and 0 <= args.momentum < 1, "--lr must be above 0 and --momentum in 0..1, without 1")
    check(args.checkpoint or not args.resume, "--resume needs --checkpoint FILE: where to go on from")
    return args


if __name__ == "__main__":
    main()
