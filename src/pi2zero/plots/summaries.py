"""Pictures of summarization: lengths of the texts, and scores with those of baselines."""

import numpy as np

from pi2zero.plots.style import INK, RANK_COLORS, legend_outside, new_axes

__all__ = ["scores", "token_lengths"]


def token_lengths(lengths: dict, cuts: dict | None = None, ax=None, figsize=None):
    """Histograms of lengths in tokens, and the share that is truncated.

    lengths: label -> (n,) values. cuts: label -> tokens from which on texts are truncated.
    """
    ax, cuts = new_axes(ax, figsize, (7.2, 3.6)), cuts or {}
    longest = max(max(values) for values in lengths.values())
    bins = np.linspace(0, longest, 60)
    for color, (label, values) in zip(RANK_COLORS, lengths.items(), strict=False):
        cut, share = cuts.get(label), ""
        if cut is not None:
            share = f", {np.mean(np.asarray(values) > cut):.0%} cut at {cut}"
            if cut <= 1.1 * longest:
                ax.axvline(cut, color=color, linestyle="--")
        ax.hist(values, bins, color=color, alpha=0.75, label=f"{label}{share}")
    ax.set(xlabel="tokens", ylabel="stories")
    legend_outside(ax)
    return ax


def scores(results: dict, names: dict, ax=None, figsize=None):
    """Bars of scores with their intervals: a group of bars per label, a colour per score.

    results: label -> {name: [low, mean, high]}, in percent. names: name -> in words.
    """
    ax = new_axes(ax, figsize, (8.0, max(1.4, 0.5 + 0.22 * len(results) * (len(names) + 1))))
    height = 0.8 / len(names)
    for index, (name, words) in enumerate(names.items()):
        low, mean, high = np.array([result[name] for result in results.values()]).T
        y = np.arange(len(results)) + (index - (len(names) - 1) / 2) * height
        ax.barh(y, mean, height, color=RANK_COLORS[index], label=words)
        style = {"fmt": "none", "color": INK, "linewidth": 1, "capsize": 2}
        ax.errorbar(mean, y, xerr=[mean - low, high - mean], **style)
        for at, value, end in zip(y, mean, high, strict=True):
            ax.text(end + 1, at, f"{value:.0f}", va="center", fontsize="x-small")
    ax.set(yticks=range(len(results)), yticklabels=list(results), xlim=(0, 108))
    ax.set_xlabel("percent; lines: 95 % intervals")
    ax.invert_yaxis()
    ax.grid(True, axis="x")
    legend_outside(ax, reverse=False)
    return ax
