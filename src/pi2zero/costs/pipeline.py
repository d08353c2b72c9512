"""Pipelines on paper: when each action of a schedule can begin.

An action is (stage, kind, micro-batch). Kinds: F, forward; B, backward; or B in two parts: I, the gradient of the stage's input,
and W, that of its weights. A plan is a list for each rank: its actions in the order in which it does them.

Sources: Y. Huang et al., "GPipe", NeurIPS 2019, arXiv:1811.06965 (micro-batches, the bubble); D. Narayanan et al., "PipeDream",
SOSP 2019, arXiv:1806.03377 (1F1B); P. Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, arXiv:2401.10241 (I and W).
"""

from pi2zero.costs import valid

__all__ = ["pipeline_bubble", "pipeline_spans"]


def pipeline_bubble(stages, micro_batches, chunks=1):
    """Idle share of the ranks' time in GPipe and 1F1B, and in interleaved 1F1B with several chunks a rank: (p-1) / (v m + p - 1).

    stages: p, ranks of the pipeline. micro_batches: m, 1 or more. chunks: v, stages on each rank. Source: D. Narayanan et al.,
    "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC21, arXiv:2104.04473, section 2.2.
    """
    p, work = (
        valid.ranks(stages),
        valid.positive("chunks", chunks) * valid.positive("micro_batches", micro_batches),
    )
    return (p - 1) / (work + p - 1)


def pipeline_spans(plan, seconds):
    """When each action runs if nothing but the plan makes it wait: for each rank a list of (action, start, stop).

    seconds: function of (stage, kind) that returns an action's time; messages take none. An action begins when its rank is
    free and what it needs is done: F needs F of the stage before, B and I need B or I of the stage after, W its own I.
    Raises ValueError if the ranks wait for each other for ever.
    """
    left, spans, done = [list(row) for row in plan], [[] for _ in plan], {}
    last = max(stage for row in plan for stage, _, _ in row)
    while any(left):
        moved = False
        for row, mine in zip(left, spans, strict=True):
            while row and (need := _need(row[0], last)) in {None, *done}:
                action = row.pop(0)
                begin = max(done.get(need, 0), mine[-1][2] if mine else 0)
                done[action] = begin + seconds(*action[:2])
                if action[1] == "B":  # a whole backward brings the gradient of the input, too
                    done[action[0], "I", action[2]] = done[action]
                mine.append((action, begin, done[action]))
                moved = True
        if not moved:
            waits = [
                f"rank {rank} with {_name(row[0])} for {_name(_need(row[0], last))}"
                for rank, row in enumerate(left)
                if row
            ]
            raise ValueError(
                f"plan: a deadlock, because {', '.join(waits)} wait for ever. Change the order of the actions."
            )
    return spans


def _need(action, last):
    """The action that has to be done before this one, on any rank; None if there is none."""
    stage, kind, micro = action
    if kind == "F":
        return (stage - 1, "F", micro) if stage > 0 else None
    if kind == "W":
        return stage, "I", micro
    return (stage + 1, "I", micro) if stage < last else (stage, "F", micro)


def _name(action):
    return "{}{}{}".format(*action)
