"""Diagrams of data-parallel training, without data."""

from itertools import pairwise
from math import cos, pi, sin

from diagrams import (
    ACCENT,
    INK,
    PALE,
    QUIET,
    WARM,
    arrow,
    bar,
    box,
    canvas,
    ink_on,
    label,
    rank_box,
    row_label,
)
from matplotlib.patches import Circle

from pi2zero import plots

COMPUTE, COMMUNICATE = plots.ACTIVITY_COLORS["compute"], plots.ACTIVITY_COLORS["communicate"]


def network():
    """64 inputs, 128 hidden values, 10 outputs; a few of each are drawn."""
    figure, axes = canvas(640, 390)
    columns = [(90, 6, "64 pixels", PALE), (320, 8, "128 values", ACCENT)]
    columns += [(550, 5, "10 scores", WARM)]
    places = [[(x, 212 + 44 * (i - (n - 1) / 2)) for i in range(n)] for x, n, _, _ in columns]
    for left, right in pairwise(places):
        for start in left:
            for end in right:
                axes.plot(*zip(start, end, strict=True), color="#c4ccd9", linewidth=1, zorder=0)
    for (x, _, text, color), dots in zip(columns, places, strict=True):
        for place in dots:
            axes.add_patch(Circle(place, 15, facecolor=color, edgecolor=INK, linewidth=1.5))
        label(axes, x, 18, text, weight="bold")
    return figure


def splits():
    """What two devices have: the whole network and half of the data, or a part of the network."""
    figure, axes = canvas(1150, 330)
    for i, name in enumerate(["data parallel", "tensor parallel", "pipeline parallel"]):
        x = 20 + 390 * i
        label(axes, x + 165, 308, name, size=21, weight="bold")
        for device in range(2):
            left, color = x + 175 * device, plots.rank_color(device)
            box(axes, left, 78, 155, 196, color="white", edge=color)
            for layer in range(3):
                name = "½ " * (i == 1) + f"layer {layer + 1}"
                if i < 2 or (layer < 2) == (device == 0):
                    box(axes, left + 14, 102 + 54 * layer, 127, 42, name, size=16)
            text = ["½ batch", "whole batch", "in turn"][i]
            label(axes, left + 78, 46, text, size=17, color=QUIET)
    return figure


def three_steps():
    """Distribute the data, compute gradients, all-reduce them; every rank takes the same step."""
    figure, axes = canvas(1150, 380)
    steps = {190: "1  distribute", 480: "2  forward, backward", 780: "3  aggregate", 1035: "step"}
    for x, text in steps.items():
        label(axes, x, 358, text, size=20, weight="bold")
    box(axes, 660, 14, 240, 316, "all-reduce\n\nmean of the\ngradients", ACCENT, "white", size=20)
    for rank in range(4):
        y = 258 - 82 * rank
        label(axes, 52, y + 34, f"rank {rank}", weight="bold")
        rank_box(axes, 115, y, 160, 68, f"batch {rank}", rank)
        box(axes, 370, y, 220, 68, f"gradient {rank}", "white", edge=plots.rank_color(rank))
        box(axes, 965, y, 150, 68, "w − η ḡ", PALE)
        arrow(axes, (277, y + 34), (368, y + 34))
        arrow(axes, (592, y + 34), (658, y + 34))
        arrow(axes, (902, y + 34), (963, y + 34), color=ACCENT)
    return figure


def ring():
    """Six ranks in a ring: all send to the right and receive from the left at the same time."""
    figure, axes = canvas(470, 440)
    spots = [(235 + 165 * sin(2 * pi * r / 6), 220 + 165 * cos(2 * pi * r / 6)) for r in range(6)]
    for rank, (x, y) in enumerate(spots):
        ahead = spots[(rank + 1) % 6]
        dx, dy = ahead[0] - x, ahead[1] - y
        arrow(axes, (x + 0.27 * dx, y + 0.27 * dy), (x + 0.73 * dx, y + 0.73 * dy), width=4)
        axes.add_patch(Circle((x, y), 40, color=plots.rank_color(rank)))
        label(axes, x, y, str(rank), size=24, color=ink_on(rank), weight="bold")
    label(axes, 235, 220, "each sends n/p\nto the right,\nall at once", size=18)
    return figure


