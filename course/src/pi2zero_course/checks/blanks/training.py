"""The checks of the blanks in notebooks 04 to 06 that stay in the notebook's kernel."""

from itertools import pairwise

import numpy as np

from pi2zero_course.checks.framework.answers import CheckError, call_answer
from pi2zero_course.checks.framework.task import Blank, blank
from pi2zero_course.checks.framework.values import join_words


def _momentum(w, v, g, lr=0.1, beta=0.9):
    v = beta * v + g
    return w - lr * v, v


def _averaged(w, v, g, lr=0.1, beta=0.9):
    v = beta * v + (1 - beta) * g
    return w - lr * v, v


_W, _V, _G = np.array([1.0, -2.0]), np.array([0.5, 0.25]), np.array([3.0, 4.0])

# momentum_step(w, v, g, lr=0.1, beta=0.9) -> the new (w, v)
momentum_step = Blank(
    name="momentum_step",
    reference=_momentum,
    cases=[(_W, _V, _G), (_V, _G, _W), (_W, _V, _G, 0.5, 0.6)],
    mistakes={
        "That is a mean of gradients, as Adam's; here g is added whole.": _averaged,
        "w moves by the old velocity; take the new one.": (
            lambda w, v, g, lr=0.1, beta=0.9: (w - lr * v, beta * v + g)
        ),
        "w moves by the gradient; it moves by the velocity.": (
            lambda w, v, g, lr=0.1, beta=0.9: (w - lr * g, beta * v + g)
        ),
        "w goes uphill: subtract.": (
            lambda w, v, g, lr=0.1, beta=0.9: _momentum(w, v, g, -lr, beta)
        ),
        "Return w first, then v.": lambda *given: _momentum(*given)[::-1],
        "lr and beta are arguments: they need not be 0.1 and 0.9.": (
            lambda w, v, g, lr=0.1, beta=0.9: _momentum(w, v, g)
        ),
    },
    verified="The velocity keeps 0.9 of itself, and w follows it.",
)

# bytes_a_step(S, n) -> (bytes in and out of the server, of a rank in the ring), for messages of S
# bytes and n ranks
bytes_a_step = Blank(
    name="bytes_a_step",
    reference=lambda s, n: (2 * s * (n - 1), 4 * s * (n - 1) / n),
    cases=[(1200, 4), (38_440, 3), (100, 2)],
    mistakes={
        "The server sends itself nothing: it has n - 1 workers.": (
            lambda s, n: (2 * s * n, 4 * s * (n - 1) / n)
        ),
        "The server gets a gradient from each worker, and sends each the weights: both count.": (
            lambda s, n: (s * (n - 1), 4 * s * (n - 1) / n)
        ),
        "A rank in the ring sends 2 (n - 1)/n of S, and receives as much: both count.": (
            lambda s, n: (2 * s * (n - 1), 2 * s * (n - 1) / n)
        ),
        "The server comes first.": lambda s, n: (4 * s * (n - 1) / n, 2 * s * (n - 1)),
    },
    verified="The server's grows with the ranks, the ring's stays below 4 S.",
)

# computing_share(work) -> the share of all ranks' time that is computing; all wait for the slowest
computing_share = Blank(
    name="computing_share",
    reference=lambda work: sum(work) / (len(work) * max(work)),
    cases=[((20, 20, 60, 20),), ((5, 10),), ((7, 7, 7),)],
    mistakes={
        "That is the share that is waiting.": (
            lambda work: 1 - sum(work) / (len(work) * max(work))
        ),
        "That is in steps of one rank: divide by the number of ranks, too.": (
            lambda work: sum(work) / max(work)
        ),
        "A step ends with the slowest rank, not with the fastest.": (
            lambda work: sum(work) / (len(work) * min(work))
        ),
    },
    verified="A step lasts as long as its slowest rank, for all of them.",
)


