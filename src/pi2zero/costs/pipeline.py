"""Pipelines on paper: when each action of a schedule can begin.

An action is (stage, kind, micro-batch). Kinds: F, forward; B, backward; or B in two parts: I, the
gradient of the stage's input, and W, that of its weights. A plan is a list for each rank: its
actions in order.

Sources: Y. Huang et al., "GPipe", NeurIPS 2019, arXiv:1811.06965 (micro-batches, the bubble);
D. Narayanan et al., "PipeDream", SOSP 2019, arXiv:1806.03377 (1F1B); P. Qi et al., "Zero Bubble
Pipeline Parallelism", ICLR 2024, arXiv:2401.10241 (I and W).
"""

from pi2zero.costs import valid

__all__ = ["pipeline_bubble", "pipeline_spans"]


def pipeline_bubble(stages, micro_batches, chunks=1):
    """Idle share of the ranks' time in GPipe and in (interleaved) 1F1B: (p-1) / (v m + p - 1).

    stages: p, ranks of the pipeline. micro_batches: m, 1 or more. chunks: v, stages on each rank.
    Source: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters
    Using Megatron-LM", SC21, arXiv:2104.04473, section 2.2.
    """
    p, v = valid.ranks(stages), valid.positive("chunks", chunks)
    return (p - 1) / (v * valid.positive("micro_batches", micro_batches) + p - 1)


def pipeline_spans(plan, seconds):
    """Return for each rank a list of (action, start, stop): when each action runs.

    seconds: function of (stage, kind) that returns an action's time; messages take none. An action
    begins when its rank is free and its dependency is done: F needs F of the previous stage, B and
    I need B or I of the next stage, W its own I. Raises ValueError for a deadlock.
    """
    pending, spans, done = [list(row) for row in plan], [[] for _ in plan], {None: 0}
    last = max(stage for row in plan for stage, _, _ in row)
    while any(pending):
        progress = False
        for row, rank_spans in zip(pending, spans, strict=True):
            while row and (needed := _dependency(row[0], last)) in done:
                action = row.pop(0)
                start = max(done[needed], rank_spans[-1][2] if rank_spans else 0)
                done[action] = stop = start + seconds(*action[:2])
                if action[1] == "B":  # a whole backward pass includes the gradient of the input
                    done[action[0], "I", action[2]] = stop
                rank_spans.append((action, start, stop))
                progress = True
        if not progress:
            waiting = ", ".join(
                f"rank {rank} with {_name(row[0])} for {_name(_dependency(row[0], last))}"
                for rank, row in enumerate(pending)
                if row
            )
            raise ValueError(
                f"plan: a deadlock, because {waiting} wait forever. "
                "Change the order of the actions."
            )
    return spans


def _dependency(action, last):
    """The action that has to be done before this one, on any rank; None if there is none."""
    stage, kind, micro_batch = action
    if kind == "F":
        return (stage - 1, "F", micro_batch) if stage > 0 else None
    if kind == "W":
        return stage, "I", micro_batch
    return (stage + 1, "I", micro_batch) if stage < last else (stage, "F", micro_batch)


def _name(action):
    return "{}{}{}".format(*action)
