"""The checks of lab 3's first half: the training step by hand, with Horovod and with DDP.

Right means: the same parameters as the serial program on the whole batches, to a stated tolerance.
Task 1 is tried on 4, 3, 2
and 1 ranks; Horovod and torch.distributed have one world, that of all ranks.
"""

from contextlib import contextmanager

import numpy as np
import torch
import torch._dynamo  # loaded at first use, it would take seconds of the answer's time
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from pi2zero.mpi import name_ranks
from pi2zero_course.checks.framework.agree import require_ranks
from pi2zero_course.checks.framework.answers import CheckError, as_losses
from pi2zero_course.checks.framework.on_ranks import OnRanks
from pi2zero_course.checks.framework.task import lab_task, say
from pi2zero_course.checks.framework.torch_comm import on_torch_ranks
from pi2zero_course.checks.framework.values import join_words, pick_hint

TOLERANCE = 1e-5  # of a parameter, in float32; a sum in another order is off by 1e-7
BATCH, STEPS = 24, 4  # 24 is divisible by 1, 2, 3, 4 and 6 ranks


class Seen(nn.Sequential):
    """The network of the lab, smaller; it keeps the images that go through it, and the parameters
    it began with."""

    def __init__(self, seed):
        torch.manual_seed(seed)
        super().__init__(nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))
        self.read, self.began = [], None

    def forward(self, images):
        if not self.read:
            self.began = weights(self)
        self.read.append(images.detach().cpu().numpy().copy())
        return super().forward(images)


def batches():
    """STEPS whole batches: images (BATCH, 64), labels (BATCH,); the same on all ranks."""
    rng = np.random.default_rng(0)
    images = rng.random((STEPS, BATCH, 64), dtype=np.float32)
    labels = rng.integers(0, 10, (STEPS, BATCH))
    return [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in zip(images, labels, strict=True)]


def serial(model, data, gradient_times=1.0):
    """The serial program of the lab. gradient_times: what a wrong program multiplies its gradients
    by."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for images, labels in data:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        (loss * gradient_times).backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def weights(model):
    """All parameters as one array."""
    return np.concatenate(
        [parameter.detach().cpu().numpy().ravel() for parameter in model.parameters()]
    )


def report_of(model):
    """What the judge needs to know of one rank."""
    return {"weights": weights(model), "images": list(map(len, model.read)), "began": model.began}


def _judge(size, reports):
    """Compare the ranks with the serial program and with each other."""
    right, share = np.array(serial(Seen(seed=100), batches())), BATCH // size
    for rank, report in enumerate(reports):
        as_losses(rank, report["losses"])
        seen = report["images"]
        judge_seen(rank, seen)
        if size > 1 and min(seen) == BATCH:
            raise CheckError(
                f"rank {rank} computed all {BATCH} images of a batch: that is the serial program, "
                f"{size} times. Its share is {share}: images[rank::size]."
            )
        if seen != [share] * STEPS:
            raise CheckError(
                f"rank {rank} sent {seen} images through the model; it has to be {share} in each "
                f"of {STEPS} steps."
            )
    judge_weights(size, reports, batches())
    same = lambda losses, due: losses.shape == due.shape and np.allclose(losses, due, rtol=1e-4)  # noqa: E731
    for rank, report in enumerate(reports):
        losses = as_losses(rank, report["losses"])
        if not same(losses, right):
            why = "That is the loss of its own share: the mean over the ranks is due."
            if same(losses, size * right):
                why = "That is the sum over the ranks: divide by them."
            raise CheckError(
                f"rank {rank} returned the losses {_few(losses)}; the whole batches have "
                f"{_few(right)}.\n{why * (size > 1)}"
            )


def judge_seen(rank, seen):
    """Did any image go through the rank's model?"""
    if not seen:
        raise CheckError(
            f"on rank {rank}, the model that you were given saw no image. Did you train a copy? "
            "comm.bcast(model) returns a new one;\nwrite rank 0's parameters into this one."
        )


def judge_weights(size, reports, data):
    """Are the ranks' parameters equal, and those of the serial program on the whole batches
    `data`, from rank 0's start?"""
    apart = [
        rank
        for rank, report in enumerate(reports)
        if not np.array_equal(report["weights"], reports[0]["weights"])
    ]
    if apart:
        differences = [np.abs(reports[rank]["weights"] - reports[0]["weights"]) for rank in apart]
        raise CheckError(
            f"after {len(data)} steps, the parameters of {name_ranks(apart)} differ from rank 0's, "
            f"by up to {np.max(differences):.2g}; not one bit may.\n"
            + _why_apart(reports, np.max(differences, axis=0))
        )
    model = Seen(seed=100)
    serial(model, data)
    off = np.abs(reports[0]["weights"] - weights(model)).max()
    if off > TOLERANCE:
        raise CheckError(
            f"the ranks agree, but their parameters are {off:.2g} away from the serial program's; "
            f"{TOLERANCE:g} is allowed.\n" + _why(size, reports[0]["weights"], data)
        )


