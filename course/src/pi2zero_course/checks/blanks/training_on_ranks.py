"""The checks of the blanks in notebooks 04 to 06 that run on their ranks."""

import re
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn

from pi2zero import ranks
from pi2zero_course.checks.data_parallel.training import serial
from pi2zero_course.checks.framework.agree import agree
from pi2zero_course.checks.framework.answers import CheckError, speaking_of, with_globals
from pi2zero_course.checks.framework.on_ranks import OnRanks
from pi2zero_course.checks.framework.task import Blank, blank
from pi2zero_course.checks.framework.values import as_number, is_same, pick_hint, show
from pi2zero_course.checks.framework.watched_comm import WatchedComm
from pi2zero_course.checks.framework.watched_file import WatchedFile


def _problem(n):
    """A network and n images with labels; the same on all ranks."""
    torch.manual_seed(5)
    model = nn.Linear(64, 10)
    return model, torch.rand(n, 64), torch.randint(0, 10, (n,))


def _gradient(model, x, y, rows):
    """The mean gradient of some rows as one array; of none, zeros."""
    loss = F.cross_entropy(model(x[rows]), y[rows], reduction="sum") / max(len(rows), 1)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return torch.cat([part.flatten() for part in gradients]).numpy()


def _is_close(gradient, value):
    return np.allclose(gradient, value, rtol=1e-4, atol=1e-6)


def _call_with_comm(function, comm, *args):
    with with_globals(function, comm=comm):
        return function(*args)


def _judge_gradient(results, n):
    size = len(results)
    model, x, y = _problem(n)
    shares = np.array_split(np.arange(n), size)
    due = _gradient(model, x, y, np.arange(n))
    means = [_gradient(model, x, y, share) for share in shares]
    for rank, gradient in enumerate(results):
        if gradient is None:
            raise CheckError(f"rank {rank} returned None. Is the `return` missing?")
        if np.shape(gradient) != due.shape:
            raise CheckError(
                f"rank {rank} returned an array of shape {np.shape(gradient)}; {due.shape} is due."
            )
        if np.allclose(gradient, due, rtol=0, atol=1e-6):
            continue
        own = means[rank] * len(shares[rank])
        known = {
            "That is the sum over all images; divide once, by the number of images in the "
            "whole batch.": due * n,
            "That is the mean of the ranks' means: an image of a small share counts more. Sum "
            "on the ranks.": np.mean(means, axis=0),
            "That is the gradient of its own share: Allreduce is missing.": means[rank],
            "That is its own share's part: Allreduce is missing.": own / n,
            "Every rank computes the whole batch; its rows are "
            "np.array_split(np.arange(len(x)), comm.size)[comm.rank].": due * size,
        }
        why = pick_hint(gradient, known, same=_is_close)
        off = np.abs(gradient - due).max()
        raise CheckError(
            f"{n} images: the gradient of rank {rank} is off by up to {off:.2g}; 1e-06 is "
            f"allowed.\n{why}"
        )


# parallel_gradient(model, x, y) -> the gradient of the whole batch, on every rank of the
# notebook's `comm`
parallel_gradient = Blank(
    name="parallel_gradient",
    cases=[(64,), (62,), (3,)],
    on_ranks=OnRanks(
        arguments=lambda rank, size, n: _problem(n), judge=_judge_gradient, call=_call_with_comm
    ),
    verified="It is the gradient of the whole batch, of 3, 62 and 64 images; tried with {ranks} "
    "ranks.",
)


def _weights(rank):
    """The further a rank is from rank 0, the further its weights, downwards; the first ones are
    alike."""
    return np.array([1.0, -2.0, 3.0 - rank / 4], "float32")


def _judge_difference(results, apart):
    size = len(results)
    due, said = apart * (size - 1) / 4, [difference for difference, _ in results]
    for rank, (difference, weights) in enumerate(results):
        if as_number(difference) is None:
            why = "Is the `return` missing?" if difference is None else "One number is due."
            if difference is None and as_number(said[0]) is not None:
                why = "reduce gives the result to rank 0 only; allreduce to all."
            raise CheckError(f"rank {rank} returned {show(difference)}. {why}")
        if not np.array_equal(weights, _weights(rank * apart)):
            raise CheckError(
                f"rank {rank}'s weights have changed: Bcast fills the array that it gets. Give it "
                "a copy."
            )
    if np.allclose(said, due, atol=1e-6):
        return
    known = {
        "Each says how far it is itself; all have to say the largest of these.": [
            apart * rank / 4 for rank in range(size)
        ],
        "That is the sum over the ranks; op=MPI.MAX takes the largest.": [
            apart * sum(range(size)) / 4
        ]
        * size,
        "Weights that are smaller than rank 0's differ, too: take abs(...), then the largest.": [0]
        * size,
    }
    why = pick_hint(said, known, same=lambda one, value: np.allclose(one, value, atol=1e-6))
    raise CheckError(
        f"the largest difference is {due:g}; ranks 0 to {size - 1} returned {show(said)}.\n{why}"
    )


