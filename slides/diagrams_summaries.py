"""Diagrams of the deck on the summarizer, without data."""

from itertools import pairwise

import matplotlib.pyplot as plt
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
    rank_bar,
    row_label,
)
from diagrams_zero import COLORS, cell, shard
from extract import ROOT


def untaught():
    """An article of eight sentences, and what each of the four baselines takes."""
    figure, axes = canvas(1150, 400)
    taken = {"lead-3": (0, 1, 2), "random-3": (1, 4, 6), "nearest": (), "oracle": (0, 3, 7)}
    below = ["the first three", "three by chance", "highlights of the most\nsimilar training story"]
    below += ["chosen by looking\nat the answer"]
    for column, (name, rows) in enumerate(taken.items()):
        x = 30 + 285 * column
        label(axes, x + 118, 378, name, weight="bold", size=20)
        for row in range(8):
            width = (236, 216, 236, 180, 226, 236, 200, 150)[row]
            block(axes, x, 330 - 32 * row, width, 24, QUIET if row in rows else PALE)
        label(axes, x + 118, 50, below[column], size=17, color=QUIET)
    x = 30 + 285 * 2 + 60  # another story's highlights, laid over this one
    block(axes, x, 176, 150, 118, "white", edgecolor=WARM, linewidth=3)
    for row, width in enumerate((122, 104, 116)):
        block(axes, x + 14, 258 - 34 * row, width, 22, WARM)
    return figure


def t5():
    """Encoder, decoder, and what is added to the attention for each distance."""
    figure, axes = canvas(1150, 350)
    x = 5
    words = {"summarize:": 124, "Selmouth": 108, "rose": 64, "to": 50, "…": 40}
    for word, width in words.items():
        box(axes, x, 6, width, 46, word, PALE, size=15)
        arrow(axes, (x + width / 2, 54), (x + width / 2, 100))
        x += width + 6
    box(axes, 5, 102, 410, 124, "encoder\neach word looks at all words", ACCENT, "white", size=18)
    for k, (word, after) in enumerate(pairwise(("<start>", "Fire", "in", "Selmouth", "damages"))):
        x = 500 + 114 * k
        box(axes, x, 6, 108, 46, word, PALE, size=16)
        arrow(axes, (x + 54, 54), (x + 54, 100))
        arrow(axes, (x + 54, 228), (x + 54, 274))
        box(axes, x, 276, 108, 46, after, "#E7F3EE", size=16)
    decoder = "decoder\nlooks at the words before,\nand at the article"
    box(axes, 500, 102, 450, 124, decoder, WARM, "white")
    arrow(axes, (417, 164), (498, 164), color=ACCENT, width=5)
    label(axes, 486, 299, "next word", ha="right", size=16, color=QUIET)
    shades = plt.get_cmap("viridis")
    for i in range(5):
        for j in range(5):
            block(axes, 976 + 34 * j, 242 - 34 * i, 32, 32, shades(0.5 + 0.11 * (j - i)))
    label(axes, 1060, 312, "attention", size=16, color=QUIET)
    label(axes, 1060, 62, "same distance,\nsame number", size=16, color=QUIET)
    return figure


def pieces():
    """How the tokenizer splits a name that no training story has, so that it is copied piece by
    piece.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(ROOT / "data/summarizer/tokenizer.json"))
    rows = {"article": "Yutan Petic said as fire chief", "summary": "Fire chief Yutan Petic"}
    figure, axes = canvas(1150, 270)
    places = []
    for row, (name, text) in enumerate(rows.items()):
        x, y, pieces_of_names = 170, 190 - 150 * row, []
        row_label(axes, 155, y + 29, name, size=19)
        for word in text.split():
            person = word in ("Yutan", "Petic")
            style = (WARM, "white") if person else ()
            for part in tokenizer.encode(word).tokens[:-1]:  # without </s>
                shown = part.replace("▁", "")
                width = 34 + 13 * len(shown)
                box(axes, x, y, width, 58, shown, *style, size=19)
                if person:
                    pieces_of_names.append((x + width / 2, y))
                x += width + 4
            x += 18
        places.append(pieces_of_names)
    for (x0, y0), (x1, y1) in zip(*places, strict=True):
        arrow(axes, (x0, y0 - 2), (x1, y1 + 60), color=WARM)
    return figure


def same_batch():
    """The same eight stories of a step, partitioned over 1, 2 and 4 ranks."""
    figure, axes = canvas(1150, 300)
    order = [17, 4, 11, 2, 9, 14, 6, 1]
    for k, number in enumerate(order):
        label(axes, 238 + 112 * k, 278, f"story {number}", size=16, color=QUIET)
    for row, ranks in enumerate((1, 2, 4)):
        y = 182 - 82 * row
        row_label(axes, 165, y + 32, f"{ranks} rank" + "s" * (ranks > 1), size=19)
        for k in range(8):
            rank = k % ranks
            rank_bar(axes, 184 + 112 * k, y, 108, 64, f"rank {rank}", rank, size=16)
    return figure


def checkpoint():
    """Two ranks' shards become whole tensors in files, and four ranks take their parts of them."""
    figure, axes = canvas(1150, 360)
    for x, text in {150: "2 ranks, stage 1", 575: "files", 1000: "4 ranks, stage 3"}.items():
        label(axes, x, 335, text, weight="bold", size=19)
    for rank in range(2):
        y = 196 - 120 * rank
        cell(axes, 40, y + 36, 220, 30, COLORS["parameters"])
        shard(axes, 40, y, 220, 30, COLORS["moments"], rank, 2)
        label(axes, 150, y + 84, f"rank {rank}", size=16, color=QUIET)
        arrow(axes, (266, y + 32), (408, 180), color=QUIET)
    block(axes, 412, 62, 326, 236, "white", edgecolor=ACCENT, linewidth=3)
    for y, part in ((222, "parameters"), (140, "moments")):
        cell(axes, 432, y, 286, 30, COLORS[part])
    files = {272: "model.safetensors", 192: "moments.safetensors", 92: "step, seconds, options"}
    for y, name in files.items():
        label(axes, 575, y, name, size=17)
    for rank in range(4):
        y = 254 - 72 * rank
        shard(axes, 890, y + 26, 220, 22, COLORS["parameters"], rank)
        shard(axes, 890, y, 220, 22, COLORS["moments"], rank)
        arrow(axes, (742, 180), (884, y + 24), color=QUIET)
    label(axes, 575, 28, "written next to the former, then named in latest", size=17, color=QUIET)
    return figure
