"""The checks of the blanks in notebooks 11 and 11a that stay in the notebook's kernel."""

import inspect

import numpy as np

from pi2zero import costs
from pi2zero_course.checks.framework.answers import CheckError, call_answer
from pi2zero_course.checks.framework.task import Blank, blank
from pi2zero_course.checks.framework.values import show

# bubble(p, m) -> the share of all ranks' time that is idle, for p ranks and m micro-batches
bubble = Blank(
    name="bubble",
    reference=lambda p, m: float(costs.pipeline_bubble(p, m)),
    cases=[(4, 8), (4, 1), (7, 5), (1, 3)],
    mistakes={
        "That is the share in which a rank is busy.": lambda p, m: m / (m + p - 1),
        "Divide by the whole time: a rank's m micro-batches, and what it waits for.": (
            lambda p, m: (p - 1) / m
        ),
        "The whole takes as long as m + p - 1 micro-batches: the first rank begins at once.": (
            lambda p, m: (p - 1) / (m + p)
        ),
        "The first rank begins at once: p - 1 micro-batches pass until the last one does.": (
            lambda p, m: p / (m + p)
        ),
        "That is without micro-batches, for m = 1.": lambda p, m: 1 - 1 / p,
    },
    verified="With more micro-batches it goes to 0, with more ranks to 1.",
)


@blank
def one_f_one_b(function):
    """one_f_one_b(stage, stages, micro) -> the row of a stage: (stage, "F" or "B", micro-batch) in
    order."""
    for stages, micro in ((4, 8), (4, 2), (3, 3), (1, 4)):
        for stage in range(stages):
            row = call_answer(function, stage, stages, micro)
            called = f"one_f_one_b({stage}, {stages}, {micro})"
            _complete(called, row, stage, micro)
            _in_turn(called, row, stage, stages, micro)
    return (
        "Each stage runs as few forwards ahead as it can, then one forward, one backward; tried "
        "with 1, 3 and 4 stages."
    )


def _complete(called, row, stage, micro):
    """Each micro-batch once forward, then once backward."""
    if row is None:
        raise CheckError(f"{called} returned None. Is the `return` missing?")
    if inspect.isgenerator(row):
        raise CheckError(
            f"{called} gives a generator, which can be read only once: return a list of the "
            "actions."
        )
    try:
        row = [(number, kind, i) for number, kind, i in row]
    except (TypeError, ValueError):
        raise CheckError(
            f'{called} gives {show(row)}; a list of (stage, "F" or "B", micro-batch) is due.'
        ) from None
    due = {(stage, kind, i) for kind in "FB" for i in range(micro)}
    if wrong := [action for action in row if action not in due]:
        raise CheckError(
            f"{called} has {show(wrong[0])}; it has to be one of stage {stage} and micro-batches 0 "
            f"to {micro - 1}."
        )
    if missing := sorted(due - set(row), key=str):
        raise CheckError(f"{called} never does {show(missing[0])}.")
    if len(row) != len(due):
        raise CheckError(
            f"{called} has {len(row)} actions; {micro} forwards and {micro} backwards are due."
        )


def _in_turn(called, row, stage, stages, micro):
    kinds, ahead = "".join(kind for _, kind, _ in row), min(stages - 1 - stage, micro)
    for kind in "FB":
        if (order := [i for _, other, i in row if other == kind]) != list(range(micro)):
            raise CheckError(
                f"{called} does {kind} of micro-batches {order}; all ranks take them in their "
                "order."
            )
    first = kinds.index("B")
    most = min(ahead + 1, micro)
    if first > most:
        raise CheckError(
            f"{called} does {first} forwards before its first backward, so it holds {first}; "
            f"{most} are enough: {ahead} to fill the stages behind it, and one."
        )
    if first < most:
        raise CheckError(
            f"{called} does {first} forward{'s' * (first != 1)} before its first backward; the "
            f"gradient of that is not there before the {stages - 1 - stage} stages behind it have "
            f"worked, and meanwhile it waits: {most} are due."
        )
    if kinds != "F" * ahead + "FB" * (micro - ahead) + "B" * ahead:
        raise CheckError(
            f"{called} is {kinds}; after {ahead} forwards it has to be F and B in turn, then the "
            "rest of the backwards."
        )


def _attention(scores, values, blocks=None):
    weights = np.exp(scores - scores.max())
    return float(weights @ values / weights.sum())


def _unscaled(scores, values, blocks):
    m, total, o = -np.inf, 0.0, 0.0
    for block in blocks:
        m = max(m, scores[block].max())
        weights = np.exp(scores[block] - m)
        total, o = total + weights.sum(), o + weights @ values[block]
    return float(o / total)


_RNG = np.random.default_rng(3)
_SCORES, _VALUES = _RNG.normal(size=12) * 5, _RNG.normal(size=12)
_HALVES, _THIRDS = np.split(np.arange(12), [5]), np.split(np.arange(12), [4, 7])

# by_blocks(scores, values, blocks) -> softmax(scores) @ values, taken block by block; blocks:
# lists of places
by_blocks = Blank(
    name="by_blocks",
    reference=_attention,
    cases=[
        (_SCORES, _VALUES, _THIRDS),
        (np.sort(_SCORES), _VALUES, _HALVES),
        (_SCORES + 800, _VALUES, _THIRDS),
    ],
    mistakes={
        "When a larger score comes, what was added up before it is too large: scale the sum and o "
        "by exp(m - new).": _unscaled,
        "That is the mean of the blocks' own results; a block with large scores counts more.": (
            lambda s, v, blocks: float(
                np.mean([_attention(s[block], v[block]) for block in blocks])
            )
        ),
        "Divide by the sum of the weights, in the end.": (
            lambda s, v, blocks: _attention(s, v) * float(np.exp(s - s.max()).sum())
        ),
        "Only the last block is in it: add to what the blocks before brought.": (
            lambda s, v, blocks: _attention(s[blocks[-1]], v[blocks[-1]])
        ),
    },
    verified="Block by block it gives what it gives at once, also where exp(score) alone would "
    "overflow.",
)
