"""Answers to tasks 4 and 5: a configuration mended, stage 1 by hand."""

import os

import torch
import torch.distributed as dist

from . import right, wrong

# Task 4 -----------------------------------------------------------------------------------------------------------------


@right(4)
def two_layers_one_after_another(config):
    zero = {
        "stage": 2,
        "overlap_comm": False,
        "reduce_bucket_size": 1.3e5,
        "allgather_bucket_size": 1.3e5,
    }
    return {**config, "zero_optimization": zero}


def with_zero(config, **zero):
    """What wrong answers have in common. Sent to the ranks before them."""
    return {**config, "zero_optimization": {**config["zero_optimization"], **zero}}


@right(4)
def one_layer_in_place(config):
    config["zero_optimization"]["reduce_bucket_size"] = 65_536
    return config


@right(4)
def a_little_more_than_a_layer(config):
    return {
        **config,
        "zero_optimization": {**config["zero_optimization"], "reduce_bucket_size": 70_000},
    }


@right(4)
def two_layers_without_overlap_and_in_parts(config):
    config["zero_optimization"].update(
        overlap_comm=False, reduce_bucket_size=131_072, allgather_partitions=True
    )
    return config


@wrong(
    4,
    "the target is 0.52 MB.\nThe bucket has room for 500,000,000 values of 2 bytes, all allocated at once.",
)
def no_overlap(config):
    return with_zero(config, overlap_comm=False)


@wrong(4, "1.18 MB are in flight at the peak, 9.0 layers")
def four_layers_twice(config):
    return with_zero(config, reduce_bucket_size=4 * 65_536)


@wrong(4, "it has to stay 2")
def back_to_stage_1(config):
    return with_zero(config, stage=1, reduce_bucket_size=65_536)


@wrong(4, "reduce_bucket_size is 1,000 values, less than one layer (65,536)")
def tiny_buckets(config):
    return with_zero(config, reduce_bucket_size=1_000)


@wrong(4, "you changed optimizer: that is another training")
def another_learning_rate(config):
    config["optimizer"]["params"]["lr"] = 1e-4
    return with_zero(config, reduce_bucket_size=65_536)


@wrong(4, "the whole configuration is due")
def changed_and_not_returned(config):
    config["zero_optimization"]["reduce_bucket_size"] = 65_536


@wrong(4, "the ranks have different configurations")
def another_on_each_rank(config):
    return with_zero(config, reduce_bucket_size=65_536 + int(os.environ["RANK"]))


# Task 5 -----------------------------------------------------------------------------------------------------------------


@right(5)
def with_all_reduce_and_a_list(flat, gradient, adam):
    size, rank = dist.get_world_size(), dist.get_rank()
    dist.all_reduce(gradient)
    part = flat.chunk(size)[rank]
    adam(part, gradient.chunk(size)[rank] / size)
    parts = [torch.empty_like(part) for _ in range(size)]
    dist.all_gather(parts, part)
    flat.copy_(torch.cat(parts))


def stage1(flat, gradient, adam, place=None, divide=None, gather=True, reduce=True):
    """What wrong answers have in common. Sent to the ranks before them."""
    size, rank = dist.get_world_size(), dist.get_rank()
    part = flat.chunk(size)[rank if place is None else place]
    mine = gradient.chunk(size)[rank].clone()
    if reduce:
        dist.reduce_scatter_tensor(mine, gradient)
    adam(part, mine / (size if divide is None else divide))
    if gather:
        dist.all_gather_into_tensor(flat, part.clone())


@right(5)
def with_lists_of_parts(flat, gradient, adam):
    size, rank = dist.get_world_size(), dist.get_rank()
    part, mine = flat.chunk(size)[rank], torch.empty(len(flat) // size)
    dist.reduce_scatter(mine, [one.clone() for one in gradient.chunk(size)])
    adam(part, mine.div_(size))
    parts = [torch.empty_like(part) for _ in range(size)]
    dist.all_gather(parts, part.clone())
    for place, one in zip(flat.chunk(size), parts, strict=True):
        place.copy_(one)


@right(5)
def divided_before_it_is_sent(flat, gradient, adam):
    size, rank = dist.get_world_size(), dist.get_rank()
    length = len(flat) // size
    mine = torch.zeros(length)
    dist.reduce_scatter_tensor(mine, gradient / size)
    new = flat[rank * length : (rank + 1) * length].clone()
    adam(new, mine)
    dist.all_gather_into_tensor(flat, new)


@right(5)
def each_owner_broadcasts(flat, gradient, adam):
    size, rank = dist.get_world_size(), dist.get_rank()
    mine = torch.empty(len(flat) // size)
    dist.reduce_scatter_tensor(mine, gradient)
    adam(flat.chunk(size)[rank], mine / size)
    for owner, part in enumerate(flat.chunk(size)):
        dist.broadcast(part, owner)


@wrong(5, "ank 0 calls dist.broadcast")
def each_broadcasts_its_own(flat, gradient, adam):
    """All wait for one another: no root is the same. A mutant of the one above."""
    size, rank = dist.get_world_size(), dist.get_rank()
    mine = torch.empty(len(flat) // size)
    dist.reduce_scatter_tensor(mine, gradient)
    adam(flat.chunk(size)[rank], mine / size)
    for part in flat.chunk(size):
        dist.broadcast(part, rank)


@wrong(5, "that is the sum over the ranks; the mean is due. Adam hides it")
def sum_for_mean(flat, gradient, adam):
    stage1(flat, gradient, adam, divide=1)


@wrong(5, "Every rank has all moments: that is stage 0")
def adam_on_everything(flat, gradient, adam):
    dist.all_reduce(gradient)
    adam(flat, gradient / dist.get_world_size())


@wrong(5, "Each rank has changed its own part only: the new parts have to reach all ranks")
def no_all_gather(flat, gradient, adam):
    stage1(flat, gradient, adam, gather=False)


@wrong(5, "rank 3's gradient in step 1: that is rank 0's gradient")
def gradient_of_rank_0(flat, gradient, adam):
    dist.broadcast(gradient, 0)
    stage1(flat, gradient, adam, divide=1, reduce=False)


@wrong(5, "rank 3's gradient in step 1: that is its own gradient: the other ranks' data are lost")
def nothing_reduced(flat, gradient, adam):
    stage1(flat, gradient, adam, divide=1, reduce=False)


@wrong(5, "on rank 3, adam was given part 0 of the parameters; part 3 is its own")
def parts_the_other_way_round(flat, gradient, adam):
    stage1(flat, gradient, adam, place=dist.get_world_size() - 1 - dist.get_rank())


@wrong(5, "Does part r, which rank r computes, come back to the place of part r?")
def put_together_in_the_wrong_order(flat, gradient, adam):
    size, rank = dist.get_world_size(), dist.get_rank()
    stage1(flat, gradient, adam, gather=False)
    parts = [torch.empty_like(part) for part in flat.chunk(size)]
    dist.all_gather(parts, flat.chunk(size)[rank].clone())
    flat.copy_(torch.cat(parts[::-1]))


@wrong(5, "the parameters are as they were before: the new ones have to stand in flat, in place")
def a_copy_is_changed(flat, gradient, adam):
    stage1(flat.clone(), gradient, adam)


@wrong(
    5, "ank 0 calls dist.all_gather_into_tensor, ranks 1, 2 and 3 call dist.reduce_scatter_tensor"
)
def only_rank_0_gathers(flat, gradient, adam):
    stage1(flat, gradient, adam, gather=dist.get_rank() == 0)
