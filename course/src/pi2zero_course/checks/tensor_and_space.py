"""The checks of lab 7, tensor parallelism and space. Each is called on all ranks:
`check.column(column)`.

Right means: the values and the gradients of one process, in float64, on 4, 3, 2 and 1 ranks, where
parts are uneven, too; and no more calls or messages than the task's target.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from pi2zero_course.checks.framework.answers import CheckError, name_of
from pi2zero_course.checks.framework.message_comm import MessageComm, judge_traffic
from pi2zero_course.checks.framework.on_ranks import OnRanks
from pi2zero_course.checks.framework.task import LabTask
from pi2zero_course.checks.framework.values import as_text, pick_hint, plural

Task = partial(LabTask, lab=7)
TOLERANCE = 1e-9  # in float64, compared with one process
REDUCES = {"allreduce", "Allreduce", "Iallreduce"}


# What all tasks share ---------------------------------------------------------------------------


def random(*shape, seed):
    """The same numbers on every rank."""
    return np.random.default_rng(seed).normal(size=shape)


def shard(whole, axis, size, rank):
    """A rank's part of an array along an axis; the first parts are longer by one where it does not
    divide."""
    return np.array_split(whole, size, axis)[rank].copy()


def as_array(what, value, shape):
    """An answer's array of that shape."""
    if value is None:
        raise CheckError(f"{what} is None. Is a `return` missing?")
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise CheckError(f"{what} is {type(value).__name__}; an array is due.") from None
    if array.shape != shape:
        raise CheckError(f"{what} has the shape {array.shape}; {shape} is due.")
    return array


def judge_array(what, value, due, mistakes):
    """Compare an answer's array with one process's part. mistakes: {hint: value}."""
    value = as_array(what, value, due.shape)
    if _is_same(value, due):
        return
    wrong = np.argwhere(~np.isclose(value, due, rtol=0, atol=TOLERANCE))
    at = tuple(int(place) for place in wrong[0])
    hint = pick_hint(value, mistakes, same=_is_same)
    raise CheckError(
        f"{what} has {as_text(value[at])} at {at}; one process has {as_text(due[at])}.\n{hint}"
    )


def _is_same(value, due):
    return value.shape == due.shape and np.allclose(value, due, rtol=0, atol=TOLERANCE)


@dataclass(kw_only=True)
class Layer:
    """How an answer layer(comm, ...) -> (y, back), with back(g) -> gradients, is tried.

    shapes(*case): {name: shape} of the inputs, in the answer's order, and of g. axes: along which
    those are partitioned that are. expected(part, size, *arrays): what is due on the rank that has
    part(array, axis), {"y" or the name of an input: (array, {hint: wrong array})}. reduces: the
    all-reduces that are due, forward and backward; None: any calls.
    """

    shapes: Callable
    axes: Mapping[str, int]
    expected: Callable
    reduces: tuple[int, int] | None = None

    def __call__(self, function, cases):
        run = OnRanks(arguments=self._arguments, judge=self._judge, call=_forward_and_backward)
        return run(function, cases)

    def _arrays(self, case):
        shapes = self.shapes(*case).items()
        return {name: random(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes)}

    def _arguments(self, rank, size, *case):
        arrays = self._arrays(case)
        for name, axis in self.axes.items():
            arrays[name] = shard(arrays[name], axis, size, rank)
        g = arrays.pop("g")
        return list(arrays.values()), g

    def _judge(self, results, *case):
        size = len(results)
        for rank, result in enumerate(results):
            part = partial(shard, size=size, rank=rank)
            expected = self.expected(part, size, *self._arrays(case).values())
            names = [name for name in expected if name != "y"]
            judge_array(f"rank {rank}: y", result["y"], *expected["y"])
            gradients = result["gradients"]
            if not isinstance(gradients, tuple | list) or len(gradients) != len(names):
                raise CheckError(
                    f"back returned {type(gradients).__name__}; {len(names)} gradients are due, of "
                    f"{', '.join(names)}."
                )
            for name, value in zip(names, gradients, strict=True):
                judge_array(f"rank {rank}: the gradient of {name}", value, *expected[name])
        for way, due in zip(("forward", "backward"), self.reduces or (), strict=False):
            calls = results[0][way]
            if size > 1 and (len(calls) != due or set(calls) - REDUCES):
                made = " and ".join(calls) or "no collective call"
                target = "one all-reduce" if due else "none: each rank has all that it needs"
                raise CheckError(f"{way}, each rank makes {made}; the target is {target}.")


