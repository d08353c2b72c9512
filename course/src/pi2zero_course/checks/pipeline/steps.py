"""What lab 6's checks share: a step of a pipeline on real ranks, what its stages recorded, and how
both are judged."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch._dynamo  # loaded at first use, it would take seconds of the answer's time
import torch.nn.functional as F
from torch import nn

from pi2zero import costs
from pi2zero.meters.stages import RecordedStage
from pi2zero_course.checks.framework.answers import CheckError
from pi2zero_course.checks.framework.message_comm import MessageComm
from pi2zero_course.checks.framework.on_ranks import OnRanks
from pi2zero_course.checks.framework.values import as_number, as_text, pick_hint

TOLERANCE = 1e-9  # of a gradient, in float64, compared with one process
WIDTH = 8  # as in the notebook
# Images, micro-batches: the parts are uneven; more and fewer of them than ranks.
CASES = [(13, 5), (5, 2)]


def network(size):
    """Two layers for each of `size` stages; the same on all ranks."""
    torch.manual_seed(3)
    linear = [nn.Linear(WIDTH, WIDTH) for _ in range(2 * size - 1)]
    layers = [layer for one in linear for layer in (one, nn.Tanh())]
    return [part.double() for part in (*layers, nn.Linear(WIDTH, 3))]


def stage_of(rank, size):
    """A rank's stage: two linear layers of `network` and what follows them; it records what it
    does."""
    layers = network(size)
    return RecordedStage(*layers[4 * rank : 4 * rank + 4])


def batch(n):
    """n images (n, WIDTH) in float64 and their labels (n,), 0 to 2; the same on all ranks."""
    draw = torch.Generator().manual_seed(n)
    return torch.randn(n, WIDTH, generator=draw, dtype=torch.double), torch.randint(
        0, 3, (n,), generator=draw
    )


def forward(comm, stage, x, sent):
    """As in the lab."""
    if comm.rank > 0:
        x = comm.recv(source=comm.rank - 1).requires_grad_()
    y = stage(x)
    if comm.rank + 1 < comm.size:
        sent.append(comm.isend(y.detach(), comm.rank + 1))
    return x, y


@dataclass(kw_only=True)
class Step:
    """How a step of a pipeline is tried, with (images, micro-batches) as the cases.

    run(function, comm, stage, images, labels, micro) -> the loss; by default the answer itself is
    the step. most_idle(size, micro) and most_held(rank, size, micro) are the targets.
    """

    run: Callable | None = None
    most_idle: Callable | None = None
    most_held: Callable | None = None

    def __call__(self, function, cases):
        ranks = OnRanks(
            arguments=lambda rank, size, n, micro: (n, micro),
            judge=self._judge,
            call=self._call,
            comm=MessageComm,
        )
        return ranks(function, cases)

    def _call(self, function, comm, n, micro):
        stage = stage_of(comm.rank, comm.size)
        step = partial(self.run, function) if self.run else function
        loss = step(comm, stage, *batch(n), micro)
        loss = loss.detach() if isinstance(loss, torch.Tensor) else loss
        grads = [None if p.grad is None else p.grad.numpy().copy() for p in stage.parameters()]
        return {"loss": loss, "grads": grads, "row": stage.row(comm.rank)}

    def _judge(self, reports, n, micro):
        results = [report["result"] for report in reports]
        rows = [result["row"] for result in results]
        try:
            judge_rows(rows, micro)
            judge_gradients([result["grads"] for result in results], n, micro)
            judge_loss(results[-1]["loss"], n, micro, len(results))
            judge_targets(rows, micro, self.most_idle, self.most_held)
        except CheckError as wrong:
            where = f"{n} images in {micro} micro-batch{'es' * (micro > 1)}"
            raise CheckError(f"{where}: {wrong}") from None


def judge_rows(rows, micro):
    """Each rank did each micro-batch once forward and once backward, all in one order of
    backwards."""
    for rank, row in enumerate(rows):
        for kind, word in (("F", "forward"), ("B", "backward")):
            done = [i for _, what, i in row if what == kind]
            if len(done) != micro or len(set(done)) != micro:
                twice = " Some go twice." if len(set(done)) < len(done) else ""
                raise CheckError(
                    f"rank {rank}'s stage did {len(done)} {word}s; {micro} are due, one for each "
                    f"micro-batch.{twice}"
                )
    last = [i for _, kind, i in rows[-1] if kind == "B"]
    for rank, row in enumerate(rows):
        order = [i for _, kind, i in row if kind == "B"]
        if order != last:
            raise CheckError(
                f"rank {rank} goes back through micro-batches {order}, the last rank through "
                f"{last}: the gradient of one "
                "went into the activations of another. All ranks need one order."
            )


def judge_gradients(grads, n, micro):
    """Compare all ranks' gradients with those of one process."""
    size = len(grads)
    right = grads_by_rank(serial(size, n), size)
    for rank, own in enumerate(grads):
        if all(grad is None for grad in own):
            raise CheckError(f"rank {rank}'s stage has no gradient: nothing went back through it.")
    wrong = [
        [not _same(a, b) for a, b in zip(*pair, strict=True)]
        for pair in zip(grads, right, strict=True)
    ]
    if not any(map(any, wrong)):
        return
    rank = next(rank for rank, flags in enumerate(wrong) if any(flags))
    if rank > 0 and not any(any(flags[1:]) for flags in wrong):
        raise CheckError(
            f"rank {rank}: only the gradient of its first layer's weight is wrong. It is made of "
            "the stage's input, and that was "
            "stale: another micro-batch's values had been written over it before its backward."
        )
    own, why = grads[rank], "Does each micro-batch's gradient go back through its own activations?"
    for divisor, which, text in MISTAKES:
        values = grads_by_rank(_serial_with(size, n, micro, divisor, which), size)
        if all(_same(a, b) for a, b in zip(own, values[rank], strict=True)):
            why = text.format(n=n, m=micro)
            break
    first = next(place for place, bad in enumerate(wrong[rank]) if bad)
    begins = "is missing" if own[first] is None else f"begins with {as_text(own[first].flat[0])}"
    due = as_text(right[rank][first].flat[0])
    raise CheckError(
        f"parameter {first} of rank {rank}: the gradient {begins}, one process's with {due}.\n{why}"
    )


