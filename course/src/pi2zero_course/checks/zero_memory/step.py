"""The check of lab 4's last task: a step of ZeRO's stage 1 by hand, with torch.distributed's
collectives."""

import numpy as np
import torch

from pi2zero import ranks
from pi2zero_course.checks.framework.agree import require_ranks
from pi2zero_course.checks.framework.answers import CheckError
from pi2zero_course.checks.framework.task import lab_task
from pi2zero_course.checks.framework.torch_comm import on_torch_ranks
from pi2zero_course.checks.zero_memory.stage_1 import (
    TOLERANCE,
    as_array,
    batches,
    flatten,
    gradient_of,
    judge_steps,
    network,
)

STEPS = 20


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
            self.first = as_array(w), as_array(gradient)
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


@lab_task(4, 5)
def zero1_step(function):
    """zero1_step(flat, gradient, adam): one step of stage 1 in place; called STEPS times on each
    rank."""
    require_ranks(2)
    device = ranks.join().device

    def run(comm):
        net, adam = network().to(device), NotedAdam()
        flat = flatten(net, comm.size)
        start, own = as_array(flat), None
        for images, labels in batches(comm.size, STEPS):
            rows = slice(comm.rank, None, comm.size)
            gradient = gradient_of(
                net, images[rows].to(device), labels[rows].to(device), flat.numel()
            )
            own = as_array(gradient) if own is None else own
            function(flat, gradient, adam)
        part, gradient = adam.first or (None, None)
        kept = 0 if adam.m is None else adam.m.numel()
        report = {"start": start, "own": own, "part": part, "gradient": gradient, "kept": kept}
        return report | {"steps": adam.steps, "flat": as_array(flat), "called": set(comm.calls)}

    reports = on_torch_ranks(run, function)
    _judge_parts(reports)
    judge_steps(reports, STEPS)
    part = reports[0]["kept"]
    whole = "dist.all_reduce" in reports[0]["called"]
    sends = (
        " But all_reduce sends a whole gradient out again: twice the bytes of the reduce_scatter "
        "that stage 1 needs." * whole
    )
    return (
        f"After {STEPS} steps within {TOLERANCE:g} of Adam on one process, equal bit by bit on "
        f"{len(reports)} ranks; "
        f"each keeps moments of {part} of {len(reports[0]['flat'])} values.{sends}"
    )


def _judge_parts(reports):
    """Was Adam called once per step, on each rank with its own part of the parameters?"""
    ranks, whole = len(reports), len(reports[0]["flat"])
    for rank, report in enumerate(reports):
        if report["steps"] != STEPS:
            raise CheckError(
                f"rank {rank} called adam {report['steps']} times in {STEPS} steps; once per step "
                "is due."
            )
        if report["kept"] != whole // ranks:
            everything = (
                "Every rank has all moments: that is stage 0. Adam gets this rank's part only."
            )
            raise CheckError(
                f"rank {rank} keeps moments of {report['kept']} values; its part is "
                f"{whole // ranks} of {whole}.\n" + everything * (report["kept"] == whole)
            )
    for rank in reversed(range(ranks)):
        parts = np.split(reports[rank]["start"], ranks)
        given = [
            at for at, values in enumerate(parts) if np.array_equal(reports[rank]["part"], values)
        ]
        if rank not in given:
            which = f"part {given[0]}" if given else "something else than a part"
            raise CheckError(
                f"on rank {rank}, adam was given {which} of the parameters; part {rank} is its "
                "own: reduce_scatter gives rank r part r."
            )