def _forward_and_backward(layer, comm, inputs, g):
    result = layer(comm, *inputs)
    if not (isinstance(result, tuple | list) and len(result) == 2 and callable(result[1])):
        what = "None. Is the `return` missing?" if result is None else f"{type(result).__name__}."
        raise CheckError(
            f"{name_of(layer)} returned {what} Two things are due: y, and the function `back` "
            "itself, without brackets."
        )
    y, back = result
    forward, gradients = len(comm.calls), back(g)
    return {
        "y": y,
        "gradients": gradients,
        "forward": comm.calls[:forward],
        "backward": comm.calls[forward:],
    }


# A layer by columns, one by rows, and the MLP of both ---------------------------------------------

# Samples, inputs, hidden values, outputs: uneven on 4 and on 3 ranks.
LAYER_CASES = [(5, 7, 10, 3), (2, 3, 5, 6)]
MEAN = "the sum over the ranks is due, not their mean."
OVER_SAMPLES = "That is the mean over the samples; the sum is due: g has the loss's mean in it."
TIMES = "It counts once for each rank: "
ADD_UP = "That is this rank's part of the sum: add up over the ranks."


def _column_expected(part, size, x, w, b, g):
    own = partial(part, axis=-1)
    return {
        "y": (own(x @ w + b), {"The bias is missing.": own(x @ w)}),
        "x": (
            g @ w.T,
            {
                "That is what this rank's columns give; x went into all ranks' columns: add up "
                "over the ranks.": own(g) @ own(w).T,
                f"For x {MEAN}": g @ w.T / size,
            },
        ),
        "w": (own(x.T @ g), {"No other rank has these columns.": own(x.T @ g) / size}),
        "b": (own(g.sum(0)), {OVER_SAMPLES: own(g.mean(0))}),
    }


# column(comm, x, w, b) -> (y, back): this rank's columns of y; back(g) -> the gradients of x, w
# and b
column = Task(
    number=1,
    name="column",
    cases=LAYER_CASES,
    on_ranks=Layer(
        shapes=lambda n, inputs, hidden, outputs: {
            "x": (n, inputs),
            "w": (inputs, hidden),
            "b": (hidden,),
            "g": (n, hidden),
        },
        axes={"w": -1, "b": -1, "g": -1},
        expected=_column_expected,
        reduces=(0, 1),
    ),
    verified=f"One process's output and gradients to {TOLERANCE:g} on {{ranks}} ranks; one "
    "all-reduce, backward.",
)


def _row_expected(part, size, x, w, b, g):
    own_x, own_w = part(x, 1), part(w, 0)
    of_w, of_b = own_x.T @ g, g.sum(0)
    return {
        "y": (
            x @ w + b,
            {
                ADD_UP: own_x @ own_w + b,
                f"{TIMES}the bias. Add it after the sum.": x @ w + size * b,
                "The bias is missing.": x @ w,
                f"For y {MEAN}": x @ w / size + b,
            },
        ),
        "x": (g @ own_w.T, {}),
        "w": (of_w, {f"{TIMES}g is whole on all ranks already.": of_w * size}),
        "b": (
            of_b,
            {
                f"{TIMES}all ranks have the whole g and the same bias, so its gradient needs "
                "no sum over them.": size * of_b,
                OVER_SAMPLES: g.mean(0),
            },
        ),
    }


# row(comm, x, w, b) -> (y, back): the whole y, of this rank's part of x; back(g) -> the gradients
# of x's part, w and b
row = Task(
    number=2,
    name="row",
    cases=LAYER_CASES,
    on_ranks=Layer(
        shapes=lambda n, inputs, hidden, outputs: {
            "x": (n, hidden),
            "w": (hidden, outputs),
            "b": (outputs,),
            "g": (n, outputs),
        },
        axes={"x": 1, "w": 0},
        expected=_row_expected,
        reduces=(1, 0),
    ),
    verified=f"One process's output and gradients to {TOLERANCE:g} on {{ranks}} ranks; one "
    "all-reduce, forward.",
)


def _mlp_expected(part, size, x, w1, b1, w2, b2, g):
    active, flat = np.tanh(x @ w1 + b1), g @ w2.T
    into = flat * (1 - active**2)  # the gradient at the hidden layer
    slope = "The slope of tanh is missing between the layers: 1 - tanh²."
    own = part(into, 1) @ part(w1, 1).T
    return {
        "y": (
            active @ w2 + b2,
            {
                ADD_UP: part(active, 1) @ part(w2, 0) + b2,
                f"{TIMES}the second bias. Add it after the sum.": active @ w2 + size * b2,
                "The tanh between the layers is missing.": (x @ w1 + b1) @ w2 + b2,
            },
        ),
        "x": (
            into @ w1.T,
            {
                "That is this rank's part; add up over the ranks, in the first layer's back.": own,
                slope: flat @ w1.T,
            },
        ),
        "w1": (part(x.T @ into, 1), {slope: part(x.T @ flat, 1)}),
        "b1": (part(into.sum(0), 0), {slope: part(flat.sum(0), 0)}),
        "w2": (part(active.T @ g, 0), {}),
        "b2": (g.sum(0), {f"{TIMES}g is whole on all ranks already.": size * g.sum(0)}),
    }


