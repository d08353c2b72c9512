"""Answers to lab 5, as learners write them: right ones, and wrong ones with words of the check's
message."""

import copy
import re
import time

import numpy as np
import torch
import torch.distributed as dist
from lab_answers import LabAnswers
from torch.nn.parallel import DistributedDataParallel

from pi2zero import costs
from pi2zero_course.checks.summarization.stories import padded

SHORTER = """
import copy, math
from torch.nn.parallel import DistributedDataParallel
from pi2zero_course.checks.summarization import training
from pi2zero_course.checks.summarization.stories import rows as rows_of
training.BUDGET, training.GRACE, training.PATIENCE, training.SCORED = 5.0, 2.0, 15.0, 40
"""
lab = LabAnswers("05_summarization", cells=["words", "engine"], setup=SHORTER)
rows_of = None  # the stories of a split, on the ranks
lab.call("my_rows", "scaled_loss(scaled_loss, {})")
lab.call("scaled_loss", "scaled_loss({}, my_rows)")


@lab.helper
def runs_of(text, words=8, letters=r"[a-z0-9]+", lower=True):
    """What answers have in common. Sent to the ranks before them."""
    found = re.findall(letters, text.lower() if lower else text)
    return {tuple(found[at : at + words]) for at in range(len(found) - words + 1)}


@lab.helper
def go_on(seconds, start):
    """Rank 0's clock. Sent to the ranks before the answers, as trained_by_hand is."""
    dist.broadcast_object_list(box := [time.monotonic() - start < seconds])
    return box[0]


@lab.helper
def trained_by_hand(model, rows, seconds, lr=2e-4, reduce=True, same=False, agree=go_on, batch=16):
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


@lab.right("choose")
def as_the_double_slash_gives_it(limit, world_size, parameters, bytes_per_story):
    for stage in range(4):
        left = limit - costs.zero_total(parameters, world_size, stage)
        if left >= 8 * bytes_per_story:
            return stage, left // bytes_per_story  # 9.0: the limit is a float


lab.wrong_variants(
    "choose",
    ("range(4)", "(3, 2, 1, 0)", "the lowest stage is due"),
    ("room >= 8 *", "room >= 1 *", "fewer than 8. Take a higher stage"),
    (
        "int(room // bytes_per_story)",
        "world_size * int(room // bytes_per_story)",
        "That is all ranks together; asked is one rank",
    ),
    ("return None", "return 3, int(room // bytes_per_story)", "No stage leaves room for 8, so"),
    ("int(room //", "int(limit //", "The states need room, too: 16 bytes a parameter"),
    (
        "int(room // bytes_per_story)",
        "1 + int(room // bytes_per_story)",
        "Round down: a part of a story does not fit",
    ),
    ("int(room // bytes_per_story)", "8", "That is the fewest that are wanted"),
    (">= 8", "> 8", "To the byte: what fits exactly, fits"),
    ("int(room // bytes_per_story)", "room / bytes_per_story", "two whole numbers are due"),
)


@lab.right("my_rows")
def a_block_each(order, step, batch_size, rank, world_size):
    return (
        torch.tensor(order[step * batch_size : (step + 1) * batch_size])
        .chunk(world_size)[rank]
        .tolist()
    )


