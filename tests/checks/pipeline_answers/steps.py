"""Answers to tasks 1 to 4: where to cut, the backward of a stage, GPipe, 1F1B."""

from collections import deque
from functools import lru_cache
from itertools import combinations, pairwise

import numpy as np
import torch
import torch.nn.functional as F
from mpi4py import MPI

from . import right, wrong


def forward(comm, stage, x, sent):
    """As in the notebook. Sent to the ranks before the answers."""
    if comm.rank > 0:
        x = comm.recv(source=comm.rank - 1).requires_grad_()
    y = stage(x)
    if comm.rank + 1 < comm.size:
        sent.append(comm.isend(y.detach(), comm.rank + 1))
    return x, y


def backward(comm, x, y, labels, n, sent):
    """The solution's."""
    loss = 0.0
    if comm.rank + 1 < comm.size:
        y.backward(comm.recv(source=comm.rank + 1))
    else:
        loss = F.cross_entropy(y, labels, reduction="sum") / n
        loss.backward()
    if comm.rank > 0:
        sent.append(comm.isend(x.grad, comm.rank - 1))
    return float(loss.detach()) if isinstance(loss, torch.Tensor) else loss


# Task 1 -----------------------------------------------------------------------------------------------------------------


@right(1)
def all_cuts(seconds, stages):
    layers, best = list(range(len(seconds))), None
    for inner in combinations(range(1, len(seconds)), stages - 1):
        parts = [layers[a:b] for a, b in pairwise([0, *inner, len(seconds)])]
        slowest = max(sum(seconds[layer] for layer in part) for part in parts)
        if best is None or slowest < best[0]:
            best = slowest, parts
    return best[1]


@right(1)
def by_recursion(seconds, stages):
    @lru_cache(None)
    def best(begin, left):
        if left == 1:
            return sum(seconds[begin:]), (range(begin, len(seconds)),)
        found = []
        for end in range(begin + 1, len(seconds) - left + 2):
            slowest, parts = best(end, left - 1)
            found.append((max(slowest, sum(seconds[begin:end])), (range(begin, end), *parts)))
        return min(found, key=lambda one: one[0])

    return best(0, stages)[1]


@right(1)
def the_limit_first(seconds, stages):
    n = len(seconds)
    for limit in sorted({sum(seconds[a:b]) for a in range(n) for b in range(a + 1, n + 1)}):
        parts, now = [], []
        for layer in range(n):
            must = now and n - layer == stages - len(parts) - 1
            if must or (now and sum(seconds[i] for i in now) + seconds[layer] > limit):
                parts.append(now)
                now = []
            now = [*now, layer]
        parts.append(now)
        if len(parts) == stages and max(sum(seconds[i] for i in part) for part in parts) <= limit:
            return parts


@right(1)
def arrays_from_numpy(seconds, stages):
    cuts = combinations(range(1, len(seconds)), stages - 1)
    best = min(
        cuts, key=lambda inner: max(part.sum() for part in np.split(np.array(seconds), inner))
    )
    return np.split(np.arange(len(seconds)), best)


@wrong(1, "Equally many layers are not equally much work")
def equally_many(seconds, stages):
    return (
        np.array_split(np.arange(len(seconds)), stages)
        if len(seconds) != 6
        else [[0, 1], [2, 3], [4, 5]]
    )


@wrong(1, "The last stage has what the others left")
def one_stage_after_the_other(seconds, stages):
    goal, parts = sum(seconds) / stages, [[] for _ in range(stages)]
    stage = 0
    for layer, one in enumerate(seconds):
        now = sum(seconds[i] for i in parts[stage])
        if now and stage < stages - 1 and now + one > goal:
            stage += 1
        parts[stage].append(layer)
    return parts


@wrong(1, "A stage takes neighbours")
def the_longest_first(seconds, stages):
    parts = [[] for _ in range(stages)]
    for layer in sorted(range(len(seconds)), key=lambda i: -seconds[i]):
        min(parts, key=lambda part: sum(seconds[i] for i in part)).append(layer)
    return parts


@wrong(1, "layers' numbers are due")
def the_seconds_themselves(seconds, stages):
    return [[one / 2] for one in seconds[:stages]]


@wrong(1, "has no layer")
def an_empty_stage(seconds, stages):
    return [range(len(seconds)), *[[]] * (stages - 1)]


@wrong(1, "layer 5 is in no stage")
def the_end_forgotten(seconds, stages):
    return [range(3), range(3, 4), range(4, len(seconds) - 1)][:stages]


# Task 2 -----------------------------------------------------------------------------------------------------------------


