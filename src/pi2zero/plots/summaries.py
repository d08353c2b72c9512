"""Pictures of summarization: how long the texts are, and scores beside baselines."""

import numpy as np

from pi2zero.plots.style import INK, RANK_COLORS, legend_outside, new_axes

__all__ = ["scores", "token_lengths"]


def token_lengths(lengths: dict, cuts: dict | None = None, ax=None, figsize=None):
    """Histograms of lengths in tokens. lengths: label -> (n,) values. cuts: label -> where longer texts are cut, in tokens.

    The legend says what share is cut.
    """
    ax = new_axes(ax, figsize, (7.2, 3.6))
    cuts = cuts or {}
    top = max(max(values) for values in lengths.values())
    bins = np.linspace(0, top, 60)
    for color, (label, values) in zip(RANK_COLORS, lengths.items(), strict=False):
        share = (
            f", {np.mean(np.asarray(values) > cuts[label]):.0%} cut at {cuts[label]}"
            if label in cuts
            else ""
        )
        ax.hist(values, bins, color=color, alpha=0.75, label=f"{label}{share}")
        if label in cuts and cuts[label] <= 1.1 * top:
            ax.axvline(cuts[label], color=color, linestyle="--")
    ax.set(xlabel="tokens", ylabel="stories")
    legend_outside(ax)
    return ax


def scores(results: dict, names: dict, ax=None, figsize=None):
    """Bars of scores with their intervals. results: label -> {name: [low, mean, high]}, in percent. names: name -> in words.

    One group of bars a label, from top to bottom; one colour a score.
    """
    ax = new_axes(ax, figsize, (8.0, max(1.4, 0.5 + 0.22 * len(results) * (len(names) + 1))))
    height = 0.8 / len(names)
    for index, (name, words) in enumerate(names.items()):
        low, mean, high = np.array([result[name] for result in results.values()]).T
        y = np.arange(len(results)) + (index - (len(names) - 1) / 2) * height
        ax.barh(y, mean, height, color=RANK_COLORS[index], label=words)
        ax.errorbar(
            mean, y, xerr=[mean - low, high - mean], fmt="none", color=INK, linewidth=1, capsize=2
        )
        for at, value, end in zip(y, mean, high, strict=True):
            ax.text(end + 1, at, f"{value:.0f}", va="center", fontsize="x-small")
    ax.set(
        yticks=range(len(results)),
        yticklabels=list(results),
        xlim=(0, 108),
        xlabel="percent; lines: 95 % intervals",
    )
    ax.invert_yaxis()
    ax.grid(True, axis="x")
    legend_outside(ax, reverse=False)
    return ax