def _call_with_weights(function, comm, weights):
    return _call_with_comm(function, comm, weights), weights


# ranks_differ_by(weights) -> the largest difference of any rank's weights from rank 0's, on every
# rank of `comm`
ranks_differ_by = Blank(
    name="ranks_differ_by",
    cases=[(0,), (1,)],
    on_ranks=OnRanks(
        arguments=lambda rank, size, apart: (_weights(rank * apart),),
        judge=_judge_difference,
        call=_call_with_weights,
    ),
    verified="Equal weights and different ones are told apart; tried with {ranks} ranks.",
)

# warmed_up(step, lr, steps) -> the learning rate of a step (the first is 0): up to lr within
# `steps` steps, then lr
warmed_up = Blank(
    name="warmed_up",
    reference=lambda step, lr, steps: lr * min(1, (step + 1) / steps),
    cases=[(4, 0.4, 10), (0, 0.4, 10), (9, 0.4, 10), (25, 0.4, 10), (3, 0.1, 4)],
    mistakes={
        "It goes on rising after the warm-up: not more than lr.": (
            lambda step, lr, steps: lr * (step + 1) / steps
        ),
        "The first step has the rate 0 and is lost: it is step 0, so count from 1.": (
            lambda step, lr, steps: lr * min(1, step / steps)
        ),
    },
    verified="It rises in equal steps, and stays.",
)


@blank
def train_step(function):
    """train_step(model, optimizer, batch) -> the mean loss over the ranks; the parameters step as
    with the whole batch."""
    import horovod.torch as hvd

    from pi2zero_course.checks.framework.horovod_comm import on_horovod_ranks

    comm, (_, images, labels) = MPI.COMM_WORLD, _problem(48)

    def run():
        model = _problem(1)[0]
        began = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        optimizer = hvd.DistributedOptimizer(sgd, named_parameters=model.named_parameters())
        with with_globals(function, images=images, labels=labels):
            losses = [
                function(model, optimizer, torch.arange(48)[comm.rank :: comm.size])
                for _ in range(3)
            ]
        return losses, began, nn.utils.parameters_to_vector(model.parameters()).detach()

    losses, began, ended = on_horovod_ranks(run, function)[comm.rank]
    due_losses, due = _serial_steps(images, labels)
    agree(_judge_step, losses, began, ended, due_losses, due)
    return (
        f"Three steps on {comm.size} ranks give the parameters and the losses of one process with "
        "the whole batch."
    )


def _serial_steps(images, labels):
    model = _problem(1)[0]
    losses = serial(model, [(images, labels)] * 3)
    return losses, nn.utils.parameters_to_vector(model.parameters()).detach()


def _judge_step(losses, began, ended, due_losses, due):
    if torch.equal(began, ended):
        raise CheckError(
            "after three steps the parameters are as before: is optimizer.step() called, after "
            "backward?"
        )
    if not torch.allclose(ended, due, rtol=0, atol=1e-5):
        raise CheckError(
            f"after three steps the parameters are {(ended - due).abs().max():.2g} away from the "
            "serial program's. Are the gradients set to zero in each step, before backward?"
        )
    if not is_same([as_number(loss) or np.nan for loss in losses], due_losses, 1e-4):
        raise CheckError(
            f"the losses are {show(losses)}; the mean over the ranks is {show(due_losses)}. "
            "hvd.allreduce takes a mean."
        )


@blank
def accumulate(function):
    """accumulate(ddp, images, labels, parts): leaves the mean gradient of all ranks' images, with
    one all-reduce."""
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel

    from pi2zero_course.checks.framework.torch_comm import on_torch_ranks

    model, images, labels = _problem(32 * dist.get_world_size())
    whole = _gradient(model, images, labels, np.arange(len(images)))

    device, rows = ranks.join().device, slice(dist.get_rank(), None, dist.get_world_size())

    def run(comm):
        calls, seen, net = [], [], DistributedDataParallel(_problem(1)[0].to(device))
        net.module.register_forward_pre_hook(lambda module, given: seen.append(len(given[0])))

        def hook(state, bucket):
            calls.append(bucket.index())
            return default_hooks.allreduce_hook(None, bucket)

        net.register_comm_hook(None, hook)
        function(net, images[rows].to(device), labels[rows].to(device), 4)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in net.parameters()]
        return len(calls), seen, torch.cat([g.flatten() for g in gradients]).cpu().numpy()

    agree(_judge_accumulated, *on_torch_ranks(run, function)[dist.get_rank()], whole)
    return "One all-reduce for 4 micro-batches, and the gradient of all images."