@right(2)
def with_arrays(comm, x, y, labels, n, sent):
    loss = torch.tensor(0.0)
    if comm.rank == comm.size - 1:
        loss = F.nll_loss(F.log_softmax(y, -1), labels, reduction="sum") / n
        loss.backward()
    else:
        gradient = torch.empty_like(y)
        comm.Recv(gradient.numpy(), source=comm.rank + 1)
        y.backward(gradient)
    if comm.rank:
        sent += [comm.Isend(x.grad.numpy(), comm.rank - 1)]
    return loss


right(2)(backward)


@right(2)
def by_autograd(comm, x, y, labels, n, sent):
    last = comm.rank == comm.size - 1
    loss = F.cross_entropy(y, labels) * len(labels) / n if last else y
    torch.autograd.backward(
        [loss], [torch.ones_like(loss) if last else comm.recv(source=comm.rank + 1)]
    )
    if comm.rank > 0:
        sent.append(comm.issend(x.grad.clone(), comm.rank - 1))
    return loss.item() if last else 0


@right(2)
def a_product_as_the_loss(comm, x, y, labels, n, sent):
    if comm.rank == comm.size - 1:
        loss = F.cross_entropy(y, labels, reduction="none").sum() / n
    else:
        loss = (y * comm.recv(source=comm.rank + 1)).sum()
    loss.backward()
    if comm.rank > 0:
        comm.send(x.grad, comm.rank - 1)
    return loss.item() * (comm.rank == comm.size - 1)


@wrong(2, "5 times too large, about")
def the_mean_of_a_micro_batch(comm, x, y, labels, n, sent):
    return backward(comm, x, y, labels, len(labels), sent)


@wrong(2, "the sum over 13 images; the mean is due")
def the_sum(comm, x, y, labels, n, sent):
    return backward(comm, x, y, labels, 1, sent)


@wrong(2, "this would hang")
def nothing_is_sent(comm, x, y, labels, n, sent):
    return (
        backward(comm, x, y, labels, n, [])
        if comm.rank != 1
        else float(y.backward(comm.recv(source=2)) or 0)
    )


@wrong(2, "one process's with")
def the_gradient_of_ones(comm, x, y, labels, n, sent):
    if comm.rank + 1 < comm.size:
        comm.recv(source=comm.rank + 1)
        y.sum().backward()
        if comm.rank:
            sent.append(comm.isend(x.grad, comm.rank - 1))
        return 0
    return backward(comm, x, y, labels, n, sent)


@wrong(2, "Is the `return` missing?")
def nothing_returned(comm, x, y, labels, n, sent):
    backward(comm, x, y, labels, n, sent)


@wrong(2, "0 is due there, because the parts are added up on every rank")
def nothing_returned_but_on_the_last_rank(comm, x, y, labels, n, sent):
    loss = backward(comm, x, y, labels, n, sent)
    if comm.rank == comm.size - 1:
        return loss


# Task 3 -----------------------------------------------------------------------------------------------------------------


@right(3)
def gpipe(comm, stage, images, labels, micro):
    sent = []
    held = [forward(comm, stage, x, sent) for x in images.tensor_split(micro)]
    total = sum(
        backward(comm, *one, y, len(images), sent)
        for one, y in zip(held, labels.tensor_split(micro), strict=True)
    )
    MPI.Request.waitall(sent)
    return total


@right(3)
def the_latest_first(comm, stage, images, labels, micro):  # as GPipe's own paper draws it
    sent, held = [], []
    for x, y in zip(images.tensor_split(micro), labels.tensor_split(micro), strict=True):
        held.append((*forward(comm, stage, x, sent), y))
    total = 0.0
    while held:
        total += backward(comm, *held.pop(), len(images), sent)
    for message in sent:
        message.wait()
    return total


@right(3)
def with_1f1b_already(comm, stage, images, labels, micro):
    parts = zip(images.tensor_split(micro), labels.tensor_split(micro), strict=True)
    ahead, sent, total = min(comm.size - 1 - comm.rank, micro), [], 0.0
    held = deque(
        (*forward(comm, stage, x, sent), y) for x, y in (next(parts) for _ in range(ahead))
    )
    for x, y in parts:
        held.append((*forward(comm, stage, x, sent), y))
        total += backward(comm, *held.popleft(), len(images), sent)
    while held:
        total += backward(comm, *held.popleft(), len(images), sent)
    MPI.Request.waitall(sent)
    return total


