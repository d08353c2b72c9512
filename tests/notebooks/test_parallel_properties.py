"""Properties of the cells of notebooks 11 to 11b over sizes that hypothesis chooses. No ranks.

The cells are taken from the notebooks by their ids; test_pipelines, test_tensors and test_space run
cells on ranks.
"""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from worlds import definitions

from pi2zero import costs

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import tissue

counts = st.integers(1, 9)
seconds = st.floats(0.01, 10)


def cells(book, *names):
    space = {"np": np, "torch": torch, "F": F, "costs": costs, "expected": {}, "pairwise": pairwise}
    for name in names:
        exec(definitions(book, name), space)
    return space


PIPELINES = cells("11_model_parallel", "gpipe", "gpipe-draw", "idle", "one-f-one-b", "held", "gems")
SPACE = cells("11b_space_and_hybrids", "px-edges", "px-margin", "px-margins")
SOFTMAX = cells("11a_tensors_and_experts", "by-blocks")
EXPERTS = cells("11a_tensors_and_experts", "px-capacity")


@settings(deadline=None)
@given(
    p=counts, m=st.integers(1, 30), name=st.sampled_from(["gpipe", "one_f_one_b"]), data=st.data()
)
def test_a_pipeline_ends_does_all_once_and_is_never_faster_than_its_slowest_stage(p, m, name, data):
    times = data.draw(st.lists(st.tuples(seconds, seconds), min_size=p, max_size=p))
    plan = [PIPELINES[name](stage, p, m) for stage in range(p)]
    spans = costs.pipeline_spans(plan, lambda stage, kind: times[stage]["FB".index(kind)])
    assert [[action for action, _, _ in row] for row in spans] == plan
    assert all(
        sorted(row) == sorted((s, kind, i) for kind in "FB" for i in range(m))
        for s, row in enumerate(plan)
    )
    stop = {action: stop for row in spans for action, _, stop in row}
    for (s, kind, i), start, _ in (
        span for row in spans for span in row
    ):  # nothing begins before what it needs
        need = [(s - 1, "F", i)] if kind == "F" else [(s, "F", i), (s + 1, "B", i)]
        assert all(start >= stop[action] for action in need if action in stop)
    whole = max(stop.values())
    assert whole >= max(m * (f + b) for f, b in times) * (1 - 1e-9) and whole >= sum(
        f + b for f, b in times
    ) * (1 - 1e-9)
    assert [PIPELINES["held"](row) for row in plan] == [
        m if name == "gpipe" else min(m, p - s) for s in range(p)
    ]


@settings(deadline=None)
@given(
    p=st.integers(1, 4).map(lambda half: 2 * half),
    pairs=st.integers(1, 6),
    forward=seconds,
    backward=seconds,
)
def test_two_directions_hold_one_batch_and_take_no_longer_than_one(p, pairs, forward, backward):
    took = []
    for name in ("basic", "two_way"):
        plan = [PIPELINES[name](rank, p, 2 * pairs) for rank in range(p)]
        assert all(PIPELINES["held"](row) == 1 for row in plan)
        spans = costs.pipeline_spans(plan, lambda stage, kind: forward if kind == "F" else backward)
        took.append(max(row[-1][2] for row in spans))
    assert took[1] <= took[0] * (1 + 1e-9)


layers = st.tuples(st.integers(1, 7), st.integers(1, 3), st.integers(0, 3)).filter(
    lambda layer: layer[2] <= layer[0] // 2
)


@settings(deadline=None, max_examples=300)
@given(rows=st.integers(1, 60), parts=st.integers(1, 6), layer=layers)
@example(
    rows=15, parts=3, layer=(4, 3, 0)
)  # the last strip is thicker than its halo and has no row of the result
@pytest.mark.parametrize("where", ["notebook", "script"])
def test_strips_with_their_margins_give_the_whole_layer_or_a_sentence(where, rows, parts, layer):
    """Strips of the padded image with their margins, then the layer without padding: the whole."""
    kernel, stride, padding = layer
    assume(rows + 2 * padding >= kernel)
    edges = SPACE["edges_of"](rows, parts)
    try:
        if where == "notebook":
            lacks, out = SPACE["margins"](edges, *layer), SPACE["after"](edges, *layer)
        else:
            lacks, out = tissue.margins(edges, *layer)
    except ValueError as error:
        assert "Take fewer ranks" in str(error)
        # In a strip of kernel + stride - 1 rows a whole window begins, and no halo is that thick.
        assert min(b - a for a, b in pairwise(edges)) < kernel + stride - 1, (
            "large strips always do"
        )
        return
    x, weight = (
        torch.arange(1.0, rows + 1).view(1, 1, rows, 1),
        torch.arange(1.0, kernel + 1).view(1, 1, kernel, 1),
    )
    padded = F.pad(x, [0, 0, kernel, 2 * kernel])  # more than any margin
    strips = [
        padded[:, :, begin - above + kernel : end + below + kernel]
        for (begin, end), (above, below) in zip(pairwise(edges), lacks, strict=True)
    ]
    found = [F.conv2d(strip, weight, stride=stride) for strip in strips]
    assert [part.shape[2] for part in found] == [b - a for a, b in pairwise(out)]
    assert torch.equal(
        torch.cat(found, 2), F.conv2d(x, weight, stride=stride, padding=(padding, 0))
    )


@settings(deadline=None)
@given(
    scores=st.lists(st.floats(-50, 50), min_size=1, max_size=30),
    cuts=st.sets(st.integers(1, 29), max_size=6),
    seed=st.integers(0, 99),
)
def test_the_running_softmax_is_the_softmax_wherever_the_blocks_begin(scores, cuts, seed):
    scores = np.array(scores)
    values = np.random.default_rng(seed).normal(size=len(scores))
    blocks = [
        block
        for block in np.split(
            np.arange(len(scores)), sorted(cut for cut in cuts if cut < len(scores))
        )
        if len(block)
    ]
    weights = np.exp(scores - scores.max())
    assert SOFTMAX["by_blocks"](scores, values, blocks) == pytest.approx(
        weights @ values / weights.sum(), rel=1e-9, abs=1e-12
    )


@settings(deadline=None)
@given(
    tokens=st.integers(1, 60),
    experts=st.integers(1, 6),
    capacity=st.integers(1, 61),
    seed=st.integers(0, 99),
)
def test_an_expert_takes_the_first_tokens_that_want_it_and_no_more(tokens, experts, capacity, seed):
    draw = torch.Generator().manual_seed(seed)
    x, router = torch.randn(tokens, 5, generator=draw), torch.randn(experts, 5, generator=draw)
    kept, wanted = EXPERTS["taken"](x, router, capacity)[:, 0].bool(), (x @ router.T).argmax(-1)
    for expert in range(experts):
        its = (wanted == expert).nonzero()[:, 0].tolist()
        assert kept[its].tolist() == [place < capacity for place in range(len(its))]
