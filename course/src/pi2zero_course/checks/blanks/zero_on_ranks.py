"""The checks of the blanks in notebooks 09 and 09b that run on their ranks."""

import numpy as np
import torch
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn

from pi2zero import ranks
from pi2zero_course.checks.framework.agree import agree
from pi2zero_course.checks.framework.answers import (
    CheckError,
    call_answer,
    globals_of,
    with_globals,
)
from pi2zero_course.checks.framework.task import blank
from pi2zero_course.checks.framework.values import is_same, pick_hint, show

STEPS = 3


@blank
def zero1_step(function):
    """zero1_step(): one step of stage 1 with the notebook's net, flat, mine and adam; the
    gradients are in net."""
    comm = MPI.COMM_WORLD
    device = globals_of(function)["flat"].device
    reports = comm.allgather(agree(_three_steps, function, device))
    alone = _alone()
    for report in reports:
        if np.array_equal(report["flat"], report["began"]):
            raise CheckError(
                "after three steps the parameters are as before. Is adam.step() called, and flat "
                "filled by all_gather?"
            )
    _judge_gradient(reports)
    for rank, report in enumerate(reports):
        if not np.array_equal(report["flat"], reports[0]["flat"]):
            raise CheckError(
                f"rank {rank}'s parameters differ from rank 0's: each has stepped its part only.\n"
                "all_gather(mine.detach(), flat) brings them to all."
            )
    off = np.abs(reports[0]["flat"][: alone.size] - alone).max()
    if off > 1e-4:
        raise CheckError(
            f"after three steps the parameters are {off:.2g} away from Adam's on one process; "
            "0.0001 is allowed."
        )
    return (
        f"After three steps within 0.0001 of Adam on one process, and equal on {comm.size} ranks."
    )


def _network():
    torch.manual_seed(5)
    return nn.Linear(64, 10)


def _batches(count):
    """STEPS batches of 4 images for each of `count` ranks."""
    draw = torch.Generator().manual_seed(1)
    return [
        (
            torch.rand(4 * count, 64, generator=draw),
            torch.randint(0, 10, (4 * count,), generator=draw),
        )
        for _ in range(STEPS)
    ]


def _three_steps(function, device):
    """What is left on this rank after three steps; its gradient in the first."""
    comm, net = MPI.COMM_WORLD, _network().to(device)
    flat = nn.utils.parameters_to_vector(net.parameters()).detach()
    flat = F.pad(flat, (0, -flat.numel() % comm.size))
    nn.utils.vector_to_parameters(flat, net.parameters())
    mine = nn.Parameter(flat.chunk(comm.size)[comm.rank].clone())
    adam, firsts, began = torch.optim.Adam([mine], lr=1e-3), {}, flat.cpu().numpy().copy()
    noted = []  # with what it steps: an answer may clear the gradient afterwards
    adam.register_step_pre_hook(
        lambda *given: noted.append(None if mine.grad is None else mine.grad.detach().clone())
    )
    for images, labels in _batches(comm.size):
        net.zero_grad()
        images, labels = (
            images[comm.rank :: comm.size].to(device),
            labels[comm.rank :: comm.size].to(device),
        )
        F.cross_entropy(net(images), labels).backward()
        own = torch.cat([p.grad.flatten() for p in net.parameters()])
        own = F.pad(own, (0, flat.numel() - own.numel())).cpu().numpy().copy()
        with with_globals(function, net=net, flat=flat, mine=mine, adam=adam):
            call_answer(function)
        used = noted[0] if noted else mine.grad
        stepped = None if used is None else used.cpu().numpy().copy()
        firsts = firsts or {"own": own, "stepped": stepped}
    return firsts | {"began": began, "flat": flat.cpu().numpy()}


def _alone():
    net, count = _network(), MPI.COMM_WORLD.size
    adam = torch.optim.Adam(net.parameters(), lr=1e-3)
    for images, labels in _batches(count):
        net.zero_grad()
        F.cross_entropy(net(images), labels).backward()
        adam.step()
    return nn.utils.parameters_to_vector(net.parameters()).detach().numpy()


def _judge_gradient(reports):
    """With what did Adam step? Adam hides a factor, because it divides by the gradient's usual
    size."""
    total = sum(report["own"] for report in reports)
    for rank, report in enumerate(reports):
        mine, own = report["stepped"], np.split(report["own"], len(reports))[rank]
        due = np.split(total, len(reports))[rank] / len(reports)
        if mine is None or mine.shape != due.shape:
            raise CheckError(
                f"rank {rank}: mine.grad is {show(mine)}; it has to be the mean gradient of this "
                f"rank's {due.size} values."
            )
        if np.allclose(mine, due, rtol=1e-4, atol=1e-7):
            continue
        known = [
            (
                due * len(reports),
                "That is the sum over the ranks; Adam hides it, but weight decay and clipping see "
                "it. Divide by the world size.",
            ),
            (own, "That is its own gradient: reduce_scatter adds up the ranks'."),
            (
                own / len(reports),
                "That is its own gradient, divided: reduce_scatter adds up the ranks'.",
            ),
        ]
        why = pick_hint(
            mine, known, same=lambda one, value: np.allclose(one, value, rtol=1e-4, atol=1e-7)
        )
        raise CheckError(
            f"rank {rank}: mine.grad of the first step is not the mean over the ranks of part "
            f"{rank}.\n{why}"
        )


@blank
def compress(function):
    """compress(v, error, feedback=1) -> (the message of v + error, what it leaves out times
    feedback)."""
    space = globals_of(function)
    pack, unpack = space["pack"], space["unpack"]
    v, error = torch.tensor(
        [[3.0, -1.0, 0.5, -0.5], [0.25, 0.5, -1.0, 0.0]], device=ranks.join().device
    )

    def said(message):
        return unpack(message, 4).cpu()

    for feedback in (1, 0):
        result = call_answer(function, v, error, feedback)
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise CheckError(f"compress returned {show(result)}; (message, error) is due.")
        message, left = result
        u = (v + error).cpu()
        due = pack(v + error)
        if (
            not isinstance(message, torch.Tensor)
            or message.dtype != torch.uint8
            or message.shape != due.shape
        ):
            raise CheckError("the message has to be what pack() makes: bytes.")
        if not torch.equal(message.cpu(), due.cpu()):
            known = [
                (
                    said(pack(v)),
                    "It is that of v alone: what was left out before, `error`, is added first.",
                )
            ]
            known += [(said(pack(v - error)), "The error is added, not subtracted.")]
            why = pick_hint(said(message), known, same=is_same)
            raise CheckError(
                f"the message says {show(said(message).tolist())}; it has to say "
                f"{show(said(due).tolist())}.\n{why}"
            )
        rest = feedback * (u - said(due))
        if is_same(torch.as_tensor(left).cpu() * torch.ones(4), rest * torch.ones(4), 1e-5):
            continue
        known = [
            (v.cpu() - said(due), "What is left out is that of v + error, not of v."),
            (said(due) - u, "It has the wrong sign: what was wanted, minus what the message says."),
            (u - said(due), "Without feedback (0) nothing is kept: multiply."),
            (u, "Subtract what the message says, unpack(message, len(u))."),
        ]
        numbers = torch.as_tensor(left).tolist()
        why = pick_hint(
            torch.as_tensor(left).cpu(), known, same=lambda one, value: is_same(one, value, 1e-5)
        )
        raise CheckError(
            f"with feedback {feedback}, the error is {show(numbers)}; it has to be "
            f"{show(rest.tolist())}.\n{why}"
        )
    return "What a message leaves out is added to the next, or with feedback 0 forgotten."
