"""The checks of lab 3's second half: three assertions, each tried on right and on wrong ranks, and the script they mend."""

import numpy as np
import torch
from torch import nn

from pi2zero.mpi import name_ranks
from pi2zero_course.checks.data_parallel.training import Seen, judge_seen, judge_weights, report_of
from pi2zero_course.checks.framework.base import CheckFailed, listed, named, task
from pi2zero_course.checks.framework.collective import on_ranks

IMAGES, BATCH, EPOCHS = (
    48,
    12,
    2,
)  # of the mended script's check: 12 is divisible by 1, 2, 3 and 4 ranks


def _tried(assertion, cases):
    """Call assertion(comm, ...) in each case: on all ranks it has to raise an AssertionError, or on none. The world sizes.

    cases: (what is the case, "" if that is right, else what to think of, arguments(rank, size) after comm).
    """
    tried = []
    for case, wrong, arguments in cases:

        def run(comm, *given):
            before, raised = [_copy(one) for one in given], False
            try:
                assertion(comm, *given)
            except CheckFailed:
                raise
            except AssertionError:
                raised = True
            if any(not _equal(_copy(one), old) for one, old in zip(given, before, strict=True)):
                raise CheckFailed(
                    "what your assertion was given is not what it was before. Look at it only; compute with copies."
                )
            return raised

        def judge(size, raised, case=case, wrong=wrong):
            those, others = (
                [rank for rank in range(size) if raised[rank] is which] for which in (True, False)
            )
            if those and others:
                raise CheckFailed(
                    f"{case}: {name_ranks(those)} raised AssertionError, {name_ranks(others)} did not. Those go on, and wait in "
                    "their next call for ever.\nLet all ranks come to one verdict (an allreduce of it), then assert that."
                )
            if those and not wrong:
                raise CheckFailed(
                    f"{case}, and your assertion raised: that is right, and has to pass."
                )
            if wrong and not those:
                raise CheckFailed(f"{case}, and your assertion passed.\n{wrong}")

        tried.append(on_ranks(named(assertion, run), arguments, judge, fewest=2 if wrong else 1))
    return max(tried, key=len)


def _copy(thing):
    if isinstance(thing, nn.Module):
        return _copy(list(thing.parameters()))
    if isinstance(thing, list):
        return [_copy(one) for one in thing]
    return thing.detach().numpy().copy() if isinstance(thing, torch.Tensor) else np.copy(thing)


def _equal(mine, other):
    return (
        all(map(np.array_equal, mine, other))
        if isinstance(mine, list)
        else np.array_equal(mine, other)
    )


