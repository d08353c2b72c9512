"""Diagrams of ZeRO, without data."""

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
    label,
    rank_bar,
    row_label,
)

from pi2zero import plots

COLORS = plots.COMPONENT_COLORS
EMPTY, EDGE = "#F2F2F2", "#BBBBBB"


def cell(axes, x, y, width, height, color=EMPTY):
    """A piece of memory: empty, or filled with what has that colour."""
    axes.bar(x, height, width, bottom=y, align="edge", color=color, edgecolor=EDGE, linewidth=1)


def shard(axes, x, y, width, height, color, rank, ranks=4):
    """A piece of memory of which only this rank's part is kept."""
    cell(axes, x, y, width, height)
    axes.bar(x + width * rank / ranks, height, width / ranks, bottom=y, align="edge", color=color)


def batch():
    """Two ranks, three micro-batches each, one step: what the three numbers of a batch count."""
    figure, axes = canvas(1150, 250)
    for rank in range(2):
        y = 150 - 92 * rank
        row_label(axes, 95, y + 32, f"rank {rank}")
        for part in range(3):
            rank_bar(axes, 115 + 235 * part, y, 225, 64, f"micro-batch {part + 1}", rank)
    box(axes, 835, 58, 165, 156, "reduce the\ngradients", ACCENT, "white")
    box(axes, 1015, 58, 115, 156, "step", PALE)
    label(axes, 467, 20, "3 forward and backward passes: gradients add up", color=QUIET, size=17)
    return figure


def mixed():
    """One step in mixed precision: 16 bits compute, 32 bits remember."""
    figure, axes = canvas(1150, 360)
    box(axes, 20, 230, 270, 100, "parameters\nbf16, 2 bytes", COLORS["parameters"], "white")
    box(axes, 440, 230, 270, 100, "gradients\nbf16, 2 bytes", COLORS["gradients"])
    box(axes, 860, 230, 270, 100, "moments m and v\nfp32, 4 + 4 bytes", COLORS["moments"])
    box(axes, 440, 20, 270, 100, "master copy\nfp32, 4 bytes", COLORS["master"], "white")
    arrow(axes, (292, 280), (438, 280))
    label(axes, 365, 318, "forward,\nbackward", size=16, color=QUIET)
    arrow(axes, (712, 280), (858, 280))
    arrow(axes, (995, 228), (712, 70), bend=-0.25)
    label(axes, 985, 95, "Adam's update,\nin fp32", size=17, color=QUIET)
    arrow(axes, (438, 70), (155, 228), bend=-0.25)
    label(axes, 165, 95, "round\nto bf16", size=17, color=QUIET)
    return figure


def stage1_step():
    """Gradients are reduce-scattered, each rank updates its part, parameters are all-gathered."""
    figure, axes = canvas(1150, 350)
    columns = {105: "gradients", 405: "sum of my part", 640: "Adam, my part", 970: "parameters"}
    for x, name in columns.items():
        label(axes, x + 85, 322, name, size=18, weight="bold")
    for x, name in ((288, "reduce-\nscatter"), (850, "all-\ngather")):
        box(axes, x, 18, 104, 276, name, ACCENT, "white", size=16)
    for rank in range(4):
        y = 242 - 75 * rank
        row_label(axes, 92, y + 26, f"rank {rank}", size=17)
        cell(axes, 105, y, 170, 52, COLORS["gradients"])
        shard(axes, 405, y, 170, 52, COLORS["gradients"], rank)
        shard(axes, 645, y, 170, 24, COLORS["moments"], rank)
        shard(axes, 645, y + 28, 170, 24, COLORS["master"], rank)
        cell(axes, 970, y, 170, 52, COLORS["parameters"])
        arrow(axes, (580, y + 26), (641, y + 26))
    return figure


def stage2_backward():
    """Gradients of three layers on rank 1 of 4 during backward: stage 1 keeps them whole, stage 2
    releases them bucket by bucket.
    """
    figure, axes = canvas(1150, 410)
    moments = ["backward 3", "backward 2", "backward 1", "then"]
    for column, name in enumerate(moments):
        label(axes, 290 + 250 * column, 394, name, size=18, weight="bold")
    for row, name in enumerate(("stage 1", "stage 2")):
        top = 368 - 190 * row
        row_label(axes, 150, top - 56, name, size=19)
        for column in range(4):
            for layer in range(3):
                x, y = 190 + 250 * column, top - 40 * (layer + 1)
                done, now = column > 2 - layer, column == 2 - layer
                cell(axes, x, y, 200, 34)
                if now or (done and row == 0 and column < 3):
                    cell(axes, x, y, 200, 34, COLORS["gradients"])
                elif done:
                    shard(axes, x, y, 200, 34, COLORS["gradients"], 1)
        for column in range(3) if row else [2]:
            text = "reduce, keep my part" if row else "reduce everything"
            label(axes, 290 + 250 * column, top - 144, text, size=16, color=QUIET)
    return figure


def passes():
    """What a rank sends per step at each stage: each bar is Ψ values."""
    figure, axes = canvas(1150, 360)
    scatter, gather = ("reduce-scatter", "gradients"), ("all-gather", "parameters")
    rows = {"stage 0": [scatter, ("all-gather", "gradients")], "stages 1, 2": [scatter, gather]}
    rows["stage 3"] = [gather, gather, scatter]
    for row, (name, parts) in enumerate(rows.items()):
        y = 262 - 100 * row
        row_label(axes, 165, y + 34, name, size=19)
        for column, (what, of) in enumerate(parts):
            ink = "white" if of == "parameters" else INK
            bar(axes, 190 + 270 * column, y, 264, 68, f"{what}\n{of}", COLORS[of], ink, size=17)
        x = 200 + 270 * len(parts)
        label(axes, x, y + 34, f"{len(parts)} Ψ", ha="left", size=24, weight="bold")
    for column, text in enumerate(("forward", "backward", "backward")):
        label(axes, 322 + 270 * column, 42, text, size=15, color=QUIET)
    return figure


def offload():
    """What GPU and host keep, and the 2 bytes per parameter that each step sends both ways."""
    figure, axes = canvas(660, 390)
    box(axes, 10, 250, 640, 130, color="white", edge=ACCENT)
    label(axes, 30, 350, "GPU", ha="left", weight="bold")
    box(axes, 130, 270, 300, 60, "parameters, bf16", COLORS["parameters"], "white", size=17)
    label(axes, 540, 300, "forward,\nbackward", size=17, color=QUIET)
    box(axes, 10, 10, 640, 130, color="white", edge=WARM)
    label(axes, 30, 112, "host", ha="left", weight="bold")
    box(axes, 130, 30, 150, 60, "gradients", COLORS["gradients"], size=17)
    box(axes, 290, 30, 120, 60, "master", COLORS["master"], "white", size=17)
    box(axes, 420, 30, 135, 60, "moments", COLORS["moments"], size=17)
    label(axes, 605, 60, "Adam", size=17, color=QUIET)
    arrow(axes, (205, 268), (205, 92), color=WARM)
    arrow(axes, (350, 92), (350, 268), color=ACCENT)
    label(axes, 192, 195, "gradients, 2Ψ", ha="right", size=17, color=WARM)
    label(axes, 363, 195, "new parameters, 2Ψ", ha="left", size=17, color=ACCENT)
    return figure
