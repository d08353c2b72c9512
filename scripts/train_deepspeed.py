#!/usr/bin/env python
"""Train a small network to read handwritten digits (8 x 8 pixels), with DeepSpeed.  # NEW

deepspeed --num_gpus 2 scripts/train_deepspeed.py --checkpoint digits --resume  # NEW (a folder)
mpirun -n 2 python scripts/train_deepspeed.py --stage 1  # NEW (or torchrun)
"""

import common

parser = common.options(__doc__)
parser.add_argument("--stage", type=int, choices=range(4), default=0, help="of ZeRO")  # NEW
parser.add_argument("--bf16", action="store_true", help="compute in bfloat16")  # NEW
parser.add_argument("--local_rank", help="passed by the deepspeed launcher")  # NEW
args = common.parse(parser)  # before torch is imported, which takes seconds

import shutil  # NEW
from pathlib import Path  # NEW

import torch
import torch.distributed as dist  # NEW
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler  # NEW

from pi2zero.ranks import join, leave  # NEW


def main():
    latest = Path(f"{args.checkpoint}/latest")  # NEW
    new = args.resume or not latest.exists()  # NEW
    common.check(new, f"--resume, or delete {args.checkpoint} first")  # NEW
    me = join(deepspeed=True)  # NEW
    import deepspeed  # NEW (after join, which silences its messages about compilers)

    common.check_equal({**vars(args), "local_rank": None}, "options")  # NEW (or some wait)
    share = common.batch_share(args, me.world_size)  # NEW
    torch.manual_seed(args.seed)
    device = torch.device(me.device)  # NEW

    train, test = common.digits()
    sampler = DistributedSampler(train, seed=args.seed, drop_last=True)  # NEW
    loader = DataLoader(train, batch_size=share, sampler=sampler, drop_last=True)  # NEW

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    model.register_forward_pre_hook(lambda model, x: x[0].to(model[0].weight.dtype))  # NEW (--bf16)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    config = {"train_batch_size": args.batch_size, "gradient_clipping": 0.0}  # NEW
    config |= {"bf16": {"enabled": args.bf16}, "zero_optimization": {"stage": args.stage}}  # NEW
    config |= {"zero_allow_untested_optimizer": True}  # NEW (SGD)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)  # NEW
    common.check_equal(latest.exists(), "checkpoints")  # NEW (all ranks load it, or none)
    epochs_done = common.resume_engine(args, engine, latest)  # NEW
    whole = deepspeed.zero.GatheredParameters  # NEW (stage 3 shards the parameters)
    optimizer.param_groups[0].update(lr=args.lr, momentum=args.momentum)  # NEW
    with whole(list(model.parameters())):  # NEW
        common.check_equal([epochs_done, common.fingerprint(model)], "checkpoints")  # NEW

    for epoch in range(epochs_done, args.epochs):
        sampler.set_epoch(epoch)  # NEW (a resumed run draws the same batches)
        total = torch.zeros((), device=device)
        for images, labels in loader:
            loss = F.cross_entropy(engine(images.to(device)), labels.to(device))  # NEW
            engine.backward(loss)  # NEW
            engine.step()  # NEW (and zero_grad)
            total += loss.detach()
        dist.all_reduce(total.div_(me.world_size))  # NEW (the mean over the ranks)
        mean = total.item() / len(loader)
        correct = common.accuracy(model, test, device)
        if me.rank == 0:  # NEW
            common.report(args, epoch=epoch + 1, loss=mean, accuracy=correct)  # NEW
        if args.checkpoint:  # NEW
            save(engine, epoch + 1, latest)  # NEW (all ranks: each has a part of the state)
    with whole(list(model.parameters())):  # NEW
        common.check_equal(common.fingerprint(model), "parameters")  # NEW
        if me.rank == 0:  # NEW
            common.report(args, parameters=common.fingerprint(model))  # NEW
    leave()  # NEW


def save(engine, epochs, latest):  # NEW
    """Write a folder, then rename `latest`: a kill leaves the former checkpoint whole."""  # NEW
    state = {"epochs": epochs, "batches": common.batches_of(args)}  # NEW
    name, folder = f"epoch{epochs}", latest.parent  # NEW
    engine.save_checkpoint(folder, name, state, save_latest=False)  # NEW (returns when all wrote)
    if dist.get_rank() == 0:  # NEW
        Path(f"{latest}.part").write_text(name)  # NEW
        Path(f"{latest}.part").replace(latest)  # NEW
        shutil.rmtree(folder / f"epoch{epochs - 1}", ignore_errors=True)  # NEW


if __name__ == "__main__":
    main()