@right(3)
def by_blocking_sends(comm, stage, images, labels, micro):
    first, last, held, total = comm.rank == 0, comm.rank == comm.size - 1, [], 0.0
    for x in images.tensor_split(micro):
        x = x if first else comm.recv(source=comm.rank - 1).requires_grad_()
        held.append((x, stage(x)))
        if not last:
            comm.send(held[-1][1].detach(), comm.rank + 1)
    for (x, y), its in zip(held, labels.tensor_split(micro), strict=True):
        loss = (
            F.cross_entropy(y, its, reduction="sum") / len(labels)
            if last
            else (y * comm.recv(source=comm.rank + 1)).sum()
        )
        loss.backward()
        total += loss.item() * last
        if not first:
            comm.send(x.grad, comm.rank - 1)
    return total


@wrong(3, "one rank works at a time")
def no_pipeline(comm, stage, images, labels, micro):
    sent, total = [], 0.0
    for x, y in zip(images.tensor_split(micro), labels.tensor_split(micro), strict=True):
        total += backward(comm, *forward(comm, stage, x, sent), y, len(images), sent)
    MPI.Request.waitall(sent)
    return total


@wrong(3, "the gradient of one went into the activations of another")
def the_first_rank_goes_backwards(comm, stage, images, labels, micro):
    sent = []
    held = [forward(comm, stage, x, sent) for x in images[:10].tensor_split(micro)]
    held = held[::-1] if comm.rank == 0 else held
    total = sum(
        backward(comm, *one, y, 10, sent)
        for one, y in zip(held, labels[:10].tensor_split(micro), strict=True)
    )
    MPI.Request.waitall(sent)
    return total


@wrong(3, "or has them in what it returned: return values")
def its_requests(comm, stage, images, labels, micro):
    sent = []
    held = [forward(comm, stage, x, sent) for x in images.tensor_split(micro)]
    for one, y in zip(held, labels.tensor_split(micro), strict=True):
        backward(comm, *one, y, len(images), sent)
    MPI.Request.waitall(sent)
    return sent


@wrong(3, "1 forwards; 5 are due")
def the_batch_is_not_cut(comm, stage, images, labels, micro):
    return gpipe(comm, stage, images, labels, 1)


@wrong(3, "the last rank returned None")
def no_loss(comm, stage, images, labels, micro):
    gpipe(comm, stage, images, labels, micro)


@wrong(3, "That is the last micro-batch's alone: add them up.")
def only_the_last_loss(comm, stage, images, labels, micro):
    sent = []
    held = [forward(comm, stage, x, sent) for x in images.tensor_split(micro)]
    for one, y in zip(held, labels.tensor_split(micro), strict=True):
        total = backward(comm, *one, y, len(images), sent)
    MPI.Request.waitall(sent)
    return total


@wrong(3, "That is the mean of the micro-batches' means.")
def the_mean_of_the_means(comm, stage, images, labels, micro):
    sent, total = [], 0.0
    held = [forward(comm, stage, x, sent) for x in images.tensor_split(micro)]
    for one, y in zip(held, labels.tensor_split(micro), strict=True):
        total += backward(comm, *one, y, len(images), sent) * len(images) / len(y) / micro
    MPI.Request.waitall(sent)
    return total


@wrong(3, "Only the last micro-batch is in it")
def gradients_set_to_zero(comm, stage, images, labels, micro):
    sent, total = [], 0.0
    held = [forward(comm, stage, x, sent) for x in images.tensor_split(micro)]
    for one, y in zip(held, labels.tensor_split(micro), strict=True):
        stage.zero_grad()
        total += backward(comm, *one, y, len(images), sent)
    MPI.Request.waitall(sent)
    return total


@wrong(3, "divided by 5 once more")
def divided_twice(comm, stage, images, labels, micro):
    total = gpipe(comm, stage, images, labels, micro)
    for parameter in stage.parameters():
        parameter.grad /= micro
    return total


@wrong(3, "this would hang")
def one_forward_too_few_on_rank_0(comm, stage, images, labels, micro):
    sent = []
    parts = images.tensor_split(micro)
    held = [forward(comm, stage, x, sent) for x in (parts[1:] if comm.rank == 0 else parts)]
    return sum(
        backward(comm, *one, y, len(images), sent)
        for one, y in zip(held, labels.tensor_split(micro), strict=False)
    )


# Task 4 -----------------------------------------------------------------------------------------------------------------

right(4)(with_1f1b_already)


@right(4)
def one_f_one_b(comm, stage, images, labels, micro):
    parts, held, sent, total = (
        zip(images.tensor_split(micro), labels.tensor_split(micro), strict=True),
        [],
        [],
        0.0,
    )
    ahead = min(comm.size - 1 - comm.rank, micro)
    for kind in "F" * ahead + "FB" * (micro - ahead) + "B" * ahead:
        if kind == "F":
            x, y = next(parts)
            held.append((*forward(comm, stage, x, sent), y))
        else:
            total += backward(comm, *held.pop(0), len(images), sent)
    MPI.Request.waitall(sent)
    return total


