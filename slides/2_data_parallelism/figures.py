"""Figures and numbers of the deck "Data parallelism"."""

import time

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
from covers import one_network as cover  # noqa: F401
from diagrams import GREY, QUIET, WARM, block, chart, ink_on, label, stairs
from diagrams_training import (  # noqa: F401, drawn by their names in deck.md
    accumulation,
    network,
    overlap,
    parameter_server,
    prefetch,
    readers,
    ring,
    splits,
    three_steps,
)
from live import drawn_by_cells, on_threads, run_cells
from matplotlib.patches import Rectangle

from pi2zero import costs, plots

NOTEBOOK_3, NOTEBOOK_4 = "notebooks/03_collectives.ipynb", "notebooks/04_training_by_hand.ipynb"
NOTEBOOK_4B = "notebooks/04b_who_waits.ipynb"
BEGIN = "px-imports,data,network"  # cells of notebook 04 that the others need

# The models' network is of the order of a cluster's; every slide that uses it says so.
ALPHA, BETA = 10e-6, 1 / 10e9  # s per message, s per byte
# ResNet-50: parameters, their tensors, images of ImageNet's training set, usual epochs.
# Sources: K. He and others, arXiv:1512.03385 (network, ImageNet 2012); torchvision's resnet50
# (25,557,032 in 161 tensors).
PARAMETERS, TENSORS, IMAGES, EPOCHS = 25_557_032, 161, 1_281_167, 90
V100 = {p.ranks: p.value for p in costs.PUBLISHED if p.name == "ResNet-50, V100 pair"}  # images/s
# Images/s and their standard deviation over 10 steps of ResNet-34 with Horovod on GPUs of one node.
# Source: argonne-lcf/ai-science-training-series, 06_distributedTraining/README.md.
ALCF = {1: (281.22, 75.79), 2: (382.01, 8.42), 4: (689.22, 77.78), 8: (1341.25, 52.51)}


def facts():
    """The numbers in the deck's text, computed here."""
    epoch = IMAGES / V100[1]
    pair = V100[2] / V100[1]
    records = costs.IMAGENET_RECORDS
    efficiencies = map(costs.published_efficiency, points())
    return {
        "parameters": f"{64 * 128 + 128 + 128 * 10 + 10:,}",
        "steps": 1437 // 64,
        "resnet_mb": f"{4 * PARAMETERS / 1e6:.0f}",
        "epoch_minutes": f"{epoch / 60:.0f}",
        "days": f"{EPOCHS * epoch / 86400:.1f}",
        "pair": f"{pair:.2f}",
        "pair_percent": f"{100 * pair / 2:.0f}",
        "records_gain": f"{records[0].minutes / records[-1].minutes:,.0f}",
        "alcf_rows": "\n".join(
            f"| {p} | {rate:g} | {off:.0f} | {rate / p:.0f} | {100 * rate / p / ALCF[1][0]:.0f} % |"
            for p, (rate, off) in ALCF.items()
        ),
        "published_least": f"{100 * min(filter(None, efficiencies)):.0f}",
        "vgg_gpus": f"{0.68 * 512:.0f}",
        "vgg_lost": f"{0.32 * 512:.0f}",
    }


def colored(axes, *colors):
    """The picture with its first lines in these colours, also in the legend."""
    names = axes.get_legend().legend_handles if axes.get_legend() else []
    for lines in (axes.lines, names):
        for line, color in zip(lines, colors, strict=False):
            line.set_color(color)
    return axes.figure


# --- deep learning: the cells of notebook 04 that need no ranks, run here


def digits():
    return drawn_by_cells(NOTEBOOK_4, f"{BEGIN},slide-digits", (11.4, 3.6))


def learning_rates():
    figure = drawn_by_cells(NOTEBOOK_4, f"{BEGIN},train,accuracy,slide-learning-rates", (7.0, 5.0))
    return colored(figure.axes[0], GREY, QUIET, WARM)


def batch_sizes():
    cells = f"{BEGIN},gradient-of,train,accuracy,noise,batch-sizes,slide-batch-size"
    figure = drawn_by_cells(NOTEBOOK_4, cells, (11.9, 4.2), time=time)
    for axes in figure.axes:  # The label of 512 would touch that of the whole batch.
        axes.set_xticks([1, 8, 64, 512, 1437], ["1", "8", "64", "", "1,437"], fontsize="small")
        colored(axes, QUIET)
    noise = figure.axes[1]
    (line,) = noise.lines
    # The noise of the whole set is 0, which a logarithmic axis cannot show.
    line.set_data(line.get_xdata()[:-1], line.get_ydata()[:-1])
    noise.set(xlim=figure.axes[0].get_xlim(), ylim=(0.1, None))
    return colored(figure.axes[2], WARM)


