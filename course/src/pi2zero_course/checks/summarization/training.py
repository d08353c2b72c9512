"""The check of lab 5's last task: train for some seconds on all ranks, and beat lead-3."""

import time
import types
from contextlib import contextmanager

import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI

from pi2zero import ranks
from pi2zero_course.checks.framework.agree import agree, require_ranks
from pi2zero_course.checks.framework.answers import CheckError, as_losses, globals_of
from pi2zero_course.checks.framework.task import lab_task
from pi2zero_course.checks.framework.torch_comm import on_torch_ranks
from pi2zero_course.checks.summarization import stories as lab

BUDGET, GRACE, FEWEST = 8.0, 3.0, 3  # seconds of training; for the last step; steps
# s after which an answer that goes on is ended; a step of a busy machine can take seconds.
PATIENCE = 30.0
SCORED = 100  # validation stories
POINTS, FACTS = 10, 60  # of ROUGE-1 above lead-3; percent of names and numbers
TRAINED, FRESH = 2000, 64  # stories to learn from; others of their kind, whose loss has to fall


@lab_task(5, 5)
def train(function):
    """train(model, rows, seconds): the shipped model learns on, in place, on all ranks; better
    than lead-3 afterwards."""
    require_ranks(2)
    me = ranks.join(deepspeed=True)
    net, given = lab.model(me.device), lab.rows("train", TRAINED + FRESH)[:TRAINED]
    before, was, seen = _flat(net), _loss(net), _Seen(net)
    dist.barrier()
    ended = on_torch_ranks(
        lambda comm: _timed(function, net, given, seen), function, seconds=PATIENCE
    )
    seconds = max(each for each, _ in ended)
    seen.hook.remove()
    agree(_judge_time, seen, seconds)
    agree(_judge_training, net, before, seen, seconds, me)
    _judge_ranks(net, seen, me)
    now = _loss(net)
    if not now < was:
        raise CheckError(
            f"on {FRESH} stories like those of training, the loss was {was:.3f} and is {now:.3f} "
            "now: it has to fall.\nDoes the learning rate suit a model that has learnt already?"
        )
    result = lab.scored(net, SCORED, me, max_new_tokens=100, do_sample=False)
    lead, share = lab.lead_3(SCORED)["rouge1"], result["facts"]
    if result["rouge1"] < lead + POINTS or share < FACTS:
        raise CheckError(
            f"on {SCORED} validation stories, ROUGE-1 is {result['rouge1']:.1f} (target: {POINTS} "
            f"points above lead-3, {lead + POINTS:.1f}), and {share:.0f} % of the names and "
            f"numbers are right (target: {FACTS} %).\nThe model that you were given meets both. "
            "Does the learning rate suit a model that has learnt already?"
        )
    _judge_losses([losses for _, losses in ended])
    return (
        f"{seen.steps} steps in {seconds:.1f} s on {me.world_size} ranks: loss {was:.2f}, then "
        f"{now:.2f}; "
        f"ROUGE-1 {result['rouge1']:.1f}, lead-3 {lead:.1f}; {share:.0f} % of names and numbers."
    )


class _Seen:
    """Notes what a model is shown while gradients are made, and when (s since `start`)."""

    def __init__(self, net):
        self.start, self.began, self.first, self.held_out = 0.0, [], [], 0
        self._asked = {
            tuple(article)
            for split in ("validation", "test")
            for article, _ in lab.rows(split, 500)
        }
        self.hook = net.register_forward_pre_hook(self._note, with_kwargs=True)

    @property
    def steps(self) -> int:
        return len(self.began)

    def _note(self, net, args, options):
        inputs = options.get("input_ids", args[0] if args else None)
        if inputs is None:
            return
        shown = [tuple(token for token in row if token) for row in inputs.tolist()]
        if torch.is_grad_enabled():
            self.held_out += sum(row in self._asked for row in shown)
            self.began.append(time.monotonic() - self.start)
            self.first = self.first or shown


def _timed(function, net, given, seen):
    seen.start = time.monotonic()
    with _own_clock(function, dist.get_rank()):
        losses = function(net, given, BUDGET)
    return time.monotonic() - seen.start, losses


