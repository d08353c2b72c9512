"""Pictures of pipelines: what each rank does when, as planned or as recorded."""

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from pi2zero.plots.style import ACTION_COLORS, IDLE, add_box, centred_text, ink_on, new_axes

__all__ = ["pipeline"]

KINDS = {"F": "forward", "B": "backward", "I": "backward: input", "W": "backward: weights"}


def pipeline(spans, xlabel="time", title=None, until=None, ax=None, figsize=None):
    """What each rank of a pipeline does when: a box per action with its micro-batch; grey is idle.

    spans: for each rank a list of ((stage, kind, micro-batch), start, stop), as from
    `costs.pipeline_spans` or as recorded. until: where the time axis ends; None: the last stop.
    The second stage of a rank is paler. Raises ValueError if there are no actions.
    """
    if not any(spans):
        raise ValueError(
            "spans: no action on any rank; give what costs.pipeline_spans returns, or what a run "
            "recorded."
        )
    ax = new_axes(ax, figsize, (9.5, 1.2 + 0.42 * len(spans)))
    zero = min(start for row in spans for _, start, _ in row)
    end = until or max(stop for row in spans for _, _, stop in row) - zero
    for y, row in enumerate(spans):
        add_box(ax, 0, y - 0.4, end, 0.8, color=IDLE, linewidth=0)
        first_stage = row[0][0][0] if row else None
        for (stage, kind, micro_batch), start, stop in row:
            color = np.array(to_rgb(ACTION_COLORS[kind]))
            color = color if stage == first_stage else 1 - 0.45 * (1 - color)
            style = {"facecolor": color, "edgecolor": "white", "linewidth": 0.6}
            add_box(ax, start - zero, y - 0.4, stop - start, 0.8, **style)
            style = {"color": ink_on(color), "size": "x-small", "clip_on": True}
            centred_text(ax, (start + stop) / 2 - zero, y, str(micro_batch), **style)
    ax.set(xlim=(0, end), ylim=(len(spans) - 0.5, -0.5), xlabel=xlabel)
    ax.set_yticks(range(len(spans)), [f"rank {rank}" for rank in range(len(spans))])
    used = {kind for row in spans for (_, kind, _), _, _ in row}
    handles = [
        Patch(color=ACTION_COLORS[kind], label=words)
        for kind, words in KINDS.items()
        if kind in used
    ]
    legend = {"ncols": len(handles), "fontsize": "small", "columnspacing": 1, "handlelength": 1}
    ax.legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 1), **legend)
    if title:
        ax.set_title(title, loc="left")
    return ax
