"""The checks of lab 6's tasks 2 to 4: the backward of a stage, GPipe and 1F1B."""

import torch
from mpi4py import MPI

from pi2zero import costs
from pi2zero_course.checks.framework.base import CheckFailed, listed, number, task
from pi2zero_course.checks.pipeline.judge import TOLERANCE, forward, try_step


def bubble(size, micro):
    """The share of time for which the ranks may idle: (p - 1) / (m + p - 1)."""
    return float(costs.pipeline_bubble(size, micro))


@task(2)
def task2(backward):
    """backward(comm, x, y, labels, n, sent) -> this micro-batch's part of the loss on the last rank, else 0."""

    def step(comm, stage, images, labels, micro):
        sent, total = [], 0.0
        for inputs, targets in zip(
            images.tensor_split(micro), labels.tensor_split(micro), strict=True
        ):
            loss = backward(comm, *forward(comm, stage, inputs, sent), targets, len(images), sent)
            total += _part(loss, comm.rank + 1 == comm.size)
        if missing := [one for one in sent if not hasattr(one, "Wait")]:
            raise CheckFailed(
                f"`sent` has {missing[0]!r} in it: put the request there that comm.isend returns."
            )
        MPI.Request.waitall(sent)
        return total

    sizes = try_step(step, backward)
    return f"Gradients within {TOLERANCE:g} of one process's on {listed(sizes)} ranks, with uneven micro-batches, too."


def _part(loss, last):
    """What backward returned, as a number. last: on the last rank."""
    loss = loss.detach().double().numpy() if isinstance(loss, torch.Tensor) else loss
    if (value := number(loss)) is not None:
        return value
    due = (
        "its part of the loss is due"
        if last
        else "0 is due there, because the parts are added up on every rank"
    )
    why = " Is the `return` missing?" if loss is None else ""
    raise CheckFailed(
        f"backward returned {loss!r} on {'the last rank' if last else 'a rank before the last'}; {due}.{why}"
    )


@task(3)
def task3(gpipe):
    """gpipe(comm, stage, images, labels, micro) -> the loss on the last rank; the gradients are left in the stage."""
    sizes = try_step(gpipe, gpipe, most_idle=bubble, most_held=lambda rank, size, micro: micro)
    return f"One process's gradients on {listed(sizes)} ranks, and no more idle than (p - 1) / (m + p - 1)."


@task(4)
def task4(one_f_one_b):
    """As task 3, with at most p - s micro-batches held on the rank of stage s, also if every send waits for its receiver."""
    sizes = try_step(
        one_f_one_b,
        one_f_one_b,
        most_idle=bubble,
        most_held=lambda rank, size, micro: min(size - rank, micro),
    )
    return f"One process's gradients on {listed(sizes)} ranks, GPipe's bubble, and at most p - s micro-batches held by stage s."
