"""The checks of the blanks in notebook 08."""

import torch

from pi2zero_course.checks.blanks import blank
from pi2zero_course.checks.blanks.compare import compare


@blank
def three_numbers(function):
    """three_numbers(ranks, total=None, micro=None, passes=None) -> all three, where two are given."""

    def right(ranks, total=None, micro=None, passes=None):
        total = total or micro * passes * ranks
        micro = micro or total // (passes * ranks)
        return total, micro, passes or total // (micro * ranks)

    mistakes = [
        (
            lambda r, t=None, m=None, p=None: right(1, t, m, p),
            "The ranks are a factor, too: total = micro x passes x ranks.",
        ),
        (
            lambda *given: (*right(*given)[:2], 1),
            "passes is not always 1: total / (micro x ranks).",
        ),
        (lambda *given: right(*given)[::-1], "The order is total, micro, passes."),
    ]
    cases = [(2, 64, None, 2), (4, 96, 8, None), (8, None, 4, 3)]
    compare(function, right, cases, mistakes)
    return "Any two of them give the third, on 2, 4 and 8 ranks."


@blank
def clip(function):
    """clip(gradients, limit) -> the gradients, scaled down to the norm `limit` in all; shorter ones, and limit 0: as they are."""

    def right(gradients, limit):
        norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        return [
            gradient * (limit / norm if limit and norm > limit else 1) for gradient in gradients
        ]

    def each(gradients, limit):
        return [right([gradient], limit)[0] for gradient in gradients]

    def always(gradients, limit):
        norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        return [gradient * limit / norm for gradient in gradients]

    mistakes = [
        (
            each,
            "That clips each tensor for itself, and the direction changes: one norm, of all of them together.",
        ),
        (always, "Short gradients are not made longer, and limit 0 means: none."),
        (
            lambda gradients, limit: [gradient.clamp(-limit, limit) for gradient in gradients],
            "That cuts each value, and the direction changes.",
        ),
    ]
    long = [torch.tensor([3.0, 1.0]), torch.tensor([[0.5, 4.0]])]
    cases = [(long, 1.0), ([gradient / 100 for gradient in long], 1.0), (long, 0.0)]
    compare(function, right, cases, mistakes, tolerance=1e-5)
    return "Long gradients get the norm `limit` and keep their direction; short ones stay."


@blank
def through_fp16(function):
    """through_fp16(gradient, scale) -> what is left of a gradient in fp32, if it is scaled, stored in fp16, and scaled back."""

    def right(gradient, scale):
        return (gradient * scale).half().float() / scale

    mistakes = [
        (
            lambda g, s: (g * s).half() / s,
            "Either it goes to fp16 before it is scaled, or it is divided in fp16 still: scale, .half(), .float(), divide.",
        ),
        (lambda g, s: (g * s).half().float(), "Divide by the scale in the end."),
        (lambda g, s: g.clone(), "It has to go through fp16: .half()."),
    ]
    cases = [
        (torch.tensor([1e-8, 3e-6]), 2.0**16),
        (torch.tensor([0.1234567]), 8.0),
        (torch.tensor([10.0]), 2.0**16),
    ]
    compare(function, right, cases, mistakes)
    return "Small gradients survive; those too large for the scale become infinite, which is how an overflow is seen."