# Each mistake: what a micro-batch's sum of losses is divided by, of (its rows, all rows,
# micro-batches); which of them count.
ALL, LAST = slice(None), slice(-1, None)
MISTAKES = [
    (
        lambda rows, n, m: rows,
        ALL,
        "Each micro-batch's mean loss was added: {m} times too large, about. Divide its sum by the "
        "{n} images of the batch.",
    ),
    (
        lambda rows, n, m: rows * m,
        ALL,
        "That is the mean of the micro-batches' means: in a small micro-batch an image counts "
        "more. Divide by {n}.",
    ),
    (
        lambda rows, n, m: 1,
        ALL,
        "That is the gradient of the sum over {n} images; the mean is due.",
    ),
    (
        lambda rows, n, m: n,
        LAST,
        "Only the last micro-batch is in it: gradients of the others were set to zero, or "
        "overwritten.",
    ),
]


def _same(a, b):
    return a is not None and np.allclose(a, b, rtol=0, atol=TOLERANCE)


def serial(size, n):
    """One process's gradients, with the whole batch at once."""
    layers, (images, labels) = network(size), batch(n)
    F.cross_entropy(nn.Sequential(*layers)(images), labels).backward()
    return layers


def _serial_with(size, n, micro, divisor, which):
    """One process's layers with the gradients of a mistake."""
    layers, (images, labels) = network(size), batch(n)
    net = nn.Sequential(*layers)
    parts = list(zip(images.tensor_split(micro), labels.tensor_split(micro), strict=True))
    for x, y in parts[which]:
        loss = F.cross_entropy(net(x), y, reduction="sum") / divisor(len(x), n, micro)
        loss.backward()
    return layers


def grads_by_rank(layers, size):
    """The gradients of these layers, by rank."""
    return [
        [p.grad.numpy() for layer in layers[4 * rank : 4 * rank + 4] for p in layer.parameters()]
        for rank in range(size)
    ]


def judge_loss(loss, n, micro, size):
    """What the last rank returned is the batch's mean loss."""
    images, labels = batch(n)
    with torch.no_grad():
        y = nn.Sequential(*network(size))(images)
        each = F.cross_entropy(y, labels, reduction="none")
    right = each.mean().item()
    if loss is None:
        raise CheckError(
            "the last rank returned None; the loss of the batch is due. Is the `return` missing?"
        )
    value = as_number(loss)
    if value is None or not math.isclose(value, right, rel_tol=1e-6):
        parts = [part.mean().item() for part in each.tensor_split(micro)]
        known = {
            "That adds up the micro-batches' means.": sum(parts),
            "That is the mean of the micro-batches' means.": float(np.mean(parts)),
            "That is the last micro-batch's alone: add them up.": each.tensor_split(micro)[-1]
            .sum()
            .item()
            / n,
        }
        close = partial(math.isclose, rel_tol=1e-6)
        why = pick_hint(value, known, same=close) if value is not None else ""
        raise CheckError(
            f"the last rank returned the loss {as_text(loss)}; one process has "
            f"{as_text(right)}.\n{why}"
        )


def idle_share(rows):
    """The share of all ranks' time in which they wait, if a backward takes two forwards and each
    begins as soon as it can."""
    spans = costs.pipeline_spans(rows, lambda stage, kind: {"F": 1, "B": 2}[kind])
    whole = max(row[-1][2] for row in spans)
    return 1 - sum(stop - start for row in spans for _, start, stop in row) / (len(rows) * whole)


def most_held(row):
    """The most micro-batches that are forward and not yet backward."""
    return int(max(np.cumsum([1 if kind == "F" else -1 for _, kind, _ in row])))


def judge_targets(rows, micro, idle_limit, held_limit):
    """Raises CheckError where a rank holds, or the ranks idle, more than the two functions allow;
    None: not judged."""
    size = len(rows)
    for rank, row in enumerate(rows) if held_limit else ():
        limit = held_limit(rank, size, micro)
        if most_held(row) > limit:
            raise CheckError(
                f"rank {rank} did {_as_words(row)}: it holds the activations of {most_held(row)} "
                f"micro-batches at once; at most {limit} "
                "are allowed there. Go back through the oldest before the next forward."
            )
    idle = idle_share(rows) if idle_limit else 0
    if idle_limit and idle > (limit := idle_limit(size, micro)) + 1e-9:
        alone = all(_as_words(row).startswith("F0 B0") for row in rows) and micro > 1
        why = "A micro-batch goes forward and back before the next: one rank works at a time."
        table = "\n".join(f"rank {rank}: {_as_words(row)}" for rank, row in enumerate(rows))
        raise CheckError(
            f"in this order the ranks are idle for {idle:.1%} of the time; {limit:.1%} is the "
            f"target.\n{table}\n{why * alone}".rstrip()
        )


def _as_words(row):
    return " ".join(f"{kind}{i}" for _, kind, i in row)
