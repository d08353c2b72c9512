"""Answers to lab 4, as learners write them: right ones, and wrong ones with words of the check's
message."""

import torch
import torch.distributed as dist
from lab_answers import LabAnswers

lab = LabAnswers("04_zero_memory")
HELD = ("parameters", "gradients", "master", "moments")
predict = None  # the notebook's, on the ranks


@lab.right("predict")
def from_a_table(parameters, ranks, stage):
    peak = [16, 4 + 12 / ranks, 2 + 14 / ranks, 16 / ranks][stage]
    start = [6, 2 + 4 / ranks, 2 + 4 / ranks, 8 / ranks][stage]
    return [start * parameters, peak * parameters]


lab.wrong_variants(
    "predict",
    (" + 2 * master", "", "The two moments are missing: 8 bytes a parameter"),
    ("+ 2 * master", "+ master", "4 bytes a parameter are missing: the master copy, or one of the"),
    ("start = compute + master", "start = compute + 3 * master", "Are the moments in it? Adam"),
    ("(gradients if stage == 3 else 0)", "gradients", "Up to stage 2 there is none before the"),
    ("(gradients if stage == 3 else 0)", "0", "Stage 3 allocates its part of the gradients at"),
    ("stage >= 3", "stage >= 1", "stage >= 2", "stage >= 1", "stage 1, at the peak of backward:"),
    ("stage >= 2", "stage >= 3", "a rank holds 75.5 MB, 9 bytes a parameter.\nThat is what stage"),
    ("return start, ", "return ", "two numbers are due"),
)


@lab.right("table")
def sorted_rows(results):
    rows = []
    for one in sorted(results, key=lambda one: (one["stage"], one["ranks"], one["rank"])):
        if one["rank"]:
            continue
        start, peak = (
            sum(map(one["samples"][moment].get, HELD)) for moment in ("initialize", "backward")
        )
        rows.append(
            {"ranks": one["ranks"], "batch": one["ranks"] * 4, "parameters": one["parameters"]}
        )
        rows[-1] |= {"stage": one["stage"], "initialize": start, "training": peak, "note": "mine"}
    return rows


lab.wrong_variants(
    "table",
    ('one["rank"] == 0', "True", "have two rows. Each rank has its own object: take rank 0's"),
    ('"backward"', '"step"', "That is the moment 'step'; asked is 'backward'"),
    ("in HELD)", 'in (*HELD, "in flight"))', "What is in flight is in it"),
    ("in HELD)", 'in ["resident"])', "That is what the process holds, Python and libraries"),
    (
        "            rows.append",
        '            row["training"] = sum(one["predicted"].values())\n            rows.append',
        "That is predicted, not measured",
    ),
    ('4 * one["ranks"]', "4", "each rank takes 4 samples, so a step learns from"),
    (
        "            rows.append",
        '            row["ranks"] = one["rank"]\n            rows.append',
        "there is no such run. Ranks are how many ran",
    ),
    ('one["rank"] == 0', 'one["rank"] == 0 and one["ranks"] != 4', "4 of 12 runs have no row,"),
)


@lab.right("choose")
def count_those_that_do_not(parameters, ranks, memory):
    too_large = sum(predict(parameters, ranks, stage)[1] > memory for stage in range(4))
    return None if too_large == 4 else too_large


lab.wrong_variants(
    "choose",
    ("range(4)", "(3, 2, 1, 0)", "you say 3; stage 1 is the lowest that fits: 31.41 GB on a rank."),
    (
        "stage)[1] <= memory",
        "stage)[1] * (15 / 16 if stage == 0 else 1) <= memory",
        "you say 0; stage 1 is the lowest that fits",
    ),
    ("return None", "return 3", "you say 3; no stage fits (1.875 GB at stage 3), so None is due"),
    ("<= memory", "< memory", "To the byte: what fits exactly, fits"),
    (
        "[1] <= memory",
        "[0] / 10 <= memory",
        "you say 0; stage 1 is the lowest that fits: 31.41 GB on a rank. Count the peak",
    ),
    (
        "            return stage\n    return None",
        "            return [stage]\n    return []",
        "as a whole number from 0 to 3",
    ),
)


@lab.right("mend")
def one_layer_in_place(config):
    config["zero_optimization"]["reduce_bucket_size"] = 65_536
    return config


