"""Slides of tissue, and a ResNet-10 v2 whose images are split into strips over ranks.

For train_tissue.py and notebook 11c.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


def slide(seed, size=1024, island=96):
    """A slide of tissue and its label: dark cells in islands (0), or everywhere (1).

    Returns (3, size, size), float32 in 0..1: the stain in each colour, so that glass is 0.
    An island is as dense as an even slide with many cells, and the space between islands as one
    with few: a small part of a slide does not tell its label.
    """
    draw, label = np.random.default_rng(seed), seed % 2
    count = size // island + 3
    field = torch.from_numpy(draw.normal(0, 1, (1, 1, count, count)).astype("float32"))
    field = F.interpolate(field, (count * island,) * 2, mode="bicubic")[
        0, 0, island : island + size, island : island + size
    ]
    many = (
        field > field.median() if label == 0 else torch.full((size, size), bool(draw.integers(2)))
    )
    rows, columns = draw.integers(0, size, (2, size * size // 60))
    kept = draw.uniform(0, 1, len(rows)) < np.where(many[rows, columns].numpy(), 1, 0.15)
    cells, around = torch.zeros(1, 1, size, size), torch.arange(-3.0, 4)
    cells[0, 0, rows[kept], columns[kept]] = 1
    disc = (around[:, None] ** 2 + around**2 < 7).float()
    cells = F.conv2d(cells, disc[None, None], padding=3)[0].clamp(max=1)
    pale = torch.from_numpy(
        draw.normal(0, 0.03, (1, 3, size // 32 + 2, size // 32 + 2)).astype("float32")
    )
    pale = F.interpolate(pale, (size, size), mode="bilinear")[0] + torch.tensor(
        [0.07, 0.28, 0.16]
    ).view(3, 1, 1)
    stain = pale + cells * (torch.tensor([0.60, 0.75, 0.45]).view(3, 1, 1) - pale)
    return stain.clamp(0, 1), label


@dataclass
class Line:
    """The ranks with the strips of one image, from top to bottom; my place; their group."""

    members: list
    place: int
    group: object = None

    @property
    def neighbours(self):
        return [None, *self.members][self.place], [*self.members, None][self.place + 1]


def strips_of(size, parts):
    """Where each strip begins, and where the last one ends."""
    return [size * part // parts for part in range(parts + 1)]


def margins(edges, kernel, stride, padding):
    """(rows that each strip lacks above and below, edges of the layer's output): notebook 11b."""
    size = (edges[-1] + 2 * padding - kernel) // stride + 1
    out = [*(min(-(-edge // stride), size) for edge in edges[:-1]), size]
    lacks = [
        (begin - first * stride + padding, (end - 1) * stride - padding + kernel - stop)
        for (begin, stop), (first, end) in zip(pairwise(edges), pairwise(out), strict=True)
    ]
    if min(b - a for a, b in pairwise(out)) < 1 or max(map(max, lacks)) > min(
        b - a for a, b in pairwise(edges)
    ):
        problem = f"{edges[-1]} rows on {len(lacks)} ranks: a strip is thinner than its halo."
        raise ValueError(f"{problem} Take fewer ranks.")
    return lacks, out


def swap(give, like, line):
    """Two tensors to the ranks above and below; two, like `like`, from them."""
    give, came = (
        [part.contiguous() for part in give],
        [part.clone(memory_format=torch.contiguous_format) for part in like],
    )
    there = [
        rank if rank is not None and part.numel() else None
        for rank, part in zip(line.neighbours, came, strict=True)
    ]
    waits = [
        dist.irecv(part, rank) for part, rank in zip(came, there, strict=True) if rank is not None
    ]
    to = [
        rank if rank is not None and part.numel() else None
        for rank, part in zip(line.neighbours, give, strict=True)
    ]
    waits += [
        dist.isend(part, rank) for part, rank in zip(give, to, strict=True) if rank is not None
    ]
    for wait in waits:
        wait.wait()
    return came


def ends(x, first, last):
    first, last = max(0, first), max(0, last)
    return x[:, :, :first], x[:, :, x.shape[2] - last :]


class Halo(torch.autograd.Function):
    """The strip with its neighbours' rows around it; zeros outside the image.

    Backward, the gradient of those rows is sent back and added.
    """

    @staticmethod
    def forward(ctx, x, lacks, line):
        ctx.line, ctx.mine = line, lacks[line.place]
        ctx.wanted = [(0, 0), *lacks][line.place][1], [*lacks, (0, 0)][line.place + 1][0]
        y = F.pad(x, [0, 0, *ctx.mine])
        halo = ends(y, *ctx.mine)
        for part, came in zip(halo, swap(ends(x, *ctx.wanted), halo, line), strict=True):
            part.copy_(came)
        return y

    @staticmethod
    def backward(ctx, gradient):
        above, below = ctx.mine
        mine = F.pad(gradient, [0, 0, -above, -below])
        asked = ends(mine, *ctx.wanted)
        for part, came in zip(
            asked, swap(ends(gradient, above, below), asked, ctx.line), strict=True
        ):
            part.add_(came)
        return mine, None, None


class Sum(torch.autograd.Function):
    """Over the strips, forward; every rank goes on with the same sum, so backward needs nothing."""

    @staticmethod
    def forward(ctx, x, line):
        x = x.clone()
        if len(line.members) > 1:
            dist.all_reduce(x, group=line.group)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def conv(channels, out, kernel, stride):
    made = nn.Conv2d(channels, out, kernel, stride, kernel // 2)
    nn.init.kaiming_normal_(made.weight)
    nn.init.zeros_(made.bias)
    return made


class Stem(nn.Module):
    def __init__(self, out):
        super().__init__()
        self.first, self.out, self.shape = conv(3, out, 5, 2), out, (5, 2, 2)

    def forward(self, x, edges, line):
        lacks, edges = margins(edges, *self.shape)
        return self._bare(self.first, Halo.apply(x, lacks, line)), edges

    @staticmethod
    def _bare(layer, x):  # rows have their padding already
        return F.conv2d(x, layer.weight, layer.bias, layer.stride, (0, layer.padding[1]))


class Block(Stem):
    """Of a ResNet v2: ReLU before each convolution. Batch normalization would need all strips."""

    def __init__(self, channels, out, stride):
        nn.Module.__init__(self)
        self.first, self.second, self.out, self.shape = (
            conv(channels, out, 3, stride),
            conv(out, out, 3, 1),
            out,
            (3, stride, 1),
        )
        self.short = conv(channels, out, 1, stride) if stride > 1 else None
        with torch.no_grad():
            self.second.weight.mul_(0.5)

    def forward(self, x, edges, line):
        lacks, edges = margins(edges, *self.shape)
        y = F.relu(Halo.apply(x, lacks, line))
        x = x if self.short is None else self.short(y[:, :, 1:-1])
        y = self._bare(self.first, y)
        y = F.relu(Halo.apply(y, margins(edges, 3, 1, 1)[0], line))
        return x + self._bare(self.second, y), edges


class Head(nn.Module):
    """From the mean and the spread of each feature over the whole image."""

    def __init__(self, channels):
        super().__init__()
        self.linear = nn.Linear(2 * channels, 2)

    def forward(self, x, edges, line):
        x = F.relu(x)
        sums = Sum.apply(
            torch.cat([x.sum((2, 3)), (x * x).sum((2, 3))], 1), line
        )  # over all strips
        mean, square = (sums / (edges[-1] * x.shape[3])).chunk(2, 1)
        spread = (square - mean * mean).clamp(min=1e-6).sqrt()
        return self.linear(torch.cat([mean, spread], 1)), edges


def network(width=8, seed=0):
    """The ResNet-10 v2: a convolution, four blocks of two, one linear layer."""
    torch.manual_seed(seed)
    blocks = [
        Block(width * k, width * k * stride, stride)
        for k, stride in ((1, 1), (1, 2), (2, 2), (4, 2))
    ]
    return [Stem(width), *blocks, Head(8 * width)]


def classify(parts, x, line):
    """x: my strip of the images."""
    edges = strips_of(x.shape[3], len(line.members))  # square images
    for part in parts:
        x, edges = part(x, edges, line)
    return x
