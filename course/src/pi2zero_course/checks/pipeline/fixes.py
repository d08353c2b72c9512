"""The checks of lab 6's second half: a colleague's three bugs, each fixed in a function of its
own."""

import re
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from mpi4py import MPI

from pi2zero_course.checks.framework.agree import agree
from pi2zero_course.checks.framework.answers import CheckError, call_answer
from pi2zero_course.checks.framework.task import LabTask, lab_task
from pi2zero_course.checks.framework.values import join_words
from pi2zero_course.checks.pipeline.steps import (
    CASES,
    TOLERANCE,
    WIDTH,
    Step,
    idle_share,
    most_held,
)

Task = partial(LabTask, lab=6)
# Ranks, micro-batches, most held.
LIMITS = [(4, 7, 2), (4, 5, 3), (4, 9, 4), (3, 6, 2), (2, 5, 2), (4, 5, 1), (4, 2, 8), (1, 3, 2)]


def one_f_one_b(rank, size, micro, most=99):
    """A rank's order of 1F1B, "F" and "B" for each of `micro` micro-batches, with at most `most`
    of them held at once."""
    ahead = min(size - 1 - rank, micro, most - 1)
    return "F" * ahead + "FB" * (micro - ahead) + "B" * ahead


def mean_loss(y, labels, n):
    """A micro-batch's part of the mean loss of n images. y: its logits, (rows, classes)."""
    return F.cross_entropy(y, labels, reduction="sum") / n


def fresh(comm, buffer, rows):
    """What the rank before sends, in memory of its own: (rows, as wide as the buffer), with a
    gradient to come."""
    memory = np.empty((rows, buffer.shape[1]))
    comm.Recv(memory, source=comm.rank - 1)
    return torch.from_numpy(memory).requires_grad_()


