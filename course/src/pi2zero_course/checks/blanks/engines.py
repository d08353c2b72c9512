"""The checks of the blanks in notebook 08."""

import torch

from pi2zero_course.checks.framework.task import Blank


def _three_numbers(ranks, total=None, micro=None, passes=None):
    total = total or micro * passes * ranks
    micro = micro or total // (passes * ranks)
    return total, micro, passes or total // (micro * ranks)


# three_numbers(ranks, total=None, micro=None, passes=None) -> all three, where two are given
three_numbers = Blank(
    name="three_numbers",
    reference=_three_numbers,
    cases=[(2, 64, None, 2), (4, 96, 8, None), (8, None, 4, 3)],
    mistakes={
        "The ranks are a factor, too: total = micro x passes x ranks.": (
            lambda ranks, *given: _three_numbers(1, *given)
        ),
        "passes is not always 1: total / (micro x ranks).": (
            lambda *given: (*_three_numbers(*given)[:2], 1)
        ),
        "The order is total, micro, passes.": lambda *given: _three_numbers(*given)[::-1],
    },
    verified="Any two of them give the third, on 2, 4 and 8 ranks.",
)


def _factor(gradients, limit):
    return limit / torch.cat([gradient.flatten() for gradient in gradients]).norm()


def _clip(gradients, limit):
    factor = min(1, _factor(gradients, limit)) if limit else 1
    return [gradient * factor for gradient in gradients]


_LONG = [torch.tensor([3.0, 1.0]), torch.tensor([[0.5, 4.0]])]

# clip(gradients, limit) -> the gradients, scaled down to the norm `limit` in all; shorter ones,
# and limit 0: as they are
clip = Blank(
    name="clip",
    reference=_clip,
    cases=[(_LONG, 1.0), ([gradient / 100 for gradient in _LONG], 1.0), (_LONG, 0.0)],
    mistakes={
        "That clips each tensor for itself, and the direction changes: one norm, of all of them "
        "together.": (
            lambda gradients, limit: [_clip([gradient], limit)[0] for gradient in gradients]
        ),
        "Short gradients are not made longer, and limit 0 means: none.": (
            lambda gradients, limit: [g * _factor(gradients, limit) for g in gradients]
        ),
        "That cuts each value, and the direction changes.": (
            lambda gradients, limit: [gradient.clamp(-limit, limit) for gradient in gradients]
        ),
    },
    tolerance=1e-5,
    verified="Long gradients get the norm `limit` and keep their direction; short ones stay.",
)

# through_fp16(gradient, scale) -> what is left of a gradient in fp32, if it is scaled, stored in
# fp16, and scaled back
through_fp16 = Blank(
    name="through_fp16",
    reference=lambda gradient, scale: (gradient * scale).half().float() / scale,
    cases=[
        (torch.tensor([1e-8, 3e-6]), 2.0**16),
        (torch.tensor([0.1234567]), 8.0),
        (torch.tensor([10.0]), 2.0**16),
    ],
    mistakes={
        "Either it goes to fp16 before it is scaled, or it is divided in fp16 still: scale, "
        ".half(), .float(), divide.": (lambda gradient, scale: (gradient * scale).half() / scale),
        "Divide by the scale in the end.": (
            lambda gradient, scale: (gradient * scale).half().float()
        ),
        "It has to go through fp16: .half().": lambda gradient, scale: gradient.clone(),
    },
    verified="Small gradients survive; those too large for the scale become infinite, which is "
    "how an overflow is seen.",
)
