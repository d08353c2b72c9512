"""Answers to task 5: train for some seconds on all ranks."""

import copy
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from pi2zero_course.checks.summarization.stories import padded
from pi2zero_course.checks.summarization.stories import rows as rows_of

from . import right, wrong


def go_on(seconds, start):
    """Rank 0's clock. Sent to the ranks before the answers, as trained_by_hand is."""
    dist.broadcast_object_list(box := [time.monotonic() - start < seconds])
    return box[0]


def trained_by_hand(model, rows, seconds, lr=2e-4, reduce=True, same=False, agree=go_on, batch=32):
    """Adam on the mean of the ranks' gradients, by hand."""
    start, step, size, losses = time.monotonic(), 0, dist.get_world_size(), []
    rank = 0 if same else dist.get_rank()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    model.train()
    while agree(seconds, start):
        picked = [rows[(step * batch + at) % len(rows)] for at in range(rank, batch, size)]
        optimizer.zero_grad()
        loss = model(**padded(picked)).loss
        loss.backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        if reduce:
            flat = torch.nn.utils.parameters_to_vector(gradients)
            dist.all_reduce(flat)
            torch.nn.utils.vector_to_parameters(flat / size, gradients)
        optimizer.step()
        step += 1
        losses.append(loss.item())
    return losses


@right(5)
def by_hand(model, rows, seconds):
    return trained_by_hand(model, rows, 0.7 * seconds)


@right(5)
def one_message_a_parameter(model, rows, seconds):
    start, losses, size = time.monotonic(), [], dist.get_world_size()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    while go_on(0.7 * seconds, start):
        first = 16 * len(losses) % (len(rows) - 16)
        loss = model(**padded(rows[first : first + 16][dist.get_rank() :: size])).loss
        optimizer.zero_grad()
        (loss / size).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        losses.append(loss.item())
    return losses


@right(5)
def parameters_averaged_after_each_step(model, rows, seconds):
    start, losses, size = time.monotonic(), [], dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    while go_on(0.7 * seconds, start):
        first = 16 * len(losses) % (len(rows) - 16)
        optimizer.zero_grad()
        loss = model(**padded(rows[first : first + 16][dist.get_rank() :: size])).loss
        loss.backward()
        optimizer.step()
        for parameter in model.parameters():
            dist.all_reduce(parameter.data)
            parameter.data /= size
        losses.append(loss.item())
    return losses


@wrong(5, "the list of losses is due")
def without_return(model, rows, seconds):
    trained_by_hand(model, rows, 0.4 * seconds, lr=1e-4)


@right(5)
def with_ddp(model, rows, seconds):
    start, step, losses = time.monotonic(), 0, []
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-4)
    while go_on(0.7 * seconds, start):
        some = rows[step * 32 : step * 32 + 32][dist.get_rank() :: dist.get_world_size()]
        optimizer.zero_grad()
        losses.append(wrapped(**padded(some)).loss)
        losses[-1].backward()
        optimizer.step()
        step = (step + 1) % (len(rows) // 32)
    return [loss.item() for loss in losses]


@wrong(5, "Does the learning rate suit a model that has learnt already?")
def a_rate_that_destroys(model, rows, seconds):
    trained_by_hand(model, rows, 0.4 * seconds, lr=0.1)


@wrong(5, "each has learnt for itself")
def nothing_averaged(model, rows, seconds):
    trained_by_hand(model, rows, 0.4 * seconds, reduce=False)


@wrong(5, "all 4 ranks begin with the same stories")
def the_same_stories_everywhere(model, rows, seconds):
    trained_by_hand(model, rows, 0.4 * seconds, same=True)


@wrong(5, "Does it look at the clock?")
def for_ever(model, rows, seconds):
    trained_by_hand(model, rows, 1000)


@wrong(5, "train was given 5 s and took")
def a_minute_is_60_seconds(model, rows, seconds):
    trained_by_hand(model, rows[:500], 1.6 * seconds)


@wrong(5, "A score on what it has learnt from says nothing")
def on_test_stories(model, rows, seconds):
    trained_by_hand(model, rows_of("test", 100), 0.4 * seconds)


@wrong(5, "A score on what it has learnt from says nothing")
def on_what_is_scored(model, rows, seconds):
    trained_by_hand(model, rows_of("validation", 100), 0.4 * seconds)


@wrong(5, "3 at least count as training")
def untouched(model, rows, seconds):
    return model


@wrong(5, "3 at least count as training")
def a_copy(model, rows, seconds):
    trained_by_hand(copy.deepcopy(model), rows, 0.4 * seconds)


@wrong(5, "the parameters of model are as they were")
def never_stepped(model, rows, seconds):
    for step in range(3):
        model(**padded(rows[dist.get_rank() + 4 * step :][:4])).loss.backward()


@wrong(5, "this would hang")
def each_rank_its_own_clock(model, rows, seconds):
    # Short steps: one as long as what the clocks differ by could be the last of all ranks
    trained_by_hand(
        model,
        rows,
        0.7 * seconds,
        batch=4,
        agree=lambda seconds, start: time.monotonic() - start < seconds,
    )
