"""The checks of lab 6's tasks 1 to 4: where to cut a network, the backward of a stage, GPipe and
1F1B."""

from functools import partial
from itertools import combinations, pairwise

import torch
from mpi4py import MPI

from pi2zero import costs
from pi2zero_course.checks.framework.answers import CheckError, call_answer
from pi2zero_course.checks.framework.task import LabTask
from pi2zero_course.checks.framework.values import as_number, as_text, is_int
from pi2zero_course.checks.pipeline.steps import CASES, TOLERANCE, Step, forward

Task = partial(LabTask, lab=6)


def _judge_cut(function, seconds, stages):
    called, count = f"cut({seconds}, {stages})", len(seconds)
    parts = call_answer(function, list(seconds), stages)
    if parts is None:
        raise CheckError(f"{called} returned None. Is the `return` missing?")
    try:
        parts = [list(part) for part in parts]
    except TypeError:
        raise CheckError(
            f"{called} gives {parts!r}; a list for each stage is due, of layers' numbers: [[0, 1], "
            "[2], ...]."
        ) from None
    if len(parts) != stages:
        raise CheckError(
            f"{called} gives {len(parts)} stages; {stages} are due, one for each rank."
        )
    layers = [layer for part in parts for layer in part]
    if not all(map(is_int, layers)):
        raise CheckError(
            f"{called} gives {parts}; layers' numbers are due, 0 to {count - 1}, not their seconds."
        )
    if [] in parts:
        raise CheckError(
            f"{called}: stage {parts.index([])} has no layer; its rank would only hand on."
        )
    if sorted(layers) == list(range(count)) != layers:
        raise CheckError(
            f"{called}: the layers come in the order {[int(layer) for layer in layers]}. A stage "
            "takes neighbours, in their order."
        )
    if layers != list(range(count)):
        missing = sorted(set(range(count)) - set(layers))
        why = f"layer {missing[0]} is in no stage" if missing else "a layer is in two stages"
        raise CheckError(f"{called} gives {parts}: {why}.")
    times = [sum(seconds[layer] for layer in part) for part in parts]
    cuts = combinations(range(1, count), stages - 1)
    best = min(max(_times(seconds, inner)) for inner in cuts)
    if max(times) > best + 1e-9:
        why = ""
        if len({len(part) for part in parts}) == 1:
            why = "Equally many layers are not equally much work."
        elif max(times) == times[-1]:
            why = (
                "The last stage has what the others left: look at all cuts, not at one stage "
                "after the other."
            )
        raise CheckError(
            f"{called} gives {parts}: the slowest stage takes {as_text(max(times))} s, and all "
            f"wait for it; {as_text(best)} s is possible.\n{why}"
        )


def _times(seconds, inner):
    """The seconds of each stage. inner: the places of the cuts."""
    return [sum(seconds[begin:end]) for begin, end in pairwise([0, *inner, len(seconds)])]


# cut(seconds, stages) -> a list of layers' numbers for each stage, in order; the slowest stage as
# fast as can be
cut = Task(
    number=1,
    name="cut",
    cases=[
        ([4, 1, 1, 1, 1, 4], 3),
        ([1, 2, 3, 4, 5, 6, 7], 3),
        ([5, 1, 1, 1], 4),
        ([3, 9, 2, 2, 2, 9, 3, 1], 4),
        ([0.5, 0.25, 8.0, 0.25, 0.5], 2),
        ([2, 3], 1),
        ([1, 1, 1, 1, 1, 1, 6], 4),
    ],
    judge_case=_judge_cut,
    verified="The slowest stage is as fast as can be in 7 networks of up to 8 layers, on 1 to 4 "
    "stages.",
)


def bubble(size, micro):
    """The share of time for which the ranks may idle: (p - 1) / (m + p - 1)."""
    return float(costs.pipeline_bubble(size, micro))


def _one_micro_batch_after_another(backward, comm, stage, images, labels, micro):
    sent, total = [], 0.0
    for inputs, targets in zip(images.tensor_split(micro), labels.tensor_split(micro), strict=True):
        loss = backward(comm, *forward(comm, stage, inputs, sent), targets, len(images), sent)
        total += loss_part(loss, comm.rank + 1 == comm.size)
    if wrong := [request for request in sent if not hasattr(request, "Wait")]:
        raise CheckError(
            f"`sent` has {wrong[0]!r} in it: put the request there that comm.isend returns."
        )
    MPI.Request.waitall(sent)
    return total


def loss_part(loss, last):
    """What backward returned, as a number. last: on the last rank."""
    loss = loss.detach().double().numpy() if isinstance(loss, torch.Tensor) else loss
    if (value := as_number(loss)) is not None:
        return value
    who, due = "the last rank", "its part of the loss is due"
    if not last:
        who = "a rank before the last"
        due = "0 is due there, because the parts are added up on every rank"
    why = " Is the `return` missing?" if loss is None else ""
    raise CheckError(f"backward returned {loss!r} on {who}; {due}.{why}")


# backward(comm, x, y, labels, n, sent) -> this micro-batch's part of the loss on the last rank,
# else 0
backward = Task(
    number=2,
    name="backward",
    cases=CASES,
    on_ranks=Step(run=_one_micro_batch_after_another),
    verified=f"Gradients within {TOLERANCE:g} of one process's on {{ranks}} ranks, with uneven "
    "micro-batches, too.",
)

# gpipe(comm, stage, images, labels, micro) -> the loss on the last rank; the gradients are left in
# the stage
gpipe = Task(
    number=3,
    name="gpipe",
    cases=CASES,
    on_ranks=Step(most_idle=bubble, most_held=lambda rank, size, micro: micro),
    verified="One process's gradients on {ranks} ranks, and no more idle than (p - 1) / (m + p - "
    "1).",
)

# As gpipe, with at most p - s micro-batches held on the rank of stage s, also if every send waits
# for its receiver
one_f_one_b = Task(
    number=4,
    name="one_f_one_b",
    cases=CASES,
    on_ranks=Step(most_idle=bubble, most_held=lambda rank, size, micro: min(size - rank, micro)),
    verified="One process's gradients on {ranks} ranks, GPipe's bubble, and at most p - s "
    "micro-batches held by stage s.",
)
