"""Answers to lab 6, as learners write them: right ones, and wrong ones with words of the check's
message."""

from collections import deque
from itertools import combinations

import numpy as np
import torch
import torch.nn.functional as F
from lab_answers import LabAnswers
from mpi4py import MPI

SETUP = "from collections import deque\nfrom itertools import combinations"
lab = LabAnswers("06_pipeline", cells=["forward", "at-once", "colleague"], setup=SETUP)
backward = forward = one_f_one_b = None  # the notebook's, on the ranks


@lab.right("cut")
def arrays_from_numpy(seconds, stages):
    cuts = combinations(range(1, len(seconds)), stages - 1)
    best = min(
        cuts, key=lambda inner: max(part.sum() for part in np.split(np.array(seconds), inner))
    )
    return np.split(np.arange(len(seconds)), best)


@lab.wrong("cut", "The last stage has what the others left")
def one_stage_after_the_other(seconds, stages):
    goal, parts = sum(seconds) / stages, [[] for _ in range(stages)]
    stage = 0
    for layer, one in enumerate(seconds):
        now = sum(seconds[i] for i in parts[stage])
        if now and stage < stages - 1 and now + one > goal:
            stage += 1
        parts[stage].append(layer)
    return parts


@lab.wrong("cut", "A stage takes neighbours")
def the_longest_first(seconds, stages):
    parts = [[] for _ in range(stages)]
    for layer in sorted(range(len(seconds)), key=lambda i: -seconds[i]):
        min(parts, key=lambda part: sum(seconds[i] for i in part)).append(layer)
    return parts


lab.wrong_variants(
    "cut",
    (
        "    layers =",
        "    import numpy as np\n    return np.array_split(np.arange(len(seconds)), stages)\n    "
        "layers =",
        "Equally many layers are not equally much work",
    ),
    (
        "    layers =",
        "    return [[one / 2] for one in seconds[:stages]]\n    layers =",
        "layers' numbers are due",
    ),
    (
        "    layers =",
        "    return [range(len(seconds)), *[[]] * (stages - 1)]\n    layers =",
        "has no layer",
    ),
    ("list(range(len(seconds)))", "list(range(len(seconds) - 1))", "layer 5 is in no stage"),
)


@lab.right("backward")
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


lab.wrong_variants(
    "backward",
    ("/ n", "/ len(labels)", "5 times too large, about"),
    (" / n", "", "the sum over 13 images; the mean is due"),
    ("if comm.rank > 0:", "if comm.rank > 1:", "this would hang"),
    (
        "y.backward(comm.recv(source=comm.rank + 1))",
        "comm.recv(source=comm.rank + 1)\n        y.sum().backward()",
        "one process's with",
    ),
    ("return loss.item()", "loss.item()", "Is the `return` missing?"),
    (
        "return loss.item()",
        "if comm.rank + 1 == comm.size:\n        return loss.item()",
        "0 is due there, because the parts are added up on every rank",
    ),
)


@lab.right("gpipe")
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


@lab.right("gpipe", "one_f_one_b")
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


lab.wrong_variants(
    "gpipe",
    (
        "    sent = []",
        "    return one_by_one(comm, stage, images, labels, micro)\n    sent = []",
        "one rank works at a time",
    ),
    (
        "    sent = []",
        "    images, labels, sent = images[:10], labels[:10], []",
        "    total =",
        "    held = held[::-1] if comm.rank == 0 else held\n    total =",
        "the gradient of one went into the activations of another",
    ),
    ("return total", "return sent", "or has them in what it returned: return values"),
    ("return total", "total", "the last rank returned None"),
    (
        "total = sum(backward(comm, *one, y, len(images), sent) for one, y in zip(held, "
        "labels.tensor_split(micro)))",
        "for one, y in zip(held, labels.tensor_split(micro)):\n        total = backward(comm, "
        "*one, y, len(images), sent)",
        "That is the last micro-batch's alone: add them up.",
    ),
    ("sum(backward(", "sum(stage.zero_grad() or backward(", "Only the last micro-batch is in it"),
)


@lab.right("one_f_one_b")
def in_the_order_of_a_text(comm, stage, images, labels, micro):
    parts = zip(images.tensor_split(micro), labels.tensor_split(micro), strict=True)
    held, sent, total = [], [], 0.0
    ahead = min(comm.size - 1 - comm.rank, micro)
    for kind in "F" * ahead + "FB" * (micro - ahead) + "B" * ahead:
        if kind == "F":
            x, y = next(parts)
            held.append((*forward(comm, stage, x, sent), y))
        else:
            total += backward(comm, *held.pop(0), len(images), sent)
    MPI.Request.waitall(sent)
    return total


lab.wrong_variants(
    "one_f_one_b",
    ("== comm.size - comm.rank", "== -1", "at most 4 are allowed there"),
    ("== comm.size - comm.rank", "== 1", "one rank works at a time"),
    ("== comm.size - comm.rank", "== min(2, comm.size - comm.rank)", "is the target"),
    ("== comm.size - comm.rank", "== comm.rank + 1", "this would hang"),
)


@lab.right("loss_of")
def by_log_softmax(y, labels, n):
    return -y.log_softmax(1)[torch.arange(len(y)), labels].sum() / n


lab.wrong_cell("loss_of", "colleagues_loss", "5 times too large, about")

lab.wrong_variants(
    "loss_of",
    (
        'F.cross_entropy(y, labels, reduction="sum") / n',
        "F.cross_entropy(y, labels) / {13: 5, 5: 2}[n]",
        "the mean of the micro-batches' means",
    ),
    ('"sum")', '"sum").item()', "no .item(), no .detach()"),
    ("return ", "", "Is the `return` missing?"),
)


@lab.right("receive")
def torch_copies(comm, buffer, rows):
    into = buffer.numpy()[:rows].copy()
    comm.Recv(into, source=comm.rank - 1)
    return torch.tensor(into, requires_grad=True)


lab.wrong_cell(
    "receive", "colleagues_receive", "only the gradient of its first layer's weight is wrong"
)

lab.wrong_variants(
    "receive",
    ("return x.requires_grad_()", "return x", "has no requires_grad"),
    ("x.requires_grad_()", "x.requires_grad_().clone()", "requires_grad_() last"),
    ("return x.", "return torch.cat([buffer, buffer]).", "rows of 8 values that have come are due"),
)


@lab.right("row")
def a_list_of_letters(rank, size, micro, most):
    first = min(size - rank, micro, most)
    return ["F"] * first + ["B", "F"] * (micro - first) + ["B"] * first


lab.wrong_cell("row", "colleagues_row", "this would hang")

lab.wrong_variants(
    "row",
    (", most - 1", "", "it holds 4 micro-batches at once"),
    ("size - 1 - rank, ", "", "is possible"),
    (
        '"F" * ahead + "FB" * (micro - ahead) + "B" * ahead',
        '"BF" * micro',
        "a backward before its forward",
    ),
    (' + "B" * ahead', "", "7 of each are due"),
)
