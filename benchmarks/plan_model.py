"""The transformer of bench_plan.py, and its parts on a rank: tensor parallelism by hand, ring
attention, ZeRO-1 and 2.

The ways are those of notebooks 09, 11 and 11a, with a batch; that they are right is checked in each
run (plan_worker.py).
"""

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Size:
    """Of a transformer, as costs.transformer has it; fp32."""

    layers: int = 8
    width: int = 256
    heads: int = 8
    vocabulary: int = 512
    sequence: int = 128


@dataclass
class Ways:
    """This rank's groups of tensor and sequence parallelism; None where there is one rank only."""

    tensor: object = None
    sequence: object = None
    recompute: bool = False
    look: object = lambda moment: None

    def place(self, way):
        group = getattr(self, way)
        return (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))


class Enter(torch.autograd.Function):
    """Identity forward; backward adds up."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Leave(torch.autograd.Function):
    """Adds up forward; identity backward."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def rotate(tensors, group):
    """Each tensor to the right neighbour of the ring; returns those of the left one.

    All parts are equally long.
    """
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    right, left = (dist.get_global_rank(group, (rank + step) % size) for step in (1, -1))
    received = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in tensors]
    sent = [dist.isend(t.contiguous(), right, group=group) for t in tensors]
    for tensor in received:
        dist.recv(tensor, left, group=group)
    for message in sent:
        message.wait()
    return received


def scores_of(q, k, owner, me):
    """Causal scores of this rank's queries with the keys of the rank `owner`."""
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
    if owner < me:
        return scores
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(
        1 if owner == me else -scores.shape[-1]
    )
    return scores.masked_fill(later, -math.inf)


class RingAttention(torch.autograd.Function):
    """q, k, v: (batch, heads, tokens, d) of this rank. Returns (batch, tokens, heads, d)."""

    @staticmethod
    def forward(ctx, q, k, v, group):
        me, size = dist.get_rank(group), dist.get_world_size(group)
        ctx.save_for_backward(q, k, v)
        m, total, o = torch.full((*q.shape[:3], 1), -math.inf), 0, 0
        for turn in range(size):
            scores = scores_of(q, k, (me - turn) % size, me)
            new = torch.maximum(m, scores.amax(-1, keepdim=True))
            weights, scale = torch.exp(scores - new), torch.exp(m - new)
            m, total, o = (
                new,
                total * scale + weights.sum(-1, keepdim=True),
                o * scale + weights @ v,
            )
            if turn < size - 1:
                k, v = rotate((k, v), group)
        o = (o / total).transpose(1, 2).contiguous()
        ctx.save_for_backward(*ctx.to_save, o, m + torch.log(total))
        ctx.group = group
        return o

    @staticmethod
    def backward(ctx, gradient):
        q, k, v, o, lse = ctx.saved_tensors
        group, root, gradient = ctx.group, math.sqrt(q.shape[-1]), gradient.transpose(1, 2)
        me, size = dist.get_rank(group), dist.get_world_size(group)
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        correction = (gradient * o.transpose(1, 2)).sum(-1, keepdim=True)
        for turn in range(size):
            weights = torch.exp(scores_of(q, k, (me - turn) % size, me) - lse)
            ds = weights * (gradient @ v.transpose(2, 3) - correction) / root
            dq, dk, dv = (
                dq + ds @ k,
                dk + ds.transpose(2, 3) @ q,
                dv + weights.transpose(2, 3) @ gradient,
            )
            k, v, dk, dv = rotate((k, v, dk, dv), group)
        return dq, dk, dv, None


class Block(nn.Module):
    """Layer norm, attention, layer norm, MLP; the heads and the MLP's columns of this rank of the
    tensor group.
    """

    def __init__(self, size, ways):
        super().__init__()
        h, self.ways, self.d = size.width, ways, size.width // size.heads
        rank, t = ways.place("tensor")
        self.norms = nn.ModuleList([nn.LayerNorm(h), nn.LayerNorm(h)])
        self.qkv, self.out = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.up, self.down = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)
        with torch.no_grad():
            self.qkv.weight = part(self.qkv.weight.view(3, h, h), 1, rank, t, (-1, h))
            self.qkv.bias = part(self.qkv.bias.view(3, h), 1, rank, t, (-1,))
            self.up.weight, self.up.bias = (
                part(self.up.weight, 0, rank, t),
                part(self.up.bias, 0, rank, t),
            )
            self.out.weight, self.down.weight = (
                part(self.out.weight, 1, rank, t),
                part(self.down.weight, 1, rank, t),
            )

    def forward(self, x):
        if self.ways.recompute and torch.is_grad_enabled():
            return checkpoint(self.block, x, use_reentrant=False)
        return self.block(x)

    def block(self, x):
        x = self.joined(x, self.norms[0], self.attention, self.out)
        return self.joined(x, self.norms[1], self.mlp, self.down)

    def mlp(self, x):
        x = F.gelu(self.up(x))
        if self.ways.recompute:
            self.ways.look("again")  # in backward, all of a layer's activations are there once more
        return x

    def joined(self, x, norm, split, last):
        group, y = self.ways.tensor, norm(x)
        y = split(y if group is None else Enter.apply(y, group))
        if group is None:
            return x + last(y)
        return x + (Leave.apply(F.linear(y, last.weight), group) + last.bias)

    def attention(self, x):
        q, k, v = self.qkv(x).unflatten(2, (3, -1, self.d)).permute(2, 0, 3, 1, 4)
        if self.ways.sequence is None:
            return (
                F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
            )
        return RingAttention.apply(q, k, v, self.ways.sequence).flatten(2)