@contextmanager
def _own_clock(function, rank):
    """In the learner's lines, every second rank's clock runs 10 % fast: ranks that each look at
    their own part, as they would
    some day anyway. The clocks of libraries and of the check stay as they are."""
    lines = globals_of(function)
    begin, real = (
        time.monotonic(),
        {name: getattr(time, name) for name in ("monotonic", "perf_counter", "time")},
    )

    def fast(clock):
        return lambda: clock() + 0.1 * (rank % 2) * (time.monotonic() - begin)

    own = types.ModuleType("time")
    own.__dict__.update(vars(time) | {name: fast(clock) for name, clock in real.items()})
    swapped = {time: own} | {clock: getattr(own, name) for name, clock in real.items()}
    kept = {name: value for name, value in lines.items() if any(value is real for real in swapped)}
    lines.update({name: swapped[value] for name, value in kept.items()})
    try:
        yield
    finally:
        lines.update(kept)


@torch.no_grad()
def _loss(net):
    """The loss on FRESH stories of the training kind that are not among the rows."""
    given = lab.rows("train", TRAINED + FRESH)[TRAINED:]
    return net(**lab.padded(given, net.device)).loss.item()


def _flat(net):
    return torch.cat([parameter.detach().flatten().float().cpu() for parameter in net.parameters()])


def _judge_time(seen, seconds):
    """Nothing may begin after the budget; what has begun may end, on a busy machine later than on
    an idle one."""
    longest, last = max(np.diff(seen.began), default=0), max(seen.began, default=0)
    if last > BUDGET + GRACE / 2 or seconds > BUDGET + max(GRACE, 3 * longest):
        raise CheckError(
            f"train was given {BUDGET:g} s and took {seconds:.1f} s. The budget counts from its "
            "first line on."
        )


def _judge_training(net, before, seen, seconds, me):
    after = _flat(net)
    if seen.held_out:
        raise CheckError(
            f"the model was shown {seen.held_out} validation or test stories. "
            "A score on what it has learnt from says nothing: use rows."
        )
    if len(after) != len(before):
        raise CheckError(
            "model is not whole: stage 3 leaves each rank its shard. Stages 0 to 2 leave every "
            "rank a whole model."
        )
    if seen.steps < FEWEST:
        longest = max(np.diff([*seen.began, seconds]), default=0)
        if longest > BUDGET / FEWEST:
            raise CheckError(
                f"there was time for {seen.steps} steps in {BUDGET:g} s: one took {longest:.1f} s. "
                "Either other work keeps this machine busy, and that says nothing of your answer: "
                "run the check again when it is calmer. Or a batch is very large."
            )
        raise CheckError(
            f"the model was called for {seen.steps} steps on rank {me.rank}; {FEWEST} at least "
            "count as training."
        )
    if torch.equal(after, before):
        raise CheckError(
            "the parameters of model are as they were: train has to change this model, in place, "
            "not a copy."
        )
    if not torch.isfinite(after).all():
        raise CheckError(
            "parameters are not finite any more (nan): the training has diverged. Is the learning "
            "rate too high?"
        )


def _judge_losses(every):
    for rank, losses in enumerate(every):
        values = as_losses(rank, losses)
        if values.size < FEWEST or not np.isfinite(values).all():
            raise CheckError(
                f"rank {rank} returned {str(losses)[:60]}; a list of numbers is due: the loss of "
                "each step."
            )


def _judge_ranks(net, seen, me):
    every = MPI.COMM_WORLD.allgather((_flat(net).numpy(), set(seen.first), seen.steps))
    values, first, _ = zip(*every, strict=True)
    if len(first[0]) > 1 and all(shown == first[0] for shown in first):
        raise CheckError(
            f"all {me.world_size} ranks begin with the same stories: each has to learn from others."
        )
    apart = max(float(np.abs(one - values[0]).max()) for one in values)
    if apart > 0:
        raise CheckError(
            f"after training, the parameters of the ranks differ by up to {apart:.2g}: each has "
            "learnt for itself. Every step needs the mean of the ranks' gradients."
        )
