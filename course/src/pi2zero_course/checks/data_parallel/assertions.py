"""The checks of lab 3's second half: three assertions, each tried on right and on wrong ranks, and
the script they fix."""

from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from pi2zero.mpi import name_ranks
from pi2zero_course.checks.data_parallel.training import Seen, judge_seen, judge_weights, report_of
from pi2zero_course.checks.framework.answers import CheckError
from pi2zero_course.checks.framework.on_ranks import OnRanks
from pi2zero_course.checks.framework.task import LabTask

Task = partial(LabTask, lab=3)
IMAGES, BATCH, EPOCHS = 48, 12, 2  # of the script's check: 12 is divisible by 1, 2, 3 and 4 ranks


def _try_assertion(function, cases):
    """Call assertion(comm, ...) in each case: it has to raise an AssertionError on all ranks, or on
    none.

    cases: (what is the case, "" if that is right, else what to think of, arguments(rank, size));
    the right ones first. Returns the numbers of ranks.
    """
    tries = [
        OnRanks(
            arguments=lambda rank, size, text, hint, arguments: arguments(rank, size),
            judge=_judge_verdicts,
            call=_raises,
            fewest=fewest,
        )
        for fewest in (1, 2)  # one rank alone is always right
    ]
    sizes = tries[0](function, [case for case in cases if not case[1]])
    tries[1](function, [case for case in cases if case[1]])
    return sizes


def _raises(assertion, comm, *given):
    before, raised = _bytes_of(given), False
    try:
        assertion(comm, *given)
    except CheckError:
        raise
    except AssertionError:
        raised = True
    if _bytes_of(given) != before:
        raise CheckError(
            "what your assertion was given is not what it was before. Look at it only; compute "
            "with copies."
        )
    return raised


def _judge_verdicts(raised, text, hint, arguments):
    raising = [rank for rank, verdict in enumerate(raised) if verdict]
    passing = [rank for rank, verdict in enumerate(raised) if not verdict]
    if raising and passing:
        raise CheckError(
            f"{text}: {name_ranks(raising)} raised AssertionError, {name_ranks(passing)} did not. "
            "Those go on, and wait in their next call forever.\nLet all ranks come to one verdict "
            "(an allreduce of it), then assert that."
        )
    if raising and not hint:
        raise CheckError(f"{text}, and your assertion raised: that is right, and has to pass.")
    if hint and not raising:
        raise CheckError(f"{text}, and your assertion passed.\n{hint}")


def _bytes_of(thing) -> bytes:
    """The values in a model, a tensor or an array, and in lists of them."""
    if isinstance(thing, nn.Module):
        thing = list(thing.parameters())
    if isinstance(thing, list | tuple):
        return b"".join(map(_bytes_of, thing))
    return np.asarray(thing.detach() if isinstance(thing, torch.Tensor) else thing).tobytes()