# mlp(comm, x, w1, b1, w2, b2) -> (y, back): columns, tanh, rows; back(g) -> the gradients of x,
# w1, b1, w2, b2
mlp = Task(
    number=3,
    name="mlp",
    cases=LAYER_CASES,
    on_ranks=Layer(
        shapes=lambda n, inputs, hidden, outputs: {
            "x": (n, inputs),
            "w1": (inputs, hidden),
            "b1": (hidden,),
            "w2": (hidden, outputs),
            "b2": (outputs,),
            "g": (n, outputs),
        },
        axes={"w1": 1, "b1": 0, "w2": 0},
        expected=_mlp_expected,
        reduces=(1, 1),
    ),
    verified=f"Output and five gradients as in one process, to {TOLERANCE:g}, on {{ranks}} ranks; "
    "an all-reduce each way.",
)


# The halo exchange and its backward ---------------------------------------------------------------

# Rows of the image, columns, rows of the halo; a strip may be as thin as its halo.
HALO_CASES = [(7, 5, 1), (13, 4, 3)]


def strips(rows, size):
    """(first row, last row + 1) of each rank's strip, as np.array_split makes them."""
    parts = np.array_split(np.arange(rows), size)
    return [(int(part[0]), int(part[-1]) + 1) for part in parts]


def _judge_messages(reports, k, columns):
    """A message to each neighbour, of k rows."""
    judge_traffic("", reports, 2, 2 * k * columns * 8, f"{plural(k, 'row')} to each neighbour")


def _judge_halo(reports, rows, columns, k):
    image = random(rows, columns, seed=1)
    for rank, (begin, end) in enumerate(strips(rows, len(reports))):
        what = f"rank {rank}: what halo returned"
        y = as_array(what, reports[rank]["result"], (end - begin + 2 * k, columns))
        for place, row in enumerate(range(begin - k, end + k)):
            due = image[row] if 0 <= row < rows else 0 * image[0]
            if not np.array_equal(y[place], due):
                wanted = f"row {row} of the image is due"
                if not 0 <= row < rows:
                    wanted = "zeros are due: there the image has ended"
                raise CheckError(
                    f"rank {rank}: row {place} of what halo returned "
                    f"{_describe_row(y[place], image)}; {wanted}."
                )
    _judge_messages(reports, k, columns)


def _describe_row(row, image):
    for number, other in enumerate(image):
        if np.array_equal(row, other):
            return f"is row {number} of the image"
    return "is no row of the image" if row.any() else "is zeros"


# halo(comm, x, k) -> the strip x with k rows of the rank above before it and k of the rank below
# after it, or zeros
halo = Task(
    number=4,
    name="halo",
    cases=HALO_CASES,
    on_ranks=OnRanks(
        arguments=lambda rank, size, rows, columns, k: (
            shard(random(rows, columns, seed=1), 0, size, rank),
            k,
        ),
        judge=_judge_halo,
        comm=MessageComm,
    ),
    verified="Every row is where it has to be on {ranks} ranks; at most one message to each "
    "neighbour, of k rows.",
)


def _halo_gradient(rank, size, rows, columns, k):
    begin, end = strips(rows, size)[rank]
    return random(end - begin + 2 * k, columns, seed=rank), k


def _judge_halo_backward(reports, rows, columns, k):
    size = len(reports)
    edges, whole = strips(rows, size), np.zeros((rows + 2 * k, columns))
    gradients = [_halo_gradient(rank, size, rows, columns, k)[0] for rank in range(size)]
    for g, (begin, end) in zip(gradients, edges, strict=True):
        whole[begin : end + 2 * k] += g
    for rank, (begin, end) in enumerate(edges):
        what, result = f"rank {rank}: what halo_backward returned", reports[rank]["result"]
        due, own = whole[begin + k : end + k], gradients[rank][k:-k]
        if np.shape(result) == gradients[rank].shape:
            raise CheckError(
                f"{what} has the halo's {2 * k} rows still; the strip's own {len(due)} are due."
            )
        mistakes = {
            "That is the gradient of its own rows only: what the neighbours did with them has "
            "to come, and be added.": own,
            "What comes is to be added to what is there, not put in its place.": np.where(
                np.isclose(due, own), own, due - own
            ),
        }
        judge_array(what, result, due, mistakes)
    _judge_messages(reports, k, columns)


