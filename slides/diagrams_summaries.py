"""Diagrams of the deck on the summarizer: what baselines take, T5, a name in pieces, the same
batch, a checkpoint.
"""

import matplotlib.pyplot as plt
from diagrams import ACCENT, INK, PALE, QUIET, WARM, arrow, bar, box, canvas, label
from diagrams_zero import COLORS, cell, shard
from extract import ROOT

from pi2zero import plots


def untaught():
    """An article of eight sentences, and what each of the four baselines takes."""
    figure, axes = canvas(1150, 400)
    taken = {"lead-3": (0, 1, 2), "random-3": (1, 4, 6), "nearest": (), "oracle": (0, 3, 7)}
    below = [
        "the first three",
        "three by chance",
        "highlights of the most\nsimilar training story",
        "chosen by looking\nat the answer",
    ]
    for column, (name, rows) in enumerate(taken.items()):
        x = 30 + 285 * column
        label(axes, x + 118, 378, name, weight="bold", size=20)
        for row in range(8):
            color = QUIET if row in rows else PALE
            axes.bar(
                x,
                24,
                (236, 216, 236, 180, 226, 236, 200, 150)[row],
                bottom=330 - 32 * row,
                align="edge",
                color=color,
            )
        label(axes, x + 118, 50, below[column], size=17, color=QUIET)
    x = 30 + 285 * 2 + 60  # another story's highlights, laid over this one
    axes.bar(x, 118, 150, bottom=176, align="edge", color="white", edgecolor=WARM, linewidth=3)
    for row in range(3):
        axes.bar(x + 14, 22, (122, 104, 116)[row], bottom=258 - 34 * row, align="edge", color=WARM)
    return figure


def t5():
    """Encoder, decoder, and what is added to the attention for each distance."""
    figure, axes = canvas(1150, 350)
    x = 5
    for word, width in (
        ("summarize:", 124),
        ("Selmouth", 108),
        ("rose", 64),
        ("to", 50),
        ("…", 40),
    ):
        box(axes, x, 6, width, 46, word, PALE, size=15)
        arrow(axes, (x + width / 2, 54), (x + width / 2, 100))
        x += width + 6
    box(axes, 5, 102, 410, 124, "encoder\neach word looks at all words", ACCENT, "white", size=18)
    for k, (word, after) in enumerate(
        (("<start>", "Fire"), ("Fire", "in"), ("in", "Selmouth"), ("Selmouth", "damages"))
    ):
        x = 500 + 114 * k
        box(axes, x, 6, 108, 46, word, PALE, size=16)
        arrow(axes, (x + 54, 54), (x + 54, 100))
        arrow(axes, (x + 54, 228), (x + 54, 274))
        box(axes, x, 276, 108, 46, after, "#E7F3EE", size=16)
    box(
        axes,
        500,
        102,
        450,
        124,
        "decoder\nlooks at the words before,\nand at the article",
        WARM,
        "white",
        size=18,
    )
    arrow(axes, (417, 164), (498, 164), color=ACCENT, width=5)
    label(axes, 486, 299, "next word", ha="right", size=16, color=QUIET)
    shades = plt.get_cmap("viridis")
    for i in range(5):
        for j in range(5):
            axes.bar(
                976 + 34 * j,
                32,
                32,
                bottom=242 - 34 * i,
                align="edge",
                color=shades(0.5 + 0.11 * (j - i)),
            )
    label(axes, 1060, 312, "attention", size=16, color=QUIET)
    label(axes, 1060, 62, "same distance,\nsame number", size=16, color=QUIET)
    return figure


def pieces():
    """How the shipped tokenizer cuts a name that is in no training story, and how it is copied
    piece by piece.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(ROOT / "data/summarizer/tokenizer.json"))
    rows = {"article": "Yutan Petic said as fire chief", "summary": "Fire chief Yutan Petic"}
    figure, axes = canvas(1150, 270)
    places = []
    for row, (name, text) in enumerate(rows.items()):
        x, y, seen = 170, 190 - 150 * row, []
        label(axes, 155, y + 29, name, ha="right", weight="bold", size=19)
        split = [
            [part for part in tokenizer.encode(word).tokens if part != "</s>"]
            for word in text.split()
        ]
        for word, parts in zip(text.split(), split, strict=True):
            name_of_person = word in ("Yutan", "Petic")
            for part in parts:
                shown = part.replace("▁", "")
                width = 34 + 13 * len(shown)
                color = WARM if name_of_person else PALE
                box(
                    axes, x, y, width, 58, shown, color, "white" if name_of_person else INK, size=19
                )
                if name_of_person:
                    seen.append((x + width / 2, y))
                x += width + 4
            x += 18
        places.append(seen)
    for (x0, y0), (x1, y1) in zip(*places, strict=True):
        arrow(axes, (x0, y0 - 2), (x1, y1 + 60), color=WARM)
    return figure


def same_batch():
    """Eight stories of a step, dealt out to 1, 2 and 4 ranks: the same eight."""
    figure, axes = canvas(1150, 300)
    order = [17, 4, 11, 2, 9, 14, 6, 1]
    for k, number in enumerate(order):
        label(axes, 238 + 112 * k, 278, f"story {number}", size=16, color=QUIET)
    for row, ranks in enumerate((1, 2, 4)):
        y = 182 - 82 * row
        label(
            axes,
            165,
            y + 32,
            f"{ranks} rank" + "s" * (ranks > 1),
            ha="right",
            weight="bold",
            size=19,
        )
        for k in range(8):
            color = plots.rank_color(k % ranks)
            bar(
                axes,
                184 + 112 * k,
                y,
                108,
                64,
                f"rank {k % ranks}",
                color,
                INK if k % ranks in (1, 3) else "white",
                size=16,
            )
    return figure


def checkpoint():
    """Two ranks' shards become whole tensors in files, and four ranks take their parts of them."""
    figure, axes = canvas(1150, 360)
    label(axes, 150, 335, "2 ranks, stage 1", weight="bold", size=19)
    label(axes, 575, 335, "files", weight="bold", size=19)
    label(axes, 1000, 335, "4 ranks, stage 3", weight="bold", size=19)
    for rank in range(2):
        y = 196 - 120 * rank
        cell(axes, 40, y + 36, 220, 30, COLORS["parameters"])
        shard(axes, 40, y, 220, 30, COLORS["moments"], rank, 2)
        label(axes, 150, y + 84, f"rank {rank}", size=16, color=QUIET)
        arrow(axes, (266, y + 32), (408, 180), color=QUIET)
    axes.bar(412, 236, 326, bottom=62, align="edge", color="white", edgecolor=ACCENT, linewidth=3)
    for y, part in ((222, "parameters"), (140, "moments")):
        cell(axes, 432, y, 286, 30, COLORS[part])
    label(axes, 575, 272, "model.safetensors", size=17)
    label(axes, 575, 192, "moments.safetensors", size=17)
    label(axes, 575, 92, "step, seconds, options", size=17)
    for rank in range(4):
        y = 254 - 72 * rank
        shard(axes, 890, y + 26, 220, 22, COLORS["parameters"], rank)
        shard(axes, 890, y, 220, 22, COLORS["moments"], rank)
        arrow(axes, (742, 180), (884, y + 24), color=QUIET)
    label(axes, 575, 28, "written beside the former, then named in latest", size=17, color=QUIET)
    return figure