def _network(seed, change=None):
    """A small network. change: what is done to the vector of its parameters."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    with torch.no_grad():
        flat = nn.utils.parameters_to_vector(model.parameters())
        nn.utils.vector_to_parameters(change(flat) if change else flat, model.parameters())
    return model


def _last_bit(flat):
    flat[-1] = torch.nextafter(flat[-1], torch.tensor(9.0))
    return flat


@task(4)
def task4(assert_alike):
    """assert_alike(comm, model): raises AssertionError on all ranks if a parameter differs between them in one bit."""

    def last(change):
        return lambda rank, size: (_network(7, change if rank == size - 1 else None),)

    def first(rank, size):
        return (_network(7 if rank else 8),)

    cases = [
        ("All ranks have the same parameters", "", lambda rank, size: (_network(7),)),
        (
            "Each rank has other parameters",
            "Compare with another rank's, not with your own.",
            lambda rank, size: (_network(rank),),
        ),
        (
            "Only rank 0's parameters are others",
            "Compare every rank with one and the same rank.",
            first,
        ),
        (
            "The last rank's parameters are in another order",
            "Their sum is the same: compare each of them.",
            last(lambda v: v.flip(0)),
        ),
        (
            "One bias of the last rank differs in its last bit",
            "Not one bit may differ; biases count as well.",
            last(_last_bit),
        ),
    ]
    sizes = _tried(assert_alike, cases)
    return f"It raises for other starts, another order, one bit of one bias; on all ranks or on none, with {listed(sizes)} ranks."


def _order(n, seed=0):
    return np.random.default_rng(seed).permutation(n)


def _padded(rank, size):
    """As DistributedSampler does it by default: the first images again, until all ranks have equally many."""
    order = _order(25)
    return np.append(order, order[: -len(order) % size])[rank::size], 25


def _one_twice(rank, size):
    rows = _order(24)[rank::size].copy()
    if rank == size - 1:
        rows[0] = rows[1]
    return rows, 24


@task(5)
def task5(assert_shared):
    """assert_shared(comm, rows, n): raises on all ranks unless they read each of n images once; fewer than p may be left out."""
    count = "Count how often each image is read."
    padding = (
        "some are read twice, so that all ranks get equally many (DistributedSampler's default)"
    )
    cases = [
        ("24 images are dealt like cards", "", lambda rank, size: (_order(24)[rank::size], 24)),
        (
            "25 images are dealt like cards, so that shares differ by one",
            "",
            lambda rank, size: (_order(25)[rank::size], 25),
        ),
        (
            "Of 25 images those are left out that do not divide",
            "",
            lambda rank, size: (_order(25)[: 25 // size * size][rank::size], 25),
        ),
        (
            "p - 1 images are left out",
            "",
            lambda rank, size: (_order(23 + size)[:24][rank::size], 23 + size),
        ),
        (
            "All ranks read the same share",
            "Together they read it p times, and all else never.",
            lambda r, p: (_order(24)[: 24 // p], 24),
        ),
        (
            "Each rank shuffles for itself",
            f"They overlap. {count}",
            lambda rank, size: (_order(24, seed=rank)[: 24 // size], 24),
        ),
        (f"Of 25 images {padding}", count, _padded),
        (
            "The last rank reads one image twice",
            f"{count} The number of rows is right here.",
            _one_twice,
        ),
        (
            "Half of the images are read by nobody",
            "Fewer than p may be left out.",
            lambda rank, size: (_order(24)[:12][rank::size], 24),
        ),
        (
            "The second half is read by nobody",
            "Count up to n.",
            lambda rank, size: (np.arange(12)[rank::size], 24),
        ),
        (
            "p images are read by nobody",
            "Fewer than p may be left out: of p images each rank could have read one more.",
            lambda rank, size: (_order(24)[: 24 - size][rank::size], 24),
        ),
    ]
    sizes = _tried(assert_shared, cases)
    return f"It raises for images read twice or by nobody, on all ranks or on none; tried with {listed(sizes)} ranks."


def _gradients(rank):
    rng = np.random.default_rng(rank)
    return [
        torch.from_numpy(rng.normal(size=shape).astype(np.float32))
        for shape in ((5, 6), (5,), (3, 5), (3,))
    ]


def _mean(size):
    """The mean over the ranks, summed in another order than an all-reduce would: off by rounding."""
    every = [
        np.stack(parts).astype(np.float64).mean(axis=0)
        for parts in zip(*map(_gradients, range(size)), strict=True)
    ]
    return [torch.from_numpy(one.astype(np.float32)) for one in every]


@task(6)
def task6(assert_mean):
    """assert_mean(comm, own, used): raises on all ranks unless `used` is the mean over the ranks of `own`, on each of them."""

    def given(used):
        return lambda rank, size: (_gradients(rank), used(rank, size))

    def without_biases(rank, size):
        return [
            mean if mean.dim() > 1 else own
            for mean, own in zip(_mean(size), _gradients(rank), strict=True)
        ]

    other = "Compare with the mean of all ranks' `own`."
    cases = [
        (
            "The optimizer gets the mean, with float32's rounding",
            "",
            given(lambda rank, size: _mean(size)),
        ),
        (
            "The optimizer gets the sum",
            other,
            given(lambda rank, size: [size * one for one in _mean(size)]),
        ),
        (
            "Each rank's optimizer gets the rank's own gradient",
            other,
            given(lambda rank, size: _gradients(rank)),
        ),
        (
            "All optimizers get rank 0's gradient",
            f"Equal is not enough. {other}",
            given(lambda rank, size: _gradients(0)),
        ),
        (
            "The mean is divided by the ranks once more",
            other,
            given(lambda rank, size: [one / size for one in _mean(size)]),
        ),
        (
            "Biases get the rank's own gradient",
            "Look at every tensor of the list, not at the first only.",
            given(without_biases),
        ),
        (
            "The last rank alone uses its own gradient",
            "Every rank has to be looked at.",
            given(lambda rank, size: _gradients(rank) if rank == size - 1 else _mean(size)),
        ),
    ]
    sizes = _tried(assert_mean, cases)
    return f"It passes the mean, and raises on all ranks for all else that was tried; with {listed(sizes)} ranks."


@task(7)
def task7(mended):
    """mended(comm, model, images, labels, epochs=, batch=): trains in place, as one process would on all ranks' images."""
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.random((IMAGES, 64), dtype=np.float32))
    labels = torch.from_numpy(rng.integers(0, 10, IMAGES))
    places = {image.numpy().tobytes(): place for place, image in enumerate(images)}

    def run(comm, model, images, labels):
        mended(comm, model, images, labels, epochs=EPOCHS, batch=BATCH)
        comm.barrier()
        return report_of(model) | {
            "rows": [[places[one.tobytes()] for one in some] for some in model.read]
        }

    def judge(size, reports):
        _judge_rows(size, [report["rows"] for report in reports])
        steps = zip(*(report["rows"] for report in reports), strict=True)
        together = [np.concatenate(rows) for rows in steps]
        judge_weights(size, reports, [(images[rows], labels[rows]) for rows in together])

    sizes = on_ranks(
        named(mended, run), lambda rank, size: (Seen(seed=100 + rank), images, labels), judge
    )
    return (
        f"Every image is read once an epoch, and {EPOCHS} epochs end with one process's parameters to 1e-5, "
        f"equal bit by bit on all ranks; tried with {listed(sizes)} ranks."
    )


