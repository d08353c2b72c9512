"""The checks of lab 7's tasks 1 to 3: a layer dealt out by columns, one by rows, and the MLP of both."""

from functools import partial

import numpy as np

from pi2zero_course.checks.framework.base import listed, task
from pi2zero_course.checks.tensor_and_space.judge import TOLERANCE, judge_array, random, try_layer

CASES = [
    (5, 7, 10, 3),
    (2, 3, 5, 6),
]  # samples, inputs, hidden values, outputs: uneven on 4 and on 3 ranks
EACH = "the sum over the ranks is due, not their mean."
TIMES = "It counts once for each rank: "


def dealt(whole, size, rank, axis):
    """A rank's part of an array along an axis; the first parts are longer by one where it does not divide."""
    return np.array_split(whole, size, axis)[rank]


@task(1)
def task1(column):
    """column(comm, x, w, b) -> (y, back): this rank's columns of y; back(g) -> the gradients of x, w and b."""
    for n, inputs, hidden, _ in CASES:
        x, w, b = random(n, inputs, seed=1), random(inputs, hidden, seed=2), random(hidden, seed=3)
        g = random(n, hidden, seed=4)

        def arguments(rank, size, x=x, w=w, b=b, g=g):
            part = partial(dealt, size=size, rank=rank, axis=-1)
            return (x.copy(), part(w).copy(), part(b).copy()), part(g).copy()

        def judge(size, rank, y, gradients, x=x, w=w, b=b, g=g):
            part, whole = partial(dealt, size=size, rank=rank, axis=-1), x.T @ g
            mine = part(g) @ part(w).T
            judge_array(
                f"rank {rank}: y", y, part(x @ w + b), [(part(x @ w), "The bias is missing.")]
            )
            known = [
                (
                    mine,
                    "That is what this rank's columns give; x went into all ranks' columns: add up over the ranks.",
                ),
                (g @ w.T / size, f"For x {EACH}"),
            ]
            judge_array(f"rank {rank}: the gradient of x", gradients[0], g @ w.T, known)
            known = [
                (part(whole) / size, "Nobody else has these columns: there is nothing to average."),
                *_summed(whole, size),
            ]
            judge_array(f"rank {rank}: the gradient of w", gradients[1], part(whole), known)
            known = [
                (
                    part(g.mean(0)),
                    "That is the mean over the samples; the sum is due: g has the loss's mean in it.",
                )
            ]
            judge_array(
                f"rank {rank}: the gradient of b",
                gradients[2],
                part(g.sum(0)),
                [*known, *_summed(g.sum(0), size)],
            )

        sizes = try_layer(column, arguments, judge, ("x", "w", "b"), reduces=(0, 1))
    return f"One process's output and gradients to {TOLERANCE:g} on {listed(sizes)} ranks; one all-reduce, backward."


def _summed(whole, size):
    """What an all-reduce over the ranks' parts would give, where they are equally large."""
    if size == 1 or whole.shape[-1] % size:
        return []
    return [
        (
            sum(np.array_split(whole, size, -1)),
            "Each rank's columns are its own: do not add them up over the ranks.",
        )
    ]


@task(2)
def task2(row):
    """row(comm, x, w, b) -> (y, back): the whole y, of this rank's part of x; back(g) -> the gradients of x's part, w and b."""
    for n, _, hidden, outputs in CASES:
        x, w, b = (
            random(n, hidden, seed=5),
            random(hidden, outputs, seed=6),
            random(outputs, seed=7),
        )
        g = random(n, outputs, seed=8)

        def arguments(rank, size, x=x, w=w, b=b, g=g):
            return (
                dealt(x, size, rank, 1).copy(),
                dealt(w, size, rank, 0).copy(),
                b.copy(),
            ), g.copy()

        def judge(size, rank, y, gradients, x=x, w=w, b=b, g=g):
            mine, rows, whole = dealt(x, size, rank, 1), dealt(w, size, rank, 0), x @ w + b
            known = [
                (mine @ rows + b, "That is this rank's part of the sum: add up over the ranks."),
                (x @ w + size * b, f"{TIMES}the bias. Add it after the sum."),
                (x @ w, "The bias is missing."),
                (x @ w / size + b, f"For y {EACH}"),
            ]
            judge_array(f"rank {rank}: y", y, whole, known)
            judge_array(f"rank {rank}: the gradient of its part of x", gradients[0], g @ rows.T)
            known = [
                (mine.T @ g * size, f"{TIMES}g is whole on all ranks already."),
                (mine.T @ g / size, "Why divide by the ranks?"),
            ]
            judge_array(f"rank {rank}: the gradient of w", gradients[1], mine.T @ g, known)
            known = [
                (
                    size * g.sum(0),
                    f"{TIMES}all ranks have the whole g and the same bias, so its gradient needs no sum over them.",
                ),
                (
                    g.sum(0) / size,
                    "Each rank has the whole bias, and the whole g: why divide by the ranks?",
                ),
                (g.mean(0), "That is the mean over the samples; the sum is due."),
            ]
            judge_array(f"rank {rank}: the gradient of b", gradients[2], g.sum(0), known)

        sizes = try_layer(row, arguments, judge, ("x", "w", "b"), reduces=(1, 0))
    return f"One process's output and gradients to {TOLERANCE:g} on {listed(sizes)} ranks; one all-reduce, forward."


