"""What bench_parallel.py runs on 4 MPI ranks: the notebooks' own cells, and libraries that do the
same; seconds, round by round.

A rank that has no part in a measurement waits asleep: two of the four then have a core each on a
machine of two.
"""

import argparse
import json
import math
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["DS_ACCELERATOR"] = "cpu"

import numpy as np
import psutil
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional as F

from pi2zero import costs, ranks
from pi2zero.meters import Memory, Timeline

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from worlds import definitions

BOOKS = {
    "11_model_parallel": [
        *(
            "px-network",
            "px-forward-backward",
            "px-backward-tagged",
            "px-run",
            "gpipe",
            "one-f-one-b",
            "gems",
        ),
        *(
            "px-spend",
            "px-takes",
            "px-slow",
            "px-trace",
            "px-stages",
            "px-measure",
            "px-torch",
            "px-plan",
            "px-torch-measure",
        ),
        *("px-two-ways", "px-deepspeed"),
    ],
    "11a_tensors_and_experts": [
        *(
            "px-f-g",
            "px-g",
            "px-mlp",
            "px-check",
            "px-ring-tools",
            "px-rotate",
            "px-ring-forward",
            "px-ring-backward",
        ),
        *("px-ring", "px-ring-check", "px-dtensor"),
    ],
    "11b_space_and_hybrids": [
        *(
            "px-join",
            "px-edges",
            "px-margin",
            "px-margins",
            "px-line",
            "px-swap",
            "px-ends",
            "px-halo-forward",
        ),
        *("px-halo-backward", "px-halo", "px-network", "px-layer", "px-sum", "px-classify"),
    ],
}
LAYER, MICRO, WIDE = (
    0.020,
    8,
    512,
)  # s that a layer sleeps; micro-batches; width where stages compute
UNITS = {"F": 1, "B": 2, "I": 1, "W": 1}
TORCH = ("Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")


def notebook(name, **names):
    """What the cells of BOOKS define, in a namespace of their own."""
    space = {
        "np": np,
        "costs": costs,
        "math": math,
        "time": time,
        "psutil": psutil,
        "torch": torch,
        "dist": dist,
        "nn": nn,
        "F": F,
    }
    space |= {
        "pairwise": pairwise,
        "Memory": Memory,
        "Timeline": Timeline,
        "pipelining": pipelining,
    }
    for cell in BOOKS[name]:
        exec(definitions(name, cell, values=False), space)  # noqa: S102  our own cells
    space.update(names)
    return space
    return space


def first_two(work):
    """Its seconds on ranks 0 and 1, while the others sleep; the slower one's."""
    dist.barrier()
    start = time.perf_counter()
    if dist.get_rank() < 2:
        work()
    return slowest(time.perf_counter() - start if dist.get_rank() < 2 else 0.0)


def slowest(seconds):
    found = torch.tensor(seconds, dtype=torch.double)
    waiting = dist.all_reduce(found, op=dist.ReduceOp.MAX, async_op=True)
    while not waiting.is_completed():
        time.sleep(0.001)
    return found.item()


def best(work, repeats):
    return min(work() for _ in range(repeats))


