"""Figures and numbers of the deck "π and MPI"."""

import re

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from covers import darts as cover  # noqa: F401
from diagrams import (
    ACCENT,
    GREY,
    INK,
    PALE,
    QUIET,
    WARM,
    arrow,
    bar,
    block,
    box,
    canvas,
    chart,
    label,
    rank_bar,
    row_label,
    stairs,
)
from extract import cell_output, printed, printed_table

from pi2zero import costs, plots

# Seconds for π with 10^8 samples, one process and six spawned ones.
# Source: the ODSC article on MPI in Jupyter that this workshop grew out of (slide "Sources").
ODSC = {"ranks": [1, 6], "seconds": [59.8, 9.79]}
# Seconds for Monte Carlo π with 5 x 10^6 samples. Source: argonne-lcf/ai-science-training-series,
# 01_intro_AI_on_Supercomputer/parallel_computing.md, with all digits. The page is for Polaris
# (2023), but one for ThetaGPU (2022) has the same digits: the machine is not certain.
ALCF = {"ranks": [1, 2, 4, 8], "seconds": [8.029, 4.213, 2.094, 1.061]}
NOTEBOOK_1, NOTEBOOK_2 = "notebooks/01_monte_carlo_pi.ipynb", "notebooks/02_mpi_pi.ipynb"


def serial_seconds():
    """{way: seconds for 10^8 darts on one core}, as notebook 01 measured them."""
    lines = cell_output(NOTEBOOK_1, "time-table").splitlines()[1:]
    rows = (
        re.fullmatch(r"(.+?)\s{2,}[\d.]+\s+([\d.]+)\s*(?:\(scaled\))?\s*", line) for line in lines
    )
    return {row.group(1): float(row.group(2)) for row in rows}


def strong_scaling():
    """({"ranks": ..., "seconds": ...} of the same work, number of cores), from notebook 02."""
    cores = re.match(r"(\d+) cores?", cell_output(NOTEBOOK_2, "slide-scaling"))
    return printed_table(NOTEBOOK_2, "slide-scaling", "ranks"), int(cores.group(1))


def spawn_seconds():
    """{"2 children": {"start-up": s, "computing": s}, ...} of spawned ranks, from notebook 02."""
    rows = printed(NOTEBOOK_2, "slide-spawn-cost", r"(?m)^ *(\d+) +([\d.]+) s +([\d.]+) s")
    return {
        f"{n} child{'ren' * (n != '1')}": {"start-up": float(start), "computing": float(computing)}
        for n, start, computing in rows
    }


def facts():
    """The numbers in the deck's text, computed here from what was measured."""
    ranks, seconds = np.array(ALCF["ranks"]), np.array(ALCF["seconds"])
    speedups = costs.speedup(seconds[0], seconds)
    efficiencies = 100 * speedups / ranks
    alcf_serial = costs.karp_flatt(speedups[-1], 8)
    start, computing = spawn_seconds()["2 children"].values()
    serial, (strong, cores) = serial_seconds(), strong_scaling()
    loop, chunks = serial["Python loop"], serial["NumPy, chunks"]
    rows = zip(ranks, seconds, speedups, efficiencies, strict=True)
    return {
        "odsc_one": f"{ODSC['seconds'][0]:g}",
        "odsc_six": f"{ODSC['seconds'][1]:g}",
        "odsc_speedup": f"{costs.speedup(*ODSC['seconds']):.1f}",
        "odsc_efficiency": f"{100 * costs.efficiency(*ODSC['seconds'], 6):.0f}",
        "alcf_table": "\n".join(f"| {p} | {t:.2f} | {s:.2f} | {e:.1f} % |" for p, t, s, e in rows),
        "alcf_efficiencies": ", ".join(f"{each:.0f}" for each in efficiencies[1:]),
        "alcf_efficiency": f"{efficiencies[-1]:.1f}",
        "alcf_serial": f"{100 * alcf_serial:.1f}",
        "alcf_limit": f"{costs.amdahl(alcf_serial, 1e12):.0f}",
        "amdahl_64": f"{costs.amdahl(0.05, 64):.1f}",
        "loop_seconds": f"{loop:.3g}",
        "chunk_seconds": f"{chunks:.2g}",
        "numpy_gain": f"{loop / chunks:.0f}",
        "spawn_seconds": f"{start + computing:.1f}",
        "spawn_share": f"{100 * start / (start + computing):.0f}",
        "one_seconds": f"{strong['seconds'][0]:.2f}",
        # 9 parts of computing to 1 part of starting
        "enough_slices": f"{9 * start / computing / 10:.0f} × 10⁹",
        "cores": cores,
        "sigma": f"{costs.MONTE_CARLO_PI_SIGMA:.3f}",
        "error_1e8": f"{costs.monte_carlo_pi_error(1e8):.5f}",
    }


