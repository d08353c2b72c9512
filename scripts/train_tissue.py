#!/usr/bin/env python
"""Train a ResNet-10 v2 on generated slides of tissue, split by data, layers, space, or by all.

mpirun -n 4 python scripts/train_tissue.py --space 4 --size 2048
mpirun -n 4 python scripts/train_tissue.py --stages 2 --space 2 --schedule gems

Notebooks 11 and 11b explain the parts: schedules, two directions, halos. Notebook 11c compares this
with one process.
"""

import math
import time

from common import check, number, option, parser_of, report

# stages: the first and the end of the parts of the network that each has
CUTS = {1: [0, 6], 2: [0, 2, 6], 4: [0, 1, 2, 3, 6]}
SCHEDULES = ("layers", "gpipe", "1f1b", "gems")


def parse():
    parser, count = parser_of(__doc__), number(int, 1)
    option(parser, "--data", count, 1, "replicas of the network")
    option(parser, "--stages", int, 1, "parts of its layers", choices=CUTS)
    option(parser, "--space", count, 1, "strips of each image")
    option(parser, "--schedule", str, "layers", "of the stages", choices=SCHEDULES)
    option(parser, "--size", number(int, 64), 1024, "pixels along a side of a slide")
    option(parser, "--images", count, 4, "per step, over all replicas")
    option(parser, "--steps", count, 4, "of training")
    option(parser, "--width", count, 8, "channels of the first convolution")
    option(parser, "--lr", float, 1e-3, "learning rate of Adam")
    option(parser, "--seed", int, 0, "of the slides")
    parser.add_argument("--json", action="store_true", help="print JSON, one object per line")
    return parser.parse_args()


if __name__ == "__main__":
    args = parse()  # before torch is imported, which takes seconds

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional as F

from pi2zero import ranks
from pi2zero.meters import Memory
from tissue import Head, Line, margins, network, slide, strips_of


def row_of(schedule, row, stages, count):
    """What the ranks in this row of the mesh do, in order: (stage, F or B, image). Notebook 11."""
    if schedule in ("layers", "gems"):  # one image after the other; gems: every second one upwards
        up = [schedule == "gems" and i % 2 == 1 for i in range(count)]
        return [
            (stages - 1 - row if up[i] else row, kind, i) for i in range(count) for kind in "FB"
        ]
    ahead = count if schedule == "gpipe" else min(stages - 1 - row, count)
    found = [(row, "F", i) for i in range(ahead)]
    for i in range(count - ahead):
        found += [(row, "F", ahead + i), (row, "B", i)]
    return found + [(row, "B", i) for i in range(count - ahead, count)]


