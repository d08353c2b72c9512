"""The checks of lab 3's second half: four bugs in a colleague's program, each mended in a function of its own."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from pi2zero.checks.framework.base import CheckFailed, as_text, hint, is_whole, listed, named, task
from pi2zero.checks.framework.collective import on_ranks
from pi2zero.mpi import name_ranks


def _network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def _batch(rank):
    rng = np.random.default_rng(rank)
    return torch.from_numpy(rng.random((4, 6), dtype=np.float32)), torch.from_numpy(rng.integers(0, 3, 4))


def _gradients(rank, seed=7):
    """The gradient of a rank's own batch, one array a parameter."""
    model = _network(seed)
    images, labels = _batch(rank)
    F.cross_entropy(model(images), labels).backward()
    return [parameter.grad.numpy().copy() for parameter in model.parameters()]


def _arrays(tensors):
    return [None if tensor is None else tensor.detach().cpu().numpy().copy() for tensor in tensors]


@task(4)
def task4(same_start):
    """same_start(comm, model): afterwards, all ranks' parameters are rank 0's."""

    def run(comm, model):
        same_start(comm, model)
        return _arrays(model.parameters())

    def judge(size, results):
        starts = [_arrays(_network(rank).parameters()) for rank in range(size)]
        for rank, mine in enumerate(results):
            for layer, (values, right) in enumerate(zip(mine, starts[0], strict=True)):
                if np.array_equal(values, right):
                    continue
                which = f"parameter {layer} of rank {rank}"
                if size > 1 and np.allclose(values, np.mean([start[layer] for start in starts], axis=0)):
                    raise CheckFailed(f"{which} is the mean over the ranks. Rank 0's is due: the start a single process has.")
                if np.array_equal(values, starts[rank][layer]):
                    raise CheckFailed(
                        f"{which} is the rank's own, as before. What bcast returns has to be put into the parameter."
                    )
                if any(np.array_equal(values, start[layer]) for start in starts):
                    raise CheckFailed(f"{which} is another rank's; all take rank 0's.")
                raise CheckFailed(
                    f"{which} begins with {as_text(values.flat[0])}; rank 0's begins with {as_text(right.flat[0])}."
                )

    sizes = on_ranks(named(same_start, run), lambda rank, size: (_network(rank),), judge)
    return f"All ranks start from rank 0's parameters, weights and biases, bit by bit; tried with {listed(sizes)} ranks."


@task(5)
def task5(average):
    """average(comm, model): afterwards, each parameter's .grad is the mean over the ranks; the parameters are untouched."""

    def arguments(rank, size):
        model = _network(7)
        for parameter, gradient in zip(model.parameters(), _gradients(rank), strict=True):
            parameter.grad = torch.from_numpy(gradient)
        return (model,)

    def run(comm, model):
        average(comm, model)
        return _arrays(model.parameters()), _arrays(parameter.grad for parameter in model.parameters())

    sizes = on_ranks(named(average, run), arguments, _judge_mean)
    return f"Each gradient is the mean over the ranks, the parameters are untouched; tried with {listed(sizes)} ranks."


def _judge_mean(size, results):
    """results: (parameters, gradients) by rank; the parameters began as _network(7)'s."""
    parts = [_gradients(rank) for rank in range(size)]
    start = _arrays(_network(7).parameters())
    for rank, (parameters, gradients) in enumerate(results):
        for layer, (before, now) in enumerate(zip(start, parameters, strict=True)):
            if not np.array_equal(before, now):
                raise CheckFailed(
                    f"parameter {layer} of rank {rank} was changed. Only .grad is to be reduced; parameters are the optimizer's."
                )
        for layer, mine in enumerate(gradients):
            each = [part[layer] for part in parts]
            mean = np.mean(each, axis=0)
            if mine is None:
                raise CheckFailed(f"parameter {layer} of rank {rank} has no gradient any more; its mean over the ranks is due.")
            if _same(mine, mean):
                continue
            where = f"rank {rank}, parameter {layer}"
            known = [
                (np.sum(each, axis=0), f"that is the sum over {size} ranks; the mean is due, 1/{size} of it."),
                (each[rank], "the gradient is the rank's own, as before. Reduce in place."),
                (mean / size, f"that is the mean, divided by {size} once more."),
                (each[rank] / size, f"that is the rank's own gradient / {size}; nothing was added."),
            ]
            otherwise = f"the gradient begins with {as_text(mine.flat[0])}, not {as_text(mean.flat[0])}."
            raise CheckFailed(f"{where}: {hint(mine, known, same=_same, otherwise=otherwise)}")


