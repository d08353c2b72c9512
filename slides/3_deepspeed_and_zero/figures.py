"""Figures and numbers of the deck "DeepSpeed and ZeRO"."""

import re

import matplotlib.pyplot as plt
import numpy as np
from covers import shards as cover  # noqa: F401
from diagrams import GREY, INK, QUIET, WARM, chart, stairs
from diagrams_zero import batch, mixed, offload, passes, stage1_step, stage2_backward  # noqa: F401, drawn by their names in deck.md
from live import drawn_by_cells

from pi2zero import costs, plots

NOTEBOOK_9 = "notebooks/09_zero.ipynb"

# Parameters. Sources: arXiv:1910.10683 (T5; small counted), arXiv:1810.04805 (BERT), ZeRO,
# arXiv:1910.02054 (GPT-2, and its own case of 7.5 billion), arXiv:2307.09288 (Llama 2),
# arXiv:2005.14165 (GPT-3).
MODELS = {
    "T5-small": 60.5e6,
    "BERT-large": 340e6,
    "GPT-2": 1.5e9,
    "7.5 billion": 7.5e9,
    "Llama 2 70B": 70e9,
    "GPT-3": 175e9,
}
PSI, RANKS, V100 = 7.5e9, 64, 32e9  # the paper's case, and the larger of the two V100 (bytes)
# GB on a GPU at stages 0 to 3. Source: ZeRO, arXiv:1910.02054, figure 1.
PUBLISHED = (120, 31.4, 16.6, 1.9)
DEVICE, RESERVE = 80e9, 20e9  # a device of today, and what we leave for activations and buffers
# PCI Express 3.0 with 16 lanes of 8 Gbit/s, of which 128 of 130 bits are data: bytes/s in each
# direction.
PCIE = 16 * 8e9 * 128 / 130 / 8
OFFLOADED, FLOPS = (
    13e9,
    40e12,
)  # parameters; flop/s of a V100 in the ZeRO-Offload paper, arXiv:2101.06840
# An NVIDIA DGX-2, bytes: 16 V100 of 32 GB; memory and disks as announced in 2018.
DGX2 = {"16 GPUs": 16 * 32e9, "host": 1.5e12, "NVMe disks": 30e12}
MEASURED = 32 * 512 * 512  # parameters of the model that notebook 09 measures
DIGITS = 64 * 128 + 128 + 128 * 10 + 10  # parameters of the workshop's small network


def gb(size, digits=3):
    return f"{size / 1e9:,.{digits}g}" if size < 1e12 else f"{size / 1e9:,.0f}"


