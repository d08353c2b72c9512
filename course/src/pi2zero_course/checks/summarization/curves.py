"""The check of lab 5's second task: one learning curve for any number of ranks."""

from functools import partial

import numpy as np
import torch
import torch.distributed as dist

from pi2zero import ranks
from pi2zero_course.checks.framework.agree import agree
from pi2zero_course.checks.framework.answers import CheckError, call_answer
from pi2zero_course.checks.framework.task import lab_task
from pi2zero_course.checks.framework.torch_comm import on_torch_ranks
from pi2zero_course.checks.framework.values import pick_hint
from pi2zero_course.checks.summarization import stories as lab

STEPS, BATCH, TOLERANCE = 8, 8, 1e-4
WORLDS = (1, 2, 4)


@lab_task(5, 2)
def scaled_loss(function, my_rows=None):
    """scaled_loss(loss, labels, world_size) -> loss; my_rows(order, step, batch_size, rank,
    world_size) -> this rank's rows."""
    if not callable(my_rows):
        raise CheckError("give the check two functions: check.scaled_loss(scaled_loss, my_rows).")
    agree(lambda: [_judge_rows(my_rows, world_size) for world_size in WORLDS])
    me = ranks.join()
    if me.world_size < 2 or BATCH % me.world_size:
        raise CheckError("This check needs 2, 4 or 8 ranks. Start them: pi2zero.start(n=2).")
    reports = on_torch_ranks(lambda comm: _curve(my_rows, function, me), function)
    _judge_first_loss([report["first"] for report in reports], me.world_size)
    together = np.mean([report["losses"] for report in reports], axis=0)
    off = float(np.abs(together - _curve_alone(my_rows, me)).max())
    if not off <= TOLERANCE:
        raise CheckError(
            f"after {STEPS} steps, the curve of {me.world_size} ranks is up to {off:.2g} away from "
            f"that of 1 rank; {TOLERANCE:g} is allowed.\nThe first loss is right. Is its gradient, "
            "too? Nothing but a factor may change it."
        )
    return (
        f"{STEPS} steps on {me.world_size} ranks and on 1: the losses differ by {off:.1g} at most."
    )