def _judge_accumulated(calls, seen, gradient, whole):
    if not np.any(gradient):
        raise CheckError("there is no gradient: is backward called?")
    if seen != [8] * 4:
        raise CheckError(
            f"the network saw {seen} images at a time; parts = 4 micro-batches of this rank's 32 "
            "are [8, 8, 8, 8]."
        )
    if calls == 0:
        raise CheckError(
            "no all-reduce was made: no_sync is for all micro-batches but the last, which sends "
            "the sum."
        )
    if calls > 1:
        raise CheckError(
            f"{calls} all-reduces were made; one is enough: `with ddp.no_sync():` around forward "
            "and backward, of all micro-batches but the last."
        )
    if not np.allclose(gradient, whole, rtol=0, atol=1e-6):
        hint = "The gradients of the micro-batches add up, so divide each loss by their number."
        why = pick_hint(gradient, {hint: whole * 4}, same=_is_close)
        raise CheckError(
            f"the gradient is off by {np.abs(gradient - whole).max():.2g}; 1e-06 is allowed.\n{why}"
        )


@blank
def read_own_part(function):
    """read_own_part(file): fills `mine` with this rank's part; ValueError if the file ends before
    the part does."""
    numbers = np.arange(8.0 * MPI.COMM_WORLD.size, dtype="float32")
    for missing in (0, 4):  # bytes at the end
        comm = WatchedComm(MPI.COMM_WORLD)
        file = WatchedFile(_open_file(numbers, missing), comm)
        try:
            mine, refused = _read(function, comm, file)
            agree(_judge_part, mine, refused, numbers, missing)
        finally:
            MPI.File.Close(file)
            comm.free()
    return (
        f"{MPI.COMM_WORLD.size} ranks read their parts, and the last one notices when its own is "
        "cut short."
    )


def _open_file(numbers, missing) -> MPI.File:
    """A file of numbers that lacks `missing` bytes at its end. It has no name any more, so that
    nothing of it stays, however the ranks end."""
    comm, path = MPI.COMM_WORLD, None
    if comm.rank == 0:
        with tempfile.NamedTemporaryFile(dir=Path.home(), delete=False) as new:
            new.write(numbers.tobytes()[: numbers.nbytes - missing])
            path = new.name
    path = comm.bcast(path)
    file = MPI.File.Open(comm, path, MPI.MODE_RDONLY)
    comm.Barrier()
    if comm.rank == 0:
        Path(path).unlink()
    return file


def _read(function, comm, file):
    """(what this rank has read, whether it raised ValueError)"""
    mine, refused = np.full((2, 4), -1, dtype="float32"), []

    def run(comm):
        with with_globals(function, comm=comm, mine=mine):
            try:
                function(file)
            except ValueError:
                refused.append(comm.rank)

    try:
        comm.run_together(speaking_of(function, run), ())
    except CheckError as wrong:
        if not any(MPI.COMM_WORLD.allgather(refused)) or "returned" not in str(wrong):
            raise
        left = re.sub("ha(s|ve) returned", "raised ValueError before", str(wrong))
        raise CheckError(f"{left}\nCompare after the call, which all ranks have to make.") from None
    return mine, bool(refused)


def _judge_part(mine, refused, numbers, missing):
    comm = MPI.COMM_WORLD
    last, due = comm.rank == comm.size - 1, np.split(numbers, comm.size)[comm.rank].reshape(2, 4)
    if missing and refused != last:
        short = (
            "the file lacks 4 bytes of its part, and it raises no ValueError"
            if last
            else "its part is whole, and it raises"
        )
        raise CheckError(f"{short}. Compare where the part ends with file.Get_size(), in bytes.")
    if missing:
        return
    if refused:
        raise CheckError(
            "the file is whole, and it raises ValueError. Both numbers have to be bytes: (rank + "
            "1) * mine.nbytes."
        )
    if np.all(mine == -1):
        raise CheckError("nothing was read into `mine`.")
    if not np.array_equal(mine, due):
        begins = np.flatnonzero(numbers == mine.flat[0])
        where = f"at number {begins[0]}" if begins.size else "between two numbers"
        raise CheckError(
            f"its part begins at number {int(due.flat[0])}; it read from {where}. The offset "
            "counts bytes: rank * mine.nbytes."
        )
