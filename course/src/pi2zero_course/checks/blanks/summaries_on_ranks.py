"""The check of notebook 10's blank that runs on its ranks."""

from types import SimpleNamespace

import torch
from mpi4py import MPI

from pi2zero import ranks
from pi2zero_course.checks.framework.agree import agree
from pi2zero_course.checks.framework.answers import CheckError
from pi2zero_course.checks.framework.task import blank
from pi2zero_course.checks.framework.torch_comm import on_torch_ranks
from pi2zero_course.checks.framework.values import is_same, pick_hint, show


@blank
def loss_of(function):
    """loss_of(engine, inputs) -> (this rank's loss, whose mean over the ranks is that of all
    tokens; tokens read and written)."""
    comm, device = MPI.COMM_WORLD, ranks.join().device
    tokens = [5 + 4 * rank for rank in range(comm.size)]  # of each rank
    labels = torch.full((1, tokens[-1]), -100)
    labels[0, : tokens[comm.rank]] = 7
    inputs = {
        "input_ids": torch.ones(1, 5, dtype=int),
        "attention_mask": torch.ones(1, 5, dtype=int),
        "labels": labels,
    }
    inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
    own = 1.0 + comm.rank

    def engine(**given):
        return SimpleNamespace(loss=torch.tensor(own, requires_grad=True, device=device))

    def run(comm):
        result.append(function(engine, inputs))

    result = []  # a loss with a gradient cannot be sent to the other ranks
    on_torch_ranks(run, function)
    agree(_judge, result[0], own, tokens)
    return "The mean over the ranks is the mean over all tokens, and its gradient flows."


def _judge(result, own, tokens):
    rank, size, total = MPI.COMM_WORLD.rank, len(tokens), sum(tokens)
    if not isinstance(result, tuple) or len(result) != 2:
        raise CheckError(f"it returned {show(result)}; (loss, tokens) is due.")
    loss, count = result
    due = own * tokens[rank] * size / total
    if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
        raise CheckError("the loss has to stay a tensor with a gradient: no .item() on it.")
    loss = loss.detach().cpu().squeeze()
    if not is_same(loss, due):
        known = {
            "That is the mean of this rank's tokens: weight it by its share of all tokens.": own,
            "DeepSpeed divides by the ranks once more, so times me.world_size.": due / size,
            "That is the sum over this rank's tokens; divide by the tokens of all ranks.": own
            * tokens[rank],
            "Its share, mine / total, is missing. Or all_reduce, which works in place, has "
            "overwritten `mine`.": own * size,
        }
        why = pick_hint(float(loss), known, same=is_same)
        raise CheckError(
            f"{tokens[rank]} of {total} tokens, mean loss {own:g}: it gives {float(loss):.4g}; it "
            f"has to be {due:.4g}.\n{why}"
        )
    if count != tokens[rank] + 5:
        raise CheckError(
            f"it counted {count} tokens; {tokens[rank]} of the highlights and 5 of the article are "
            f"{tokens[rank] + 5}."
        )
