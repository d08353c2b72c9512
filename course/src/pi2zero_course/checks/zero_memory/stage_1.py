"""A step of ZeRO's stage 1, as lab 4's last task and notebook 09's blank try it: a small network,
its batches, and how the parameters of all ranks are judged after some steps."""

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from pi2zero.mpi import name_ranks
from pi2zero_course.checks.framework.answers import CheckError
from pi2zero_course.checks.framework.values import pick_hint

TOLERANCE = 1e-4  # of a parameter, compared with Adam on one process


def as_array(tensor):
    """A copy of a tensor's values."""
    return tensor.detach().cpu().numpy().copy()


def network():
    """The same on all ranks."""
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(64, 13), nn.ReLU(), nn.Linear(13, 10))


def batches(ranks, steps):
    """`steps` batches of 6 samples per rank: images (6 * ranks, 64), labels; the same on all
    ranks."""
    draw = torch.Generator().manual_seed(1)
    return [
        (
            torch.rand(6 * ranks, 64, generator=draw),
            torch.randint(0, 10, (6 * ranks,), generator=draw),
        )
        for _ in range(steps)
    ]


def flatten(net, ranks):
    """The parameters as one tensor that divides by the ranks; net's become views of it."""
    flat = nn.utils.parameters_to_vector(net.parameters()).detach()
    flat = F.pad(flat, (0, -flat.numel() % ranks))
    nn.utils.vector_to_parameters(flat, net.parameters())
    return flat


def gradient_of(net, images, labels, length):
    """The gradient as one tensor of `length` values, zeros at its end."""
    net.zero_grad()
    F.cross_entropy(net(images), labels).backward()
    gradient = torch.cat([p.grad.flatten() for p in net.parameters()])
    return F.pad(gradient, (0, length - gradient.numel()))


def judge_steps(reports, steps) -> None:
    """Raise CheckError if the ranks did not train as Adam on one process does.

    reports: by rank, the flat parameters at the "start" and after the steps ("flat"), and of the
    first step the rank's "own" gradient and the "gradient" that Adam was given.
    """
    if all(np.array_equal(report["flat"], report["start"]) for report in reports):
        raise CheckError(
            "the parameters are as they were before: is Adam called, and do the new ones stand in "
            "flat, in place?"
        )
    # Rank 0's own gradient is also that of rank 0; on other ranks the two differ.
    for rank in reversed(range(len(reports))):
        _judge_gradient(rank, reports)
    _judge_equal(reports, steps)
    net = network()
    adam = torch.optim.Adam(net.parameters(), lr=1e-3)
    for images, labels in batches(len(reports), steps):
        gradient_of(net, images, labels, 10_000)
        adam.step()
    right = as_array(nn.utils.parameters_to_vector(net.parameters()))
    off = float(np.abs(reports[0]["flat"][: len(right)] - right).max())
    if off > TOLERANCE:
        raise CheckError(
            f"the ranks agree, but after {steps} steps their parameters are {off:.2g} away from "
            f"Adam's on one process; {TOLERANCE:g} is allowed.\n"
            "Does part r, which rank r computes, come back to the place of part r?"
        )


def _judge_gradient(rank, reports):
    """With what did Adam step? Adam hides a factor: it divides by the gradient's usual size."""
    ranks, gradient = len(reports), reports[rank]["gradient"]
    own = [np.split(report["own"], ranks) for report in reports]
    mean, own_part = np.mean(own, axis=0), own[rank][rank]
    same = partial(np.allclose, rtol=1e-4, atol=1e-7)
    if gradient is None or gradient.shape != own_part.shape:
        raise CheckError(
            f"on rank {rank}, Adam stepped without the mean gradient of its {own_part.size} values."
        )
    if same(gradient, mean[rank]):
        return
    known = {
        "that is the sum over the ranks; the mean is due. Adam hides it, but its moments, "
        "clipping and weight decay see another gradient.": mean[rank] * ranks,
        "that is the mean, divided by the number of ranks once more.": mean[rank] / ranks,
        "that is its own gradient: the other ranks' data are lost.": own_part,
        "that is its own gradient / ranks: nothing was added.": own_part / ranks,
    }
    why = pick_hint(
        gradient, known, same=same, otherwise=f"it is not the mean over the ranks of part {rank}."
    )
    raise CheckError(f"rank {rank}'s gradient in step 1: {why}")


def _judge_equal(reports, steps):
    ranks, first = len(reports), reports[0]["flat"]
    apart = [r for r, report in enumerate(reports) if not np.array_equal(report["flat"], first)]
    if not apart:
        return
    most = max(np.abs(reports[rank]["flat"] - first).max() for rank in apart)
    why = "Do all parts come from the rank that owns them?"
    for rank, report in enumerate(reports):
        now, before = np.split(report["flat"], ranks), np.split(report["start"], ranks)
        if all(np.array_equal(now[part], before[part]) for part in range(ranks) if part != rank):
            why = "Each rank has changed its own part only: the new parts have to reach all ranks."
    raise CheckError(
        f"after {steps} steps, the parameters of {name_ranks(apart)} differ from rank 0's, by up "
        f"to {most:.2g}; not one bit may.\n{why}"
    )