def stale():
    """Losses of serial training with late gradients, by notebook 04b's functions."""
    names = run_cells(NOTEBOOK_4, f"{BEGIN},gradient-of,loss-of")
    names = run_cells(NOTEBOOK_4B, "delayed", **names)
    model, fill = names["new_model"](), names["vector_to_parameters"]

    def loss(weights):
        fill(torch.from_numpy(weights), model.parameters())
        return names["loss_of"](model)

    titles = {0: "on time", 2: "2 steps late", 8: "8 steps late"}
    curves = {
        title: [loss(weights) for weights in names["delayed"](delay, lr=0.5)]
        for delay, title in titles.items()
    }
    axes = plots.loss_curves(curves, "loss of all images", log=True, figsize=(6.6, 5.0))
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1), ncols=3, columnspacing=1)
    return colored(axes, QUIET, GREY, WARM)


def way():
    return stairs(1)


# --- why many devices


def days():
    """Days of training ResNet-50: measured throughput of 1 and 2 V100, ideal for more."""
    one = EPOCHS * IMAGES / V100[1]
    rows = {"1 GPU": one, "2 GPUs": EPOCHS * IMAGES / V100[2]}
    rows |= {f"{p} GPUs, ideal": one / p for p in (8, 64, 512)}
    axes = plots.time_bars(rows, unit=1 / 3600, xlabel="hours", figsize=(6.6, 4.4))
    for bar, color in zip(axes.patches, (WARM, QUIET, GREY, GREY, GREY), strict=True):
        bar.set_color(color)
    return axes.figure


# --- collectives


def message():
    axes = chart((6.0, 4.9), xlabel="bytes", ylabel="µs", ylim=(1, 1e5))
    nbytes = np.geomspace(1, 1e8, 200)
    axes.plot(nbytes, 1e6 * costs.message_seconds(nbytes, ALPHA, BETA), color=QUIET)
    axes.axvline(ALPHA / BETA, linestyle="--", color=WARM)
    axes.text(0.6 * ALPHA / BETA, 4e3, "α/β = 100 kB", ha="right", color=WARM)
    axes.set(xscale="log", yscale="log", ylim=(1, 1e5))
    return axes.figure


def busiest():
    """What passes the busiest cable, over the number of ranks."""
    n, ranks = 4 * PARAMETERS, np.arange(1, 17)
    axes = chart((6.3, 4.9), xlabel="ranks", ylabel="GB through one cable")
    axes.plot(ranks, 2 * (ranks - 1) * n / 1e9, "o-", color=QUIET, label="naive, at the root")
    sent = costs.ring_allreduce_bytes(n, ranks) / 1e9
    axes.plot(ranks, sent, "s-", color=WARM, label="ring, each rank")
    axes.set_xticks([1, 4, 8, 12, 16])
    axes.legend()
    return axes.figure


def halves():
    with matplotlib.rc_context({"font.size": 15}):  # A sum must fit its box.
        figure = drawn_by_cells(NOTEBOOK_3, "reduce-scatter-picture", (11.9, 3.4))
    for axes in figure.axes:
        for patch in axes.patches:
            patch.set_linewidth(2.5)
    return figure


def ring_steps():
    """The picture of notebook 03, from its own ring on four threads, panel by panel."""
    ranks = on_threads(NOTEBOOK_3, "ring-allreduce,watched", 4)
    seen, shown = [names["seen"] for names in ranks], []
    with matplotlib.rc_context({"font.size": 22}):  # The text of its boxes is x-small.
        for last in range(7):
            axes = plots.ring_steps(seen, figsize=(11.9, 5.1))
            for panel in range(last + 1, 7):  # Cover them: three are above, four below.
                left, top = (5.6 * panel, 0) if panel < 3 else (5.6 * (panel - 3), 5.5)
                corner = (left - 0.65, top - 0.75)
                axes.add_patch(Rectangle(corner, 5.5, 5.2, color="white", zorder=10))
            shown.append(axes.figure)
    return shown


def winner():
    """The map of notebook 03, by its own cell, for the slides' network."""
    names = {"ring": costs.ring_allreduce_seconds, "naive": costs.naive_allreduce_seconds}
    names |= {"alpha": ALPHA, "beta": BETA, "n": 2.0 ** np.arange(3, 31)}
    figure = drawn_by_cells(NOTEBOOK_3, "fastest", (6.8, 5.0), **names)
    axes = figure.axes[0]
    handles = axes.get_legend().legend_handles
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.45, 1), ncols=2)
    axes.set_title("")
    for part in axes.collections:
        part.set(rasterized=True, edgecolor="face")  # without seams
    return figure


# --- libraries


