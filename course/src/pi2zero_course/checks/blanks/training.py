"""The checks of the blanks in notebooks 04 to 06 that stay in the notebook's kernel."""

from itertools import pairwise

import numpy as np

from pi2zero_course.checks.blanks import blank
from pi2zero_course.checks.blanks.compare import compare
from pi2zero_course.checks.framework.base import CheckFailed, answer, listed


@blank
def momentum_step(function):
    """momentum_step(w, v, g, lr=0.1, beta=0.9) -> the new (w, v)."""

    def right(w, v, g, lr=0.1, beta=0.9):
        v = beta * v + g
        return w - lr * v, v

    def averaged(w, v, g, lr=0.1, beta=0.9):
        v = beta * v + (1 - beta) * g
        return w - lr * v, v

    mistakes = [
        (averaged, "That is a mean of gradients, as Adam's; here g is added whole."),
        (
            lambda w, v, g, lr=0.1, beta=0.9: (w - lr * v, beta * v + g),
            "w moves by the old velocity; take the new one.",
        ),
        (
            lambda w, v, g, lr=0.1, beta=0.9: (w - lr * g, beta * v + g),
            "w moves by the gradient; it moves by the velocity.",
        ),
        (lambda w, v, g, lr=0.1, beta=0.9: right(w, v, g, -lr, beta), "w goes uphill: subtract."),
        (lambda *given: right(*given)[::-1], "Return w first, then v."),
        (
            lambda w, v, g, lr=0.1, beta=0.9: right(w, v, g),
            "lr and beta are arguments: they need not be 0.1 and 0.9.",
        ),
        (
            lambda w, v, g, lr=0.1, beta=0.9: right(w, v, g, lr),
            "beta is an argument: it need not be 0.9.",
        ),
        (
            lambda w, v, g, lr=0.1, beta=0.9: right(w, v, g, beta=beta),
            "lr is an argument: it need not be 0.1.",
        ),
    ]
    w, v, g = np.array([1.0, -2.0]), np.array([0.5, 0.25]), np.array([3.0, 4.0])
    compare(function, right, [(w, v, g), (v, g, w), (w, v, g, 0.5, 0.6)], mistakes)
    return "The velocity keeps 0.9 of itself, and w follows it."


@blank
def bytes_a_step(function):
    """bytes_a_step(S, n) -> (bytes in and out of the server, of a rank in the ring), for messages of S bytes and n ranks."""
    mistakes = [
        (
            lambda s, n: (2 * s * n, 4 * s * (n - 1) / n),
            "The server sends itself nothing: it has n - 1 workers.",
        ),
        (
            lambda s, n: (s * (n - 1), 4 * s * (n - 1) / n),
            "The server gets a gradient from each worker, and sends each the weights: both count.",
        ),
        (
            lambda s, n: (2 * s * (n - 1), 2 * s * (n - 1) / n),
            "A rank in the ring sends 2 (n - 1)/n of S, and receives as much: both count.",
        ),
        (
            lambda s, n: (2 * s * (n - 1), 4 * s * (n - 1)),
            "In the ring a message is one chunk, S / n.",
        ),
        (lambda s, n: (4 * s * (n - 1) / n, 2 * s * (n - 1)), "The server comes first."),
    ]
    compare(
        function,
        lambda s, n: (2 * s * (n - 1), 4 * s * (n - 1) / n),
        [(1200, 4), (38_440, 3), (100, 2)],
        mistakes,
    )
    return "The server's grows with the ranks, the ring's stays below 4 S."


@blank
def computing_share(function):
    """computing_share(work) -> the share of all ranks' time that is computing; all wait for the slowest."""
    mistakes = [
        (
            lambda work: 1 - sum(work) / (len(work) * max(work)),
            "That is the share that is waiting.",
        ),
        (
            lambda work: sum(work) / max(work),
            "That is in steps of one rank: divide by the number of ranks, too.",
        ),
        (
            lambda work: min(work) / max(work),
            "That is the fastest rank's share; the time of all ranks counts.",
        ),
        (
            lambda work: sum(work) / len(work),
            "That is the mean of their work, in ms; a share is due.",
        ),
        (
            lambda work: sum(work) / (len(work) * min(work)),
            "A step ends with the slowest rank, not with the fastest.",
        ),
    ]
    cases = [((20, 20, 60, 20),), ((5, 10),), ((7, 7, 7),)]
    compare(function, lambda work: sum(work) / (len(work) * max(work)), cases, mistakes)
    return "A step lasts as long as its slowest rank, for all of them."


