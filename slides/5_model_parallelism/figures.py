"""Figures and numbers of the deck "Model parallelism"."""

from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from covers import pipeline as cover  # noqa: F401
from diagrams import GREY, PX_PER_INCH, QUIET, WARM
from diagrams_parallel import column_row, cuts, halo, input_and_weights, layers, mesh  # noqa: F401, drawn by their names in deck.md
from extract import printed
from live import drawn_by_cells, run_cells
from matplotlib.colors import ListedColormap, to_rgb
from torch import nn
from torch.nn import functional as F

from pi2zero import costs, plots

PIPELINES, TENSORS = "notebooks/11_model_parallel.ipynb", "notebooks/11a_tensors_and_experts.ipynb"
SPACE, TISSUE = "notebooks/11b_space_and_hybrids.ipynb", "notebooks/11c_tissue.ipynb"
UNITS = {"F": 1, "B": 2, "I": 1, "W": 1}  # an action's time, in forwards
TORCH = ("Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")


def table(rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def facts():
    """The numbers in the deck's text."""
    bubbles = printed(
        PIPELINES,
        "measure-check",
        r"(1F1B|GPipe)(?:, m = (\d))? +predicted ([\d.]+)% idle, measured ([\d.]+)%",
    )
    torch_times = printed(
        PIPELINES, "torch-check", r"(\w+) +ideal (\d+) ms, measured (\d+) ms, ([\d.]+)% idle"
    )
    micro_batches = r"(\w+) +(?:micro-batches|the same)[^:]*: ([\d ]+)"
    resident = dict(printed(PIPELINES, "held-by-plan", micro_batches))
    one, two, times = printed(
        PIPELINES, "real", r"one rank (\d+) ms, two ranks (\d+) ms .*: ([\d.]+) times"
    )[0]
    gems = printed(PIPELINES, "gems-times", r"(\S.*?) +(\d+) ms a batch, ideal (\d+)")
    saved = dict(printed(TENSORS, "sp-check", r"(\w[\w ]*\w) +([\d.]+) MB saved"))
    losses = r"loss ([\d.]+) to ([\d.]+); the busiest expert's share (\d+)% to (\d+)%"
    loss = printed(TENSORS, "balance-check", losses)[0]
    sides = dict(printed(SPACE, "largest", r"p = (\d): predicted \d+, measured (\d+)"))
    side_1, side_4 = int(sides["1"]), int(sides["4"])
    sent = dict(printed(SPACE, "bytes-check", r"(space|filters) +formula ([\d.]+) MB"))
    plans, fit = printed(SPACE, "planner", r"([\d,]+) layouts, ([\d,]+) fit")[0]
    tissue = printed(TISSUE, "table", r"(?m)^(\S.*?) {2,}(\d+) +([\d.]+) \| .*\| +([\d,]+)$")
    shown = ("layers 4", "pipeline 4 (1F1B)", "two directions 4", "space 4")
    shown += ("two directions 2 x space 2",)
    return {
        "tissue_rows": table(
            (name, mb, side, speed) for name, mb, speed, side in tissue if name in shown
        ),
        "plans": plans,
        "plans_fit": fit,
        "bubble_rows": table((name, m or "8", f"{p} %", f"{got} %") for name, m, p, got in bubbles),
        "torch_rows": table(
            (name, f"{ideal} ms", f"{got} ms", resident[name])
            for name, ideal, got, _ in torch_times
        ),
        "resident_1f1b": resident["1F1B"],
        "real_one": one,
        "real_two": two,
        "real_times": times,
        "gems_rows": table((name, f"{ideal} ms", f"{got} ms") for name, got, ideal in gems),
        "saved_one": saved["one process"],
        "saved_tensor": saved["tensor"],
        "saved_both": saved["tensor and sequence"],
        "tensor_mb": printed(TENSORS, "bytes-check", r"formula ([\d.]+) MB a rank")[0],
        "loss_first": loss[0],
        "loss_last": loss[1],
        "share_first": loss[2],
        "share_last": loss[3],
        "side_1": f"{side_1:,}",
        "side_4": f"{side_4:,}",
        "area": f"{(side_4 / side_1) ** 2:.2f}",
        "halo_mb": sent["space"],
        "filters_mb": sent["filters"],
        "zero_bubble": f"{100 * idle(spans_of(torch_plans()['ZBVZeroBubble'], 0.5)):.1f}",
    }


@cache
def schedules():
    """The notebook's own gpipe, one_f_one_b, basic, two_way and idle."""
    return SimpleNamespace(
        **run_cells(PIPELINES, "gpipe,one-f-one-b,idle,gems", UNITS=UNITS, expected={})
    )


def idle(spans):
    return schedules().idle(spans)


@contextmanager
def pretended_world(size):
    """A process group without processes: enough for a library to plan for `size` ranks."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    try:
        yield SimpleNamespace(rank=0, world_size=size)
    finally:
        dist.destroy_process_group()


@cache
def torch_plans():
    """The plans of PyTorch's schedules for 4 ranks and 8 micro-batches, by the notebook's cells."""
    with pretended_world(4) as me:
        names = {"torch": torch, "nn": nn, "F": F, "me": me}
        space = run_cells(
            PIPELINES, "px-network,px-spend,px-takes,px-slow,px-stages,px-torch,px-plan", **names
        )
    return space["torch_plans"]


def spans_of(plan, unit=1.0):
    return costs.pipeline_spans(plan, lambda stage, kind: unit * UNITS[kind])


def inches(width, height):
    """The size of a figure of so many CSS pixels."""
    return width / PX_PER_INCH, height / PX_PER_INCH


def drawn(*rows, until=None, height=None):
    """One above the other: (title, spans) each, with numbers large enough for a slide."""
    until = until or max(stop for _, spans in rows for row in spans for _, _, stop in row)
    size = inches(1150, height or 235 * len(rows))
    options = {"sharex": True, "squeeze": False, "layout": "constrained"}
    figure, axes = plt.subplots(len(rows), 1, figsize=size, **options)
    for ax, (title, spans) in zip(axes[:, 0], rows, strict=True):
        plots.pipeline(spans, xlabel="", title=title, until=until, ax=ax)
        boxes = [part for row in spans for part in row]
        for text, (_, start, stop) in zip(ax.texts, boxes, strict=True):
            text.set_fontsize(15)
            text.set_visible(stop - start > 0.015 * until)
    axes[-1, 0].set_xlabel("time, in forwards of one micro-batch and stage")
    return figure


def plan_by(way, micro, ranks=4):
    return [way(rank, ranks, micro) for rank in range(ranks)]


def one_batch():
    """The whole batch at once: four stages, one after the other, there and back."""
    row = [[(rank, "F", 0), (rank, "B", 0)] for rank in range(4)]
    return drawn(("One batch", spans_of(row)), height=300)


def gpipe_steps():
    """The same batch in 1, 2, 4 and 8 micro-batches, on the same axis."""
    cut = ((m, spans_of(plan_by(schedules().gpipe, m), 8 / m)) for m in (1, 2, 4, 8))
    titled = (
        (f"{m} micro-batch{'es' * (m > 1)}: {100 * idle(spans):.0f} % idle", spans)
        for m, spans in cut
    )
    return [drawn(row, until=96, height=330) for row in titled]


def both_orders():
    """GPipe; then 1F1B under it."""
    ways = {"GPipe": schedules().gpipe, "1F1B": schedules().one_f_one_b}
    rows = [(name, spans_of(plan_by(way, 8))) for name, way in ways.items()]
    first = drawn(*rows)
    first.axes[1].set_visible(False)
    return [first, drawn(*rows)]


def bubble_curve():
    """Idle share over micro-batches for 4 and 16 ranks; on 4, what was measured."""
    figure, ax = plt.subplots(figsize=inches(560, 400), layout="constrained")
    micro = range(1, 65)
    for p, color, y in ((4, QUIET, 9), (16, GREY, 24)):
        ax.plot(micro, [100 * costs.pipeline_bubble(p, m) for m in micro], color=color)
        ax.text(50, y, f"p = {p}", color=color)
    lines = r"1F1B(?:, m = (\d))? +predicted [\d.]+% idle, measured ([\d.]+)%"
    measured = printed(PIPELINES, "measure-check", lines)
    counts, shares = [int(m or 8) for m, _ in measured], [float(share) for _, share in measured]
    ax.plot(counts, shares, "o", color=WARM, label="measured")
    ax.set(xlabel="micro-batches", ylabel="idle, %", ylim=(0, 100))
    ax.legend()
    return figure


def activation_bars():
    """Activations in each rank's memory, kB, as counted: GPipe and 1F1B."""
    rows = printed(PIPELINES, "held-check", r"(GPipe|1F1B) *: kB held by rank ([\d ]+)")
    figure, ax = plt.subplots(figsize=inches(620, 400), layout="constrained")
    for i, ((name, values), color) in enumerate(zip(rows, (GREY, WARM), strict=True)):
        places = [rank + 0.4 * i - 0.2 for rank in range(4)]
        ax.bar(places, [float(v) for v in values.split()], 0.36, color=color, label=name)
    ax.set_xticks(range(4), [f"rank {rank}" for rank in range(4)])
    ax.set(ylabel="activations in memory, kB", ylim=(0, 500))
    ax.legend(ncols=2, loc="upper right")
    return figure


def finer():
    """1F1B above interleaved 1F1B, the same work."""
    ours = spans_of(plan_by(schedules().one_f_one_b, 8), 2)
    theirs = spans_of(torch_plans()["Interleaved1F1B"])
    rows = {"1F1B": ours, "two stages per rank": theirs}
    return drawn(*((f"{name}: {100 * idle(row):.0f} % idle", row) for name, row in rows.items()))


def torch_schedule(title, name):
    spans = spans_of(torch_plans()[name])
    return drawn((f"{title}: {100 * idle(spans):.0f} % idle", spans), until=66, height=310)


def zero_bubble():
    return torch_schedule("ZBV", "ZBVZeroBubble")


def folded():
    return torch_schedule("DualPipeV", "DualPipeV")


def gems_steps():
    """Two batches: Basic, one after the other; then MAST, the second the other way."""
    basic, mast = (spans_of(plan_by(way, 2)) for way in (schedules().basic, schedules().two_way))
    rows = {"Basic: one replica": basic, "MAST: two replicas": mast}
    return [drawn(row, until=24, height=330) for row in rows.items()]


def imbalance():
    """Time of a mixture of experts over its busiest expert's tokens, as measured."""
    rows = printed(TENSORS, "imbalance-check", r"busiest expert ([\d.]+) of the mean: (\d+) ms")
    figure, ax = plt.subplots(figsize=inches(600, 380), layout="constrained")
    ax.plot([float(x) for x, _ in rows], [float(y) for _, y in rows], "o-", color=WARM)
    ax.set(xlabel="busiest expert's tokens / mean", ylabel="ms per layer, forward")
    ax.set(ylim=(0, None), xlim=(0, None))
    return figure


def largest():
    """The side of the largest image over ranks: measured, and the root that was predicted."""
    rows = printed(SPACE, "largest", r"p = (\d): predicted (\d+), measured (\d+)")
    ranks, guess, side = (list(map(int, column)) for column in zip(*rows, strict=True))
    figure, ax = plt.subplots(figsize=inches(600, 390), layout="constrained")
    ax.plot(ranks, guess, color=GREY, label="predicted")
    ax.plot(ranks, side, "o", color=WARM, label="measured")
    ax.set(xlabel="ranks", ylabel="pixels along a side", ylim=(0, 2000), xticks=ranks)
    ax.legend(loc="lower right")
    return figure


def decision_map():
    figure = drawn_by_cells(SPACE, "ways,ways-draw", inches(1150, 500))
    (ax,) = figure.axes
    pale = [tuple(1 - 0.6 * (1 - part) for part in to_rgb(plots.rank_color(i))) for i in range(5)]
    # Rasterized: otherwise it is thirty thousand rectangles, with seams.
    ax.collections[0].set(rasterized=True, alpha=1, cmap=ListedColormap(pale))
    for text in ax.texts:
        text.set_fontsize(16)
    return figure


def best_plans():
    """The six best layouts of notebook 11b's model and machine, in parts."""
    return drawn_by_cells(SPACE, "planner,planner-picture", inches(1150, 370), GB=1e9)
