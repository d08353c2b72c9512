"""The checks of the blanks in notebook 11b that run on its ranks."""

from itertools import pairwise

import torch
from mpi4py import MPI

from pi2zero_course.checks.framework.agree import agree
from pi2zero_course.checks.framework.answers import CheckError, globals_of
from pi2zero_course.checks.framework.task import blank, compare
from pi2zero_course.checks.framework.torch_comm import on_torch_ranks
from pi2zero_course.checks.framework.values import pick_hint

ROWS = 37
LAYERS = [(3, 1, 1), (5, 1, 2), (3, 2, 1), (2, 2, 0)]  # kernel, stride, padding


def _margin(mine, out, kernel, stride, padding):
    return mine[0] - out[0] * stride + padding, (out[1] - 1) * stride - padding + kernel - mine[1]


@blank
def margin(function):
    """margin(mine, out, kernel, stride, padding) -> (rows lacking above, rows lacking below)."""
    mistakes = {
        "Above comes first.": lambda *given: _margin(*given)[::-1],
        "It is positive where rows are lacking.": (
            lambda *given: tuple(-rows for rows in _margin(*given))
        ),
        "The last output row is out[1] - 1: out[1] is one behind it.": (
            lambda mine, out, k, s, q: (
                _margin(mine, out, k, s, q)[0],
                out[1] * s - q + k - mine[1],
            )
        ),
        "Padding: output row 0 begins `padding` rows above the image.": (
            lambda mine, out, k, s, q: (mine[0] - out[0] * s, _margin(mine, out, k, s, q)[1])
        ),
        "With a stride, or an even kernel, it is not the padding on both sides.": (
            lambda mine, out, k, s, q: (q, q)
        ),
    }
    cases = [
        ((9, 18), (5, 9), 3, 2, 1),
        ((9, 18), (9, 18), 5, 1, 2),
        ((18, 27), (9, 14), 2, 2, 0),
        ((27, 37), (14, 18), 2, 2, 0),
    ]
    agree(compare, function, _margin, cases, mistakes)
    return "Strides, even kernels and the last row are right."


@blank
def halo_backward(function):
    """halo_backward(gradient, line, lacks) -> the gradient of x: what went out as a halo comes
    home, and is added."""
    for layer in LAYERS:
        on_torch_ranks(lambda comm, layer=layer: _judge_halo(function, *layer), function)
    return (
        f"The halo's gradient comes home on {MPI.COMM_WORLD.size} ranks, with strides, and where "
        "a strip has a row too many."
    )


def _judge_halo(function, kernel, stride, padding):
    space, rank, size = globals_of(function), MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    edges = [ROWS * part // size for part in range(size + 1)]
    out = [
        *(-(-edge // stride) for edge in edges[:-1]),
        (ROWS + 2 * padding - kernel) // stride + 1,
    ]
    lacks = [
        _margin(mine, its, kernel, stride, padding)
        for mine, its in zip(pairwise(edges), pairwise(out), strict=True)
    ]
    draw = torch.Generator().manual_seed(3)
    gradients = [
        torch.rand(1, 2, b - a + sum(lack), 3, generator=draw, dtype=torch.double)
        for (a, b), lack in zip(pairwise(edges), lacks, strict=True)
    ]
    begin, end = edges[rank : rank + 2]
    due = _added(gradients, edges, lacks)[:, :, begin:end]
    own = _added([g if r == rank else 0 * g for r, g in enumerate(gradients)], edges, lacks)[
        :, :, begin:end
    ]
    line = space["Line"](2, list(range(size)), edges)
    mine = function(gradients[rank].clone(), line, lacks)
    if not isinstance(mine, torch.Tensor):
        raise CheckError(f"it returned {mine!r}; a tensor is due. Is the `return` missing?")
    if mine.shape != due.shape:
        raise CheckError(
            f"kernel {kernel}, stride {stride}: it has {mine.shape[2]} rows; the strip of rank "
            f"{rank} has {end - begin}."
        )
    if torch.allclose(mine, due, rtol=0, atol=1e-9):
        return
    known = {
        "That is the gradient of its own rows only: what the neighbours did with them has to "
        "come, and be added.": own,
        "What comes is to be added to what is there, not put in its place.": torch.where(
            due == own, own, due - own
        ),
    }
    why = pick_hint(
        mine, known, same=lambda one, value: torch.allclose(one, value, rtol=0, atol=1e-9)
    )
    off = (mine - due).abs().amax((0, 1, 3)) > 1e-9
    raise CheckError(
        f"kernel {kernel}, stride {stride}: wrong in rows {off.nonzero().flatten().tolist()} of "
        f"the strip.\n{why}"
    )


def _added(gradients, edges, lacks):
    """The gradient of the whole image, from those of the strips with their halos."""
    whole = torch.zeros(1, 2, ROWS, 3, dtype=torch.double)
    for gradient, edge, (above, _) in zip(gradients, edges, lacks, strict=False):
        for row in range(gradient.shape[2]):
            if 0 <= edge - above + row < ROWS:
                whole[:, :, edge - above + row] += gradient[:, :, row]
    return whole