def _why_apart(reports, difference):
    if not all(np.array_equal(report["began"], reports[0]["began"]) for report in reports):
        return "Did all ranks start from rank 0's parameters?"
    biases = np.concatenate(
        [np.full(part.numel(), part.dim() == 1) for part in Seen(seed=100).parameters()]
    )
    if not difference[~biases].any():
        return "Only biases differ: which gradients are reduced, and which are not?"
    return "Did every rank step with the same gradient, that of all ranks?"


def _why(size, result, data):
    """The mistake that gives just these parameters."""
    known = {
        "That is what the sum of the ranks' gradients gives: the mean is due, 1/size of it.": size,
        "The gradients are divided by the number of ranks twice.": 1 / size,
    }

    def gives(result, times):
        model = Seen(seed=100)
        serial(model, data, gradient_times=times)
        return size > 1 and np.abs(weights(model) - result).max() < TOLERANCE

    if text := pick_hint(result, known, same=gives):
        return text
    if np.array_equal(weights(Seen(seed=100)), result):
        return "They are as they were before: is optimizer.step() called?"
    return (
        "Do all ranks start from rank 0's parameters, and does the gradient of each step come "
        "from the whole batch?"
    )


def _few(losses):
    return ", ".join(f"{loss:.4f}" for loss in losses)


@lab_task(3, 1)
def by_hand(function):
    """by_hand(comm, model, batches) -> losses; model is trained in place as by the serial
    program."""
    with_own_gradients = set()  # numbers of ranks on which each rank stepped with its own gradient

    def call(function, comm, model, data):
        with gradients_of_steps() as used:
            losses = function(comm, model, data)
        return report_of(model) | {"losses": losses, "used": used}

    def judge(reports):
        _judge(len(reports), reports)
        if len({tuple(report["used"]) for report in reports}) > 1:
            with_own_gradients.add(len(reports))

    run = OnRanks(
        arguments=lambda rank, size: (Seen(seed=100 + rank), batches()), judge=judge, call=call
    )
    sizes = run(function, [()])
    also = (
        " But each rank stepped with its own gradient, and you averaged the parameters: equal for "
        "SGD, wrong with Adam."
    )
    return (
        f"Parameters as the serial program's to {TOLERANCE:g}, equal bit by bit on all ranks; "
        f"tried with {join_words(sizes)} ranks." + also * bool(with_own_gradients)
    )


@contextmanager
def gradients_of_steps():
    """The gradients with which torch's optimizers step meanwhile, as bytes, one entry a step."""
    used = []

    def note(optimizer, args, kwargs):
        gradients = [
            p.grad
            for group in optimizer.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        used.append(b"".join(gradient.detach().cpu().numpy().tobytes() for gradient in gradients))

    handle = register_optimizer_step_pre_hook(note)
    try:
        yield used
    finally:
        handle.remove()


def _in_the_world(name, losses_of):
    """Run an answer on all ranks as they are: losses_of(model) on this rank. What was verified."""
    comm, model = MPI.COMM_WORLD, Seen(seed=100 + MPI.COMM_WORLD.rank)
    require_ranks(2)
    if BATCH % comm.size:
        raise CheckError(
            f"This check's batch of {BATCH} does not divide by {comm.size} ranks. Take 2, 3, 4 or "
            "6."
        )
    losses = losses_of(model)
    _judge(comm.size, comm.allgather({"losses": losses} | report_of(model)))
    return (
        f"{name} on {comm.size} ranks: parameters as the serial program's to {TOLERANCE:g}, equal "
        "on all ranks."
    )


def with_horovod(function):
    """with_horovod(model, batches) -> losses. Without Horovod on the ranks, it says so and lets
    the learner go on."""
    try:
        import horovod.torch
    except ImportError as error:
        say(
            f"Task 2 needs Horovod, which is not here ({error}). `make horovod` builds it. Go on "
            "with task 3."
        )
        return
    horovod.torch.init()
    try:
        _with_horovod(function)
    finally:
        horovod.torch.shutdown()  # its thread polls, and the next tasks need the cores


@lab_task(3, 2)
def _with_horovod(function):
    from pi2zero_course.checks.framework.horovod_comm import on_horovod_ranks

    def losses_of(model):
        every = on_horovod_ranks(lambda: function(model, batches()), function)
        return every[MPI.COMM_WORLD.rank]

    return _in_the_world("Horovod", losses_of)


@lab_task(3, 3)
def with_ddp(function):
    """with_ddp(model, batches) -> losses."""

    def losses_of(model):
        every = on_torch_ranks(lambda comm: function(model, batches()), function)
        return every[MPI.COMM_WORLD.rank]

    return _in_the_world("DDP", losses_of)
