"""A picture for each deck's title slide: its idea, without words, on the slide's dark ground."""

import numpy as np
from diagrams import canvas
from matplotlib.patches import Circle, Rectangle

from pi2zero.plots import RANK_COLORS

LIGHT, FAINT = "#dbe5f3", "#3b4f72"
SIZE = 400, 260  # px


def ground():
    """An empty picture through which the slide is seen."""
    figure, axes = canvas(*SIZE)
    figure.patch.set_alpha(0)
    return figure, axes


def darts():
    """Part 1: darts of four ranks on a quarter circle."""
    figure, axes = ground()
    points = 250 * np.random.default_rng(3).random((260, 2))
    for rank in range(4):
        own = points[rank::4]
        inside = np.hypot(*own.T) <= 250
        for part, color in ((own[inside], RANK_COLORS[rank]), (own[~inside], FAINT)):
            axes.scatter(140 + part[:, 0], 5 + part[:, 1], s=26, color=color)
    angle = np.linspace(0, np.pi / 2, 100)
    axes.plot(140 + 250 * np.cos(angle), 5 + 250 * np.sin(angle), color=LIGHT, linewidth=3)
    axes.add_patch(Rectangle((140, 5), 250, 250, fill=False, edgecolor=LIGHT, linewidth=3))
    return figure


def one_network():
    """Part 2: four ranks' curves become one."""
    figure, axes = ground()
    x = np.linspace(0, 1, 200)
    for rank in range(4):
        noise = np.interp(x, np.linspace(0, 1, 30), np.random.default_rng(rank).normal(0, 9, 30))
        apart = (1 - np.clip(x / 0.6, 0, 1)) ** 1.5
        y = 55 + 175 * np.exp(-3 * x) + apart * (noise + 26 * (rank - 1.5))
        axes.plot(10 + 230 * x[x <= 0.6] / 0.6, y[x <= 0.6], color=RANK_COLORS[rank], linewidth=4)
    x = x[x >= 0.6]
    axes.plot(10 + 230 * x / 0.6, 55 + 175 * np.exp(-3 * x), color=LIGHT, linewidth=6)
    axes.add_patch(Circle((240, 55 + 175 * np.exp(-1.8)), 9, color=LIGHT))
    return figure


def shards():
    """Part 3: of four pieces each rank keeps its own."""
    figure, axes = ground()
    for rank in range(4):
        for piece in range(4):
            spot = (20 + 96 * rank, 200 - 62 * piece)
            style = {"facecolor": "none", "edgecolor": FAINT, "linestyle": (0, (4, 3))}
            if rank == piece:
                style = {"facecolor": RANK_COLORS[rank]}
            axes.add_patch(Rectangle(spot, 78, 48, linewidth=3, **style))
    return figure


def highlights():
    """Part 4: of a long text, three lines."""
    figure, axes = ground()
    widths = np.random.default_rng(8).integers(110, 160, 11)
    chosen = {1: LIGHT, 5: LIGHT, 8: LIGHT}
    for line, width in enumerate(widths):
        axes.add_patch(Rectangle((10, 240 - 23 * line), width, 11, color=chosen.get(line, FAINT)))
    for row, (line, color) in enumerate(chosen.items()):
        axes.add_patch(Rectangle((235, 168 - 46 * row), 150, 20, color=color))
        axes.plot(
            [15 + widths[line], 228], [246 - 23 * line, 178 - 46 * row], color=color, linewidth=2
        )
    return figure


def hosts():
    """Part 6: ranks on two hosts, and one link."""
    figure, axes = ground()
    for host in range(2):
        axes.add_patch(
            Rectangle((10 + 250 * host, 40), 130, 190, fill=False, edgecolor=LIGHT, linewidth=4)
        )
        for slot in range(2):
            axes.add_patch(
                Circle((75 + 250 * host, 180 - 90 * slot), 32, color=RANK_COLORS[2 * host + slot])
            )
    axes.plot([140, 260], [135, 135], color=LIGHT, linewidth=3)
    return figure


def pipeline():
    """Part 5: four micro-batches through four stages, forward and back."""
    figure, axes = ground()
    for stage in range(4):
        for micro in range(4):
            slots = {stage + micro: RANK_COLORS[stage], 7 + (3 - stage) + micro: FAINT}
            for slot, color in slots.items():
                axes.add_patch(Rectangle((8 + 27.5 * slot, 195 - 56 * stage), 23, 42, color=color))
    return figure