def part(tensor, dim, rank, ranks, shape=None):
    tensor = tensor.chunk(ranks, dim)[rank]
    return nn.Parameter(tensor.reshape(shape or tensor.shape).clone())


class First(nn.Module):
    """Words and their places, as vectors."""

    def __init__(self, size, ways):
        super().__init__()
        self.ways = ways
        self.words, self.places = (
            nn.Embedding(size.vocabulary, size.width),
            nn.Embedding(size.sequence, size.width),
        )

    def forward(self, words):
        rank, c = self.ways.place("sequence")
        return self.words(words) + self.places.weight.chunk(c)[rank]


def layers_of(size, ways):
    """All layers, the same whatever the ways: from one seed."""
    torch.manual_seed(0)
    blocks = [Block(size, ways) for _ in range(size.layers)]
    head = nn.Sequential(
        nn.LayerNorm(size.width), nn.Linear(size.width, size.vocabulary, bias=False)
    )
    return [First(size, ways), *blocks, head]


class Dealt:
    """Gradients summed over a group, Adam on all parameters (stage 0) or on this rank's part (1,
    2), parameters gathered.

    Stage 1 has one flat array of parameters and one of gradients; stage 2 one of parameters for
    each unit, and reduces a unit's gradients as soon as backward has made them.
    """

    def __init__(self, units, group, stage, lr):
        self.group, self.stage, self.waiting = group, stage, {}
        self.rank, self.n = (
            (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
        )
        units = [list(unit.parameters()) for unit in units]
        self.units = units if stage == 2 else [[p for unit in units for p in unit]]
        if stage == 0:
            self.adam = torch.optim.Adam(self.units[0], lr=lr, fused=True)
            return
        self.flat = [self._flat(unit, place) for place, unit in enumerate(self.units)]
        self.mine = [nn.Parameter(flat.chunk(self.n)[self.rank]) for flat in self.flat]
        self.gradients = [torch.zeros_like(flat) for flat in self.flat] if stage == 1 else None
        self.adam = torch.optim.Adam(self.mine, lr=lr, fused=True)

    def _flat(self, unit, place):
        length = -(-sum(p.numel() for p in unit) // self.n) * self.n
        flat = torch.zeros(length)
        for p, view in zip(unit, self._views(unit, flat), strict=True):
            view.copy_(p.data)
            p.data = view
            if self.stage == 2:
                p.register_post_accumulate_grad_hook(lambda p, place=place: self._made(place))
        return flat

    def _views(self, unit, flat):
        places = [0]
        for p in unit:
            places.append(places[-1] + p.numel())
        return [flat[a : a + p.numel()].view_as(p) for a, p in zip(places, unit, strict=False)]

    def _made(self, place):
        """Stage 2: a gradient of the unit is there. After the last, all are reduced and freed."""
        unit = self.units[place]
        if any(p.grad is None for p in unit):
            return
        flat = torch.zeros_like(self.flat[place])
        for p, view in zip(unit, self._views(unit, flat), strict=True):
            view.copy_(p.grad)
            p.grad = None
        mine, old = torch.empty_like(self.mine[place]), self.mine[place].grad
        dist.reduce_scatter_single(mine, flat, group=self.group)
        self.mine[place].grad = mine if old is None else old.add_(mine)

    def begin(self):
        self.adam.zero_grad()
        if self.stage == 1:
            for p, view in zip(
                self.units[0], self._views(self.units[0], self.gradients[0].zero_()), strict=True
            ):
                p.grad = view

    def finish(self):
        if self.stage == 0 and self.n > 1:
            flat = torch.cat([p.grad.flatten() for p in self.units[0]])
            dist.all_reduce(flat, group=self.group)
            for p, view in zip(self.units[0], self._views(self.units[0], flat), strict=True):
                p.grad.copy_(view)
        if self.stage == 1:
            self.mine[0].grad = self.gradients[0].chunk(self.n)[self.rank]
            dist.reduce_scatter_single(
                reduced := torch.empty_like(self.mine[0]), self.gradients[0], group=self.group
            )
            self.mine[0].grad.copy_(reduced)
        self.adam.step()
        for mine, flat in zip(self.mine, self.flat, strict=True) if self.stage else ():
            dist.all_gather_single(flat, mine.detach().clone(), group=self.group)