def fusion():
    """Ring all-reduces of ResNet-50's gradient: one per tensor, and one for all.

    The bytes are the same.
    """
    n, ranks = 4 * PARAMETERS, np.array([8, 64, 512])
    fused = costs.ring_allreduce_seconds(n, ranks, ALPHA, BETA)
    each = fused + (TENSORS - 1) * costs.ring_allreduce_seconds(0, ranks, ALPHA, BETA)
    axes = plt.subplots(figsize=(6.2, 4.8))[1]
    bars = [(each, "one by one", QUIET, -0.21), (fused, "fused", WARM, 0.21)]
    for values, name, color, shift in bars:
        drawn = axes.bar(np.arange(3) + shift, 1e3 * values, 0.4, color=color, label=name)
        axes.bar_label(drawn, fmt="{:,.0f}", padding=3, fontsize=17)
    axes.set(yscale="log", ylabel="ms per step", ylim=(5, 9e3))
    axes.set_xticks(range(3), [f"{p} ranks" for p in ranks])
    axes.legend(loc="upper left")
    return axes.figure


def sampler():
    """Which rank gets which image, by torch's sampler: a row per epoch, a column per image."""
    from torch.utils.data import DistributedSampler

    figure, both = plt.subplots(1, 2, figsize=(11.9, 3.5), sharey=True)
    for axes, moves in zip(both, (False, True), strict=True):
        for rank in range(4):
            sampler = DistributedSampler(range(24), num_replicas=4, rank=rank, seed=0)
            for epoch in range(3):
                if moves:
                    sampler.set_epoch(epoch)
                for step, image in enumerate(sampler, start=1):
                    block(axes, image, epoch, 0.92, 0.88, plots.rank_color(rank))
                    label(axes, image + 0.46, epoch + 0.44, step, size=15, color=ink_on(rank))
        title = "with set_epoch(epoch)" if moves else "without set_epoch"
        axes.set(title=title, xlabel="image (number: in which step it is used)", xticks=[])
        axes.set(xlim=(-0.1, 24), ylim=(3, -0.1))
        axes.set_yticks(np.arange(3) + 0.45, [f"epoch {epoch}" for epoch in range(3)])
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    return figure


# --- scaling and large batches


def model_curve(ranks, batch, beta=BETA, hidden=0.0):
    """Weak efficiency of ResNet-50 by the model of notebook 07, for `batch` images per GPU."""
    seconds = batch / V100[1]
    return costs.scaling_efficiency(ranks, seconds, 4 * PARAMETERS, ALPHA, beta, overlap=hidden)


def model():
    ranks = 2.0 ** np.arange(12)
    batches = (128, 32, 8)
    curves = {f"{n} images per GPU": model_curve(ranks, n, hidden=0.5) for n in batches}
    axes = plots.scaling_model(ranks, curves, figsize=(6.2, 4.9))
    # The first two curves are the same up to 1,024 ranks.
    for line, width in zip(axes.lines, (11, 6, 3), strict=False):
        line.set_linewidth(width)
    axes.legend(loc="lower left", fontsize="small")
    return colored(axes, GREY, QUIET, WARM)


def points():
    """Published data-parallel training runs; a hybrid is none."""
    return [point for point in costs.PUBLISHED if point.name != "Hy-Fi"]


def published():
    ranks = 2.0 ** np.arange(12)
    curves = {
        "10 GB/s, after backward": model_curve(ranks, 64),
        "25 Gbit/s, after backward": model_curve(ranks, 64, beta=8 / 25e9),
        "10 GB/s, half hidden": model_curve(ranks, 64, hidden=0.5),
    }
    axes = plots.scaling_model(ranks, curves, points(), figsize=(11.9, 5.0))
    for line in axes.lines:
        line.set(markersize=12, markeredgewidth=2)
    axes.set_ylim(40, 104)
    colored(axes, QUIET, WARM, GREY)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
    return axes.figure


def warmup():
    """Goyal et al.'s learning rate for batches of 256 and 8,192, in the first ten epochs."""
    epochs = np.array([0, 5, 10])
    axes = chart((6.2, 4.8), xlabel="epoch", ylabel="learning rate", xlim=(0, 10), ylim=(0, 3.5))
    axes.plot(epochs, [0.1, 3.2, 3.2], color=WARM, linewidth=4)
    axes.plot(epochs, [0.1, 0.1, 0.1], color=QUIET, linewidth=4)
    axes.text(7.5, 3.05, "batch 8,192:\n32 × 0.1", color=WARM, ha="center", va="top")
    axes.text(7.5, 0.2, "batch 256: 0.1", color=QUIET, ha="center", va="bottom")
    axes.text(1.9, 1.7, "warm-up", color=WARM, ha="right", va="bottom")
    return axes.figure


def records():
    axes = plots.imagenet_records(costs.IMAGENET_RECORDS, figsize=(11.8, 5.0))
    for dot in axes.collections:
        dot.set_color(QUIET)
    axes.collections[-1].set_color(WARM)
    axes.text(0.02, 0.05, "area of a dot: processors", transform=axes.transAxes)
    return axes.figure
