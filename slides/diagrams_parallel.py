"""Diagrams of strategies that split a model, without data."""

from diagrams import (
    ACCENT,
    PALE,
    QUIET,
    WARM,
    arrow,
    block,
    box,
    canvas,
    label,
    rank_box,
    row_label,
)

from pi2zero import plots


def piece(axes, x, y, width, height, rank, alpha=1.0):
    """A part of an image, in the colour of its rank."""
    style = {"alpha": alpha, "edgecolor": "white", "lw": 2}
    block(axes, x, y, width, height, plots.rank_color(rank), **style)


def cuts():
    """Six things that can be partitioned over ranks, and what is sent then."""
    figure, axes = canvas(1150, 400)
    cases = [("the batch", "data", "gradients"), ("the states", "ZeRO", "parameters")]
    cases += [("between layers", "pipeline", "activations"), ("inside a layer", "tensor", "sums")]
    cases += [("the sequence", "ring, Ulysses", "keys, values"), ("the image", "space", "halos")]
    for i, (what, name, sent) in enumerate(cases):
        x, y = 20 + 380 * (i % 3), 215 - 200 * (i // 3)
        box(axes, x, y, 350, 170, "", PALE)
        label(axes, x + 175, y + 135, what, size=22, weight="bold")
        label(axes, x + 175, y + 88, name, color=ACCENT, size=19)
        label(axes, x + 175, y + 38, f"sent: {sent}", color=QUIET, size=17)
    return figure


def layers():
    """Eight layers, two on each rank; activations go to the right, gradients to the left."""
    figure, axes = canvas(1150, 300)
    for rank in range(4):
        x = 20 + 290 * rank
        for part in range(2):
            rank_box(axes, x + 116 * part, 110, 106, 120, f"layer {2 * rank + part}", rank, size=17)
        label(axes, x + 111, 265, f"rank {rank}", weight="bold")
        if rank < 3:
            arrow(axes, (x + 224, 200), (x + 288, 200), ACCENT)
            arrow(axes, (x + 288, 140), (x + 224, 140), WARM)
    label(axes, 300, 50, "activations, forward", color=ACCENT)
    label(axes, 850, 50, "their gradients, backward", color=WARM)
    return figure


def input_and_weights():
    """The two halves of backward: the previous rank waits for one, no rank for the other."""
    figure, axes = canvas(1150, 300)
    box(axes, 20, 100, 250, 110, "gradient of\nthe output", PALE)
    box(axes, 440, 180, 300, 100, "I: gradient of\nthe input", ACCENT, "white")
    box(axes, 440, 20, 300, 100, "W: gradient of\nthe weights", WARM, "white")
    for y in (230, 70):
        arrow(axes, (274, 155), (436, y))
        arrow(axes, (744, y), (860, y))
    label(axes, 870, 230, "the previous rank\nwaits for it", ha="left")
    label(axes, 870, 70, "no rank waits:\nit can fill a gap", ha="left")
    return figure


def column_row():
    """An MLP on two ranks: columns of A, then rows of B, then one sum."""
    figure, axes = canvas(1150, 390)
    box(axes, 10, 130, 90, 100, "X", PALE, size=24)
    box(axes, 1050, 130, 90, 100, "Y", PALE, size=24)
    for rank in range(2):
        y = 215 - 190 * rank
        arrow(axes, (104, 180), (206, y + 65))
        rank_box(axes, 210, y, 70, 130, f"A{rank}", rank, size=20)
        label(axes, 245, y + 148, "columns", color=QUIET, size=16)
        arrow(axes, (284, y + 65), (376, y + 65))
        rank_box(axes, 380, y + 25, 150, 80, "gelu", rank, size=20)
        arrow(axes, (534, y + 65), (606, y + 65))
        rank_box(axes, 610, y + 30, 150, 70, f"B{rank}", rank, size=20)
        label(axes, 685, y + 118, "rows", color=QUIET, size=16)
        arrow(axes, (764, y + 65), (862, 180))
    box(axes, 866, 110, 140, 140, "one\nall-reduce", ACCENT, "white", size=18)
    arrow(axes, (1008, 180), (1046, 180))
    return figure


def halo():
    """An image in four strips: rank 1 receives a row of each neighbour, and later returns its
    gradient. Two steps.
    """
    shown = []
    for back in (False, True):
        figure, axes = canvas(1150, 400)
        for rank in range(4):
            y = 300 - 95 * rank
            piece(axes, 120, y, 380, 90, rank)
            row_label(axes, 100, y + 45, f"rank {rank}")
        color, words = ACCENT, "forward:\nfetch the halo from the neighbours"
        if back:
            color, words = WARM, "backward:\nthe halo's gradient is sent back,\nand is added"
        # Where the neighbour's row lies, and where rank 1 has the copy
        for rank, source, copy in ((0, 300, 250), (2, 180, 130)):
            piece(axes, 700, copy, 380, 20, rank, 0.6)
            block(axes, 120, source, 380, 15, "white", alpha=0.55)
            ends = (504, source + 7), (696, copy + 10)
            arrow(axes, *(ends[::-1] if back else ends), color)
        piece(axes, 700, 155, 380, 90, 1)
        label(axes, 890, 300, "rank 1 computes on this", weight="bold")
        label(axes, 890, 80, words, color=color)
        shown.append(figure)
    return shown


def mesh():
    """Four ranks with two names for their dimensions: data down, space across."""
    figure, axes = canvas(600, 400)
    for rank in range(4):
        x, y = 170 + 250 * (rank % 2), 215 - 190 * (rank // 2)
        rank_box(axes, x, y, 160, 110, f"rank {rank}", rank, size=19)
    for i in range(2):
        arrow(axes, (332, 270 - 190 * i), (418, 270 - 190 * i), ACCENT, style="<|-|>")
        arrow(axes, (250 + 250 * i, 213), (250 + 250 * i, 137), WARM, style="<|-|>")
    label(axes, 375, 372, "space: halos, in every layer", color=ACCENT)
    label(axes, 90, 175, "data:\ngradients,\nonce\na step", color=WARM)
    return figure