class Schedules:
    """Notebook 11: stages that sleep. seconds(): {schedule: s from the first action of all ranks to
    the last}.
    """

    def __init__(self, me):
        from common import digits

        self.book = book = notebook(
            "11_model_parallel", me=me, train=digits()[0], layer_seconds=0, WIDTH=64
        )
        p = me.world_size
        self.plans = {
            "GPipe": book["gpipe"],
            "1F1B": book["one_f_one_b"],
            "Basic (GEMS)": book["basic"],
            "MASTER": book["two_way"],
        }
        self.plans = {
            name: [way(rank, p, MICRO) for rank in range(p)] for name, way in self.plans.items()
        }
        stages = [book["stages_of"](p, [s])[s] for s in (me.rank, p - 1 - me.rank)]
        self.copy = lambda s, i: stages[0] if s == me.rank else stages[1]
        self.made = {name: book["torch_schedule"](name, MICRO) for name in TORCH}
        for made in self.made.values():
            book["measure_torch"](*made)  # the first step asks for shapes
        self.ideal = {name: self.drawn(plan, 2) for name, plan in self.plans.items()}
        self.ideal |= {
            name: self.drawn(book["plan_of"](schedule), 1)
            for name, (schedule, _) in self.made.items()
        }
        book["me"] = ranks.join(deepspeed=True)
        import deepspeed
        from deepspeed.pipe import PipelineModule

        book |= {"deepspeed": deepspeed, "PipelineModule": PipelineModule, "trace": []}
        _, self.engine = book["by_deepspeed"](MICRO)
        self.ideal["1F1B, DeepSpeed"] = self.ideal["1F1B"]

    def drawn(self, plan, layers):
        spans = costs.pipeline_spans(plan, lambda stage, kind: LAYER * layers * UNITS[kind])
        return max(row[-1][2] for row in spans)

    def seconds(self):
        book, found = self.book, {}
        book["layer_seconds"] = LAYER
        for name, plan in self.plans.items():
            owner = book["two_ways"] if name == "MASTER" else book["one_way"]
            found[name] = self.span(book["measure"](plan[book["me"].rank], self.copy, owner))
        for name, made in self.made.items():
            found[name] = self.span(book["measure_torch"](*made))
        found["1F1B, DeepSpeed"] = self.span(self.deepspeed())
        return found

    def deepspeed(self):
        book, (images, labels) = self.book, self.book["train"][: 32 * MICRO]
        book["trace"] = []
        dist.barrier()
        self.engine.train_batch(
            zip(images.tensor_split(MICRO), labels.tensor_split(MICRO), strict=True)
        )
        return book["actions_of"](book["trace"])

    @staticmethod
    def span(found):
        """From the first rank's begin to the last one's end."""
        dist.all_gather_object(every := [None] * dist.get_world_size(), (found[0][1], found[-1][2]))
        return max(stop for _, stop in every) - min(start for start, _ in every)