def facts():
    """The numbers in the deck's text, computed here."""
    total = {stage: costs.zero_total(PSI, RANKS, stage) for stage in range(4)}
    one_way = 2 * OFFLOADED / PCIE
    t5 = [costs.zero_total(MODELS["T5-small"], 2, stage) for stage in range(4)]
    bits = -(-DIGITS // 8) + 4
    saved = costs.zero_total(MEASURED, 4, 0) - costs.zero_total(MEASURED, 4, 1)
    return {
        "all_copies": f"{RANKS * total[0] / 1e12:.1f}",
        "gpt3_gpus": f"{np.ceil(16 * MODELS['GPT-3'] / DEVICE):.0f}",
        "fits_alone": f"{costs.largest_model(V100, 1, 0) / 1e9:.0f}",
        "fits_stage1": f"{costs.largest_model(V100, RANKS, 1) / 1e9:.1f}",
        "fits_stage3": f"{costs.largest_model(V100, RANKS, 3) / 1e9:.0f}",
        "t5_saved": f"{(t5[0] - t5[1]) / 1e6:.0f}",
        "t5_all": f"{t5[0] / 1e6:.0f}",
        "t5_later": f"{(t5[1] - t5[2]) / 1e6:.0f}",
        "update_stage2": f"{2 + 18 / RANKS:.2f}",
        "sent_gb": f"{costs.zero_bytes_sent(PSI, RANKS, 0) / 1e9:.1f}",
        "sent_gb3": f"{costs.zero_bytes_sent(PSI, RANKS, 3) / 1e9:.1f}",
        "sizing_rows": "\n".join(
            sizing_row(name) for name in ("GPT-2", "7.5 billion", "13 billion", "Llama 2 70B")
        ),
        "bucket_gb": f"{2 * 500e6 / 1e9:.0f}",
        "bucket_saved": f"{saved / 1e6:.0f}",
        "offload_gpu": gb(costs.zero_total(OFFLOADED, 1, 2, offload=True)),
        "offload_room": gb(V100 - costs.zero_total(OFFLOADED, 1, 2, offload=True)),
        "offload_host": gb(14 * OFFLOADED),
        "offload_bound": f"{costs.largest_model(V100, 1, 2, offload=True) / 1e9:.0f}",
        "link": f"{PCIE / 1e9:.1f}",
        "one_way": f"{one_way:.2f}",
        "hidden_tokens": f"{one_way * FLOPS / (8 * OFFLOADED):.0f}",
        "trillion_gpus": f"{16e12 / V100:.0f}",
        "digits_bytes": f"{4 * DIGITS:,}",
        "digits_bits": f"{bits:,}",
        "onebit_total": f"{volume(0.15):.1f}",
        "onebit_most": f"{volume(0.10):.1f}",
    }


def sizing_row(name):
    """Fewest devices for a model at each stage, a row of a table."""
    psi = {"13 billion": OFFLOADED}.get(name) or MODELS[name]
    needed = [costs.ranks_needed(psi, DEVICE, stage, reserve=RESERVE) for stage in range(4)]
    cells = ["no" if ranks is None else str(ranks) for ranks in needed]
    return f"| {' | '.join([name, gb(16 * psi), *cells])} |"


def volume(warm_up, bits=16):
    """How many times fewer bytes a run sends: a share `warm_up` of its steps sends all bits."""
    return 1 / (warm_up + (1 - warm_up) / bits)


def way():
    return stairs(2)


# --- memory


def models():
    """16 bytes per parameter, for known models, compared with the memory of a device."""
    axes = plt.subplots(figsize=(11.8, 4.7))[1]
    sizes = [16 * psi for psi in MODELS.values()]
    bars = axes.barh(list(MODELS), [size / 1e9 for size in sizes], color=QUIET)
    names = [f"{gb(size)} GB" for size in sizes]
    axes.bar_label(bars, names, padding=6, backgroundcolor="white")
    for memory, name, side in ((32, "V100", "right"), (80, "H100", "left")):
        axes.axvline(memory, color=WARM, linestyle="--")
        axes.text(memory, -0.75, f"{name}: {memory}", ha=side, color=WARM)
    axes.set(xscale="log", xlim=(0.5, 2e4), xlabel="GB at 16 bytes per parameter")
    axes.invert_yaxis()
    return axes.figure


def memory(stage):
    axes = plots.partitions(ranks=4, stage=stage, figsize=(11.6, 3.4))
    for text in axes.texts:  # In a talk on billions, B is not read as bytes.
        text.set_text(re.sub(r"(\d) B$", r"\1 bytes", text.get_text()))
    return axes.figure


def stage0():
    return memory(0)


def stage1():
    return [memory(0), memory(1)]


def stage2():
    return [memory(1), memory(2)]


def stage3():
    return [memory(2), memory(3)]


def bias():
    """The running means of a constant 1, before and after the correction."""
    t = np.arange(1, 51)
    axes = chart((6.4, 4.8), xlabel="step t", ylabel="mean of a constant 1", ylim=(0, 1.1))
    axes.plot(t, 1 - 0.9**t, color=QUIET, label="m, β₁ = 0.9")
    axes.plot(t, 1 - 0.999**t, color=WARM, label="v, β₂ = 0.999")
    axes.plot(t, np.ones_like(t), "--", color=plots.INK, label="both, corrected")
    axes.legend(loc="center right", bbox_to_anchor=(1, 0.42))
    return axes.figure


def published():
    """The formula's bytes of the paper's case by component; marks: what the paper's figure says."""
    rows = {f"stage {stage}": costs.zero_bytes(PSI, RANKS, stage) for stage in range(4)}
    marks = {f"stage {stage}": 1e9 * size for stage, size in enumerate(PUBLISHED)}
    axes = plots.memory_bars(rows, marks, unit=1e9, figsize=(11.8, 3.4))
    for text in axes.figure.legends[0].get_texts():
        if text.get_text() == "predicted":
            text.set_text("published")
    for place, (row, size) in enumerate(zip(rows.values(), PUBLISHED, strict=True)):
        axes.text(sum(row.values()) / 1e9 + 1.5, place, f"{size:g}", va="center", weight="bold")
    axes.set(xlim=(0, 132), xlabel="GB on one of 64 GPUs")
    return axes.figure


def fits():
    """The largest model on GPUs of 32 GB, over their number."""
    ranks = 2.0 ** np.arange(11)
    axes = chart((6.6, 4.9), xlabel="GPUs of 32 GB", ylabel="billion parameters")
    for stage, style in zip(range(4), ("o-", "s-", "^-", "D-"), strict=True):
        most = [costs.largest_model(V100, n, stage) / 1e9 for n in ranks]
        axes.plot(ranks, most, style, color=(INK, QUIET, GREY, WARM)[stage], label=f"stage {stage}")
    axes.set(xscale="log", yscale="log")
    axes.set_xticks([1, 8, 64, 512], ["1", "8", "64", "512"])
    axes.minorticks_off()
    axes.legend(loc="upper left")
    return axes.figure


def stage3_step():
    """The first two of the four rows of notebook 09's picture, which would be too small."""
    figure = drawn_by_cells(NOTEBOOK_9, "stage3-picture", (11.9, 4.5))
    (axes,) = figure.axes
    axes.set_ylim(2, -0.3)
    for text in list(axes.texts):
        text.set_text(text.get_text().replace("backward", "back"))  # eight columns of 15 pt
        if text.get_text() in ("rank 2", "rank 3"):
            text.remove()
    return figure


# --- offload and fewer bytes


def offloaded():
    """Bytes of 13 billion parameters with the optimizer on the host, compared with a V100."""
    whole = costs.zero_bytes(OFFLOADED, 1, 2)
    stays = costs.zero_bytes(OFFLOADED, 1, 2, offload=True)
    rows = {"GPU, all on it": whole, "GPU, offload": stays}
    rows["host, offload"] = {part: size - stays[part] for part, size in whole.items()}
    axes = plots.memory_bars(rows, unit=1e9, figsize=(11.8, 3.3))
    axes.axvline(32, color=plots.INK, linestyle="--")
    axes.text(35, -0.62, "32 GB: a V100", va="bottom", fontsize=16)
    axes.set(xlabel="GB for 13 billion parameters")
    return axes.figure


def tiers():
    """A trillion parameters at 16 bytes compared with the memories of a DGX-2."""
    axes = plt.subplots(figsize=(6.9, 3.7))[1]
    bars = axes.barh(list(DGX2), [size / 1e12 for size in DGX2.values()], color=QUIET)
    axes.bar_label(bars, [f"{size / 1e12:.3g} TB" for size in DGX2.values()], padding=6)
    axes.axvline(16, color=WARM, linestyle="--")
    axes.text(17, 0.5, "10¹² parameters:\n16 TB", va="center", color=WARM)
    axes.set(xlabel="TB", xlim=(0, 39))
    axes.invert_yaxis()
    return axes.figure


def arrived(value, feedback, times):
    """Running mean of what arrives if `value` is sent repeatedly as signs and one scale."""
    error, messages = np.zeros_like(value), []
    for _ in range(times):
        corrected = value + feedback * error
        messages.append(np.abs(corrected).mean() * np.where(corrected > 0, 1, -1))
        error = corrected - messages[-1]
    return np.cumsum(messages, axis=0) / np.arange(1, times + 1)[:, None]


def feedback():
    """The mean of four numbers that arrive 100 times as signs, without and with error feedback."""
    value, times = np.array([3.0, 1.0, 0.5, -0.5]), 100
    figure, both = plt.subplots(1, 2, figsize=(11.6, 3.7), sharey=True)
    for axes, keeps in zip(both, (0, 1), strict=True):
        means = arrived(value, keeps, times)
        for k, number in enumerate(value):
            axes.axhline(number, color=plots.FAINT, linestyle="--")
            width = 2 if keeps else (9, 6, 3, 3)[k]  # Three of the lines coincide.
            style = {"color": (INK, WARM, QUIET, GREY)[k], "linewidth": width}
            name = f"{number:g}".replace("-", "−")
            axes.plot(np.arange(1, times + 1), means[:, k], label=name, **style)
        title = "with error feedback" if keeps else "signs only"
        axes.set(title=title, xlabel="messages", ylim=(-1.7, 3.4))
    both[0].set_ylabel("mean of what arrived")
    handles, names = both[0].get_legend_handles_labels()
    legend = figure.legend(handles, names, loc="outside right center", title="sent")
    for line in legend.get_lines():
        line.set_linewidth(4)
    return figure


def onebit():
    """How many times fewer bytes a whole run sends, over the share of warm-up steps."""
    share = np.linspace(0, 0.5, 200)
    axes = chart((6.2, 4.7), xlabel="% of the steps are warm-up", ylabel="times fewer bytes")
    axes.plot(100 * share, volume(share), color=QUIET)
    axes.axhline(5, color=WARM, linestyle="--")
    axes.text(50, 5.3, "published: up to 5 times", ha="right", color=WARM)
    axes.set(ylim=(0, 17), xlim=(0, 50))
    return axes.figure