def parameter_server():
    """Workers push gradients to the server, which keeps the weights and sends them back."""
    figure, axes = canvas(640, 430)
    box(axes, 180, 310, 260, 96, "server\nkeeps the weights", ACCENT, "white", weight="bold")
    for rank in range(4):
        x = 20 + 152 * rank
        rank_box(axes, x, 20, 130, 90, f"worker {rank}", rank, size=17)
        top = 226 + 56 * rank
        arrow(axes, (x + 52, 112), (top - 9, 308), color=WARM)
        arrow(axes, (top + 9, 308), (x + 78, 112), color=ACCENT)
    label(axes, 80, 235, "gradients up", color=WARM, size=17)
    label(axes, 558, 235, "weights down", color=ACCENT, size=17)
    return figure


def overlap():
    """One step: all-reduce at the end, or buckets sent during the backward pass. Not to scale."""
    figure, axes = canvas(1150, 300)
    for y, name in ((216, "at the end"), (62, "in buckets")):
        row_label(axes, 150, y + 28, name)
        bar(axes, 175, y, 180, 52, "forward", COMPUTE, INK)
        for i in range(3):
            bar(axes, 355 + 120 * i, y, 120, 52, f"back {3 - i}", COMPUTE, INK, size=15)
    bar(axes, 715, 216, 330, 52, "all-reduce 3, 2, 1", COMMUNICATE, "white")
    bar(axes, 1045, 216, 85, 52, "step", PALE)
    for i in range(3):
        bar(axes, 475 + 120 * i, 6, 110, 52, f"reduce {3 - i}", COMMUNICATE, "white", size=15)
    bar(axes, 825, 62, 85, 52, "step", PALE)
    label(axes, 1130, 150, "time, not to scale", size=16, color=QUIET, ha="right")
    return figure


def accumulation():
    """Two micro-batches per step: no_sync sends the gradients once. Not to scale."""
    figure, axes = canvas(1150, 230)
    for y, name in ((148, "each time"), (28, "no_sync")):
        row_label(axes, 150, y + 28, name)
        x = 175
        for part in range(2):
            bar(axes, x, y, 250, 56, f"micro-batch {part + 1}", COMPUTE, INK)
            x += 250
            if part == 1 or y == 148:
                bar(axes, x, y, 150, 56, "all-reduce", COMMUNICATE, "white", size=16)
                x += 150
        bar(axes, x, y, 85, 56, "step", PALE)
    return figure


def prefetch():
    """Reading and computing in turn, and a worker that reads ahead. Not to scale."""
    figure, axes = canvas(1150, 290)
    row_label(axes, 150, 236, "in turn")
    for i in range(3):
        bar(axes, 175 + 310 * i, 210, 130, 52, f"read {i}", PALE)
        bar(axes, 305 + 310 * i, 210, 180, 52, f"train {i}", COMPUTE, INK)
    row_label(axes, 150, 112, "worker")
    row_label(axes, 150, 52, "rank")
    for i in range(4):
        bar(axes, 175 + (130 + 180 * (i - 1) if i else 0), 86, 130, 52, f"read {i}", PALE)
    for i in range(3):
        bar(axes, 305 + 180 * i, 26, 180, 52, f"train {i}", COMPUTE, INK)
    label(axes, 1130, 12, "time, not to scale", size=16, color=QUIET, ha="right")
    return figure


def readers():
    """Three ways to bring the data to the ranks."""
    figure, axes = canvas(1150, 300)
    names = ["one reads, scatters", "all read the same file", "a file or part for each"]
    for i, name in enumerate(names):
        x = 10 + 390 * i
        label(axes, x + 170, 276, name, size=20, weight="bold")
        for rank in range(4):
            middle = x + 38 + 88 * rank
            rank_box(axes, x + 88 * rank, 20, 76, 62, str(rank), rank, size=20)
            if i == 0 and rank > 0:
                arrow(axes, (x + 50, 84), (middle, 84), bend=-0.45)
            elif i == 1:
                arrow(axes, (x + 170, 178), (middle, 84))
            elif i == 2:
                box(axes, x + 88 * rank, 180, 76, 62, "¼")
                arrow(axes, (middle, 178), (middle, 84))
        if i < 2:
            box(axes, x + 132 * i, 180, 76, 62, "file")
        if i == 0:
            arrow(axes, (x + 38, 178), (x + 38, 84))
    return figure