def _same(mine, values):
    return np.allclose(mine, values, rtol=1e-5, atol=1e-7)


@task(6)
def task6(my_rows):
    """my_rows(comm, n, epoch) -> which of n images this rank reads: all ranks together each once, in a new order an epoch."""
    n_by_case = ((24, 0), (24, 1), (1437, 3))
    for n, epoch in n_by_case:

        def run(comm, n, epoch=epoch):
            comm.barrier()  # an answer that only looks at comm.rank and comm.size has used the communicator all the same
            return my_rows(comm, n, epoch), my_rows(comm, n, epoch), my_rows(comm, n, epoch + 1)

        def judge(size, results, n=n, epoch=epoch):
            _judge_rows(size, n, epoch, results)

        sizes = on_ranks(named(my_rows, run), lambda rank, size, n=n: (n,), judge)
    return (
        "Every image is read by one rank, none twice, in a new order each epoch, the same when repeated; tried with "
        f"{listed(sizes)} ranks and 24 and 1,437 images."
    )


def _judge_rows(size, n, epoch, results):
    case = f"with {n:,} images in epoch {epoch}"
    share = n // size
    epochs = []
    for rank, (rows, again, later) in enumerate(results):
        lists = [np.asarray(part).ravel() for part in (rows, again, later)]
        if any(part.size == 0 or not is_whole(part[0]) for part in lists):
            raise CheckFailed(f"{case}, rank {rank} got {rows!r}; a list or an array of whole numbers is due: row numbers.")
        if not np.array_equal(lists[0], lists[1]):
            raise CheckFailed(f"{case}, rank {rank} asked twice and got two orders. Seed the generator with the epoch alone.")
        if lists[0].min() < 0 or lists[0].max() >= n:
            raise CheckFailed(f"{case}, rank {rank} reads row {lists[0].max()}; rows are 0 to {n - 1}.")
        if not share <= lists[0].size <= share + 1:
            raise CheckFailed(f"{case}, rank {rank} reads {lists[0].size:,} images; its share is {share:,} or one more.")
        epochs.append(lists)
    _judge_cover(case, n, [lists[0] for lists in epochs])
    if all(np.array_equal(np.sort(now), np.sort(later)) for now, _, later in epochs) and size > 1:
        raise CheckFailed(f"{case}, each rank reads the same images in the next epoch: mix all images anew, then share them out.")
    if size == 1 and np.array_equal(epochs[0][0], epochs[0][2]):
        raise CheckFailed(f"{case}, the next epoch has the same order. Seed the generator with the epoch.")


def _judge_cover(case, n, rows):
    for mine in rows[1:]:
        if np.array_equal(np.sort(mine), np.sort(rows[0])):
            same = [r for r, other in enumerate(rows) if np.array_equal(np.sort(other), np.sort(rows[0]))]
            raise CheckFailed(
                f"{case}, {name_ranks(same)} read the same images (rows {', '.join(map(str, mine[:4]))}, ...): "
                "together they learn no more than one of them."
            )
    counts = np.bincount(np.concatenate(rows), minlength=n)
    twice, never = int((counts > 1).sum()), int((counts == 0).sum())
    if twice and not never and twice < len(rows):
        raise CheckFailed(
            f"{case}, {twice} image{'s are' if twice > 1 else ' is'} read by two ranks, so that all get equally many. "
            "These count twice in the mean:\nleave the last ones out instead. (DistributedSampler does so with drop_last=True.)"
        )
    if twice:
        raise CheckFailed(
            f"{case}, {twice:,} images are read by two ranks or more, and {never:,} by none. "
            "All ranks have to shuffle alike (the same seed), then take different rows of it."
        )
    if never > len(rows) - 1:
        raise CheckFailed(f"{case}, {never:,} images are read by no rank; fewer than the {len(rows)} ranks may be left out.")


@task(7)
def task7(reduce_as_it_comes):
    """reduce_as_it_comes(comm, model): registers hooks, so that backward leaves the mean over the ranks in each .grad."""

    def run(comm, model):
        reduce_as_it_comes(comm, model)
        images, labels = _batch(comm.rank)
        F.cross_entropy(model(images), labels).backward()
        return _arrays(model.parameters()), _arrays(parameter.grad for parameter in model.parameters())

    sizes = on_ranks(named(reduce_as_it_comes, run), lambda rank, size: (_network(7),), _judge_mean)
    return (
        f"backward leaves the mean gradient over the ranks, and does not touch the parameters; tried with {listed(sizes)} ranks."
    )