def _judge_rows(size, read):
    """read: for each rank the places of the images that it read in each step."""
    steps = EPOCHS * IMAGES // BATCH
    for rank, rows in enumerate(read):
        judge_seen(rank, rows)
        if len(rows) != steps:
            raise CheckFailed(
                f"rank {rank} made {len(rows)} steps; {EPOCHS} epochs of {IMAGES} images in batches of {BATCH} are {steps}."
            )
        if size > 1 and len(rows[0]) == BATCH:
            raise CheckFailed(
                f"rank {rank} computes whole batches of {BATCH}: that is the serial program, {size} times."
            )
    by_epoch = [
        [np.concatenate(part) for part in np.split(np.array(rows), EPOCHS)]
        for rows in map(_same_lengths, read)
    ]
    for epoch in range(EPOCHS):
        _judge_cover(f"in epoch {epoch}", [rank[epoch] for rank in by_epoch])
    if all(np.array_equal(*rank) for rank in by_epoch):
        raise CheckFailed(
            "the second epoch has the order of the first. Seed the generator with the epoch."
        )


def _same_lengths(rows):
    if len(set(map(len, rows))) > 1:
        raise CheckFailed(
            f"a rank's steps have {', '.join(str(len(some)) for some in rows)} images; they should have equally many."
        )
    return rows


def _judge_cover(case, rows):
    for rank, mine in enumerate(rows[1:], 1):
        if np.array_equal(np.sort(mine), np.sort(rows[0])):
            raise CheckFailed(
                f"{case}, ranks 0 and {rank} read the same images (rows {', '.join(map(str, mine[:4]))}, ...): "
                "together they learn no more than one of them."
            )
    counts = np.bincount(np.concatenate(rows), minlength=IMAGES)
    if (counts > 1).any():
        raise CheckFailed(
            f"{case}, {(counts > 1).sum()} images are read twice or more, and {(counts == 0).sum()} by no rank. "
            "All ranks have to shuffle alike (the same seed), then take different rows of it."
        )
    if (counts == 0).any():
        raise CheckFailed(f"{case}, {(counts == 0).sum()} images are read by no rank.")
