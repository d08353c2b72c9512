#!/usr/bin/env python
"""Train a small network to read handwritten digits, a part of each layer per rank.  # NEW

torchrun --standalone --nproc-per-node 2 scripts/train_tensor.py --epochs 5  # NEW
mpirun -n 4 python scripts/train_tensor.py --tensor 2 --checkpoint digits.pt --resume  # NEW (2 x 2)
"""

import common

parser = common.options(__doc__)
parser.add_argument("--tensor", type=common.number(int, 1, 128), help="ranks per replica")  # NEW
args = common.parse(parser)  # before torch is imported, which takes seconds

import torch
import torch.distributed as dist  # NEW
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh  # NEW
from torch.utils.data import DataLoader, RandomSampler

from pi2zero.ranks import gather_or_raise, join, leave  # NEW


def main():
    rank, ranks = (me := join()).rank, me.world_size  # NEW
    width = args.tensor or ranks  # NEW (by default all ranks share one replica of the model)
    common.check(ranks % width == 0, f"{ranks} ranks are not a multiple of --tensor {width}")  # NEW
    device = torch.device(me.device)  # NEW
    shape = ranks // width, width  # NEW
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=("data", "tensor"))  # NEW
    data, tensor = mesh["data"].get_group(), mesh["tensor"].get_group()  # NEW
    torch.manual_seed(args.seed)

    train, test = common.digits()
    shuffle = torch.Generator()
    sampler = RandomSampler(train, generator=shuffle)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler, drop_last=True)

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    shard(model, width, rank % width)  # NEW
    args.checkpoint = args.checkpoint and f"{args.checkpoint}.{rank}"  # NEW
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    epochs = gather_or_raise(lambda: common.resume(args, model, optimizer))  # NEW (of each rank)
    epochs_done = common.check_epochs(epochs)  # NEW

    for epoch in range(epochs_done, args.epochs):
        shuffle.manual_seed(args.seed + epoch)  # a resumed run draws the same batches
        total = torch.zeros((), device=device)
        for images, labels in loader:
            replica = rank // width  # NEW
            x, y = (b.tensor_split(shape[0])[replica].to(device) for b in (images, labels))  # NEW
            scores = AllReduce.apply(model(x), tensor)  # NEW
            loss = F.cross_entropy(scores, y, reduction="sum") / len(images)  # NEW
            optimizer.zero_grad()
            loss.backward()
            for parameter in model.parameters():  # NEW
                dist.all_reduce(parameter.grad, group=data)  # NEW (over the replicas)
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total, group=data)  # NEW
        mean = total.item() / len(loader)
        correct = common.accuracy(lambda x: AllReduce.apply(model(x), tensor), test, device)  # NEW
        if rank == 0:  # NEW
            common.report(args, epoch=epoch + 1, loss=mean, accuracy=correct)  # NEW
        common.save(args, epoch + 1, model, optimizer, dist.barrier)  # NEW (before renaming)
    parameters = [p.detach().cpu() for p in model.parameters()]  # NEW
    dist.all_gather_object(shards := [None] * ranks, parameters)  # NEW
    replicas = [whole(shards[r : r + width]) for r in range(0, ranks, width)]  # NEW
    prints = {common.fingerprint(replica) for replica in replicas}  # NEW
    common.check(len(prints) == 1, f"The replicas have different parameters: {prints}")  # NEW
    if rank == 0:  # NEW
        common.report(args, parameters=prints.pop())  # NEW
    leave()  # NEW


def shard(model, width, part):  # NEW
    """Keep this rank's part: of the first layer outputs, of the second inputs."""  # NEW
    up, _, down = model  # NEW
    for layer, dim in ((up, 0), (down, 1)):  # NEW
        own = layer.weight.detach().tensor_split(width, dim)[part]  # NEW
        layer.weight = nn.Parameter(own.clone())  # NEW
    up.bias = nn.Parameter(up.bias.detach().tensor_split(width)[part].clone())  # NEW
    down.bias = down.bias if part == 0 else None  # NEW (added once)


class AllReduce(torch.autograd.Function):  # NEW
    """The sum of the ranks' outputs; backward, each rank gets the gradient of the sum."""  # NEW

    @staticmethod  # NEW
    def forward(ctx, y, group):  # NEW
        dist.all_reduce(y := y.clone(), group=group)  # NEW
        return y  # NEW

    @staticmethod  # NEW
    def backward(ctx, gradient):  # NEW
        return gradient, None  # NEW


def whole(shards):  # NEW
    """The parameters of the whole model, from those of a group's ranks."""  # NEW
    up, bias, down = zip(*(shard[:3] for shard in shards), strict=True)  # NEW
    weights = [torch.cat(up), torch.cat(bias), torch.cat(down, dim=1), shards[0][3]]  # NEW
    return nn.ParameterList(weights)  # NEW


if __name__ == "__main__":
    main()