def _staleness(order, own=1, start=0, renew=True):
    has, stale = {}, []
    for version, worker in enumerate(order):
        stale.append(version - has.get(worker, version if start is None else start))
        if renew:
            has[worker] = version + own
    return stale


@blank
def staleness(function):
    """staleness(order) -> for each gradient, by its worker: the updates since that worker got its weights."""
    mistakes = [
        (
            lambda order: _staleness(order, own=0),
            "A worker gets weights with its own gradient in them: version + 1.",
        ),
        (
            lambda order: _staleness(order, renew=False),
            "A worker gets new weights with each answer: write down their version.",
        ),
        (
            lambda order: _staleness(order, start=None),
            "A worker's first gradient is of version 0: others' updates before it count.",
        ),
        (lambda order: _staleness(order)[-1], "Return all of them, in order."),
    ]
    compare(
        function, _staleness, [([1, 2, 3, 1, 2, 3],), ([1, 1, 3, 1, 2, 3],), ([1, 1],)], mistakes
    )
    return (
        "The versions that a gradient has missed: 0 if its worker was the last one to be answered."
    )


@blank
def count_messages(function):
    """count_messages(sent) -> how many messages; sent: (start, stop) of each tensor; those in one message overlap."""

    def right(sent):
        return 1 + sum(later[0] > earlier[1] for earlier, later in pairwise(sent))

    mistakes = [
        (len, "That is the number of tensors: those whose times overlap travelled in one message."),
        (
            lambda sent: len(set(sent)),
            "Tensors of one message need not begin in the same microsecond: do their times overlap?",
        ),
        (lambda sent: right(sent) - 1, "These are the gaps; there is one message more than gaps."),
    ]
    fused, single = [(0, 9), (1, 9), (2, 9), (20, 25), (20, 25)], [(0, 2), (3, 5), (7, 9)]
    compare(function, right, [(fused,), (single,), ([(4, 6)],)], mistakes)
    return "It is right for fused and for single messages."


@blank
def my_images(function):
    """my_images(images, rank, size, epoch, seed=0) -> the numbers of the images that a rank sees in an epoch, in their order."""

    def dealt(epoch, seed=0, images=40, size=4):
        lists = [answer(function, images, rank, size, epoch, seed) for rank in range(size)]
        if any(mine is None for mine in lists):
            raise CheckFailed("my_images returned None. Is the `return` missing?")
        return [[int(image) for image in mine] for mine in lists]

    first, second = dealt(0), dealt(1)
    seen = sorted(image for mine in first for image in mine)
    if [len(mine) for mine in first] != [10] * 4:
        raise CheckFailed(
            f"40 images on 4 ranks: they get {listed(map(len, first))}; 10 each are due."
        )
    if seen != list(range(40)):
        often = max(set(seen), key=seen.count)
        raise CheckFailed(
            f"Together the ranks have to see each image once; image {often} is seen {seen.count(often)} times. "
            "All ranks have to shuffle with the same seed, and then take different ones."
        )
    if first == second:
        raise CheckFailed(
            "Epochs 0 and 1 are the same, image by image: the seed of the shuffle has to change with the epoch."
        )
    if first != dealt(0):
        raise CheckFailed(
            "The same epoch, asked for twice, has two orders: the ranks would not agree. Seed the shuffle."
        )
    if [sorted(mine) for mine in first] == [sorted(mine) for mine in second]:
        raise CheckFailed(
            "Every rank sees the same images in both epochs, in another order: shuffle first, then deal out."
        )
    if first == dealt(0, seed=7):
        raise CheckFailed(
            "In epoch 0, the seeds 0 and 7 give the same order: seed the shuffle with `seed` and with the epoch."
        )
    if sorted(image for mine in dealt(0, images=42, size=3) for image in mine) != list(range(42)):
        raise CheckFailed(
            "42 images on 3 ranks: not each is seen once. Take `images` and `size` as they are given."
        )
    return "Each image once an epoch, another order and other ranks in the next, and all ranks agree without talking."
