"""The check of lab 4's last task: a step of ZeRO's stage 1 by hand, with torch.distributed's
collectives."""

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from pi2zero import ranks
from pi2zero.mpi import name_ranks
from pi2zero_course.checks.framework.agree import require_ranks
from pi2zero_course.checks.framework.answers import CheckError
from pi2zero_course.checks.framework.task import lab_task
from pi2zero_course.checks.framework.torch_comm import on_torch_ranks
from pi2zero_course.checks.framework.values import pick_hint

STEPS, TOLERANCE = 20, 1e-4


class NotedAdam:
    """The lab's Adam, which notes what it is given first. m, v: its moments, one value each for
    each parameter."""

    def __init__(self, lr=1e-3):
        self.lr, self.steps, self.m, self.v, self.first = lr, 0, None, None, None

    def __call__(self, w, gradient):
        if w.shape != gradient.shape:
            raise CheckError(
                f"adam was given {w.numel():,} parameters and a gradient of {gradient.numel():,} "
                "values."
            )
        if self.m is None:
            self.m, self.v = torch.zeros_like(w), torch.zeros_like(w)
            self.first = _array(w), _array(gradient)
        if self.m.shape != w.shape:
            raise CheckError(
                f"adam was given {w.numel():,} parameters; before, it was {self.m.numel():,}: "
                "always the same part."
            )
        self.steps += 1
        self.m.mul_(0.9).add_(gradient, alpha=0.1)
        self.v.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        m_hat, v_hat = self.m / (1 - 0.9**self.steps), self.v / (1 - 0.999**self.steps)
        w -= self.lr * m_hat / (v_hat.sqrt() + 1e-8)


def _array(tensor):
    return tensor.detach().cpu().numpy().copy()


def _network():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(64, 13), nn.ReLU(), nn.Linear(13, 10))


def _batches(shares):
    """STEPS batches of 6 samples a rank: images (6 * shares, 64), labels; the same on all ranks."""
    draw = torch.Generator().manual_seed(1)
    return [
        (
            torch.rand(6 * shares, 64, generator=draw),
            torch.randint(0, 10, (6 * shares,), generator=draw),
        )
        for _ in range(STEPS)
    ]


def _gradient(net, images, labels, length):
    """The gradient as one tensor of `length` values, zeros at its end."""
    net.zero_grad()
    F.cross_entropy(net(images), labels).backward()
    gradient = torch.cat([p.grad.flatten() for p in net.parameters()])
    return F.pad(gradient, (0, length - gradient.numel()))


def _flat(net, shares):
    flat = nn.utils.parameters_to_vector(net.parameters()).detach()
    flat = F.pad(flat, (0, -flat.numel() % shares))
    nn.utils.vector_to_parameters(flat, net.parameters())  # views from now on
    return flat


@lab_task(4, 5)
def zero1_step(function):
    """zero1_step(flat, gradient, adam): one step of stage 1 in place; called STEPS times on each
    rank."""
    require_ranks(2)
    device = ranks.join().device

    def run(comm):
        net, adam = _network().to(device), NotedAdam()
        flat = _flat(net, comm.size)
        start, own = _array(flat), None
        for images, labels in _batches(comm.size):
            images, labels = images.to(device), labels.to(device)
            gradient = _gradient(
                net, images[comm.rank :: comm.size], labels[comm.rank :: comm.size], flat.numel()
            )
            own = _array(gradient) if own is None else own
            function(flat, gradient, adam)
        kept = 0 if adam.m is None else adam.m.numel()
        report = {
            "start": start,
            "own": own,
            "first": adam.first,
            "kept": kept,
            "steps": adam.steps,
            "flat": _array(flat),
        }
        return report | {"called": set(comm.called)}

    reports = on_torch_ranks(run, function)
    _judge_step(reports)
    part = reports[0]["kept"]
    whole = "all_reduce" in reports[0]["called"]
    sends = (
        " But all_reduce sends a whole gradient out again: twice the bytes of the reduce_scatter "
        "that stage 1 needs." * whole
    )
    return (
        f"After {STEPS} steps within {TOLERANCE:g} of Adam on one process, equal bit by bit on "
        f"{len(reports)} ranks; "
        f"each keeps moments of {part} of {len(reports[0]['flat'])} values.{sends}"
    )