def train(comm, stage, images, labels, micro, row, receive=fresh, loss_of=mean_loss):
    """The lab's `train`: a step in the order of `row`, with the pieces that the tasks fix."""
    parts = zip(images.tensor_split(micro), labels.tensor_split(micro), strict=True)
    buffer = torch.zeros(-(-len(images) // micro), WIDTH, dtype=torch.double)
    waiting, sent, total = [], [], 0.0
    for kind in row:
        if kind == "F":
            x, targets = next(parts)
            x = _usable(receive(comm, buffer, len(x)), len(x)) if comm.rank > 0 else x
            waiting.append((x, y := stage(x), targets))
            if comm.rank + 1 < comm.size:
                sent.append(comm.Isend(y.detach().numpy(), comm.rank + 1))
            continue
        x, y, targets = waiting.pop(0)
        if comm.rank + 1 < comm.size:
            gradient = torch.empty_like(y)
            comm.Recv(gradient.numpy(), source=comm.rank + 1)
            y.backward(gradient)
        else:
            loss = _differentiable(loss_of(y, targets, len(images)))
            loss.backward()
            total += loss.item()
        if comm.rank > 0:
            sent.append(comm.Isend(x.grad.numpy(), comm.rank - 1))
    MPI.Request.Waitall(sent)
    return total


def _usable(x, rows):
    if not isinstance(x, torch.Tensor) or x.shape != (rows, WIDTH):
        got = f"a tensor of shape {tuple(x.shape)}" if isinstance(x, torch.Tensor) else repr(x)
        raise CheckError(
            f"receive returned {got}; the {rows} rows of {WIDTH} values that have come are due."
        )
    if not x.requires_grad:
        raise CheckError(
            "what receive returns has no requires_grad: so backward finds no gradient for the rank "
            "before."
        )
    if not x.is_leaf:
        raise CheckError(
            "what receive returns was made of a tensor with requires_grad: copy first, "
            "requires_grad_() last."
        )
    return x


def _differentiable(loss):
    if loss is None:
        raise CheckError("the loss is None. Is the `return` missing?")
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        raise CheckError(
            f"the loss is {loss!r}; a tensor of one value is due, with its gradient: no .item(), "
            "no .detach()."
        )
    return loss


def _with_loss(loss_of, comm, stage, images, labels, micro):
    order = one_f_one_b(comm.rank, comm.size, micro)
    return train(comm, stage, images, labels, micro, order, loss_of=loss_of)


# loss_of(y, labels, n) -> a micro-batch's part of the mean loss of all n images
loss_of = Task(
    number=5,
    name="loss_of",
    cases=CASES,
    on_ranks=Step(run=_with_loss),
    verified=f"One process's gradients and loss to {TOLERANCE:g} on {{ranks}} ranks, also where "
    "micro-batches are uneven.",
)


def _with_receive(receive, comm, stage, images, labels, micro):
    order = one_f_one_b(comm.rank, comm.size, micro)
    return train(comm, stage, images, labels, micro, order, receive=receive)


# receive(comm, buffer, rows) -> a micro-batch's activations from the rank before, which nothing
# may write over
receive = Task(
    number=6,
    name="receive",
    cases=[*CASES, (6, 1)],
    on_ranks=Step(run=_with_receive),
    verified=f"One process's gradients to {TOLERANCE:g} on {{ranks}} ranks, however many "
    "micro-batches are held.",
)


@lab_task(6, 7)
def row(function):
    """row(rank, size, micro, most) -> a text of F and B: a rank's order, in which it holds `most`
    micro-batches at most."""
    for limits in LIMITS:
        agree(_judge_row, function, *limits)

    def run(function, comm, stage, images, labels, micro):
        order = function(comm.rank, comm.size, micro, 2)
        return train(comm, stage, images, labels, micro, order)

    sizes = Step(run=run, most_held=lambda rank, size, micro: 2)(function, CASES)
    return (
        f"No deadlock, and least idle with what may be held, in {len(LIMITS)} cases; run on "
        f"{join_words(sizes)} ranks."
    )


def _judge_row(function, size, micro, most):
    rows = []
    for rank in range(size):
        called = (
            f"with {size} rank{'s' * (size > 1)}, {micro} micro-batches and at most {most} held, "
            f"rank {rank}"
        )
        kinds = call_answer(function, rank, size, micro, most)
        if kinds is None:
            raise CheckError(f"{called} got None. Is the `return` missing?")
        kinds = "".join(kinds) if isinstance(kinds, list | tuple) else kinds
        if not isinstance(kinds, str) or set(kinds) - {"F", "B"}:
            raise CheckError(f"{called} got {kinds!r}; a text of F and B is due.")
        if (kinds.count("F"), kinds.count("B")) != (micro, micro):
            raise CheckError(
                f"{called} does {kinds.count('F')} forwards, {kinds.count('B')} backwards; {micro} "
                "of each are due."
            )
        if any(kinds[:end].count("B") > kinds[:end].count("F") for end in range(len(kinds))):
            raise CheckError(f"{called} does {kinds}: a backward before its forward.")
        rows.append(_numbered(rank, kinds))
        if most_held(rows[-1]) > most:
            raise CheckError(
                f"{called} does {kinds}: it holds {most_held(rows[-1])} micro-batches at once."
            )
    _judge_together(rows, size, micro, most)


def _judge_together(rows, size, micro, most):
    case = f"with {size} ranks, {micro} micro-batches and at most {most} held"
    table = "\n".join(
        f"rank {rank}: {''.join(kind for _, kind, _ in row)}" for rank, row in enumerate(rows)
    )
    try:
        idle = idle_share(rows)
    except ValueError as error:
        waits = [
            f"rank {r} before {k}{i}"
            for r, k, i in re.findall(r"rank \d+ with (\d+)([FB])(\d+)", str(error))
        ]
        raise CheckError(
            f"{case}, this would hang: all wait for each other, {', '.join(waits)}.\n{table}\n"
            "A rank's backward needs the next ranks to have worked: which rank has to run "
            "furthest ahead?"
        ) from None
    due = [_numbered(rank, one_f_one_b(rank, size, micro, most)) for rank in range(size)]
    if idle > (least := idle_share(due)) + 1e-9:
        raise CheckError(
            f"{case}, the ranks are idle for {idle:.1%} of the time; {least:.1%} is "
            f"possible.\n{table}\n"
            "Run ahead as far as the next ranks can use it and the memory allows."
        )


def _numbered(rank, kinds):
    """As "FFBB" -> its actions with the number of the micro-batch, the oldest first."""
    return [(rank, kind, kinds[:place].count(kind)) for place, kind in enumerate(kinds)]