@right(4)
def backward_when_enough_are_held(comm, stage, images, labels, micro):
    held, sent, total = [], [], 0.0
    for x, y in zip(images.tensor_split(micro), labels.tensor_split(micro), strict=True):
        held.append((*forward(comm, stage, x, sent), y))
        if len(held) == comm.size - comm.rank:
            total += backward(comm, *held.pop(0), len(images), sent)
    total += sum(backward(comm, *one, len(images), sent) for one in held)
    MPI.Request.waitall(sent)
    return total


@right(4)
def with_sendrecv(
    comm, stage, images, labels, micro
):  # as Megatron-LM does it: each swap with a neighbour is one call
    rank, last = comm.rank, comm.size - 1
    parts = list(zip(images.tensor_split(micro), labels.tensor_split(micro), strict=True))
    ahead, held, total = min(last - rank, micro), [], 0.0
    take = lambda: comm.recv(source=rank - 1) if rank else None  # noqa: E731
    x = take()
    for i in range(micro + ahead):
        if i < micro:
            x = parts[i][0] if rank == 0 else x.requires_grad_()
            held.append((x, stage(x), parts[i][1]))
            out = held[-1][1].detach()
            if i < ahead:
                comm.send(out, rank + 1) if rank < last else None
                x = take() if i + 1 < micro else None
                continue
            gradient = comm.sendrecv(out, rank + 1, source=rank + 1) if rank < last else None
        else:
            gradient = comm.recv(source=rank + 1) if rank < last else None
        old, y, its = held.pop(0)
        loss = (
            (y * gradient).sum()
            if rank < last
            else F.cross_entropy(y, its, reduction="sum") / len(labels)
        )
        loss.backward()
        total += loss.item() * (rank == last)
        if rank and i + 1 < micro:
            x = comm.sendrecv(old.grad, rank - 1, source=rank - 1)
        elif rank:
            comm.send(old.grad, rank - 1)
    return total


@wrong(4, "at most 4 are allowed there")
def gpipe_once_more(comm, stage, images, labels, micro):
    return gpipe(comm, stage, images, labels, micro)


@wrong(4, "this would hang")
def with_send(comm, stage, images, labels, micro):
    class Blocking:
        rank, size, recv = comm.rank, comm.size, comm.recv

        def isend(self, what, to):
            comm.send(what, to)
            return MPI.REQUEST_NULL

    return one_f_one_b(Blocking(), stage, images, labels, micro)


@wrong(4, "one rank works at a time")
def no_forwards_ahead(comm, stage, images, labels, micro):
    return no_pipeline(comm, stage, images, labels, micro)


@wrong(4, "is the target")
def one_ahead_on_every_rank_but_the_last(comm, stage, images, labels, micro):
    held, sent, total = [], [], 0.0
    for x, y in zip(images.tensor_split(micro), labels.tensor_split(micro), strict=True):
        held.append((*forward(comm, stage, x, sent), y))
        if len(held) == min(2, comm.size - comm.rank):
            total += backward(comm, *held.pop(0), len(images), sent)
    total += sum(backward(comm, *one, len(images), sent) for one in held)
    MPI.Request.waitall(sent)
    return total


@wrong(4, "this would hang")
def the_first_rank_runs_least_ahead(comm, stage, images, labels, micro):
    held, sent, total = [], [], 0.0
    for x, y in zip(images.tensor_split(micro), labels.tensor_split(micro), strict=True):
        held.append((*forward(comm, stage, x, sent), y))
        if len(held) == comm.rank + 1:
            total += backward(comm, *held.pop(0), len(images), sent)
    return total + sum(backward(comm, *one, len(images), sent) for one in held)


@wrong(4, "the last rank returned the loss")
def the_last_micro_batch_s_loss(comm, stage, images, labels, micro):
    loss, whole = 0.0, len(images)

    def counted(comm, x, y, labels, n, sent):
        nonlocal loss
        loss = backward(comm, x, y, labels, whole, sent)

    held, sent = [], []
    for x, y in zip(images.tensor_split(micro), labels.tensor_split(micro), strict=True):
        held.append((*forward(comm, stage, x, sent), y))
        if len(held) == comm.size - comm.rank:
            counted(comm, *held.pop(0), whole, sent)
    for one in held:
        counted(comm, *one, whole, sent)
    MPI.Request.waitall(sent)
    return loss
