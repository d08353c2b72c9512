"""The check of lab 6's task 1: where to cut a network, so that no stage is slower than it has to be."""

from itertools import combinations, pairwise

from pi2zero_course.checks.framework.agree import agree
from pi2zero_course.checks.framework.base import CheckFailed, answer, as_text, is_whole, task

CASES = [
    ([4, 1, 1, 1, 1, 4], 3),
    ([1, 2, 3, 4, 5, 6, 7], 3),
    ([5, 1, 1, 1], 4),
    ([3, 9, 2, 2, 2, 9, 3, 1], 4),
    ([0.5, 0.25, 8.0, 0.25, 0.5], 2),
    ([2, 3], 1),
    ([1, 1, 1, 1, 1, 1, 6], 4),
]


@task(1)
def task1(cut):
    """cut(seconds, stages) -> a list of layers' numbers for each stage, in order; the slowest stage as fast as can be."""
    for seconds, stages in CASES:
        agree(_judge, cut, seconds, stages)
    most = max(len(seconds) for seconds, _ in CASES)
    return f"The slowest stage is as fast as can be in {len(CASES)} networks of up to {most} layers, on 1 to 4 stages."


def _judge(cut, seconds, stages):
    called = f"cut({seconds}, {stages})"
    parts = answer(cut, list(seconds), stages)
    if parts is None:
        raise CheckFailed(f"{called} returned None. Is the `return` missing?")
    try:
        parts = [list(part) for part in parts]
    except TypeError:
        raise CheckFailed(
            f"{called} gives {parts!r}; a list for each stage is due, of layers' numbers: [[0, 1], [2], ...]."
        ) from None
    if len(parts) != stages:
        raise CheckFailed(
            f"{called} gives {len(parts)} stages; {stages} are due, one for each rank."
        )
    if any(not is_whole(layer) for part in parts for layer in part):
        raise CheckFailed(
            f"{called} gives {parts}; layers' numbers are due, 0 to {len(seconds) - 1}, not their seconds."
        )
    if empty := [stage for stage, part in enumerate(parts) if not part]:
        raise CheckFailed(f"{called}: stage {empty[0]} has no layer; its rank would only hand on.")
    _judge_layers(called, [int(layer) for part in parts for layer in part], len(seconds))
    slowest = max(sum(seconds[layer] for layer in part) for part in parts)
    best = min(map(max, map(_times(seconds), combinations(range(1, len(seconds)), stages - 1))))
    if slowest > best + 1e-9:
        why = (
            "Equally many layers are not equally much work."
            if len({len(part) for part in parts}) == 1
            else ""
        )
        if not why and slowest == sum(seconds[layer] for layer in parts[-1]):
            why = "The last stage has what the others left: look at all cuts, not at one stage after the other."
        raise CheckFailed(
            f"{called} gives {parts}: the slowest stage takes {as_text(slowest)} s, and all wait for it; "
            f"{as_text(best)} s is possible.\n{why}"
        )


def _judge_layers(called, layers, count):
    if sorted(layers) == list(range(count)) and layers != sorted(layers):
        raise CheckFailed(
            f"{called}: the layers come in the order {layers}. A stage takes neighbours, in their order."
        )
    if missing := sorted(set(range(count)) - set(layers)):
        raise CheckFailed(f"{called}: layer {missing[0]} is in no stage.")
    if len(layers) > count:
        raise CheckFailed(
            f"{called}: a layer is in two stages, or there is one that the network does not have."
        )


def _times(seconds):
    """A function of the places of the cuts: the seconds of each stage."""
    return lambda inner: [
        sum(seconds[begin:end]) for begin, end in pairwise([0, *inner, len(seconds)])
    ]