# --- why


def way():
    return stairs(0)


def odsc_time():
    axes = plt.subplots(figsize=(6.4, 5.0))[1]
    bars = axes.bar(["1 process", "6 processes"], ODSC["seconds"], color=[QUIET, WARM])
    axes.bar_label(bars, fmt="%g s", padding=4, fontsize=24)
    axes.set(ylabel="seconds, π with 10⁸ samples", ylim=(0, 68))
    return axes.figure


# --- what MPI is


def processes():
    """Four processes, each with its own memory; messages are the only way between them."""
    figure, axes = canvas(660, 470)
    places = [(20, 260), (370, 260), (20, 20), (370, 20)]
    for rank, (x, y) in enumerate(places):
        color = plots.rank_color(rank)
        box(axes, x, y, 270, 190, color="white", edge=color)
        label(axes, x + 135, y + 155, f"rank {rank}", size=21, weight="bold")
        block(axes, x + 20, y + 128, 26, 52, color)
        box(axes, x + 25, y + 25, 220, 85, f"its own memory\nx = {10 * (rank + 1)}", size=17)
    for x in (155, 505):
        arrow(axes, (x, 258), (x, 212))
    arrow(axes, (292, 370), (368, 370))
    arrow(axes, (368, 330), (292, 330))
    arrow(axes, (292, 130), (368, 130))
    return figure


# --- π


def darts():
    rng = np.random.default_rng(7)
    axes = plots.darts(*rng.random((2, 2000)), figsize=(5.4, 5.4))
    axes.set_title(axes.get_title(), pad=14)
    return axes.figure


def convergence():
    """Measured while the slides are built: 5 estimates for each N from 10^2 to 10^6."""
    rng = np.random.default_rng(7)
    ns = [10**k for k in range(2, 7)]
    errors = [
        [abs(4 * np.mean(np.sum(rng.random((2, n)) ** 2, axis=0) < 1) - np.pi) for n in ns]
        for _ in range(5)
    ]
    axes = plots.convergence(ns, errors, figsize=(6.6, 5.1))
    axes.set_ylim(2e-5, 2)
    axes.legend(loc="lower left", fontsize=16, frameon=True, framealpha=1, edgecolor="white")
    return axes.figure


def slices():
    return plots.midpoint_slices(12, 4, figsize=(6.9, 4.7)).figure


def loop_and_numpy():
    rows = {way: {"computing": seconds} for way, seconds in serial_seconds().items()}
    axes = plots.spans(rows, figsize=(7.4, 3.6))
    axes.get_legend().remove()
    axes.set(xlabel="seconds for 10⁸ darts, one core")
    return axes.figure


# --- messages


def bcast():
    return collective("Bcast", [["n"], [], [], []], [["n"]] * 4, width=4.6)


def reduce():
    after = [["a+b+c+d"], [], [], []]
    return collective("Reduce, SUM", [["a"], ["b"], ["c"], ["d"]], after, shown="sum")


def scatter_gather():
    figure, axes = plt.subplots(1, 2, figsize=(11.9, 3.9))
    full, scattered = [["a", "b", "c", "d"], [], [], []], [["a"], ["b"], ["c"], ["d"]]
    plots.collective("Scatter", full, scattered, ax=axes[0])
    plots.collective("Gather", scattered, full, ax=axes[1])
    for patch in (*axes[0].patches, *axes[1].patches):
        patch.set_linewidth(2.5)
    return figure


def allreduce():
    return collective("Allreduce, SUM", [["0"], ["1"], ["2"], ["3"]], [["0+1+2+3"]] * 4, shown="6")


def collective(name, before, after, width=5.5, shown=""):
    """shown: what a box shows instead of a sum, whose terms would not be legible there."""
    with matplotlib.rc_context({"font.size": 16}):
        axes = plots.collective(name, before, after, figsize=(width, 4.3))
    for text in axes.texts:
        if "+" in text.get_text():
            text.set(text=shown, fontsize=16)
    for patch in axes.patches:
        patch.set_linewidth(2.5)
    return axes.figure


