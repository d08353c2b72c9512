"""The check of lab 5's last task: train for some seconds on all ranks, and beat lead-3. And `together`, which cannot hang."""

import time
from contextlib import contextmanager

import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel

from pi2zero import ranks
from pi2zero.checks.framework.base import CheckFailed, task
from pi2zero.checks.framework.collective import WatchedComm
from pi2zero.checks.summarization import stories as shared
from pi2zero.checks.zero_memory.ranks import everywhere
from pi2zero.checks.zero_memory.step import watched

BUDGET, GRACE, FEWEST = 8.0, 3.0, 3  # seconds of training; for the last step; steps
PATIENCE = 30.0  # s after which an answer that goes on is ended; long, because a busy machine's step can take seconds
SCORED, POINTS, FACTS = 100, 10, 60  # validation stories; points of ROUGE-1 above lead-3; percent of names and numbers
TRAINED, FRESH = 2000, 64  # stories to learn from; others of their kind, whose loss has to fall


@task(5)
def task5(train):
    """train(model, rows, seconds): the shipped model learns on, in place, on all ranks; better than lead-3 afterwards."""
    me = ranks.join(deepspeed=True)
    if me.world_size < 2:
        raise CheckFailed("This check needs at least 2 ranks. Start them: pi2zero.start(n=2).")
    net, given = shared.model(me.device), shared.rows("train", TRAINED + FRESH)[:TRAINED]
    before, was, seen = _flat(net), _loss(net), _Seen(net)
    dist.barrier()
    seconds = max(together(lambda comm: _timed(train, net, given), train, PATIENCE))
    seen.hook.remove()
    everywhere(_judge_training, net, before, seen, seconds, me)
    _judge_ranks(net, seen, me)
    now = _loss(net)
    if not now < was:
        raise CheckFailed(
            f"on {FRESH} stories like those of training, the loss was {was:.3f} and is {now:.3f} now: it has to fall.\n"
            "Does the learning rate suit a model that has learnt already?"
        )
    found = shared.scored(net, SCORED, me, max_new_tokens=100, do_sample=False)
    lead, share = shared.lead_3(SCORED)["rouge1"], found["facts"]
    if found["rouge1"] < lead + POINTS or share < FACTS:
        raise CheckFailed(
            f"on {SCORED} validation stories, ROUGE-1 is {found['rouge1']:.1f} (target: {POINTS} points above lead-3, "
            f"{lead + POINTS:.1f}), and {share:.0f} % of the names and numbers are right (target: {FACTS} %).\n"
            "The model that you were given meets both. Does the learning rate suit a model that has learnt already?"
        )
    return (
        f"{seen.steps} steps in {seconds:.1f} s on {me.world_size} ranks: loss {was:.2f}, then {now:.2f}; "
        f"ROUGE-1 {found['rouge1']:.1f}, lead-3 {lead:.1f}; {share:.0f} % of names and numbers."
    )


class _Seen:
    """Notes what a model is shown while gradients are made."""

    def __init__(self, net):
        self.steps, self.first, self.held_out = 0, [], 0
        self._validation = {tuple(article) for article, _ in shared.rows("validation", 500)}
        self.hook = net.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, net, args, options):
        inputs = options.get("input_ids", args[0] if args else None)
        if inputs is None:
            return
        shown = [tuple(token for token in row if token) for row in inputs.tolist()]
        if torch.is_grad_enabled():
            self.held_out += sum(row in self._validation for row in shown)
            self.steps += 1
            self.first = self.first or shown


def _timed(train, net, given):
    start = time.monotonic()
    with _own_clock(dist.get_rank()):
        train(net, given, BUDGET)
    return time.monotonic() - start


@contextmanager
def _own_clock(rank):
    """Every second rank's clock runs 10 % fast: ranks that each look at their own part, as they would some day anyway."""
    real = {name: getattr(time, name) for name in ("monotonic", "perf_counter", "time")}
    begin = {name: clock() for name, clock in real.items()}
    for name in real:
        setattr(time, name, lambda name=name: begin[name] + (real[name]() - begin[name]) * (1 + 0.1 * (rank % 2)))
    try:
        yield
    finally:
        for name, clock in real.items():
            setattr(time, name, clock)


@torch.no_grad()
def _loss(net):
    """The loss on FRESH stories of the training kind that are not among the rows."""
    given = shared.rows("train", TRAINED + FRESH)[TRAINED:]
    return net(**shared.padded(given, net.device)).loss.item()


def _flat(net):
    return torch.cat([parameter.detach().flatten().float().cpu() for parameter in net.parameters()])


def _judge_training(net, before, seen, seconds, me):
    after = _flat(net)
    if seen.held_out:
        raise CheckFailed(
            f"the model was shown {seen.held_out} validation stories. A score on what it has learnt from says nothing: use rows."
        )
    if seconds > BUDGET + GRACE:
        raise CheckFailed(f"train was given {BUDGET:g} s and took {seconds:.1f} s. The budget counts from its first line on.")
    if len(after) != len(before):
        raise CheckFailed("model is not whole: stage 3 leaves each rank its shard. Stages 0 to 2 leave every rank a whole model.")
    if seen.steps < FEWEST:
        raise CheckFailed(f"the model was called for {seen.steps} steps on rank {me.rank}; {FEWEST} at least count as training.")
    if torch.equal(after, before):
        raise CheckFailed("the parameters of model are as they were: train has to change this model, in place, not a copy.")
    if not torch.isfinite(after).all():
        raise CheckFailed("parameters are not finite any more (nan): the training has diverged. Is the learning rate too high?")


def _judge_ranks(net, seen, me):
    every = MPI.COMM_WORLD.allgather((_flat(net).numpy(), set(seen.first), seen.steps))
    values, first, _ = zip(*every, strict=True)
    if len(first[0]) > 1 and all(shown == first[0] for shown in first):
        raise CheckFailed(f"all {me.world_size} ranks begin with the same stories: each has to learn from others.")
    apart = max(float(np.abs(one - values[0]).max()) for one in values)
    if apart > 0:
        raise CheckFailed(
            f"after training, the parameters of the ranks differ by up to {apart:.2g}: each has learnt for itself. "
            "Every step needs the mean of the ranks' gradients."
        )


# Without a chance to hang -----------------------------------------------------------------------------------------------


class _LongComm(WatchedComm):
    """As WatchedComm, for many calls; after `deadline` the next one ends the answer on all ranks."""

    deadline = float("inf")

    def _meet(self, kind, text):
        self._calls = min(self._calls, 100)
        if kind == "calls" and time.monotonic() > self.deadline:
            kind, text = "raised", CheckFailed("the time was over long ago, and train went on. Does it look at the clock?")
        super()._meet(kind, text)


@contextmanager
def _watched_ddp(comm):
    """DistributedDataParallel talks to the other ranks in C++: so the ranks agree upon its forward instead."""
    real = DistributedDataParallel.forward

    def forward(self, *args, **options):
        comm._meet("calls", "the model wrapped in DistributedDataParallel")
        return real(self, *args, **options)

    DistributedDataParallel.forward = forward
    try:
        yield
    finally:
        DistributedDataParallel.forward = real


def together(function, learners, seconds=60.0):
    """Call function(comm) on all ranks. Returns what it returns on each; every rank raises if one does or they would hang."""

    def run(comm):
        return function(comm)

    run.__name__ = getattr(learners, "__name__", "your function")
    comm = _LongComm(MPI.COMM_WORLD)
    comm.deadline = time.monotonic() + seconds
    try:
        with watched(comm, sizes=True), _watched_ddp(comm):
            return comm.together(run, ())
    finally:
        comm.free()