# halo_backward(comm, g, k) -> the gradient of the strip, from that of what halo returned
halo_backward = Task(
    number=5,
    name="halo_backward",
    cases=HALO_CASES,
    on_ranks=OnRanks(arguments=_halo_gradient, judge=_judge_halo_backward, comm=MessageComm),
    verified=f"The halo's gradient comes home on {{ranks}} ranks, to {TOLERANCE:g}; one message "
    "to each neighbour.",
)


# A convolution over strips of an image, and two of them with one exchange -------------------------


def convolve(x, w):
    """A convolution of one channel that keeps the size, in one process; torch's tensors."""
    return F.conv2d(x[None, None], w[None, None], padding=len(w) // 2)[0, 0]


def _convolve_and_back(x, w, g):
    """y, and the gradients of x and w: one process's, as arrays."""
    x, w = (torch.from_numpy(array).requires_grad_() for array in (x, w))
    y = convolve(x, w)
    gradients = torch.autograd.grad(y, (x, w), torch.from_numpy(g))
    return [tensor.detach().numpy() for tensor in (y, *gradients)]


def _conv_expected(part, size, x, w, g):
    due_y, due_x, due_w = _convolve_and_back(x, w, g)
    alone_y, *_ = _convolve_and_back(part(x, 0), w, part(g, 0))
    rows = part(np.arange(len(x)), 0)
    own = np.where(np.isin(np.arange(len(x)), rows)[:, None], g, 0)
    _, part_x, part_w = _convolve_and_back(x, w, own)
    return {
        "y": (
            part(due_y, 0),
            {
                "Each strip was padded with zeros, as an image of its own: lines at the seams. "
                "Its neighbours' rows are due.": alone_y
            },
        ),
        "x": (
            part(due_x, 0),
            {
                "What the neighbours' halos have of it did not come home: the exchange has a "
                "backward.": part(part_x, 0)
            },
        ),
        "w": (
            due_w,
            {
                "That is this strip's part: every position of the image is in the kernel's "
                "gradient. Add up over the ranks.": part_w,
                "That is the mean over the ranks; the sum is due.": due_w / size,
            },
        ),
    }


# conv(comm, x, w) -> (y, back): the strip of y; back(g) -> the gradients of the strip x and of the
# whole kernel w
conv = Task(
    number=6,
    name="conv",
    cases=[(7, 5, 3), (13, 6, 5)],  # rows, columns, side of the kernel
    on_ranks=Layer(
        shapes=lambda rows, columns, side: {
            "x": (rows, columns),
            "w": (side, side),
            "g": (rows, columns),
        },
        axes={"x": 0, "g": 0},
        expected=_conv_expected,
    ),
    verified=f"One process's output and gradients to {TOLERANCE:g} on {{ranks}} ranks, for strips "
    "of uneven size.",
)


def _two_data(rows, columns, first, second):
    shapes = (rows, columns), (first, first), (second, second)
    return [random(*shape, seed=seed) for seed, shape in enumerate(shapes, start=1)]


def _two_arguments(rank, size, *case):
    x, v, w = _two_data(*case)
    return shard(x, 0, size, rank), v, w


def _judge_two(reports, *case):
    image, v, w = map(torch.from_numpy, _two_data(*case))
    reach = len(v) // 2 + len(w) // 2
    due = convolve(convolve(image, v), w).numpy()
    padded = F.pad(image, (0, 0, reach, reach))
    spilt = convolve(convolve(padded, v), w)[reach:-reach].numpy()
    for rank, (begin, end) in enumerate(strips(len(image), len(reports))):
        mistakes = {
            "Between the layers, rows outside the image are zeros for one process. Yours hold "
            "what v made.": spilt[begin:end],
            "The strips exchanged nothing: lines at the seams.": convolve(
                convolve(image[begin:end], v), w
            ).numpy(),
        }
        judge_array(f"rank {rank}: y", reports[rank]["result"], due[begin:end], mistakes)
    _judge_messages(reports, reach, image.shape[1])


# two(comm, x, v, w) -> the strip of the image after both convolutions, with one exchange
two = Task(
    number=7,
    name="two",
    cases=[(9, 5, 3, 3), (19, 4, 5, 3), (17, 6, 3, 5)],  # rows, columns, sides of both kernels
    on_ranks=OnRanks(arguments=_two_arguments, judge=_judge_two, comm=MessageComm),
    verified=f"Both convolutions as in one process, to {TOLERANCE:g}, on {{ranks}} ranks, with "
    "one exchange.",
)
