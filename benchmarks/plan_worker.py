"""What bench_plan.py runs on 4 MPI ranks: steps of a small transformer in each layout: bytes,
seconds; calibration.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from plan_model import Dealt, Size, Ways, layers_of
from torch import nn
from torch.distributed import fsdp, pipelining
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional as F

from pi2zero import costs, ranks
from pi2zero.meters import Memory

BATCH, LR = 16, 1e-3
Layout = costs.Layout
LAYOUTS = [
    Layout(data=4, micro_batch=2),
    Layout(data=4, micro_batch=4),
    Layout(data=4, micro_batch=2, zero_stage=1),
    Layout(data=4, micro_batch=4, zero_stage=2),
    Layout(data=4, micro_batch=4, zero_stage=3),
    Layout(data=4, micro_batch=4, recompute="full"),
    Layout(tensor=4, micro_batch=2),
    Layout(tensor=4, micro_batch=8),
    Layout(data=2, tensor=2, micro_batch=4),
    Layout(data=2, tensor=2, micro_batch=4, zero_stage=1),
    Layout(pipeline=4, micro_batch=2, schedule="gpipe"),
    Layout(pipeline=4, micro_batch=2),
    Layout(pipeline=4, micro_batch=4),
    Layout(pipeline=4, micro_batch=2, schedule="interleaved", chunks=2),
    Layout(pipeline=4, micro_batch=2, schedule="gpipe", recompute="full"),
    Layout(data=2, pipeline=2, micro_batch=2),
    Layout(data=2, pipeline=2, micro_batch=2, zero_stage=1),
    Layout(tensor=2, pipeline=2, micro_batch=2),
    Layout(context=4, micro_batch=2),
    Layout(data=2, context=2, micro_batch=4),
]
SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B"}


def data(size):
    """Words and the words after them, the same on every rank; each step takes the same ones."""
    words = torch.randint(
        size.vocabulary, (BATCH, size.sequence + 1), generator=torch.Generator().manual_seed(1)
    )
    return words[:, :-1].contiguous(), words[:, 1:].contiguous()


class Trainer:
    """One layout's model on this rank. step() trains once and returns the loss where it is known,
    else None.
    """

    def __init__(self, layout, size, look=lambda moment: None):
        self.layout, self.look, self.size = layout, look, size
        ways = ("pipeline", "data", "context", "tensor")
        mesh = init_device_mesh("cpu", [getattr(layout, way) for way in ways], mesh_dim_names=ways)
        groups = {way: mesh[way].get_group() if getattr(layout, way) > 1 else None for way in ways}
        alike = mesh["data", "context"]._flatten() if layout.replicas > 1 else None
        layers = layers_of(
            size, Ways(groups["tensor"], groups["context"], layout.recompute == "full", look)
        )
        p, v, rank = layout.pipeline, layout.chunks, mesh.get_local_rank("pipeline")
        cut = [len(layers[1:-1]) * s // (p * v) + 1 for s in range(1, p * v)]
        edges = [0, *cut, len(layers)]
        parts = [layers[edges[s] : edges[s + 1]] for s in range(rank, p * v, p)]
        self.model = nn.ModuleList(nn.Sequential(*part) for part in parts)
        self.stages = [rank + p * chunk for chunk in range(v)]
        self.scale = 1.0
        if layout.zero_stage == 3:
            for layer in parts[0][1:-1]:
                fsdp.fully_shard(layer, mesh=alike)
            fsdp.fully_shard(self.model[0], mesh=alike)
            self.scale, self.adam = (
                float(layout.replicas),
                torch.optim.Adam(self.model.parameters(), lr=LR, fused=True),
            )
        else:
            self.dealt = Dealt(
                [layer for part in parts for layer in part],
                alike and alike.get_group(),
                layout.zero_stage,
                LR,
            )
            self.adam = self.dealt.adam
        words, labels = (t.chunk(layout.data)[mesh.get_local_rank("data")] for t in data(size))
        its = mesh.get_local_rank("context")
        self.words, self.labels = (
            t.chunk(layout.context, 1)[its].contiguous() for t in (words, labels)
        )
        if p > 1:
            self._pipe(groups["pipeline"])

    def loss(self, y, labels):
        return F.cross_entropy(y.flatten(0, 1), labels.flatten(), reduction="sum") * (
            self.scale / (BATCH * self.size.sequence)
        )

    def _pipe(self, group):
        count = self.layout.pipeline * self.layout.chunks
        stages = [
            pipelining.PipelineStage(part, number, count, torch.device("cpu"), group=group)
            for number, part in zip(self.stages, self.model, strict=True)
        ]
        for part in self.model:
            part.register_forward_hook(lambda *_: self.look("forward"))
        made = pipelining.schedules.get_schedule_class(SCHEDULES[self.layout.schedule])
        options = {
            "n_microbatches": len(self.words) // self.layout.micro_batch,
            "loss_fn": self.loss,
            "scale_grads": False,
        }
        self.schedule = made(
            stages if self.layout.schedule == "interleaved" else stages[0], **options
        )

    def gradients(self):
        if self.layout.pipeline > 1:
            last, losses = self.schedule_last(), []
            self.schedule.step(
                *[self.words] * (0 in self.stages),
                **({"target": self.labels, "losses": losses} if last else {}),
            )
            return sum(losses).item() if last else None
        total = 0.0
        for words, labels in zip(
            self.words.split(self.layout.micro_batch),
            self.labels.split(self.layout.micro_batch),
            strict=True,
        ):
            loss = self.loss(self.model[0](words), labels)
            self.look("forward")
            loss.backward()
            total += loss.item() / self.scale
        return total

    def schedule_last(self):
        return self.layout.pipeline * self.layout.chunks - 1 in self.stages

    def step(self):
        self.adam.zero_grad() if self.layout.zero_stage == 3 else self.dealt.begin()
        loss = self.gradients()
        self.look("backward")
        self.adam.step() if self.layout.zero_stage == 3 else self.dealt.finish()
        return loss


def bytes_of(layout, size):
    """The bytes of the fullest rank by component, the most at any moment; and the losses of two
    steps, summed over ranks.
    """
    memory = Memory()
    trainer = Trainer(layout, size, lambda moment: memory.note(moment, trainer.model, trainer.adam))
    losses = []
    for _ in range(2):
        with memory.activations():
            losses.append(trainer.step() or 0.0)
        memory.note("step", trainer.model, trainer.adam)
    parts = ("parameters", "gradients", "master", "moments", "activations", "in flight")
    held = {part: max(sample[part] for sample in memory.samples.values()) for part in parts}
    if (
        layout.recompute == "full"
    ):  # what is computed again belongs to no graph that Memory could ask
        again = memory.samples["again"]
        held["activations"] = max(held["activations"], again["activations"] + again["in flight"])
    dist.all_gather_object(every := [None] * dist.get_world_size(), (held, losses))
    fullest = max(
        (one[0] for one in every), key=lambda held: sum(held[part] for part in parts[:-1])
    )
    share = layout.tensor  # ranks of a tensor group have the same loss
    return fullest, [sum(one[1][step] for one in every) / share for step in range(2)]


def slowest(seconds):
    """The median over repeats of the slowest rank's seconds."""
    times = torch.tensor(seconds)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return statistics.median(times.tolist())


