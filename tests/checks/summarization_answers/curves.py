"""Answers to task 2: which rows a rank takes, and what its loss is. The check gets each with a right other one."""

import torch
import torch.distributed as dist

from . import right, wrong


@right(2)
def every_nth(order, step, batch_size, rank, world_size):
    return order[step * batch_size + rank : (step + 1) * batch_size : world_size]


@right(2)
def a_block_each(order, step, batch_size, rank, world_size):
    return (
        torch.tensor(order[step * batch_size : (step + 1) * batch_size])
        .chunk(world_size)[rank]
        .tolist()
    )


@right(2)
def summed_with_gather(loss, labels, world_size):
    count = int((labels >= 0).sum())
    dist.all_gather_object(every := [None] * world_size, count)
    return loss * (count / (sum(every) / world_size))


def total_of(number):
    """What answers have in common. Sent to the ranks before them."""
    dist.all_reduce(total := torch.as_tensor(number).float())
    return total


@right(2)
def row_by_row(order, step, batch_size, rank, world_size):
    return [
        order[place]
        for place in range(step * batch_size, (step + 1) * batch_size)
        if place % world_size == rank
    ]


@right(2)
def the_share_of_all_tokens(loss, labels, world_size):
    tokens = torch.count_nonzero(labels != -100)
    return loss * (tokens / (total_of(tokens) / world_size))


@right(2)
def tokens_of_all_in_a_list(loss, labels, world_size):
    mine = (labels >= 0).sum().reshape(1)
    every = [torch.empty_like(mine) for _ in range(world_size)]
    dist.all_gather(every, mine)
    return world_size * loss * mine.item() / torch.cat(every).sum().item()


@wrong(2, "All ranks take the same rows")
def the_same_rows(order, step, batch_size, rank, world_size):
    return order[step * batch_size : (step + 1) * batch_size][: batch_size // world_size]


@wrong(2, "8 are the batch of all ranks, not of one")
def a_whole_batch_each(order, step, batch_size, rank, world_size):
    return order[rank::world_size][step * batch_size : (step + 1) * batch_size]


@wrong(2, "Share each step's batch")
def a_part_of_the_data_each(order, step, batch_size, rank, world_size):
    own = order[rank * len(order) // world_size : (rank + 1) * len(order) // world_size]
    share = batch_size // world_size
    return own[step * share : (step + 1) * share]


@wrong(2, "Those are the rows of step 0")
def step_0_for_ever(order, step, batch_size, rank, world_size):
    return order[:batch_size][rank::world_size]


@wrong(2, "Those are places in order")
def places(order, step, batch_size, rank, world_size):
    return list(range(step * batch_size, (step + 1) * batch_size))[rank::world_size]


@wrong(2, "The mean over the ranks is then a mean of means")
def mean_of_means(loss, labels, world_size):
    return loss


@wrong(2, "The factor world_size is missing")
def no_world_size(loss, labels, world_size):
    tokens = (labels != -100).sum()
    return loss * tokens / total_of(tokens)


@wrong(2, "Padding counts as tokens here")
def padding_counts(loss, labels, world_size):
    return loss * labels.numel() * world_size / total_of(labels.numel())


@wrong(2, "nothing was added up")
def own_tokens_only(loss, labels, world_size):
    tokens = (labels != -100).sum()
    return loss * tokens * world_size / tokens


@wrong(2, "is its gradient your rank's?")
def the_mean_for_all(loss, labels, world_size):
    tokens = (labels != -100).sum()
    return loss * 0 + total_of((loss * tokens).detach()) / total_of(tokens)


@wrong(2, "has lost its graph")
def a_number(loss, labels, world_size):
    tokens = (labels != -100).sum()
    return torch.tensor(loss.item()) * tokens * world_size / total_of(tokens)


@wrong(2, "this would hang")
def only_rank_0_adds(loss, labels, world_size):
    tokens = (labels != -100).sum()
    total = total_of(tokens) if dist.get_rank() == 0 else tokens
    return loss * tokens * world_size / total