def _judge_step(reports):
    shares, whole = len(reports), len(reports[0]["flat"])
    for rank, report in enumerate(reports):
        if report["steps"] != STEPS:
            raise CheckError(
                f"rank {rank} called adam {report['steps']} times in {STEPS} steps; once a step is "
                "due."
            )
        if report["kept"] != whole // shares:
            everything = (
                "Every rank has all moments: that is stage 0. Adam gets this rank's part only."
            )
            raise CheckError(
                f"rank {rank} keeps moments of {report['kept']} values; its part is "
                f"{whole // shares} of {whole}.\n" + everything * (report["kept"] == whole)
            )
    for rank in reversed(
        range(shares)
    ):  # rank 0's own gradient is rank 0's; on other ranks the two differ
        _judge_first(rank, reports)
    if all(np.array_equal(report["flat"], report["start"]) for report in reports):
        raise CheckError(
            "the parameters are as they were before: the new ones have to stand in flat, in place."
        )
    _judge_equal(reports)
    _judge_parameters(reports)


def _judge_first(rank, reports):
    """What adam was given in the first step: this rank's part, and the mean gradient of it."""
    shares = len(reports)
    w, gradient = reports[rank]["first"]
    begins = np.split(reports[rank]["start"], shares)
    if not np.array_equal(w, begins[rank]):
        other = [part for part, values in enumerate(begins) if np.array_equal(w, values)]
        which = (
            f"part {other[0]} of the parameters"
            if other
            else "something else than a part of the parameters"
        )
        raise CheckError(
            f"on rank {rank}, adam was given {which}; part {rank} is its own: reduce_scatter gives "
            "rank r part r."
        )
    own = [np.split(report["own"], shares) for report in reports]
    mean = np.mean(own, axis=0)
    same = partial(np.allclose, rtol=1e-4, atol=1e-7)
    if same(gradient, mean[rank]):
        return
    hides = (
        "Adam hides it (it divides by the gradient's usual size), but its moments, clipping and "
        "weight decay see another "
    )
    hides += "gradient."
    known = [
        (mean[rank] * shares, f"that is the sum over the ranks; the mean is due. {hides}"),
        (mean[rank] / shares, "that is the mean, divided by the number of ranks once more."),
        (own[rank][rank], "that is its own gradient: the other ranks' data are lost."),
        (own[0][rank], "that is rank 0's gradient: the other ranks' data are lost."),
        (own[rank][rank] / shares, "that is its own gradient / ranks: nothing was added."),
    ]
    known += [
        (values, f"that is the gradient of part {part}; the part's own is due.")
        for part, values in enumerate(mean)
    ]
    why = pick_hint(
        gradient, known, same=same, otherwise=f"it is not the mean over the ranks of part {rank}."
    )
    raise CheckError(f"rank {rank}'s gradient in step 1: {why}")


def _judge_equal(reports):
    apart = [
        rank
        for rank, report in enumerate(reports)
        if not np.array_equal(report["flat"], reports[0]["flat"])
    ]
    if not apart:
        return
    most = max(np.abs(reports[rank]["flat"] - reports[0]["flat"]).max() for rank in apart)
    lonely = False
    for rank, report in enumerate(reports):
        now, before = (np.split(report[name], len(reports)) for name in ("flat", "start"))
        lonely |= all(
            np.array_equal(now[part], before[part]) for part in range(len(reports)) if part != rank
        )
    why = (
        "Each rank has changed its own part only: the new parts have to reach all ranks."
        if lonely
        else "Do all parts come from the rank that owns them?"
    )
    who = f"the parameters of {name_ranks(apart)} differ from rank 0's"
    raise CheckError(f"after {STEPS} steps, {who}, by up to {most:.2g}; not one bit may.\n{why}")


def _judge_parameters(reports):
    net, shares = _network(), len(reports)
    adam = torch.optim.Adam(net.parameters(), lr=1e-3)
    for images, labels in _batches(shares):
        _gradient(net, images, labels, 10_000)
        adam.step()
    right = nn.utils.parameters_to_vector(net.parameters()).detach().numpy()
    off = float(np.abs(reports[0]["flat"][: len(right)] - right).max())
    if off > TOLERANCE:
        raise CheckError(
            f"the ranks agree, but their parameters are {off:.2g} away from Adam on one process; "
            f"{TOLERANCE:g} is allowed.\n"
            "Does part r, which rank r computes, come back to the place of part r?"
        )
