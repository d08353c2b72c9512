"""The checks of the blanks in notebooks 11 and 11a that stay in the notebook's kernel."""

import numpy as np

from pi2zero import costs
from pi2zero_course.checks.framework.task import Blank

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
    },
    verified="With more micro-batches it goes to 0, with more ranks to 1.",
)


def _row(stage, stages, micro, ahead=None):
    """A stage's actions in 1F1B; ahead: how many forwards it runs before the first pair."""
    ahead = min(stages - 1 - stage if ahead is None else ahead, micro)
    kinds = "F" * ahead + "FB" * (micro - ahead) + "B" * ahead
    return [(stage, kind, kinds[:place].count(kind)) for place, kind in enumerate(kinds)]


# one_f_one_b(stage, stages, micro) -> the row of a stage: (stage, "F" or "B", micro-batch) in order
one_f_one_b = Blank(
    name="one_f_one_b",
    reference=_row,
    cases=[
        (stage, stages, micro)
        for stages, micro in ((4, 8), (4, 2), (3, 3), (1, 4))
        for stage in range(stages)
    ],
    mistakes={
        "It runs one forward too far ahead, and keeps one micro-batch more than it has to.": (
            lambda stage, stages, micro: _row(stage, stages, micro, stages - stage)
        ),
        "The gradient of its first micro-batch is not there before the next stages have "
        "worked: it waits. Run stages - 1 - stage forwards ahead.": (
            lambda stage, stages, micro: _row(stage, stages, micro, 0)
        ),
        "That is GPipe: after the forwards that fill the pipeline, F and B take turns.": (
            lambda stage, stages, micro: _row(stage, stages, micro, micro)
        ),
        "In the end, the backwards of the forwards that ran ahead are missing.": (
            lambda stage, stages, micro: _row(stage, stages, micro)[
                : 2 * micro - (stages - 1 - stage)
            ]
        ),
    },
    verified="Each stage runs as few forwards ahead as it can, then one forward, one backward; "
    "tried with 1, 3 and 4 stages.",
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
