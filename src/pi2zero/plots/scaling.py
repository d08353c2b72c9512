"""Pictures of scaling studies: throughput, efficiency, models beside published points."""

import numpy as np

from pi2zero import costs
from pi2zero.plots.style import ACTIVITY_COLORS, FAINT, INK, RANK_COLORS, legend_outside, new_axes

__all__ = ["imagenet_records", "rates", "scaling_model", "step_parts"]

MARKERS = "os^Dv*PX<>"


def rates(measured, ax=None, figsize=None, unit="images/s"):
    """Throughput over ranks beside the ideal line through each first point. measured: {label: ([ranks], [samples per s])}."""
    ax = new_axes(ax, figsize, (6, 4))
    for number, (label, (ranks, values)) in enumerate(measured.items()):
        ranks, color = np.asarray(ranks), RANK_COLORS[number % len(RANK_COLORS)]
        ax.plot(ranks, values, "o-", color=color, label=label)
        ax.plot(
            ranks,
            values[0] * ranks / ranks[0],
            "--",
            color=color,
            linewidth=1,
            label=f"{label}: ideal",
        )
    everything = sorted({int(p) for ranks, _ in measured.values() for p in ranks})
    ax.set(xlabel="ranks", ylabel=unit, xticks=everything, ylim=(0, None))
    ax.grid(axis="y")
    ax.legend()
    return ax


def scaling_model(ranks, curves, points=(), ax=None, figsize=None):
    """Efficiency over ranks: the model's curves, and published points with their names.

    ranks: (k,). curves: {label: (k,) efficiencies 0..1}. points: costs.Published (those without efficiency are left out).
    """
    ax = new_axes(ax, figsize, (9, 4.5))
    for number, (label, values) in enumerate(curves.items()):
        ax.plot(
            ranks,
            100 * np.asarray(values),
            color=RANK_COLORS[number % len(RANK_COLORS)],
            label=label,
        )
    shown = [(p.name, p.ranks, costs.published_efficiency(p)) for p in points]
    for number, name in enumerate(dict.fromkeys(name for name, _, share in shown if share)):
        group = [(p, 100 * share) for who, p, share in shown if who == name and share]
        ax.plot(
            *np.transpose(group),
            MARKERS[number % len(MARKERS)],
            color=INK,
            mfc="white",
            mew=1.5,
            label=name,
        )
    ax.axhline(100, color=FAINT, linewidth=1, zorder=1)  # under a curve that stays there
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
    """Each step as a bar: computing, and communication that is not hidden. ranks: (k,); compute, exposed: s, (k,) or a number."""
    ax = new_axes(ax, figsize, (6, 3.5))
    places, compute = np.arange(len(ranks)), np.broadcast_to(compute, len(ranks)) * 1e3
    ax.bar(places, compute, color=ACTIVITY_COLORS["compute"], label="computing")
    exposed = np.asarray(exposed) * 1e3
    ax.bar(
        places,
        exposed,
        bottom=compute,
        color=ACTIVITY_COLORS["communicate"],
        label="all-reduce, not hidden",
    )
    ax.set_xticks(places, [f"{int(p):,}" for p in ranks])
    ax.set(xlabel="ranks", ylabel="ms a step")
    ax.legend(loc="upper left", bbox_to_anchor=(0, 1.25), ncols=2, fontsize="small")
    return ax


def imagenet_records(records, ax=None, figsize=None):
    """Minutes over the global batch, both logarithmic; a dot's area grows with the processors. records: costs.Record."""
    ax = new_axes(ax, figsize, (9, 4.5))
    for record in records:
        color = RANK_COLORS[(record.year - 2016) % len(RANK_COLORS)]
        ax.scatter(
            record.batch_size, record.minutes, s=30 + record.processors / 8, color=color, alpha=0.8
        )
        left = record.batch_size > 20_000
        text = f"{record.who} {record.year}: {record.processors:,} {record.kind}"
        offset, side = (
            ((-14, -7 if record.processors < 2000 and left else -2), "right")
            if left
            else ((14, -2), "left")
        )
        ax.annotate(
            text,
            (record.batch_size, record.minutes),
            offset,
            textcoords="offset points",
            ha=side,
            fontsize="small",
        )
    ax.set(xscale="log", yscale="log", xlabel="global batch, images", ylabel="training time")
    ax.set_xticks(
        [256, 1024, 8192, 32768, 81920],
        ["256", "1,024", "8,192", "32,768", "81,920"],
        fontsize="small",
    )
    ax.set_yticks([1, 10, 60, 600, 1800], ["1 min", "10 min", "1 h", "10 h", "30 h"])
    ax.set_ylim(0.8, 4000)
    ax.minorticks_off()
    ax.grid()
    return ax
