"""Pictures of scaling studies: throughput, efficiency, models and published figures."""

import numpy as np

from pi2zero import costs
from pi2zero.plots.style import ACTIVITY_COLORS, FAINT, INK, legend_outside, new_axes, rank_color

__all__ = ["imagenet_records", "rates", "scaling_model", "step_parts"]

MARKERS = "os^Dv*PX<>"


def rates(measured, ax=None, figsize=None, unit="images/s"):
    """Throughput over ranks, with the ideal line through each first point.

    measured: {label: ([ranks], [samples per s])}.
    """
    ax = new_axes(ax, figsize, (6, 4))
    for number, (label, (ranks, values)) in enumerate(measured.items()):
        ranks, color = np.asarray(ranks), rank_color(number)
        ax.plot(ranks, values, "o-", color=color, label=label)
        ideal = values[0] * ranks / ranks[0]
        ax.plot(ranks, ideal, "--", color=color, linewidth=1, label=f"{label}: ideal")
    ticks = sorted({int(p) for ranks, _ in measured.values() for p in ranks})
    ax.set(xlabel="ranks", ylabel=unit, xticks=ticks, ylim=(0, None))
    ax.grid(axis="y")
    ax.legend()
    return ax


def scaling_model(ranks, curves, points=(), ax=None, figsize=None):
    """Efficiency over ranks: the model's curves, and published points with their names.

    ranks: (k,). curves: {label: (k,) efficiencies 0..1}. points: costs.PublishedRate; those without
    an efficiency are left out.
    """
    ax = new_axes(ax, figsize, (9, 4.5))
    for number, (label, values) in enumerate(curves.items()):
        ax.plot(ranks, 100 * np.asarray(values), color=rank_color(number), label=label)
    published = {}
    for point in points:
        if share := costs.published_efficiency(point):
            published.setdefault(point.name, []).append((point.ranks, 100 * share))
    for number, (name, group) in enumerate(published.items()):
        style = {"color": INK, "mfc": "white", "mew": 1.5, "label": name}
        ax.plot(*np.transpose(group), MARKERS[number % len(MARKERS)], **style)
    ax.axhline(100, color=FAINT, linewidth=1, zorder=1)  # below curves that stay there
    ax.set(xscale="log", xlabel="ranks", ylabel="efficiency, %", ylim=(0, 108))
    ticks = [p for p in (1, 2, 4, 8, 32, 128, 512, 2048) if min(ranks) <= p <= max(ranks)]
    ax.set_xticks(ticks, [f"{p:,}" for p in ticks])
    ax.minorticks_off()
    if points:
        legend_outside(ax, fontsize="small")
    elif curves:
        ax.legend(loc="lower left", fontsize="small")
    return ax


def step_parts(ranks, compute, exposed, ax=None, figsize=None):
    """Each step as a bar: computing, and exposed communication.

    ranks: (k,); compute, exposed: s, (k,) or a number.
    """
    ax, places = new_axes(ax, figsize, (6, 3.5)), np.arange(len(ranks))
    compute, exposed = np.broadcast_to(compute, len(ranks)) * 1e3, np.asarray(exposed) * 1e3
    ax.bar(places, compute, color=ACTIVITY_COLORS["compute"], label="computing")
    style = {"color": ACTIVITY_COLORS["communicate"], "label": "all-reduce, not hidden"}
    ax.bar(places, exposed, bottom=compute, **style)
    ax.set_xticks(places, [f"{int(p):,}" for p in ranks])
    ax.set(xlabel="ranks", ylabel="ms per step")
    ax.legend(loc="upper left", bbox_to_anchor=(0, 1.25), ncols=2, fontsize="small")
    return ax


def imagenet_records(records, ax=None, figsize=None):
    """Training time over the global batch; a dot's area grows with the processors.

    records: costs.ImageNetRecord.
    """
    ax = new_axes(ax, figsize, (9, 4.5))
    for record in records:
        place, color = (record.batch_size, record.minutes), rank_color(record.year - 2016)
        ax.scatter(*place, s=30 + record.processors / 8, color=color, alpha=0.8)
        text = f"{record.who} {record.year}: {record.processors:,} {record.kind}"
        offset, side = (14, -2), "left"
        if record.batch_size > 20_000:  # near the right edge, and one dot close to another
            offset, side = (-14, -7 if record.processors < 2000 else -2), "right"
        style = {"textcoords": "offset points", "ha": side, "fontsize": "small"}
        ax.annotate(text, place, offset, **style)
    ax.set(xscale="log", yscale="log", xlabel="global batch, images", ylabel="training time")
    batches = [256, 1024, 8192, 32768, 81920]
    ax.set_xticks(batches, [f"{batch:,}" for batch in batches])
    ax.tick_params(axis="x", labelsize="small")
    ax.set_yticks([1, 10, 60, 600, 1800], ["1 min", "10 min", "1 h", "10 h", "30 h"])
    ax.set_ylim(0.8, 4000)
    ax.minorticks_off()
    ax.grid()
    return ax