@task(3)
def task3(mlp):
    """mlp(comm, x, w1, b1, w2, b2) -> (y, back): columns, tanh, rows; back(g) -> the gradients of x, w1, b1, w2, b2."""
    for n, inputs, hidden, outputs in CASES:
        x, w1, b1 = (
            random(n, inputs, seed=1),
            random(inputs, hidden, seed=2),
            random(hidden, seed=3),
        )
        w2, b2, g = (
            random(hidden, outputs, seed=6),
            random(outputs, seed=7),
            random(n, outputs, seed=8),
        )
        given = x, w1, b1, w2, b2

        def arguments(rank, size, given=given, g=g):
            x, w1, b1, w2, b2 = given
            parts = (dealt(w1, size, rank, 1), dealt(b1, size, rank, 0), dealt(w2, size, rank, 0))
            return (x.copy(), *(part.copy() for part in parts), b2.copy()), g.copy()

        def judge(size, rank, y, gradients, given=given, g=g):
            _judge_mlp(size, rank, y, gradients, given, g)

        sizes = try_layer(mlp, arguments, judge, ("x", "w1", "b1", "w2", "b2"), reduces=(1, 1))
    return f"Output and five gradients as in one process, to {TOLERANCE:g}, on {listed(sizes)} ranks; an all-reduce each way."


def _judge_mlp(size, rank, y, gradients, given, g):
    x, w1, b1, w2, b2 = given
    active = np.tanh(x @ w1 + b1)
    into = g @ w2.T * (1 - active**2)  # the gradient at the hidden layer
    due = [into @ w1.T, x.T @ into, into.sum(0), active.T @ g, g.sum(0)]
    mine = partial(dealt, size=size, rank=rank)
    known = [
        (
            mine(active, axis=1) @ mine(w2, axis=0) + b2,
            "That is this rank's part of the sum: add up over the ranks.",
        ),
        (active @ w2 + size * b2, f"{TIMES}the second bias. Add it after the sum."),
        ((x @ w1 + b1) @ w2 + b2, "The tanh between the layers is missing."),
    ]
    judge_array(f"rank {rank}: y", y, active @ w2 + b2, known)
    slope = "The slope of tanh is missing between the layers: 1 - tanh²."
    flat = g @ w2.T
    known = {
        "x": [
            (
                mine(into, axis=1) @ mine(w1, axis=1).T,
                "That is this rank's part; add up over the ranks, in the first layer's back.",
            ),
            (flat @ w1.T, slope),
        ],
        "w1": [
            (mine(x.T @ flat, axis=1), slope),
            (mine(x.T @ into, axis=1) * size, f"{TIMES}it was added up, or g was."),
        ],
        "b1": [(mine(flat.sum(0), axis=0), slope)],
        "b2": [(size * g.sum(0), f"{TIMES}g is whole on all ranks already.")],
    }
    parts = [due[0], mine(due[1], axis=1), mine(due[2], axis=0), mine(due[3], axis=0), due[4]]
    for name, one, part in zip(("x", "w1", "b1", "w2", "b2"), gradients, parts, strict=True):
        judge_array(f"rank {rank}: the gradient of {name}", one, part, known.get(name, ()))