def _staleness(order, own=1, start=0, renew=True):
    versions, stale = {}, []
    for version, worker in enumerate(order):
        stale.append(version - versions.get(worker, version if start is None else start))
        if renew:
            versions[worker] = version + own
    return stale


# staleness(order) -> for each gradient, by its worker: the updates since that worker got its
# weights
staleness = Blank(
    name="staleness",
    reference=_staleness,
    cases=[([1, 2, 3, 1, 2, 3],), ([1, 1, 3, 1, 2, 3],), ([1, 1],)],
    mistakes={
        "A worker gets weights with its own gradient in them: version + 1.": (
            lambda order: _staleness(order, own=0)
        ),
        "A worker gets new weights with each answer: write down their version.": (
            lambda order: _staleness(order, renew=False)
        ),
        "A worker's first gradient is of version 0: others' updates before it count.": (
            lambda order: _staleness(order, start=None)
        ),
        "Return all of them, in order.": lambda order: _staleness(order)[-1],
    },
    verified="The versions that a gradient has missed: 0 if its worker was the last one to be "
    "answered.",
)


def _count_messages(sent):
    return 1 + sum(later[0] > earlier[1] for earlier, later in pairwise(sent))


# count_messages(sent) -> how many messages; sent: (start, stop) of each tensor; those in one
# message overlap
count_messages = Blank(
    name="count_messages",
    reference=_count_messages,
    cases=[
        ([(0, 9), (1, 9), (2, 9), (20, 25), (20, 25)],),
        ([(0, 2), (3, 5), (7, 9)],),
        ([(4, 6)],),
    ],
    mistakes={
        "That is the number of tensors: those whose times overlap were sent in one message.": len,
        "Tensors of one message need not begin in the same microsecond: do their times overlap?": (
            lambda sent: len(set(sent))
        ),
        "These are the gaps; there is one message more than gaps.": (
            lambda sent: _count_messages(sent) - 1
        ),
    },
    verified="It is right for fused and for single messages.",
)


@blank
def my_images(function):
    """my_images(images, rank, size, epoch, seed=0) -> the numbers of the images that a rank sees
    in an epoch, in their order."""

    def shards(epoch, seed=0, images=40, size=4):
        lists = [call_answer(function, images, rank, size, epoch, seed) for rank in range(size)]
        if any(shard is None for shard in lists):
            raise CheckError("my_images returned None. Is the `return` missing?")
        return [[int(image) for image in shard] for shard in lists]

    first, second = shards(0), shards(1)
    seen = sorted(image for shard in first for image in shard)
    if [len(shard) for shard in first] != [10] * 4:
        raise CheckError(
            f"40 images on 4 ranks: they get {join_words(map(len, first))}; 10 each are due."
        )
    if seen != list(range(40)):
        often = max(set(seen), key=seen.count)
        raise CheckError(
            f"Together the ranks have to see each image once; image {often} is seen "
            f"{seen.count(often)} times. "
            "All ranks have to shuffle with the same seed, and then take different ones."
        )
    if first == second:
        raise CheckError(
            "Epochs 0 and 1 are the same, image by image: the seed of the shuffle has to change "
            "with the epoch."
        )
    if [sorted(shard) for shard in first] == [sorted(shard) for shard in second]:
        raise CheckError(
            "Every rank sees the same images in both epochs, in another order: shuffle first, then "
            "partition."
        )
    if first == shards(0, seed=7):
        raise CheckError(
            "In epoch 0, the seeds 0 and 7 give the same order: seed the shuffle with `seed` and "
            "with the epoch."
        )
    if sorted(image for shard in shards(0, images=42, size=3) for image in shard) != list(
        range(42)
    ):
        raise CheckError(
            "42 images on 3 ranks: not each is seen once. Take `images` and `size` as they are "
            "given."
        )
    return (
        "Each image once an epoch, another order and other ranks in the next, and all ranks agree "
        "without communication."
    )