def timed(work, repeats):
    found = []
    for _ in range(repeats):
        dist.barrier()
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return slowest(found)


def calibrate(size, repeats):
    """What the planner wants to know of this machine, by measuring: see bench_plan.py."""
    model = nn.Sequential(*layers_of(size, Ways()))
    words, labels = (t[:4] for t in data(size))

    def once():
        F.cross_entropy(model(words).flatten(0, 1), labels.flatten()).backward()

    once()
    found = {"samples": 4, "together": timed(once, repeats)}
    found["alone"] = timed(lambda: once() if dist.get_rank() == 0 else None, repeats)
    adam = torch.optim.Adam(model.parameters(), lr=LR, fused=True)
    adam.step()
    found["update"] = timed(adam.step, repeats)
    found["parameters"] = sum(p.numel() for p in model.parameters())
    found["rings"] = []
    for nbytes in (2**18, 2**21, 2**24):
        buffer = torch.zeros(nbytes // 4)
        found["rings"].append(
            (nbytes, timed(lambda buffer=buffer: dist.all_reduce(buffer), repeats))
        )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--no-bytes", action="store_true")
    parser.add_argument("--layouts", type=int, nargs="*", default=range(len(LAYOUTS)))
    parser.add_argument("--output", type=Path, required=True, help="the JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    ranks.join()
    size, chosen = Size(), [LAYOUTS[k] for k in args.layouts]
    found = {
        "bytes": None if args.no_bytes else [bytes_of(layout, size) for layout in chosen],
        "rounds": [],
    }
    for _ in range(args.rounds):
        found["rounds"].append({"machine": calibrate(size, args.steps), "seconds": []})
        for layout in chosen:
            trainer = Trainer(layout, size)
            trainer.step()
            found["rounds"][-1]["seconds"].append(timed(trainer.step, args.steps))
    if dist.get_rank() == 0:
        args.output.write_text(json.dumps(found))
    ranks.leave()


if __name__ == "__main__":
    main()
