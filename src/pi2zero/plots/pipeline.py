"""Pictures of pipelines: what each rank does when, as planned or as recorded."""

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch, Rectangle

from pi2zero.plots.style import ACTION_COLORS, IDLE, new_axes

__all__ = ["pipeline"]

KINDS = {"F": "forward", "B": "backward", "I": "backward: input", "W": "backward: weights"}


def pipeline(spans, xlabel="time", title=None, until=None, ax=None, figsize=None):
    """What each rank of a pipeline does when: a row a rank, a box an action with the number of its micro-batch; grey is idle.

    spans: for each rank a list of ((stage, kind, micro-batch), start, stop), as from `costs.pipeline_spans` or as recorded.
    The stage that a rank comes to second is paler. until: where the time axis ends; the last stop, if it is not given.
    """
    if not any(map(len, spans)):
        raise ValueError(
            "spans: no action on any rank; give what costs.pipeline_spans returns, or what a run recorded."
        )
    ax = new_axes(ax, figsize, (9.5, 1.2 + 0.42 * len(spans)))
    zero = min(start for row in spans for _, start, _ in row)
    end = until or max(stop for row in spans for _, _, stop in row) - zero
    for y, row in enumerate(spans):
        ax.add_patch(Rectangle((0, y - 0.4), end, 0.8, color=IDLE, linewidth=0))
        stages = list(dict.fromkeys(stage for (stage, _, _), _, _ in row))
        for (stage, kind, micro), start, stop in row:
            color = np.array(to_rgb(ACTION_COLORS[kind]))
            color = color if stages.index(stage) == 0 else 1 - 0.45 * (1 - color)
            box = Rectangle(
                (start - zero, y - 0.4),
                stop - start,
                0.8,
                facecolor=color,
                edgecolor="white",
                linewidth=0.6,
            )
            ax.add_patch(box)
            ink = "black" if color @ (0.3, 0.59, 0.11) > 0.55 else "white"
            middle = (start + stop) / 2 - zero
            ax.text(
                middle,
                y,
                str(micro),
                ha="center",
                va="center",
                color=ink,
                size="x-small",
                clip_on=True,
            )
    ax.set(xlim=(0, end), ylim=(len(spans) - 0.5, -0.5), xlabel=xlabel)
    ax.set_yticks(range(len(spans)), [f"rank {rank}" for rank in range(len(spans))])
    used = [
        kind for kind in KINDS if any(action[1] == kind for row in spans for action, _, _ in row)
    ]
    handles = [Patch(color=ACTION_COLORS[kind], label=KINDS[kind]) for kind in used]
    legend = {"ncols": len(used), "fontsize": "small", "columnspacing": 1, "handlelength": 1}
    ax.legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 1), **legend)
    if title:
        ax.set_title(title, loc="left")
    return ax