@lab.wrong("my_rows", "Share each step's batch")
def a_part_of_the_data_each(order, step, batch_size, rank, world_size):
    own = order[rank * len(order) // world_size : (rank + 1) * len(order) // world_size]
    share = batch_size // world_size
    return own[step * share : (step + 1) * share]


lab.wrong_variants(
    "my_rows",
    ("[rank::world_size]", "[: batch_size // world_size]", "All ranks take the same rows"),
    (
        "order[step * batch_size : (step + 1) * batch_size][rank::world_size]",
        "order[rank::world_size][step * batch_size : (step + 1) * batch_size]",
        "8 are the batch of all ranks, not of one",
    ),
    (
        "order[step * batch_size : (step + 1) * batch_size]",
        "order[:batch_size]",
        "Those are the rows of step 0",
    ),
    (
        "order[step * batch_size : (step + 1) * batch_size]",
        "list(range(step * batch_size, (step + 1) * batch_size))",
        "Those are places in order",
    ),
)


@lab.right("scaled_loss")
def tokens_of_all_in_a_list(loss, labels, world_size):
    mine = (labels >= 0).sum().reshape(1)
    every = [torch.empty_like(mine) for _ in range(world_size)]
    dist.all_gather(every, mine)
    return world_size * loss * mine.item() / torch.cat(every).sum().item()


lab.wrong_variants(
    "scaled_loss",
    ("loss * tokens * world_size / total", "loss", "The mean over the ranks is then a mean of"),
    (" * world_size", "", "The factor world_size is missing"),
    ("(labels != -100).sum()", "torch.tensor(labels.numel())", "Padding counts as tokens here"),
    ("    dist.all_reduce(total)\n", "", "nothing was added up"),
    (
        "return loss * tokens * world_size / total",
        "dist.all_reduce(whole := (loss * tokens).detach())\n    return loss * 0 + whole / total",
        "is its gradient your rank's?",
    ),
    ("return loss *", "return torch.tensor(loss.item()) *", "has lost its graph"),
    (
        "    dist.all_reduce",
        "    if rank == 0:\n        dist.all_reduce",
        "dist.all_reduce: rank 0 sends 1 number of int64",  # the others' next one is of the loss
    ),
)


@lab.right("leaked")
def an_array_of_places(train, test):
    known, own = [runs_of(article) for article in train], [runs_of(article) for article in test]
    shares = [max(len(mine & one) for one in known) / max(len(mine), 1) for mine in own]
    return np.flatnonzero(np.array(shares) >= 0.5)


lab.wrong_variants(
    "leaked",
    ("len(own) / 2", "len(own) / 3", "a little less than half of it: 7 of its 16 runs"),
    (
        "    known",
        "    return np.array([article in train for article in test])\n    known",
        "leaked returned ndarray; a set of whole numbers is due: places in the list test",
    ),
    ("words(text)", 're.findall(r"\\w+", text)', "It is in the training set in other letters"),
    ("words(text)", "text.lower().split()", "It is in the training set with other punctuation and"),
    (
        "    return {i",
        "    return {i for i, one in enumerate(test) if words(one) in map(words, train)}\n    "
        "return {i",
        "It is in the training set with one sentence added",
    ),
    ("len(own) / 2", "len(one) / 2 > 0", "It is in the training set inside a long article with"),
    ("own and any", "any", "it has fewer than 8 words, so no run"),
    (">= len(own) / 2", "> 0", "clean test stories are named"),
    (
        "[runs(article) for article in train]",
        "[set().union(*map(runs, train))]",
        "In training is only a third of it here and a third there, in different stories",
    ),
    ("i + 8", "i + 1", "len(found) - 7", "len(found)", "clean test stories are named"),
    (">= len(own)", "> len(own)", "It is in the training set half of it: 8 of its 16 runs"),
    ("len(found) - 7", "len(found) - 8", "it has 8 words, so one run"),
    ("in train]", "in test]", "map(runs, test)", "map(runs, train)", "Asked are places in test"),
)


@lab.right("settings")
def the_longest_and_a_half(references, tokenizer):
    longest = max(len(tokenizer(text)["input_ids"]) for text in references)
    return {"max_length": longest * 3 // 2, "do_sample": False, "num_beams": 1}


lab.wrong_variants(
    "settings",
    ('"max_new_tokens": longest * 3 // 2, ', "", "no length is set, so generate() ends after 20"),
    (
        'tokenizer(references)["input_ids"]',
        "map(str.split, references)",
        "longest * 3 // 2",
        "longest",
        "That is the most *words*; generate() counts tokens",
    ),
    ("longest * 3 // 2", "512", "At most twice the longest is right"),
    (
        "max(len(tokens)",
        "np.mean([len(tokens)",
        '"input_ids"]',
        '"input_ids"]]',
        "longest * 3 // 2",
        "round(longest)",
        "but one reference in twenty has more than",
    ),
    ("longest * 3 // 2", "60", "for references twice as long, 60 tokens are allowed"),
    ("False", "True", "if chance chooses the words, two runs give two ROUGEs"),
    ("longest * 3 // 2", "longest + 0.5", "a whole number of tokens is due"),
    ("False", 'False, "beams": 4', "generate() does not take"),
    ("False", 'False, "num_beams": 0', "ZeroDivisionError"),
    ("longest * 3 // 2", "longest + rank", "the ranks have different settings"),
    (
        "longest * 3 // 2",
        "2 * longest",
        "False",
        'False, "min_new_tokens": longest * 3 // 2',
        "are cut off before their end",
    ),
    (
        "longest * 3 // 2",
        "longest * 5 // 4",
        "False",
        'False, "exponential_decay_length_penalty": (5, 1.5)',
        "with as many tokens as the model wants it is",
    ),
)


@lab.right("train")
def by_hand(model, rows, seconds):
    return trained_by_hand(model, rows, 0.7 * seconds)


@lab.right("train")
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


@lab.wrong("train", "the list of losses is due")
def without_return(model, rows, seconds):
    trained_by_hand(model, rows, 0.4 * seconds, lr=1e-4)


@lab.wrong("train", "Does the learning rate suit a model that has learnt already?")
def a_rate_that_destroys(model, rows, seconds):
    trained_by_hand(model, rows, 0.4 * seconds, lr=0.1)


@lab.wrong("train", "each has learnt for itself")
def nothing_averaged(model, rows, seconds):
    trained_by_hand(model, rows, 0.4 * seconds, reduce=False)


@lab.wrong("train", "all 4 ranks begin with the same stories")
def the_same_stories_everywhere(model, rows, seconds):
    trained_by_hand(model, rows, 0.4 * seconds, same=True)


@lab.wrong("train", "Does it look at the clock?")
def for_ever(model, rows, seconds):
    trained_by_hand(model, rows, 1000)


@lab.wrong("train", "train was given 5 s and took")
def a_minute_is_60_seconds(model, rows, seconds):
    trained_by_hand(model, rows[:500], 1.6 * seconds)


@lab.wrong("train", "A score on what it has learnt from says nothing")
def on_test_stories(model, rows, seconds):
    trained_by_hand(model, rows_of("test", 100), 0.4 * seconds)


@lab.wrong("train", "3 at least count as training")
def a_copy(model, rows, seconds):
    trained_by_hand(copy.deepcopy(model), rows, 0.4 * seconds)


@lab.wrong("train", "this would hang")
def each_rank_its_own_clock(model, rows, seconds):
    # Short steps: one as long as what the clocks differ by could be the last of all ranks
    trained_by_hand(
        model,
        rows,
        0.7 * seconds,
        batch=4,
        agree=lambda seconds, start: time.monotonic() - start < seconds,
    )
