"""The planner's parts against the same sums written out: bytes times links, messages times latency, for layouts small enough.

Nothing travels behind computing here (overlap 0), so each part is all that is sent. The rings are costs.collectives'.
"""

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from pi2zero import costs
from pi2zero.costs.planner.layouts import RECOMPUTE, SCHEDULES, layouts

L, H, S, BATCH = 8, 512, 256, 16
GPT = costs.transformer(layers=L, width=H, heads=8, vocabulary=1024, sequence=S)
NET = costs.convolutions([3, 256, 256], [[16, 3, 1], [32, 3, 2], [32, 3, 1], [64, 3, 2]], 10)
NODE = costs.Machine(
    ranks=8,
    per_node=4,
    memory=4e9,
    speed=1e13,
    inside=1e11,
    between=1e10,
    latency=1e-5,
    overlap=0.0,
)
HERE, THERE = (
    (NODE.latency, 1 / NODE.inside),
    (NODE.latency, 1 / NODE.between),
)  # a message's s, and s a byte
ACTIVATIONS = S * H * 2  # bytes of one sample between two blocks, mixed precision


def part(name, model=GPT, **layout):
    return costs.seconds(model, costs.Layout(**layout), NODE, BATCH)[0][name]


@pytest.mark.parametrize(
    ("ways", "link"), [({"tensor": 4, "data": 2}, HERE), ({"tensor": 8}, THERE)]
)
def test_tensor_parallelism_sums_twice_a_block_forward_and_twice_backward(ways, link):
    """arXiv:1909.08053, section 3; and once each way for the divided embedding."""
    sums = 2 * (2 * L + 1)
    each = costs.ring_allreduce_seconds(
        2 * ACTIVATIONS, ways["tensor"], *link
    )  # 2 samples a micro-batch
    count = BATCH // 2 // ways.get("data", 1)
    assert part("tensor", **ways, micro=2) == pytest.approx(count * sums * each)
    again = part("tensor", **ways, micro=2, recompute="full")
    assert again == pytest.approx(count * 1.5 * sums * each), "what is made again sums up again"


@pytest.mark.parametrize(
    ("ways", "link"),
    [({"sequence": 4}, HERE), ({"sequence": 4, "tensor": 2}, THERE), ({"sequence": 2}, HERE)],
)
def test_ring_attention_sends_keys_and_values_round(ways, link):
    """Forward c - 1 turns of a rank's keys and of its values, backward c turns of these and of their gradients."""
    c, t = ways["sequence"], ways.get("tensor", 1)
    keys = S / c * H / t * 2
    messages = 2 * (c - 1) + 4 * c
    assert part("sequence", **ways) == pytest.approx(
        BATCH * L * messages * costs.message_seconds(keys, *link)
    )
    messages += 2 * (c - 1)  # forward once more
    again = part("sequence", **ways, recompute="full")
    assert again == pytest.approx(BATCH * L * messages * costs.message_seconds(keys, *link))


@pytest.mark.parametrize(
    ("ways", "link"), [({"space": 4}, HERE), ({"space": 2, "data": 4}, HERE), ({"space": 8}, THERE)]
)
def test_strips_exchange_one_row_with_each_neighbour(ways, link):
    """Kernels of 3 want one row of the neighbour's: columns x channels x 2 bytes; forward and backward, above and below."""
    rows = [256 * 3, 256 * 16, 128 * 32, 128 * 32]
    count = BATCH // ways.get("data", 1)
    each = sum(costs.message_seconds(2 * row, *link) for row in rows)
    assert part("space", NET, **ways) == pytest.approx(count * 4 * each)


@pytest.mark.parametrize(
    ("ways", "link"),
    [
        ({"pipeline": 4}, HERE),
        ({"pipeline": 2, "data": 2}, HERE),
        ({"pipeline": 2, "data": 4}, THERE),
    ],
)
def test_stages_send_what_lies_between_two_blocks(ways, link):
    """2 (p - 1) hops until the first is back, two for each other micro-batch: of 1F1B, nothing hidden."""
    p, count = ways["pipeline"], BATCH // ways.get("data", 1)
    hops = 2 * (p - 1) + 2 * (count - 1)
    assert part("pipeline", **ways) == pytest.approx(
        hops * costs.message_seconds(ACTIVATIONS, *link)
    )
    if p == 4:
        twice = part(
            "pipeline", **ways, schedule="interleaved", chunks=2
        ) - hops * costs.message_seconds(ACTIVATIONS, *link)
        assert twice == pytest.approx(2 * count * costs.message_seconds(ACTIVATIONS, *link)), (
            "two stages a rank: twice the hops"
        )