def spawn():
    """The parent starts four children, gives them n, and collects their sums. Not to scale."""
    figure, axes = canvas(1150, 430)
    row_label(axes, 120, 372, "parent")
    bar(axes, 145, 346, 330, 52, "Spawn: waits", PALE)
    bar(axes, 560, 346, 330, 52, "waits", PALE)
    bar(axes, 965, 346, 165, 52, "prints π", ACCENT, "white")
    for rank, y in enumerate((262, 194, 126, 58)):
        row_label(axes, 120, y + 26, f"child {rank}")
        bar(axes, 185, y, 290, 52, "start Python", PALE, QUIET)
        rank_bar(axes, 560, y, 330, 52, f"slices {rank}, {rank + 4}, {rank + 8}, …", rank)
        arrow(axes, (162, y + 26), (186, y + 26), color=QUIET)
        arrow(axes, (517, 346), (517, y + 26), color=ACCENT)
        arrow(axes, (927, y + 26), (927, 346), color=WARM)
    axes.plot([162, 162], [346, 84], color=QUIET, linewidth=3)
    label(axes, 517, 416, "Bcast n", color=ACCENT, weight="bold")
    label(axes, 927, 416, "Reduce", color=WARM, weight="bold")
    label(axes, 1130, 22, "time, not to scale", size=16, color=QUIET, ha="right")
    return figure


def hang():
    """Three ranks wait for the fourth, which has raised an error: the cell of notebook 00."""
    figure, axes = canvas(1150, 256)
    for rank in range(4):
        y = 196 - 62 * rank
        row_label(axes, 110, y + 24, f"rank {rank}")
        rank_bar(axes, 135, y, 210, 48, "its share", rank)
        if rank == 3:
            bar(axes, 345, y, 200, 48, "IndexError", WARM, "white")
        else:
            bar(axes, 345, y, 780, 48, "Barrier: waits for rank 3 … forever", PALE, INK, hatch="/")
    return figure


def same_seed():
    """Estimates of 4 ranks x 1,000 darts, different or the same on each rank."""
    rng = np.random.default_rng(7)
    darts, ranks, runs = 1000, 4, 2000
    own = 4 * rng.binomial(ranks * darts, np.pi / 4, runs) / (ranks * darts)
    same = 4 * rng.binomial(darts, np.pi / 4, runs) / darts
    claimed = costs.monte_carlo_pi_error(ranks * darts)
    axes = plots.spread({"own streams": own, "same seed": same}, claimed, figsize=(7.2, 3.5))
    axes.set_ylim(top=1.35 * axes.get_ylim()[1])  # room for the legend above the curves
    axes.legend(loc="upper left", fontsize=16)
    return axes.figure


# --- how fast


def alcf():
    """Efficiencies, because speed-ups hide the loss; and Amdahl's law through the last one."""
    ranks, seconds = np.array(ALCF["ranks"]), np.array(ALCF["seconds"])
    measured, between = costs.speedup(seconds[0], seconds) / ranks, np.linspace(1, 8, 50)
    law = costs.amdahl(costs.karp_flatt(8 * measured[-1], 8), between) / between
    axes = chart((5.4, 4.9), xlabel="ranks", ylabel="efficiency, %", xticks=ranks, ylim=(90, 100.6))
    axes.plot(between, 100 * law, "--", color=QUIET, label="Amdahl's law")
    axes.plot(ranks, 100 * measured, "o", color=WARM, markersize=12, label="measured")
    axes.legend(loc="lower left")
    return axes.figure


def amdahl():
    fractions = (0.01, 0.05, 0.25)
    axes = plots.amdahl(fractions, max_ranks=1024, figsize=(6.7, 5.3))
    axes.get_legend().remove()
    for line, color in zip(axes.lines[1:], (GREY, WARM, QUIET), strict=True):
        line.set_color(color)
    for fraction in fractions:
        limit = f"{100 * fraction:g} % serial:\nat most {1 / fraction:.0f}"
        axes.text(1300, costs.amdahl(fraction, 1024), limit, va="center", fontsize=16)
    axes.text(200, 330, "ideal", ha="right", fontsize=16)
    axes.set(xlim=(1, 2**14.2), xticks=[4**k for k in range(6)], yticks=[4**k for k in range(6)])
    return axes.figure


def spawn_cost():
    started = {"start-up": 0.0, "computing": strong_scaling()[0]["seconds"][0]}
    return plots.spans({"already there": started} | spawn_seconds(), figsize=(11.6, 3.7)).figure


def cores():
    strong, cores = strong_scaling()
    axes = plots.speedup(strong["ranks"], strong["seconds"], cores=cores, figsize=(6.4, 5.0))
    axes.legend(loc="lower right")
    return axes.figure