class Trainer:
    """This rank's part of the network, on a mesh of stages x replicas x strips."""

    def __init__(self, data=1, stages=1, space=1, schedule="layers", width=8, lr=1e-3):
        self.mesh = init_device_mesh(
            "cpu", (stages, data, space), mesh_dim_names=("stages", "data", "space")
        )
        self.stages, self.schedule, self.look = stages, schedule, lambda moment: None
        self.row, self.copy, strip = (
            self.mesh.get_local_rank(name) for name in self.mesh.mesh_dim_names
        )
        self.line = Line(self.mesh["space"].mesh.tolist(), strip, self.mesh["space"].get_group())
        self.two_ways = schedule == "gems" and stages > 1
        self.whole, cut = network(width), CUTS[stages]
        mine = sorted({self.row, stages - 1 - self.row} if self.two_ways else {self.row})
        self.parts = {s: self.whole[cut[s] : cut[s + 1]] for s in mine}
        self.model = nn.ModuleList(part for s in mine for part in self.parts[s])
        self.mirror = None
        if self.two_ways:
            for line in self.mesh.mesh.flatten(
                1
            ).T.tolist():  # the ranks of one copy and strip, by stage
                for pair in zip(line, line[::-1][: stages // 2], strict=False):
                    group = dist.new_group(list(pair))
                    self.mirror = group if dist.get_rank() in pair else self.mirror
        self.adam = torch.optim.Adam(self.model.parameters(), lr=lr)

    def owner(self, stage, image):
        """The rank with this stage for this image, in this replica and strip, or None."""
        if not 0 <= stage < self.stages:
            return None
        row = self.stages - 1 - stage if self.two_ways and image % 2 else stage
        return self.mesh.mesh[row, self.copy, self.line.place].item()

    def entry(self, stage, size):
        """(edges, shape) of what comes into a stage."""
        edges, channels, columns = strips_of(size, len(self.line.members)), 3, size
        for part in self.whole[: CUTS[self.stages][stage]]:
            kernel, stride, padding = part.shape
            edges, channels, columns = (
                margins(edges, *part.shape)[1],
                part.out,
                (columns + 2 * padding - kernel) // stride + 1,
            )
        return edges, (1, channels, edges[self.line.place + 1] - edges[self.line.place], columns)

    def forward(self, stage, i, image, size):
        (edges, shape), before, after = (
            self.entry(stage, size),
            self.owner(stage - 1, i),
            self.owner(stage + 1, i),
        )
        x = image
        if before is not None:
            dist.recv(x := torch.empty(shape), before, tag=i)
            x.requires_grad_()
        y = x
        for part in self.parts[stage]:
            y, edges = part(y, edges, self.line)
        if after is not None:
            self.sent["F", i] = dist.isend(y.detach().contiguous(), after, tag=i)
        return x, y

    def backward(self, stage, i, x, y, label, total):
        before, after = self.owner(stage - 1, i), self.owner(stage + 1, i)
        if after is None:
            loss = F.cross_entropy(y, label.view(1), reduction="sum") / total
            self.loss += loss.item()
            loss.backward()
        else:
            dist.recv(gradient := torch.empty_like(y), after, tag=i)
            self.sent.pop(
                ("F", i)
            ).wait()  # it has arrived, for its gradient is here: its memory is free
            y.backward(gradient)
        if before is not None:
            if last := self.sent.pop("B", None):
                last.wait()
            self.sent["B"] = dist.isend(x.grad, before, tag=i)

    def gradients(self, strips, labels, size):
        """Of all images of all replicas. strips: this rank's of each image of its replica.

        Returns the loss of this replica's images.
        """
        held, self.sent, self.loss = {}, {}, 0.0
        self.model.zero_grad()
        total = len(strips) * self.mesh["data"].size()
        for stage, kind, i in row_of(self.schedule, self.row, self.stages, len(strips)):
            if kind == "F":
                held[i] = self.forward(stage, i, strips[i], size)
            else:
                self.backward(stage, i, *held.pop(i), labels[i], total)
            self.look(f"{kind}{i}")
        for message in self.sent.values():
            message.wait()
        self.sum_gradients()
        return self.loss

    def sum_gradients(self):
        """Over strips (the head's are complete on each), replicas and the two directions."""
        for parts in self.parts.values():
            features = [
                p for part in parts if not isinstance(part, Head) for p in part.parameters()
            ]
            every = [p for part in parts for p in part.parameters()]
            for group, parameters in (
                (len(self.line.members) > 1 and self.line.group, features),
                (self.mesh["data"].size() > 1 and self.mesh["data"].get_group(), every),
                (self.mirror, every),
            ):
                if group and parameters:
                    flat = torch.cat([p.grad.flatten() for p in parameters])
                    dist.all_reduce(flat, group=group)
                    for p, grad in zip(
                        parameters, flat.split([p.numel() for p in parameters]), strict=True
                    ):
                        p.grad.copy_(grad.view_as(p))

    def mine(self, images):
        """My strips of my copy's share of the images, and which they are."""
        its = range(len(images))[self.copy :: self.mesh["data"].size()]
        return [self.strip(images[i]) for i in its], its

    def strip(self, image):
        """Mine of a whole image."""
        begin, end = strips_of(image.shape[1], len(self.line.members))[self.line.place :][:2]
        return image[None, :, begin:end].clone()

    def beside(self, whole):
        """(a part of mine, the same part of the whole network), for all of mine."""
        cut = CUTS[self.stages]
        return [
            pair
            for s, parts in self.parts.items()
            for pair in zip(parts, whole[cut[s] : cut[s + 1]], strict=True)
        ]

    def step(self, strips, labels, size):
        loss = self.gradients(strips, labels, size)
        self.adam.step()
        return loss

    def held(self, strips, labels, size):
        """Bytes of this rank at its fullest moment: parameters, gradients, activations."""
        memory = Memory()
        self.look = lambda moment: memory.note(moment, self.model)
        with memory.activations():
            self.gradients(strips, labels, size)
        self.look = lambda moment: None
        return max(
            sum(sample[part] for part in ("parameters", "gradients", "activations"))
            for sample in memory.samples.values()
        )


def main(args):
    torch.set_num_threads(1)
    me = ranks.join(on_cpu=True)
    ways = args.data, args.stages, args.space
    check(
        me.world_size == math.prod(ways),
        f"{me.world_size} ranks, but data x stages x space = {math.prod(ways)}",
    )
    check(
        args.images % args.data == 0,
        f"--images {args.images} has to be a multiple of --data {args.data}",
    )
    count = args.images // args.data
    even = args.stages % 2 == 0 == count % 2
    check(
        args.schedule != "gems" or even,
        "gems needs an even number of stages, and of images for each copy",
    )
    trainer = Trainer(*ways, args.schedule, args.width, args.lr)
    batches = [
        strips_of_batch(trainer, args, args.seed + batch * args.images) for batch in range(4)
    ]
    held = torch.tensor(float(trainer.held(*batches[0], args.size)))
    dist.all_reduce(held, op=dist.ReduceOp.MAX)
    for step in range(args.steps):
        dist.barrier()
        start = time.perf_counter()
        loss = torch.tensor(trainer.step(*batches[step % len(batches)], args.size) / args.space)
        dist.all_reduce(loss)  # over the ranks of last stages
        if me.rank == 0:
            rate = args.images / (time.perf_counter() - start)
            fullest = held.item() / 1e6
            report(
                args,
                step=step + 1,
                loss=loss.item(),
                images_per_second=rate,
                fullest_rank_MB=fullest,
            )
    ranks.leave()


def strips_of_batch(trainer, args, first):
    """(this rank's strips, their labels) of a batch, one slide at a time to save memory."""
    strips, labels = [], []
    for i in range(args.images)[trainer.copy :: args.data]:
        image, label = slide(first + i, args.size)
        strips.append(trainer.strip(image))
        labels.append(label)
    return strips, torch.tensor(labels)


if __name__ == "__main__":
    main(args)
