"""The checks of the blanks in notebooks 09 and 09b that run on their ranks."""

import torch
from mpi4py import MPI
from torch import nn

from pi2zero import ranks
from pi2zero_course.checks.framework.answers import (
    CheckError,
    call_answer,
    globals_of,
    with_globals,
)
from pi2zero_course.checks.framework.task import blank
from pi2zero_course.checks.framework.torch_comm import on_torch_ranks
from pi2zero_course.checks.framework.values import is_same, pick_hint, show
from pi2zero_course.checks.zero_memory.stage_1 import (
    TOLERANCE,
    as_array,
    batches,
    flatten,
    gradient_of,
    judge_steps,
    network,
)

STEPS = 3


@blank
def zero1_step(function):
    """zero1_step(): one step of stage 1 with the notebook's net, flat, mine and adam; the
    gradients are in net."""
    comm, device = MPI.COMM_WORLD, globals_of(function)["flat"].device
    judge_steps(on_torch_ranks(lambda comm: _three_steps(function, device), function), STEPS)
    return (
        f"After three steps within {TOLERANCE:g} of Adam on one process, and equal on {comm.size} "
        "ranks."
    )


def _three_steps(function, device):
    """What judge_steps wants to know of this rank."""
    comm, net = MPI.COMM_WORLD, network().to(device)
    flat = flatten(net, comm.size)
    start, own, gradients = as_array(flat), None, []
    mine = nn.Parameter(flat.chunk(comm.size)[comm.rank].clone())
    adam = torch.optim.Adam([mine], lr=1e-3)
    # Noted before the step: an answer may clear the gradient afterwards.
    adam.register_step_pre_hook(
        lambda *_: gradients.append(None if mine.grad is None else as_array(mine.grad))
    )
    for images, labels in batches(comm.size, STEPS):
        rows = slice(comm.rank, None, comm.size)
        gradient = gradient_of(net, images[rows].to(device), labels[rows].to(device), flat.numel())
        own = as_array(gradient) if own is None else own
        with with_globals(function, net=net, flat=flat, mine=mine, adam=adam):
            function()
    gradient = gradients[0] if gradients else None
    return {"start": start, "own": own, "gradient": gradient, "flat": as_array(flat)}


@blank
def compress(function):
    """compress(v, error, feedback=1) -> (the message of v + error, what it leaves out times
    feedback)."""
    notebook = globals_of(function)
    pack, unpack = notebook["pack"], notebook["unpack"]
    v, error = torch.tensor(
        [[3.0, -1.0, 0.5, -0.5], [0.25, 0.5, -1.0, 0.0]], device=ranks.join().device
    )
    u, due = (v + error).cpu(), pack(v + error)

    def content(message):
        return unpack(message, 4).cpu()

    for feedback in (1, 0):
        result = call_answer(function, v, error, feedback)
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise CheckError(f"compress returned {show(result)}; (message, error) is due.")
        message, left = result
        if getattr(message, "dtype", None) != torch.uint8 or message.shape != due.shape:
            raise CheckError("the message has to be what pack() makes: bytes.")
        if not torch.equal(message.cpu(), due.cpu()):
            known = {
                "It is that of v alone: what was left out before is added first.": content(pack(v)),
                "The error is added, not subtracted.": content(pack(v - error)),
            }
            raise CheckError(
                f"the message says {show(content(message).tolist())}; it has to say "
                f"{show(content(due).tolist())}.\n{pick_hint(content(message), known, is_same)}"
            )
        left, rest = torch.as_tensor(left).cpu() * torch.ones(4), u - content(due)
        if is_same(left, feedback * rest, 1e-5):
            continue
        known = {
            "What is left out is that of v + error, not of v.": v.cpu() - content(due),
            "It has the wrong sign: what was wanted, minus what the message says.": -rest,
            "Without feedback (0) nothing is kept: multiply.": rest,
            "Subtract what the message says, unpack(message, len(u)).": u,
        }
        raise CheckError(
            f"with feedback {feedback}, the error is {show(left.tolist())}; it has to be "
            f"{show((feedback * rest).tolist())}.\n{pick_hint(left, known, is_same)}"
        )
    return "What a message leaves out is added to the next, or with feedback 0 forgotten."