def _network(seed, change=None):
    """A small network. change: what is done to the vector of its parameters."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    with torch.no_grad():
        flat = nn.utils.parameters_to_vector(model.parameters())
        nn.utils.vector_to_parameters(change(flat) if change else flat, model.parameters())
    return model


def _change_last_bit(flat):
    flat[-1] = torch.nextafter(flat[-1], torch.tensor(9.0))
    return flat


def _changed_on_last_rank(change):
    return lambda rank, size: (_network(7, change if rank == size - 1 else None),)


# assert_alike(comm, model): raises AssertionError on all ranks if a parameter differs between them
# in one bit
assert_alike = Task(
    number=4,
    name="assert_alike",
    cases=[
        ("All ranks have the same parameters", "", lambda rank, size: (_network(7),)),
        (
            "Each rank has other parameters",
            "Compare with another rank's, not with your own.",
            lambda rank, size: (_network(rank),),
        ),
        (
            "Only rank 0's parameters differ",
            "Compare every rank with one and the same rank.",
            lambda rank, size: (_network(7 if rank else 8),),
        ),
        (
            "The last rank's parameters are in another order",
            "Their sum is the same: compare each of them.",
            _changed_on_last_rank(lambda flat: flat.flip(0)),
        ),
        (
            "One bias of the last rank differs in its last bit",
            "Not one bit may differ; biases count as well.",
            _changed_on_last_rank(_change_last_bit),
        ),
    ],
    on_ranks=_try_assertion,
    verified="It raises for other starts, another order, one bit of one bias; on all ranks or on "
    "none, with {ranks} ranks.",
)


def _order(n, seed=0):
    return np.random.default_rng(seed).permutation(n)


def _every_pth(count, n):
    """Of the first `count` of n shuffled images, each rank reads every p-th."""
    return lambda rank, size: (_order(n)[:count][rank::size], n)


def _padded(rank, size):
    """As DistributedSampler does it by default: the first images again, until all ranks have
    equally many."""
    order = _order(25)
    return np.append(order, order[: -len(order) % size])[rank::size], 25


def _one_twice(rank, size):
    rows = _order(24)[rank::size].copy()
    if rank == size - 1:
        rows[0] = rows[1]
    return rows, 24


_COUNT = "Count how often each image is read."

# assert_shared(comm, rows, n): raises on all ranks unless each of n images is read once; fewer
# than p may be left out
assert_shared = Task(
    number=5,
    name="assert_shared",
    cases=[
        ("Each rank reads every p-th of 24 images", "", _every_pth(24, 24)),
        ("Shares of 25 images differ by one", "", _every_pth(25, 25)),
        (
            "Of 25 images those are left out that do not divide",
            "",
            lambda rank, size: _every_pth(25 // size * size, 25)(rank, size),
        ),
        ("p - 1 images are left out", "", lambda rank, size: _every_pth(24, 23 + size)(rank, size)),
        (
            "All ranks read the same share",
            "Together they read it p times, and all else never.",
            lambda rank, size: (_order(24)[: 24 // size], 24),
        ),
        (
            "Each rank shuffles for itself",
            f"They overlap. {_COUNT}",
            lambda rank, size: (_order(24, seed=rank)[: 24 // size], 24),
        ),
        (
            "Of 25 images some are read twice, so that all ranks get equally many "
            "(DistributedSampler's default)",
            _COUNT,
            _padded,
        ),
        (
            "The last rank reads one image twice",
            f"{_COUNT} The number of rows is right here.",
            _one_twice,
        ),
        (
            "No rank reads the second half",
            "Count up to n.",
            lambda rank, size: (np.arange(12)[rank::size], 24),
        ),
        (
            "No rank reads p of the images",
            "Fewer than p may be left out: of p images each rank could have read one more.",
            lambda rank, size: _every_pth(24 - size, 24)(rank, size),
        ),
    ],
    on_ranks=_try_assertion,
    verified="It raises for images that are read twice or by no rank, on all ranks or on none; "
    "tried with {ranks} ranks.",
)


def _gradients(rank):
    rng, shapes = np.random.default_rng(rank), ((5, 6), (5,), (3, 5), (3,))
    return [torch.from_numpy(rng.normal(size=shape).astype(np.float32)) for shape in shapes]


def _mean(size):
    """The mean over the ranks, summed in another order than an all-reduce would: off by
    rounding."""
    parts = zip(*map(_gradients, range(size)), strict=True)
    means = [np.stack(part).astype(np.float64).mean(axis=0) for part in parts]
    return [torch.from_numpy(mean.astype(np.float32)) for mean in means]


def _given(used):
    return lambda rank, size: (_gradients(rank), used(rank, size))


def _without_biases(rank, size):
    pairs = zip(_mean(size), _gradients(rank), strict=True)
    return [mean if mean.dim() > 1 else own for mean, own in pairs]


_MEAN = "Compare with the mean of all ranks' `own`."

# assert_mean(comm, own, used): raises on all ranks unless `used` is the mean over the ranks of
# `own`, on each of them
assert_mean = Task(
    number=6,
    name="assert_mean",
    cases=[
        (
            "The optimizer gets the mean, with float32's rounding",
            "",
            _given(lambda rank, size: _mean(size)),
        ),
        (
            "The optimizer gets the sum",
            _MEAN,
            _given(lambda rank, size: [size * mean for mean in _mean(size)]),
        ),
        (
            "Each rank's optimizer gets the rank's own gradient",
            _MEAN,
            _given(lambda rank, size: _gradients(rank)),
        ),
        (
            "All optimizers get rank 0's gradient",
            f"Equal is not enough. {_MEAN}",
            _given(lambda rank, size: _gradients(0)),
        ),
        (
            "The mean is divided by the ranks once more",
            _MEAN,
            _given(lambda rank, size: [mean / size for mean in _mean(size)]),
        ),
        (
            "Biases get the rank's own gradient",
            "Look at every tensor of the list, not at the first only.",
            _given(_without_biases),
        ),
        (
            "The last rank alone uses its own gradient",
            "Every rank has to be looked at.",
            _given(lambda rank, size: _gradients(rank) if rank == size - 1 else _mean(size)),
        ),
    ],
    on_ranks=_try_assertion,
    verified="It passes the mean, and raises on all ranks for all else that was tried; with "
    "{ranks} ranks.",
)


def _images():
    """IMAGES images and their labels; the same on all ranks."""
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.random((IMAGES, 64), dtype=np.float32))
    return images, torch.from_numpy(rng.integers(0, 10, IMAGES))


def _run_script(function, comm, model, images, labels):
    function(comm, model, images, labels, epochs=EPOCHS, batch=BATCH)
    comm.barrier()
    places = {image.numpy().tobytes(): place for place, image in enumerate(images)}
    rows = [[places[image.tobytes()] for image in step] for step in model.read]
    return report_of(model) | {"rows": rows}


def _judge_script(reports):
    _judge_rows(len(reports), [report["rows"] for report in reports])
    images, labels = _images()
    steps = zip(*(report["rows"] for report in reports), strict=True)
    together = [np.concatenate(rows) for rows in steps]
    judge_weights(len(reports), reports, [(images[rows], labels[rows]) for rows in together])


def _judge_rows(size, read):
    """read: for each rank the places of the images that it read in each step."""
    steps = EPOCHS * IMAGES // BATCH
    for rank, rows in enumerate(read):
        judge_seen(rank, rows)
        if len(rows) != steps:
            raise CheckError(
                f"rank {rank} made {len(rows)} steps; {EPOCHS} epochs of {IMAGES} images in "
                f"batches of {BATCH} are {steps}."
            )
        if size > 1 and len(rows[0]) == BATCH:
            raise CheckError(
                f"rank {rank} computes whole batches of {BATCH}: that is the serial program, "
                f"{size} times."
            )
        if any(len(one) != len(other) for one, other in pairwise(rows)):
            raise CheckError(
                f"a rank's steps have {', '.join(str(len(step)) for step in rows)} images; they "
                "should have equally many."
            )
    by_epoch = [
        [np.concatenate(part) for part in np.split(np.array(rows), EPOCHS)] for rows in read
    ]
    for epoch in range(EPOCHS):
        _judge_cover(f"in epoch {epoch}", [rank[epoch] for rank in by_epoch])
    if all(np.array_equal(*rank) for rank in by_epoch):
        raise CheckError(
            "the second epoch has the order of the first. Seed the generator with the epoch."
        )


def _judge_cover(case, rows):
    for rank, own in enumerate(rows[1:], 1):
        if np.array_equal(np.sort(own), np.sort(rows[0])):
            raise CheckError(
                f"{case}, ranks 0 and {rank} read the same images (rows "
                f"{', '.join(map(str, own[:4]))}, ...): "
                "together they learn no more than one of them."
            )
    counts = np.bincount(np.concatenate(rows), minlength=IMAGES)
    if (counts > 1).any():
        raise CheckError(
            f"{case}, {(counts > 1).sum()} images are read twice or more, and "
            f"{(counts == 0).sum()} by no rank. "
            "All ranks have to shuffle alike (the same seed), then take different rows of it."
        )
    if (counts == 0).any():
        raise CheckError(f"{case}, {(counts == 0).sum()} images are read by no rank.")


# mended(comm, model, images, labels, epochs=, batch=): trains in place, as one process would on
# all ranks' images
mended = Task(
    number=7,
    name="mended",
    on_ranks=OnRanks(
        arguments=lambda rank, size: (Seen(seed=100 + rank), *_images()),
        judge=_judge_script,
        call=_run_script,
    ),
    verified=f"Every image is read once an epoch, and {EPOCHS} epochs end with one process's "
    "parameters to 1e-5, "
    "equal bit by bit on all ranks; tried with {ranks} ranks.",
)
