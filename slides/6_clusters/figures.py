"""Figures and numbers of the deck "Clusters", from what notebook 12 printed."""

from covers import hosts as cover  # noqa: F401
from diagrams import ACCENT, INK, PALE, QUIET, WARM, arrow, bar, box, canvas, label, rank_box
from extract import printed

NOTEBOOK_12 = "notebooks/12_clusters.ipynb"
GIGABIT = 1e9 / 8 * 1448 / 1514  # bytes a second of payload, TCP over Ethernet


def facts():
    """The numbers in the deck's text."""
    limit = r"same host (\d+) times as fast as between hosts: ([\d.]+) MB/s"
    times, between = printed(NOTEBOOK_12, "limit-check", limit)[0]
    race = r"two levels are ([\d.]+) times as fast as the ring, {} \(predicted ([\d.]+);"
    in_order, in_order_predicted = printed(
        NOTEBOOK_12, "race-check", race.format("in the hosts' order")
    )[0]
    in_turn, in_turn_predicted = printed(
        NOTEBOOK_12, "race-check", race.format("dealt out by node")
    )[0]
    waiting = r"waiting left: (\S+) s with one bucket, (\S+) s with small ones, (\S+) s in fp16"
    late, meanwhile, half = printed(NOTEBOOK_12, "ddp-check", waiting)[0]
    slower = r"stage 3: .*, ([\d.]+) times stage 1's seconds"
    (stage3,) = printed(NOTEBOOK_12, "zero-check", slower)
    return {
        "times": times,
        "between": between,
        "known": f"{GIGABIT / 1e6:.1f}",
        "in_order": in_order,
        "in_order_predicted": in_order_predicted,
        "in_turn": in_turn,
        "in_turn_predicted": in_turn_predicted,
        "late": late,
        "meanwhile": meanwhile,
        "half": half,
        "stage3": stage3,
        "ring_seconds": f"{1.5 * 16e6 / GIGABIT:.2f}",
        "two_seconds": f"{16e6 / GIGABIT:.2f}",
    }


def places():
    """One cell, and the three places where its ranks may be."""
    figure, axes = canvas(1150, 330)
    box(axes, 400, 220, 350, 84, "pi2zero.start(n=4)", ACCENT, "white", size=20, family="monospace")
    names = ["this machine\nno site file, no job", "a Slurm job\nits nodes, one world"]
    names += ["hosts by ssh\na list or a hostfile"]
    for i, name in enumerate(names):
        x = 30 + 375 * i
        box(axes, x, 30, 340, 100, name, PALE, INK, size=18)
        arrow(axes, (575, 218), (x + 170, 134))
    return figure


def host(axes, x, y, name, ranks):
    """A host with its two ranks; returns {rank: x of its middle}."""
    box(axes, x, y + 45, 330, 130, "", "white", INK, edge=QUIET)
    label(axes, x + 165, y + 22, name, color=QUIET)
    for left, rank in zip((x + 30, x + 180), ranks, strict=True):
        rank_box(axes, left, y + 78, 120, 64, f"rank {rank}", rank, size=17)
    return {ranks[0]: x + 90, ranks[1]: x + 240}


def rings():
    """The same ring twice: ranks in the hosts' order, and placed by node in turn."""
    figure, axes = canvas(1150, 470)
    orders = {
        240: ((0, 1), (2, 3), "in order: two messages cross the network"),
        5: ((0, 2), (1, 3), "placed in turn: all four cross the network"),
    }
    for y, (first, second, words) in orders.items():
        place = host(axes, 130, y, "node1", first) | host(axes, 690, y, "node2", second)
        for rank in range(4):
            start, end = place[rank], place[(rank + 1) % 4]
            height = y + (144 if start < end else 76)
            wire = (start < 575) != (end < 575)
            arrow(axes, (start, height), (end, height), WARM if wire else QUIET, bend=-0.12)
        label(axes, 575, y + 212, words, weight="bold")
    return figure


def two_levels():
    """Reduce-scatter inside the hosts, all-reduce between them, all-gather inside."""
    figure, axes = canvas(1150, 300)
    steps = [("inside", "reduce-scatter:\neach its part of the\nhost's sum", PALE, INK)]
    steps += [
        ("between", "all-reduce of the parts,\namong ranks with the\nsame place", WARM, "white")
    ]
    steps += [("inside", "all-gather:\nthe parts to all of\nthe host", PALE, INK)]
    for i, (where, what, color, ink) in enumerate(steps):
        x = 20 + 385 * i
        box(axes, x, 40, 330, 160, what, color, ink, size=18)
        label(axes, x + 165, 232, f"{i + 1}. {where}", weight="bold")
        if i < 2:
            arrow(axes, (x + 334, 120), (x + 381, 120))
    return figure


def goes_on():
    """A training run in several jobs: warned, requeued, continued from the checkpoint."""
    figure, axes = canvas(1150, 210)
    for start in range(3):
        x = 20 + 390 * start
        bar(axes, x, 90, 270, 70, f"start {start + 1}", ACCENT, "white")
        if start < 2:
            label(axes, x + 270, 182, "warning", color=WARM, size=17)
            bar(axes, x + 270, 90, 110, 70, "queue", PALE)
            arrow(axes, (x + 240, 86), (x + 420, 86), bend=0.35)
            label(axes, x + 330, 24, "checkpoint", color=QUIET, size=17)
    return figure