def _judge_rows(my_rows, world_size):
    order = np.random.default_rng(5).permutation(40).tolist()
    for step in range(40 // BATCH):
        parts = [
            call_answer(my_rows, list(order), step, BATCH, rank, world_size)
            for rank in range(world_size)
        ]
        try:
            parts = [[int(row) for row in part] for part in parts]
        except (TypeError, ValueError):
            raise CheckError(
                f"my_rows returned {parts[0]!r}; a list of whole numbers from order is due."
            ) from None
        right, taken = order[step * BATCH :][:BATCH], [row for part in parts for row in part]
        if sorted(taken) != sorted(right) or len({len(part) for part in parts}) > 1:
            where = f"step {step}, {BATCH} rows a step, {world_size} rank{'s' * (world_size > 1)}"
            raise CheckError(
                f"{where}: rank {world_size - 1} takes rows {parts[-1]}.\n"
                + _why_rows(parts, right, order, step)
            )


def _why_rows(parts, right, order, step):
    taken, size = [row for part in parts for row in part], len(parts)
    if size > 1 and all(part == parts[0] for part in parts):
        return "All ranks take the same rows: they all learn the same, and nothing is gained."
    if len(taken) > len(right):
        return (
            f"Together the ranks take {len(taken)} rows: {BATCH} are the batch of all ranks, not "
            "of one."
        )
    if len(taken) < len(right):
        return (
            f"Together the ranks take {len(taken)} rows of {BATCH}. Does each take its part once?"
        )
    if sorted(taken) == sorted(range(step * BATCH, (step + 1) * BATCH)):
        return "Those are places in order; asked is what stands there."
    if sorted(taken) == sorted(order[:BATCH]):
        return "Those are the rows of step 0: another step has other rows."
    return (
        f"Together the ranks take {sorted(taken)}; on 1 rank this step learns from "
        f"{sorted(right)}. Share each step's batch."
    )


def _small():
    """A tiny T5, the same on all ranks, and 64 rows of very different lengths."""
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(7)
    shape = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_heads": 4, "num_layers": 1}
    shape |= {"vocab_size": 100, "dropout_rate": 0.0}
    net = T5ForConditionalGeneration(
        T5Config(**shape, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
    )
    draw = np.random.default_rng(7)
    words = lambda low, high: [*draw.integers(2, 100, draw.integers(low, high)).tolist(), 1]  # noqa: E731
    return net, [(words(5, 30), words(*((2, 9) if row % 2 else (20, 30)))) for row in range(64)]


ORDER = list(range(64))  # neighbours have long and short highlights in turn: so have the ranks


def _curve(my_rows, scaled_loss, me):
    """The scaled losses of STEPS steps with all ranks, and what the first was made of."""
    first = {}

    def loss_of(net, batch):
        own = net(**batch).loss
        loss = scaled_loss(own, batch["labels"].clone(), me.world_size)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise CheckError(f"scaled_loss returned {loss!r}; one loss is due, a tensor.")
        if not first:
            tokens = int((batch["labels"] != lab.IGNORED).sum())
            first.update(own=own.item(), mine=loss.item(), tokens=tokens)
            first["padded"] = batch["labels"].numel()
        if not loss.requires_grad:
            raise CheckError(
                "the loss that scaled_loss returns has lost its graph: backward needs the tensor, "
                "not its item()."
            )
        return loss

    def average(parameters):
        for parameter in parameters:
            dist.all_reduce(parameter.grad)
            parameter.grad /= me.world_size

    losses = _losses(my_rows, loss_of, average, me.device, me.rank, me.world_size)
    return {"losses": losses, "first": first}


def _curve_alone(my_rows, me):
    return _losses(
        my_rows, lambda net, batch: net(**batch).loss, lambda parameters: None, me.device, 0, 1
    )


def _losses(my_rows, loss_of, average, device, rank, world_size):
    """The losses of STEPS steps. average(parameters): makes their gradients those of all ranks."""
    net, rows = _small()
    net.to(device)
    losses = []
    # Adam would hide a gradient that is twice as large.
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3)
    for step in range(STEPS):
        picked = [rows[row] for row in my_rows(ORDER, step, BATCH, rank, world_size)]
        loss = loss_of(net, lab.padded(picked, device))
        optimizer.zero_grad()
        loss.backward()
        average(net.parameters())
        optimizer.step()
        losses.append(loss.item())
    return losses


def _judge_first_loss(first, world_size):
    """The first step's scaled losses, whose mean over the ranks has to be the mean over all
    tokens."""
    own, mine, tokens, cells = (
        np.array([one[name] for one in first]) for name in ("own", "mine", "tokens", "padded")
    )
    right = own * tokens * world_size / tokens.sum()
    if np.allclose(mine, right, rtol=1e-5):
        return
    known = {
        "That is your rank's own mean, unchanged. The mean over the ranks is then a mean of "
        "means: a rank with few tokens counts as much as one with many.": own,
        "The factor world_size is missing: the gradients are averaged over the ranks "
        "afterwards, divided once more.": right / world_size,
        "Padding counts as tokens here: labels of -100 are none.": own
        * cells
        * world_size
        / cells.sum(),
        "That is the sum over your tokens; it is not divided by the tokens of all ranks.": own
        * tokens,
        "You multiply by world_size, but the tokens are those of your rank alone: nothing was "
        "added up. Or all_reduce, which "
        "works in place, has overwritten your own count: keep a clone.": own * world_size,
        "That is the mean over all tokens on each rank. Its value is right, but your rank's "
        "part is due: is its gradient your rank's?": np.full(len(own), right.mean()),
    }
    why = pick_hint(mine, known, same=partial(np.allclose, rtol=1e-5))
    rank = int(np.argmax(np.abs(mine - right)))
    raise CheckError(
        f"step 0, rank {rank}: its own mean loss is {own[rank]:.4f}, over {tokens[rank]} of "
        f"{tokens.sum()} tokens. You make {mine[rank]:.4f} of it; {right[rank]:.4f} is due.\n{why}"
    )