class Pairs:
    """What two ranks do by hand and by a library, or beside one process's kernel. seconds(): {name:
    s}.
    """

    def __init__(self, me):
        two = me.__class__(me.rank, 2, me.local_rank, me.device, me.backend)
        self.me, self.group = me, dist.new_group([0, 1])
        self.mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pair", "tensor"))[
            "tensor"
        ]  # ranks 0, 1; ranks 2, 3
        from common import digits

        world = _World(self.group)
        self.pipes = notebook("11_model_parallel", me=two, train=digits()[0], WIDTH=WIDE)
        self.tensors = notebook(
            "11a_tensors_and_experts", me=two, dist=world, init_device_mesh=init_device_mesh
        )
        self.space = notebook("11b_space_and_hybrids", me=two, dist=world)

    def pipeline(self, repeats):
        """1F1B of two stages that compute: our loop, and PyTorch's Schedule1F1B."""
        book, rank = self.pipes, self.me.rank
        images, labels = book["train"][: 64 * MICRO]
        book["size"] = len(images)
        row = book["one_f_one_b"](rank, 2, MICRO) if rank < 2 else []
        if rank < 2:
            part = book["cut"](book["network"](), 2)[rank]
            pieces = images.tensor_split(MICRO), labels.tensor_split(MICRO)
            stage = pipelining.PipelineStage(
                book["cut"](book["network"](), 2)[rank],
                rank,
                2,
                torch.device("cpu"),
                group=self.group,
            )
            schedule = pipelining.Schedule1F1B(stage, n_microbatches=MICRO, loss_fn=F.cross_entropy)
            given = ([images], {}) if rank == 0 else ([], {"target": labels})

        def ours():
            book["losses"] = []
            book["run"](row, lambda s, i: part, lambda s, i: s if 0 <= s < 2 else None, *pieces)

        def theirs():
            schedule.step(*given[0], **given[1])

        return self.both("1F1B, 2 stages", ours, theirs, repeats)

    def tensor(self, repeats):
        """An MLP, columns then rows: ours, and DTensor's."""
        book, tokens, h = self.tensors, 512, 512
        x, up, down = (
            book["random"](tokens, h),
            book["random"](4 * h, h, seed=1),
            book["random"](h, 4 * h, seed=2),
        )
        if self.me.rank < 2:
            my_up, my_down = book["mine"](up, 0), book["mine"](down, 1)
        net = nn.Sequential(
            nn.Linear(h, 4 * h, bias=False), nn.GELU(), nn.Linear(4 * h, h, bias=False)
        )
        net.load_state_dict({"0.weight": up, "2.weight": down})
        styles = {"0": book["ColwiseParallel"](), "2": book["RowwiseParallel"]()}
        book["parallelize_module"](net, self.mesh, styles)

        def theirs():
            its = x.clone().requires_grad_()
            net.zero_grad()
            net(its).square().sum().backward()

        return self.both(
            "MLP, columns and rows",
            lambda: book["gradients"](book["parallel_mlp"], x, my_up, my_down),
            theirs,
            repeats,
        )

    def both(self, name, ours, theirs, repeats):
        for work in (ours, theirs):
            first_two(work)
        return {
            f"{name}: by hand": best(lambda: first_two(ours), repeats),
            f"{name}: library": best(lambda: first_two(theirs), repeats),
        }

    def attention(self, repeats, tokens=2048):
        """Causal attention, 4 heads of 32, forward and backward: one process, plain and fused; the
        ring on two ranks.
        """
        book, rank = self.tensors, self.me.rank
        whole = [book["random"](4, tokens, 32, seed=seed) for seed in range(3)]
        parts = [book["mine"](x, 1) for x in whole] if rank < 2 else None
        ring = book["RingAttention"].apply
        kernels = {
            "plain, one rank": lambda: rank == 0 and book["with_gradients"](book["plain"], *whole),
            "fused, one rank": lambda: rank == 0 and book["with_gradients"](fused, *whole),
            "ring, two ranks": lambda: book["with_gradients"](
                lambda q, k, v: ring(q, k, v, tokens), *parts
            ),
        }
        return self.timed("attention", kernels, repeats)

    def halo(self, repeats, side=768):
        """A convolution of 16 channels, 3 x 3, forward and backward: one process; two strips; the
        exchange alone.
        """
        book, rank = self.space, self.me.rank
        layer, x = book["PreConv"](16, 16, 3, 1, 1), torch.rand(1, 16, side, side)
        line = book["Line"](2, [0, 1], book["edges_of"](side, 2))
        strip = book["mine"](x, [line]) if rank < 2 else None
        lacks = book["margins"](line.edges, 3, 1, 1)

        def one():
            layer(x.clone().requires_grad_()).sum().backward()

        def strips():
            book["on_lines"](layer, strip.clone().requires_grad_(), [line])[0].sum().backward()

        def exchange():
            book["Halo"].apply(strip.clone().requires_grad_(), line, lacks, 0.0).sum().backward()

        kernels = {
            "one rank": lambda: rank == 0 and one(),
            "two strips": strips,
            "the exchange alone": exchange,
        }
        return self.timed("convolution", kernels, repeats)

    def timed(self, what, kernels, repeats):
        for work in kernels.values():
            first_two(work)
        return {
            f"{what}: {name}": best(lambda work=work: first_two(work), repeats)
            for name, work in kernels.items()
        }

    def seconds(self, repeats):
        return (
            self.pipeline(repeats)
            | self.tensor(repeats)
            | self.attention(repeats)
            | self.halo(repeats)
        )


class _World:
    """torch.distributed, its collectives over a group of two."""

    def __init__(self, group):
        self.group = group

    def __getattr__(self, name):
        return getattr(dist, name)

    def all_reduce(self, tensor, group=None, **options):
        return dist.all_reduce(tensor, group=group or self.group, **options)


def fused(q, k, v):
    return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--repeats", type=int, default=5, help="of what computes, in a round; the shortest counts"
    )
    parser.add_argument("--output", type=Path, required=True, help="the JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
    me = ranks.join()
    pairs, schedules = Pairs(me), Schedules(me)
    found = {"ideal": schedules.ideal, "schedules": [], "pairs": []}
    for _ in range(args.rounds):
        found["schedules"].append(schedules.seconds())
        found["pairs"].append(pairs.seconds(args.repeats))
    if me.rank == 0:
        args.output.write_text(json.dumps(found))
    ranks.leave()


if __name__ == "__main__":
    main()