lab.wrong_variants(
    "mend",
    (
        ' |= {"reduce_bucket_size": 65_536, "allgather_bucket_size": 65_536}',
        '["overlap_comm"] = False',
        "the target is 0.52 MB.\nThe bucket has room for 500,000,000 values of 2 bytes, all "
        "allocated at once.",
    ),
    (
        '{"reduce_bucket_size": 65_536, "allgather_bucket_size": 65_536}',
        '{"reduce_bucket_size": 4 * 65_536}',
        "1.18 MB are in flight at the peak, 9.0 layers",
    ),
    ("|= {", '|= {"stage": 1, ', "it has to stay 2"),
    ('"reduce_bucket_size": 65_536', '"reduce_bucket_size": 1_000', "reduce_bucket_size is 1,000"),
    (
        "    return",
        '    config["optimizer"]["params"]["lr"] = 1e-4\n    return',
        "you changed optimizer: that is another training",
    ),
    ("return config", "pass", "the whole configuration is due"),
    (
        '"reduce_bucket_size": 65_536',
        '"reduce_bucket_size": 65_536 + rank',
        "the ranks have different configurations",
    ),
)


@lab.right("zero1_step")
def with_all_reduce_and_a_list(flat, gradient, adam):
    size, rank = dist.get_world_size(), dist.get_rank()
    dist.all_reduce(gradient)
    part = flat.chunk(size)[rank]
    adam(part, gradient.chunk(size)[rank] / size)
    parts = [torch.empty_like(part) for _ in range(size)]
    dist.all_gather(parts, part)
    flat.copy_(torch.cat(parts))


@lab.right("zero1_step")
def each_owner_broadcasts(flat, gradient, adam):
    size, rank = dist.get_world_size(), dist.get_rank()
    mine = torch.empty(len(flat) // size)
    dist.reduce_scatter_tensor(mine, gradient)
    adam(flat.chunk(size)[rank], mine / size)
    for owner, part in enumerate(flat.chunk(size)):
        dist.broadcast(part, owner)


lab.wrong_variants(
    "zero1_step",
    (
        "dist.all_gather_into_tensor(flat, part.clone())",
        "for part in flat.chunk(size):\n        dist.broadcast(part, rank)",
        "ank 0 calls dist.broadcast",
    ),
    ("mine / size", "mine", "that is the sum over the ranks; the mean is due. Adam hides it"),
    (
        "part = flat.chunk(size)[rank]",
        "part = flat",
        "mine = torch.empty_like(part)\n    dist.reduce_scatter_tensor(mine, gradient)",
        "dist.all_reduce(mine := gradient)",
        "    dist.all_gather_into_tensor(flat, part.clone())\n",
        "",
        "Every rank has all moments: that is stage 0",
    ),
    ("    dist.all_gather_into_tensor(flat, part.clone())\n", "", "Each rank has changed its own"),
    (
        "dist.reduce_scatter_tensor(mine, gradient)",
        "mine = gradient.chunk(size)[rank]",
        "mine / size",
        "mine",
        "rank 3's gradient in step 1: that is its own gradient: the other ranks' data are lost",
    ),
    ("chunk(size)[rank]", "chunk(size)[size - 1 - rank]", "on rank 3, adam was given part 0 of"),
    (
        "dist.all_gather_into_tensor(flat, part.clone())",
        "parts = [torch.empty_like(part) for _ in range(size)]\n    dist.all_gather(parts, "
        "part.clone())\n    flat.copy_(torch.cat(parts[::-1]))",
        "Does part r, which rank r computes, come back to the place of part r?",
    ),
    ("    part", "    flat = flat.clone()\n    part", "the parameters are as they were before:"),
    (
        "    dist.all_gather_into",
        "    if rank == 0:\n        dist.all_gather_into",
        "ank 0 calls dist.all_gather_into_tensor, ranks 1, 2 and 3 call dist.reduce_scatter_tensor",
    ),
    (
        "    dist.all_gather_into_tensor",
        "    if rank == 0:\n        dist.all_gather_single",
        "ank 0 calls dist.all_gather_single, ranks 1, 2 and 3 call dist.reduce_scatter_tensor",
    ),
)


# Mistakes at the collectives ----------------------------------------------------------------------

lab.wrong_variants(
    "zero1_step",
    (
        "torch.empty_like(part)",
        "torch.empty(3)",
        "dist.reduce_scatter_tensor: all ranks send 247 numbers to each rank, all ranks",
    ),
    (
        "all_gather_into_tensor(flat, part.clone())",
        "all_gather_into_tensor(flat, flat)",
        "have room for 247 numbers from each rank",
    ),
    ("torch.empty_like(part)", "torch.empty_like(part, dtype=torch.float64)", "of float64"),
    ("dist.reduce_scatter_tensor(mine, gradient)", "dist.all_reduce(5.0)", "takes tensors"),
    (
        "dist.all_gather_into_tensor(flat, part.clone())",
        "dist.all_gather(list(flat.chunk(2)), part.clone())",
        "one tensor for each of 4 ranks; yours has 2",
    ),
    (
        "dist.reduce_scatter_tensor(mine, gradient)",
        "dist.recv(mine, (rank + 1) % size)",
        "Rank 0 waits in dist.irecv from rank 1",
    ),
)