@pytest.mark.parametrize("zero", range(4))
@pytest.mark.parametrize(
    ("ways", "link"),
    [({"data": 8}, THERE), ({"data": 2}, HERE), ({"data": 2, "sequence": 4}, THERE)],
)
def test_gradients_go_round_as_zero_wants_it(zero, ways, link):
    """arXiv:1910.02054, section 7: stages 0 and 1 as one all-reduce of the gradients; stage 2 reduces after each micro-batch and
    gathers once, stage 3 gathers twice and reduces for each; both layer by layer."""
    n, count = ways["data"] * ways.get("sequence", 1), BATCH // ways["data"]
    whole = 2 * GPT.parameters
    halves = {2: count + 1, 3: 3 * count}.get(zero)
    layer = costs.ring_allgather_seconds(whole / len(GPT.layers), n, *link)
    expected = (
        halves * len(GPT.layers) * layer
        if halves
        else costs.ring_allreduce_seconds(whole, n, *link)
    )
    assert part("gradients", zero=zero, **ways) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("ways", "link"),
    [({"pipeline": 8}, THERE), ({"pipeline": 4, "data": 2}, THERE), ({"pipeline": 4}, HERE)],
)
def test_two_ways_through_a_pipeline_rank_0_sums_with_the_last(ways, link):
    """GEMS: ranks r and p - 1 - r hold the same two stages; of rank 0 the embedding's and the head's."""
    p, alike = ways["pipeline"], 2 * ways.get("data", 1)
    blocks, (first, *_, last) = GPT.layers[1:-1], GPT.layers
    held = sum(layer.split + layer.whole for layer in (first, last, *blocks[: 2 * L // p]))
    expected = costs.ring_allreduce_seconds(2 * held, alike, *link)
    assert part("gradients", schedule="gems", **ways) == pytest.approx(expected)


def test_the_update_reads_and_writes_what_the_rank_keeps():
    """Mixed precision: master and two moments, 12 bytes, read and written; the parameter read and written, its gradient read."""
    share = GPT.parameters / 8
    assert part("update", data=8) == pytest.approx(8 * share * (24 + 4 + 2) / NODE.update)
    for zero in (1, 2, 3):
        assert part("update", data=8, zero=zero) == pytest.approx(share * 30 / NODE.update)
    assert part("update", data=2, tensor=4) == pytest.approx(
        (sum(layer.split for layer in GPT.layers) / 4 + sum(layer.whole for layer in GPT.layers))
        * 30
        / NODE.update
    )
    there = part("offload", data=8, zero=1, offload=True)
    assert there == pytest.approx(share * (10 * 30 / NODE.update + (2 + 2) / NODE.host)), (
        "ten times as long, and sent both ways"
    )


def test_convolutions_keep_each_ones_input_and_output():
    """For backward: the image, and of each layer what it gives and what its normalization gives; the head's input and output."""
    given = [16 * 256 * 256, 32 * 128 * 128, 32 * 128 * 128, 64 * 64 * 64]
    image, head = 3 * 256 * 256, 64 + 10
    assert costs.held(NET, costs.Layout(), 1)["activations"] == 2 * (image + 2 * sum(given) + head)
    plain = costs.convolutions(
        [3, 256, 256], [[16, 3, 1], [32, 3, 2], [32, 3, 1], [64, 3, 2]], 10, norm=False
    )
    assert costs.held(plain, costs.Layout(), 1)["activations"] == 2 * (image + sum(given) + head)
    weights = 9 * (3 * 16 + 16 * 32 + 32 * 32 + 32 * 64)
    assert NET.parameters == weights + 2 * (16 + 32 + 32 + 64) + 65 * 10
    assert plain.parameters == weights + 16 + 32 + 32 + 64 + 65 * 10
    assert NET.operations == 3 * 2 * (
        9 * (3 * given[0] + 16 * given[1] + 32 * given[2] + 32 * given[3]) + 64 * 10
    )


def on_one_node(machine, size, stride):
    """Whether each group of `size` ranks, `stride` apart, has all its ranks on one node: by the numbers of all ranks."""
    groups = {}
    for rank in range(machine.ranks // (size * stride) * (size * stride)):
        block, within = divmod(rank, size * stride)
        groups.setdefault((block, within % stride), set()).add(rank // machine.per_node)
    return all(len(nodes) == 1 for nodes in groups.values())


@pytest.mark.parametrize("per_node", [3, 4, 6, 8])
def test_a_ring_with_one_rank_on_another_node_is_as_slow_as_the_way_there(per_node):
    """Of 8 ranks a node, tensor groups of 3 are ranks 0 to 2, 3 to 5, and 6, 7 and 8."""
    for ranks in (per_node, 12 * per_node):
        machine = replace(NODE, ranks=ranks, per_node=per_node)
        for size, stride in itertools.product(range(2, 25), range(1, 25)):
            if ranks % (size * stride) == 0:
                expected = HERE if on_one_node(machine, size, stride) else THERE
                assert machine.link(size, stride) == expected, (ranks, size, stride)
    assert replace(NODE, ranks=24, per_node=8).link(3, 1) == THERE


def possible(model, machine, batch):
    """Layouts by trying all numbers, and the rules of planner.layouts one by one."""
    numbers = range(1, machine.ranks + 1)
    blocks, text = len(model.layers) - sum(model.ends), model.kind == "text"
    for data, tensor, pipeline, other in itertools.product(numbers, repeat=4):
        fair = (
            data * tensor * pipeline * other == machine.ranks
            and batch % data == 0
            and pipeline <= blocks
        )
        heads = model.widest % tensor == 0 and on_one_node(machine, tensor, 1)
        parts = other == 1 or (model.length % other == 0 and model.length / other >= 2)
        if not (fair and heads and parts):
            continue
        ways = {
            "data": data,
            "tensor": tensor,
            "pipeline": pipeline,
            "sequence" if text else "space": other,
        }
        rest = itertools.product(
            (1, 2, 4, 8, 16), SCHEDULES, (1, 2, 4), range(4), RECOMPUTE, (False, True)
        )
        for micro, schedule, chunks, zero, recompute, offload in rest:
            count, left = divmod(batch // data, micro)
            runs = {
                "interleaved": chunks > 1 and count % pipeline == 0,
                "gems": pipeline % 2 == 0 and count % 2 == 0,
            }
            wrong = [
                left,
                pipeline == 1 and (schedule != "1f1b" or chunks > 1),
                pipeline > 1 and not runs.get(schedule, True),
                chunks > 1 and (schedule != "interleaved" or blocks < chunks * pipeline),
                zero and data * other == 1,
                zero > 1 and pipeline > 1,
                offload and not zero,
            ]
            if not any(wrong):
                yield costs.Layout(
                    **ways,
                    micro=micro,
                    schedule=schedule,
                    chunks=chunks,
                    zero=zero,
                    recompute=recompute,
                    offload=offload,
                )


SHORT = costs.transformer(layers=4, width=24, heads=6, vocabulary=5, sequence=12)
SMALL = costs.convolutions([3, 8, 8], [[4, 3, 1], [4, 3, 1]], 2)


@pytest.mark.parametrize(
    ("model", "ranks", "batch"),
    [(SHORT, 8, 16), (SHORT, 6, 12), (SMALL, 8, 16), (SMALL, 4, 6), (SHORT, 1, 3)],
)
def test_all_layouts_and_no_other(model, ranks, batch):
    machine = replace(NODE, ranks=ranks, per_node=min(ranks, 4) if ranks != 6 else 3)
    found = Counter(layouts(model, machine, batch))
    assert set(found.values()) == {1}, "none twice"
    assert set(found) == set(possible(model, machine, batch))
    assert ranks != 6 or {layout.tensor for layout in found} == {1, 3}, (
        "of 3 ranks a node, the second two would lie on both"
    )


def test_the_table_says_what_the_plan_has():
    """Each number of each row, told again from the row itself."""
    found = costs.plan(GPT, replace(NODE, overlap=0.5), BATCH)
    text = costs.plan_text(found, 4).splitlines()
    begin, end = (k for k, line in enumerate(text) if line.startswith(("step, s", "In brackets")))
    names, best = [name.strip() for name in text[begin].split("  ") if name.strip()], found.best(4)
    shown, wide = names[2:-2], [max(9, len(name)) for name in names[2:-2]]
    assert (
        names[:2] == ["step, s", "GB"]
        and names[-2:] == ["micro", "layout"]
        and "(gradients)" in shown
        and "compute" in shown
    )
    for line, row in zip(text[begin + 1 : end], best, strict=True):
        values = [
            row.hidden[name[1:-1]] if name.startswith("(") else row.parts[name] for name in shown
        ]
        cells = [f"{value:{width}.3g}" for value, width in zip(values, wide, strict=True)]
        step, held = f"{row.seconds:7.3g}", f"{row.held / 1e9:3.0f}"
        assert line == "  ".join([step, held, *cells, f"{row.layout.micro:5}", row.layout.name])
    for name in costs.PARTS:
        assert (name in shown) == any(row.parts[name] > row.seconds / 2000 for row in best), name
    for row, line in zip(best[:3], text[end + 2 : end + 5], strict=True):
        assert line.startswith("  parameters ") and line.endswith(f" GB ({row.layout.name})")
        assert f"activations {row.bytes['activations'] / 1e9:,.1f}" in line
    assert text[end + 5 : end + 7] == ["", "Why the others lose"]
    assert text[end + 7 :] == [f"  {name:22} {why}" for name, why in found.others().items()]


def test_a_kernel_larger_than_what_is_left_is_named():
    with pytest.raises(
        ValueError, match="the kernel of row 2, 5, is larger than what is left of the image"
    ):
        costs.convolutions([3, 8, 8], [[4, 3, 2], [4, 5, 1]], 2)


def test_a_gpts_parameters():
    """Of a block 4 h² + 8 h² and its biases and norms; embedding and head are two matrices unless tied; a last norm."""
    block = 12 * H * H + 13 * H
    assert GPT.parameters == L * block + 2 * 1024 * H + S * H + 2 * H
    tied = costs.transformer(layers=L, width=H, heads=8, vocabulary=1024, sequence=S, tied=True)
    assert GPT.parameters - tied.parameters == 1024 * H
    with pytest.raises(
        ValueError, match=r"layers: at most 10,000, each is looked at; got 10,001\."
    ):
        costs.transformer(layers=10_001, width=H, heads=8, vocabulary=1024, sequence=S)


def has(layout, choice):
    """Whether a layout is one of a line of "Why the others lose", by the line's words."""
    first, _, last = choice.partition(" ")
    if last == "alone":
        return getattr(layout, first) == NODE.ranks and not layout.zero
    if first.startswith("ZeRO"):
        return layout.zero == int(first[-1])
    if first == "schedule":
        return layout.pipeline > 1 and layout.schedule == last
    if first == "recompute":
        return layout.recompute == last
    if "offload" in choice:
        return layout.offload == (choice == "offload")
    return getattr(layout, last) == 1


@pytest.mark.parametrize(
    ("model", "ways"), [(GPT, "data tensor pipeline sequence"), (NET, "data pipeline space")]
)
def test_each_choice_is_told_by_the_best_layout_that_has_it(model, ways):
    found = costs.plan(model, NODE, BATCH)
    rest = [
        "ZeRO-0",
        "ZeRO-1",
        "ZeRO-2",
        "ZeRO-3",
        *(f"schedule {name}" for name in SCHEDULES),
        "recompute none",
        "recompute full",
    ]
    told = found.others()
    split = [word for way in ways.split() for word in (f"{way} alone", f"no {way}")]
    assert list(told) == [*split, *rest, "offload", "no offload"]
    for choice, why in told.items():
        row = next((row for row in found.rows if has(row.layout, choice)), None)
        if row is None:
            assert why.startswith("not possible")
        elif row is found.rows[0]:
            assert why == "the best has it"
        elif row.parts is None:
            assert why.startswith(f"does not fit: at least {row.held / 1e9:,.1f} GB")
        else:
            slower = row.seconds / found.rows[0].seconds
            more = {name: value - found.rows[0].parts[name] for name, value in row.parts.items()}
            part = max(more, key=more.get)
            if slower < 1.0005 or more[part] <= 0:
                assert why == "as fast as the best"
            else:
                assert why.startswith(
                    f"{slower:,.2f} times the best's time ({row.layout.name}): {part} takes "
                )


def test_a_layout_in_words():
    words = costs.Layout(data=4, pipeline=2, zero=1, recompute="full").name
    assert words == "data 4, pipeline 2 (1f1b), ZeRO-1, recompute"
    words = costs.Layout(
        tensor=2, pipeline=2, sequence=4, schedule="interleaved", chunks=2, zero=1, offload=True
    ).name
    assert words == "tensor 2, pipeline 2 (interleaved x 2), sequence 4, ZeRO-1, offload"
    assert costs.Layout().name == "1 rank" and costs.Layout(zero=3, data=2).name == "data 2, ZeRO-3"


def test_what_the_example_leaves_out_is_what_is_taken():
    """Its lines that begin with # are the defaults."""
    given = costs.EXAMPLE.replace("ranks = 64", "ranks = 8").replace("batch = 512", "batch = 8")
    text, images = given.partition("# [images]")[0], given.partition("[machine]")[2]
    spelt = text.replace("\n# ", "\n") + "[machine]" + images.replace("\n# ", "\n")
    assert spelt != given and spelt.count("#") < given.count("#") - 8
    for one, other in zip(costs.plan_from(given).rows, costs.plan_from(spelt).rows, strict=True):
        assert (one.layout, one.bytes, one.parts) == (other.layout, other.bytes, other.parts)
