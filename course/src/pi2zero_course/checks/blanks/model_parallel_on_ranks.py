"""The checks of the blanks in notebooks 11 and 11a that run on their ranks. None communicates:
what would, is recorded."""

from contextlib import nullcontext
from types import SimpleNamespace

import torch
import torch.nn.functional as F

from pi2zero_course.checks.framework.answers import CheckError, call_answer, with_globals
from pi2zero_course.checks.framework.task import blank, compare
from pi2zero_course.checks.framework.values import is_same, pick_hint, show

PLACES = {
    "a rank between two others": (1, 3),
    "the last rank": (2, None),
    "the first rank": (None, 1),
}  # before, after


class _Post:
    """Stands for torch.distributed: hands over a gradient that waits, and keeps what is sent."""

    def __init__(self, gradient, after):
        self.gradient, self.after, self.asked, self.sent = gradient, after, 0, []

    def recv(self, tensor, src=None, **options):
        if src != self.after or self.gradient is None:
            raise CheckError(
                f"it receives from rank {src}, who sends nothing: a gradient comes from the rank "
                f"behind, {self.after}."
            )
        self.asked += 1
        tensor.copy_(self.gradient)

    def send(self, tensor, dst=None, **options):
        self.sent.append((tensor, dst))


@blank
def backward_once(function):
    """backward_once(x, y, labels): the backward of this rank's stage; the gradient from behind
    comes in, x's goes on."""
    for place, (before, after) in PLACES.items():
        torch.manual_seed(4)
        x, weight, labels = (
            torch.rand(6, 5),
            torch.rand(5, 3, requires_grad=True),
            torch.arange(6) % 3,
        )
        x.requires_grad_(before is not None)
        y, gradient = x @ weight, None if after is None else torch.rand(6, 3)
        post = _Post(gradient, after)
        with with_globals(
            function, dist=post, before=before, after=after, timeline=lambda what: nullcontext()
        ):
            call_answer(function, x, y, labels)
        _judge_stage(place, post, x, weight, labels, before)
    return (
        "On the first, a middle and the last rank the gradients are right, and x's is sent to the "
        "rank before."
    )


def _judge_stage(place, post, x, weight, labels, before):
    values, due_weight = x.detach(), weight.detach().requires_grad_()
    values.requires_grad_()
    y = values @ due_weight
    if post.gradient is None:
        F.cross_entropy(y, labels).backward()
    else:
        y.backward(post.gradient)
    if post.gradient is not None and not post.asked:
        raise CheckError(
            f"{place} receives nothing; the gradient of y comes from the rank behind: "
            "dist.recv(gradient, src=after)."
        )
    if weight.grad is None:
        raise CheckError(
            f"on {place} the weights have no gradient: y.backward(gradient) continues the chain "
            "rule."
        )
    if not is_same(weight.grad, due_weight.grad, 1e-5):
        ones = values.detach().T @ torch.ones(6, 3)
        known = {
            "It began with ones: hand the gradient that came to y.backward(...).": ones,
            "It went back twice.": 2 * due_weight.grad,
        }
        raise CheckError(
            f"on {place} the weights' gradient is wrong. "
            f"{pick_hint(weight.grad, known, same=lambda a, b: is_same(a, b, 1e-5))}"
        )
    if before is None and post.sent:
        raise CheckError("the first rank sends to rank None: it has no previous rank.")
    if before is None:
        return
    if not post.sent:
        raise CheckError(
            f"{place} sends nothing; the rank before waits for x.grad: dist.send(x.grad, "
            "dst=before)."
        )
    tensor, to = post.sent[0]
    if to != before:
        raise CheckError(
            f"{place} sends to rank {to}; the gradient of x goes to the rank before, {before}."
        )
    if not is_same(tensor, values.grad, 1e-5):
        known = {
            "That is the gradient that came: the rank before needs the one of this stage's "
            "input, x.grad.": post.gradient
        }
        raise CheckError(
            f"{place} sends {show(tensor)}, not x.grad. {pick_hint(tensor, known, same=is_same)}"
        )


@blank
def parallel_attention(function):
    """parallel_attention(x, my_qkv, my_out): the attention of this rank's heads between f, Enter,
    and g, Leave."""
    calls = []

    def end(name, change):
        def apply(x):
            calls.append(name)
            return change(x)

        return SimpleNamespace(apply=apply)

    def attention(x, qkv, out):
        calls.append("attention")
        return x * qkv + out

    x, qkv, out = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0]), torch.tensor([7.0, 11.0])
    ends = {
        "Enter": end("Enter", lambda x: x + 0.5),
        "Leave": end("Leave", lambda x: x * 13),
        "attention": attention,
    }
    with with_globals(function, **ends):
        result = call_answer(function, x, qkv, out)
    if result is None:
        raise CheckError("parallel_attention returned None. Is the `return` missing?")
    for name, why in {
        "Enter": "Enter (f): without its all-reduce backward, x gets this rank's part of the "
        "gradient only",
        "Leave": "Leave (g): without its all-reduce each rank has its heads' part of the sum only",
        "attention": "attention, of this rank's heads",
    }.items():
        if calls.count(name) != 1:
            raise CheckError(f"it has to go once through {why}. It went {calls.count(name)} times.")
    if not is_same(result, ((x + 0.5) * qkv + out) * 13):
        raise CheckError(
            f"the order is Enter, attention, Leave; yours is {', '.join(calls)}, and each takes "
            "what the one before gave."
        )
    return "Enter, attention of my heads, Leave: one all-reduce forward, one backward."


@blank
def balance(function):
    """balance(probabilities) -> (the load-balancing loss n * sum of f P, f); n is the notebook's
    number of experts."""

    def right(probabilities):
        n = probabilities.shape[1]
        f = torch.bincount(probabilities.argmax(-1), minlength=n) / len(probabilities)
        return n * (f * probabilities.mean(0)).sum(), f

    def other(change):
        def wrong(probabilities):
            f, n = right(probabilities)[1], probabilities.shape[1]
            return change(f, probabilities.mean(0), n)

        return wrong

    mistakes = {
        "The factor E, the number of experts, is missing, or a sum became a mean: "
        "1 is even.": other(lambda f, p, n: ((f * p).sum(), f)),
        "f is what the router does: the share of tokens whose largest probability is e.": other(
            lambda f, p, n: (n * (p * p).sum(), f)
        ),
        "P has to be in it, the mean probability: f alone has no gradient.": other(
            lambda f, p, n: (n * (f * f).sum(), f)
        ),
        "Return the loss and f.": other(lambda f, p, n: n * (f * p).sum()),
        "The loss comes first.": other(lambda f, p, n: (f, n * (f * p).sum())),
    }
    torch.manual_seed(2)
    probabilities = (torch.randn(40, 4) + torch.tensor([2.0, 0, 0, -9])).softmax(
        -1
    )  # no token goes to expert 3
    with with_globals(function, n=4):
        compare(function, right, [(probabilities,), (torch.eye(4),)], mistakes, tolerance=1e-5)
        loss, _ = call_answer(function, probabilities.requires_grad_())
    if not loss.requires_grad:
        raise CheckError(
            "the loss has no gradient: it has to be made of the probabilities that it is given, "
            "without .item() or .detach()."
        )
    return "It is 1 where tokens and probabilities are even, and has a gradient through P."
