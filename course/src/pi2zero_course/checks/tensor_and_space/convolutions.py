"""The checks of lab 7's tasks 6 and 7: a convolution over strips of an image, and two of them with one exchange."""

import torch
import torch.nn.functional as F

from pi2zero_course.checks.framework.base import listed, task
from pi2zero_course.checks.framework.collective import on_ranks
from pi2zero_course.checks.framework.counted import MessageComm
from pi2zero_course.checks.tensor_and_space.halos import judge_traffic, strips
from pi2zero_course.checks.tensor_and_space.judge import TOLERANCE, judge_array, random, try_layer

CASES = [(7, 5, 3), (13, 6, 5)]  # rows, columns, side of the kernel
PAIRS = [(9, 5, 3, 3), (19, 4, 5, 3), (17, 6, 3, 5)]  # rows, columns, sides of both kernels


def same(x, w):
    """A convolution of one channel that keeps the size, in one process; torch's tensors."""
    return F.conv2d(x[None, None], w[None, None], padding=len(w) // 2)[0, 0]


def serial(x, w, g):
    """y, and the gradients of x and w: one process's, as arrays."""
    x, w = (torch.from_numpy(one).requires_grad_() for one in (x, w))
    y = same(x, w)
    return [
        one.detach().numpy() for one in (y, *torch.autograd.grad(y, (x, w), torch.from_numpy(g)))
    ]


@task(6)
def task6(conv):
    """conv(comm, x, w) -> (y, back): the strip of y; back(g) -> the gradients of the strip x and of the whole kernel w."""
    for rows, columns, side in CASES:
        x, w, g = (
            random(rows, columns, seed=1),
            random(side, side, seed=2),
            random(rows, columns, seed=3),
        )

        def arguments(rank, size, x=x, w=w, g=g):
            begin, end = strips(len(x), size)[rank]
            return (x[begin:end].copy(), w.copy()), g[begin:end].copy()

        def judge(size, rank, y, gradients, x=x, w=w, g=g):
            begin, end = strips(len(x), size)[rank]
            due_y, due_x, due_w = serial(x, w, g)
            alone = serial(x[begin:end].copy(), w, g[begin:end].copy())
            mine = 0 * g
            mine[begin:end] = g[begin:end]
            _, part_x, part_w = serial(x, w, mine)
            seams = "Each strip was padded with zeros, as an image of its own: lines at the seams. Its neighbours' rows are due."
            judge_array(f"rank {rank}: y", y, due_y[begin:end], [(alone[0], seams)])
            known = [
                (
                    part_x[begin:end],
                    "What the neighbours' halos have of it did not come home: the exchange has a backward.",
                )
            ]
            judge_array(f"rank {rank}: the gradient of x", gradients[0], due_x[begin:end], known)
            known = [
                (
                    part_w,
                    "That is this strip's part: every position of the image is in the kernel's gradient. Add up over the ranks.",
                ),
                (
                    alone[2],
                    "That is made of the strip without its halo, and of this rank's part only.",
                ),
                (due_w / size, "That is the mean over the ranks; the sum is due."),
            ]
            judge_array(f"rank {rank}: the gradient of w", gradients[1], due_w, known)

        sizes = try_layer(conv, arguments, judge, ("x", "w"))
    return f"One process's output and gradients to {TOLERANCE:g} on {listed(sizes)} ranks, for strips of uneven size."


@task(7)
def task7(two):
    """two(comm, x, v, w) -> the strip of the image after both convolutions, with one exchange."""
    for rows, columns, first, second in PAIRS:
        x, v, w = (
            random(rows, columns, seed=1),
            random(first, first, seed=2),
            random(second, second, seed=3),
        )

        def arguments(rank, size, x=x, v=v, w=w):
            begin, end = strips(len(x), size)[rank]
            return x[begin:end].copy(), v.copy(), w.copy()

        def judge(size, reports, x=x, v=v, w=w):
            reach = len(v) // 2 + len(w) // 2
            image, v, w = (torch.from_numpy(one) for one in (x, v, w))
            due = same(same(image, v), w).numpy()
            spilt = same(same(F.pad(image, (0, 0, reach, reach)), v), w)[reach:-reach].numpy()
            for rank, (begin, end) in enumerate(strips(len(x), size)):
                what, alone = f"rank {rank}: y", same(same(image[begin:end], v), w).numpy()
                known = [
                    (
                        spilt[begin:end],
                        "Between the layers, rows outside the image are zeros for one process. Yours hold what v made.",
                    ),
                    (alone, "The strips did not talk: lines at the seams."),
                ]
                judge_array(what, reports[rank]["result"], due[begin:end], known)
            judge_traffic(reports, reach, x.shape[1])

        sizes = on_ranks(two, arguments, judge, watch=MessageComm)
    return f"Both convolutions as in one process, to {TOLERANCE:g}, on {listed(sizes)} ranks, with one exchange."
