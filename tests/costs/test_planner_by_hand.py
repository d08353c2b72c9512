"""The planner's parts against the same sums written out: bytes times links, messages times latency.

Nothing is hidden behind computing here (overlap 0), so each part is all that is sent.
"""

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from pi2zero import costs
from pi2zero.costs.planner.layouts import RECOMPUTE, SCHEDULES, layouts

L, H, S, VOCAB, BATCH = 8, 512, 256, 1024, 16
GPT = costs.transformer(L, H, heads=8, vocab_size=VOCAB, sequence_length=S)
CONVOLUTIONS = [[16, 3, 1], [32, 3, 2], [32, 3, 1], [64, 3, 2]]
NET = costs.convolutions([3, 256, 256], CONVOLUTIONS, 10)
NODE = costs.Machine(8, 4, 4e9, 1e13, 1e11, 1e10, latency=1e-5, overlap=0.0)
# (s per message, s per byte) within a node and between nodes
INSIDE, BETWEEN = (NODE.latency, 1 / NODE.intra_node_bandwidth), (NODE.latency, 1e-10)
ACTIVATIONS = S * H * 2  # bytes of one sample between two blocks, mixed precision


def part(name, model=GPT, machine=NODE, **layout):
    return costs.step_time(model, costs.Layout(**layout), machine, BATCH)[0][name]


def parameters(*layers):
    return sum(layer.params_tp + layer.params_replicated for layer in layers)


@pytest.mark.parametrize(
    ("sizes", "link"), [({"tensor": 4, "data": 2}, INSIDE), ({"tensor": 8}, BETWEEN)]
)
def test_tensor_parallelism_all_reduces_twice_per_block_and_direction(sizes, link):
    """arXiv:1909.08053, section 3; and once per direction for the sharded embedding."""
    ring = costs.ring_allreduce_seconds(2 * ACTIVATIONS, sizes["tensor"], *link)
    expected = BATCH // 2 // sizes.get("data", 1) * 2 * (2 * L + 1) * ring
    assert part("tensor", **sizes, micro_batch=2) == pytest.approx(expected)
    again = part("tensor", **sizes, micro_batch=2, recompute="full")
    assert again == pytest.approx(1.5 * expected), "recomputation all-reduces again"


@pytest.mark.parametrize(
    ("sizes", "link"),
    [({"context": 4}, INSIDE), ({"context": 4, "tensor": 2}, BETWEEN), ({"context": 2}, INSIDE)],
)
def test_ring_attention_sends_keys_and_values_around(sizes, link):
    """Forward c - 1 hops of keys and of values, backward c hops of these and of their gradients."""
    c, t = sizes["context"], sizes.get("tensor", 1)
    message = costs.message_seconds(S / c * H / t * 2, *link)
    hops = 2 * (c - 1) + 4 * c
    assert part("context", **sizes) == pytest.approx(BATCH * L * hops * message)
    again = part("context", **sizes, recompute="full")
    assert again == pytest.approx(BATCH * L * (hops + 2 * (c - 1)) * message)


@pytest.mark.parametrize(
    ("sizes", "link"),
    [({"spatial": 4}, INSIDE), ({"spatial": 2, "data": 4}, INSIDE), ({"spatial": 8}, BETWEEN)],
)
def test_strips_exchange_one_row_with_each_neighbour(sizes, link):
    """Kernels of 3 need one row: columns x channels x 2 bytes; both directions, above and below."""
    rows = [256 * 3, 256 * 16, 128 * 32, 128 * 32]
    messages = sum(costs.message_seconds(2 * row, *link) for row in rows)
    expected = BATCH // sizes.get("data", 1) * 4 * messages
    assert part("spatial", NET, **sizes) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("sizes", "link"),
    [
        ({"pipeline": 4}, INSIDE),
        ({"pipeline": 2, "data": 2}, INSIDE),
        ({"pipeline": 2, "data": 4}, BETWEEN),
    ],
)
def test_stages_send_the_activations_between_two_blocks(sizes, link):
    """2 (p - 1) hops until the first is back, two for each other micro-batch; nothing hidden."""
    p, count = sizes["pipeline"], BATCH // sizes.get("data", 1)
    hops, hop = 2 * (p - 1) + 2 * (count - 1), costs.message_seconds(ACTIVATIONS, *link)
    assert part("pipeline", **sizes) == pytest.approx(hops * hop)
    if p == 4:
        twice = part("pipeline", **sizes, schedule="interleaved", chunks=2)
        assert twice == pytest.approx((hops + 2 * count) * hop), "two stages per rank"


def test_stages_of_a_sharded_sample_send_a_shard_of_it():
    one_node = replace(NODE, ranks_per_node=8)
    hops, hop = 2 + 2 * (BATCH // 2 - 1), costs.message_seconds(ACTIVATIONS / 2, *INSIDE)
    sent = part("pipeline", machine=one_node, data=2, pipeline=2, context=2)
    assert sent == pytest.approx(hops * hop)
    without_latency = replace(one_node, latency=0)
    whole = part("pipeline", NET, without_latency, pipeline=2, data=4)
    strips = part("pipeline", NET, without_latency, pipeline=2, data=2, spatial=2)
    per_hop = [whole / (2 + 2 * (BATCH // 4 - 1)), strips / (2 + 2 * (BATCH // 2 - 1))]
    assert per_hop[1] == pytest.approx(per_hop[0] / 2)


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize(
    ("sizes", "link"),
    [({"data": 8}, BETWEEN), ({"data": 2}, INSIDE), ({"data": 2, "context": 4}, BETWEEN)],
)
def test_gradients_are_sent_as_zero_needs_it(stage, sizes, link):
    """arXiv:1910.02054, section 7: stages 0 and 1 as one all-reduce; stage 2 reduces after each
    micro-batch and gathers once, stage 3 gathers twice and reduces for each, layer by layer."""
    n, count = sizes["data"] * sizes.get("context", 1), BATCH // sizes["data"]
    whole, layers = 2 * GPT.parameters, len(GPT.layers)
    expected = costs.ring_allreduce_seconds(whole, n, *link)
    if stage > 1:
        gathers = {2: count + 1, 3: 3 * count}[stage]
        expected = gathers * layers * costs.ring_allgather_seconds(whole / layers, n, *link)
    assert part("gradients", zero_stage=stage, **sizes) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("sizes", "link"),
    [({"pipeline": 8}, BETWEEN), ({"pipeline": 4, "data": 2}, BETWEEN), ({"pipeline": 4}, INSIDE)],
)
def test_in_a_bidirectional_pipeline_rank_0_all_reduces_with_the_last(sizes, link):
    """GEMS: ranks r and p - 1 - r have the same stages; rank 0's have the embedding and head."""
    embedding, *blocks, head = GPT.layers
    nbytes = 2 * parameters(embedding, head, *blocks[: 2 * L // sizes["pipeline"]])
    expected = costs.ring_allreduce_seconds(nbytes, 2 * sizes.get("data", 1), *link)
    assert part("gradients", schedule="gems", **sizes) == pytest.approx(expected)


def test_the_update_reads_and_writes_the_ranks_shard():
    """Mixed precision: master copy and two moments, 12 bytes, read and written; the parameter read
    and written, its gradient read."""
    shard, bandwidth = GPT.parameters / 8, NODE.optimizer_bandwidth
    assert part("update", data=8) == pytest.approx(8 * shard * (24 + 4 + 2) / bandwidth)
    for stage in (1, 2, 3):
        assert part("update", data=8, zero_stage=stage) == pytest.approx(shard * 30 / bandwidth)
    of_tensor = sum(layer.params_tp / 4 + layer.params_replicated for layer in GPT.layers)
    assert part("update", data=2, tensor=4) == pytest.approx(of_tensor * 30 / bandwidth)
    offloaded = part("offload", data=8, zero_stage=1, offload=True)
    expected = shard * (10 * 30 / bandwidth + (2 + 2) / NODE.host_bandwidth)
    assert offloaded == pytest.approx(expected), "ten times as long, and sent both ways"


def test_convolutions_keep_their_inputs_and_outputs():
    """For backward: the image, of each layer its output and that of its norm, and the head's."""
    outputs = [16 * 256 * 256, 32 * 128 * 128, 32 * 128 * 128, 64 * 64 * 64]
    image, head = 3 * 256 * 256, 64 + 10
    plain = costs.convolutions([3, 256, 256], CONVOLUTIONS, 10, norm=False)
    for net, times in ((NET, 2), (plain, 1)):
        kept = costs.bytes_per_rank(net, costs.Layout(), 1)["activations"]
        assert kept == 2 * (image + times * sum(outputs) + head)
    weights = 9 * (3 * 16 + 16 * 32 + 32 * 32 + 32 * 64)
    assert NET.parameters == weights + 2 * (16 + 32 + 32 + 64) + 65 * 10
    assert plain.parameters == weights + 16 + 32 + 32 + 64 + 65 * 10
    channels = zip((3, 16, 32, 32), outputs, strict=True)
    assert NET.flops == 6 * (sum(9 * size * out for size, out in channels) + 64 * 10)


def test_parameters_of_a_gpt_and_activations_of_its_head():
    """A block: 4 h² + 8 h², biases and norms; embedding and head are two matrices unless tied."""
    assert GPT.parameters == L * (12 * H * H + 13 * H) + 2 * VOCAB * H + S * H + 2 * H
    tied = costs.transformer(L, H, 8, VOCAB, S, tied_embeddings=True)
    assert GPT.parameters - tied.parameters == VOCAB * H
    logits, inputs = 4 * S * VOCAB, S * (2 * H * 2 + 2 * 4)  # of the norm and of the matrix
    for sharded in (True, False):
        head = costs.transformer(1, H, 8, VOCAB, S, shard_vocab=sharded).layers[-1]
        assert head.act_bytes_tp == logits * sharded
        assert head.act_bytes_replicated == logits * (not sharded) + inputs


def is_on_one_node(machine, size, stride):
    """Whether each group of `size` ranks, `stride` apart, is on one node: by all ranks' numbers."""
    groups = {}
    for rank in range(machine.ranks // (size * stride) * (size * stride)):
        block, within = divmod(rank, size * stride)
        nodes = groups.setdefault((block, within % stride), set())
        nodes.add(rank // machine.ranks_per_node)
    return all(len(nodes) == 1 for nodes in groups.values())


@pytest.mark.parametrize("per_node", [3, 4, 6, 8])
def test_a_ring_with_one_rank_on_another_node_has_that_link(per_node):
    for ranks in (per_node, 12 * per_node):
        machine = replace(NODE, ranks=ranks, ranks_per_node=per_node)
        for size, stride in itertools.product(range(2, 25), range(1, 25)):
            if ranks % (size * stride) == 0:
                expected = INSIDE if is_on_one_node(machine, size, stride) else BETWEEN
                assert machine.link(size, stride) == expected, (ranks, size, stride)
    assert replace(NODE, ranks=24, ranks_per_node=8).link(3, 1) == BETWEEN


def possible_layouts(model, machine, batch):
    """Layouts by trying all numbers, and the rules of planner.layouts one by one."""
    numbers, blocks = range(1, machine.ranks + 1), len(model.layers) - sum(model.ends)
    second = "context" if model.kind == "text" else "spatial"
    for data, tensor, pipeline, other in itertools.product(numbers, repeat=4):
        if data * tensor * pipeline * other != machine.ranks or batch % data:
            continue
        if pipeline > blocks or model.max_tensor % tensor or not is_on_one_node(machine, tensor, 1):
            continue
        if other > 1 and (model.length % other or model.length / other < 2):
            continue
        sizes = {"data": data, "tensor": tensor, "pipeline": pipeline, second: other}
        choices = {
            "micro_batch": (1, 2, 4, 8, 16),
            "schedule": SCHEDULES,
            "chunks": (1, 2, 4),
            "zero_stage": range(4),
            "recompute": RECOMPUTE,
            "offload": (False, True),
        }
        for values in itertools.product(*choices.values()):
            micro_batch, schedule, chunks, zero, _, offload = values
            count, left = divmod(batch // data, micro_batch)
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
                yield costs.Layout(**sizes, **dict(zip(choices, values, strict=True)))


SHORT = costs.transformer(4, hidden_size=24, heads=6, vocab_size=5, sequence_length=12)
SMALL = costs.convolutions([3, 8, 8], [[4, 3, 1], [4, 3, 1]], 2)


@pytest.mark.parametrize(
    ("model", "ranks", "batch"),
    [(SHORT, 8, 16), (SHORT, 6, 12), (SMALL, 8, 16), (SMALL, 4, 6), (SHORT, 1, 3)],
)
def test_all_layouts_and_no_other(model, ranks, batch):
    machine = replace(NODE, ranks=ranks, ranks_per_node=min(ranks, 4) if ranks != 6 else 3)
    found = Counter(layouts(model, machine, batch))
    assert set(found.values()) == {1}, "none twice"
    assert set(found) == set(possible_layouts(model, machine, batch))
    assert ranks != 6 or {layout.tensor for layout in found} == {1, 3}, "2 would be on two nodes"


def has_choice(layout, choice):
    """Whether a layout has a choice of `why_others_lose`, by the choice's words."""
    first, _, last = choice.partition(" ")
    if last == "alone":
        return getattr(layout, first) == NODE.ranks and not layout.zero_stage
    if first.startswith("ZeRO"):
        return layout.zero_stage == int(first[-1])
    if first == "schedule":
        return layout.pipeline > 1 and layout.schedule == last
    if first == "recompute":
        return layout.recompute == last
    if "offload" in choice:
        return layout.offload == (choice == "offload")
    return getattr(layout, last) == 1


@pytest.mark.parametrize(
    ("model", "dimensions"), [(GPT, "data tensor pipeline context"), (NET, "data pipeline spatial")]
)
def test_each_choice_is_judged_by_the_best_layout_that_has_it(model, dimensions):
    plan = costs.plan(model, NODE, BATCH)
    reasons, best = plan.why_others_lose(), plan.candidates[0]
    split = [word for name in dimensions.split() for word in (f"{name} alone", f"no {name}")]
    rest = [f"ZeRO-{stage}" for stage in range(4)] + [f"schedule {name}" for name in SCHEDULES]
    rest += ["recompute none", "recompute full", "offload", "no offload"]
    assert list(reasons) == split + rest
    for choice, why in reasons.items():
        first = next((c for c in plan.candidates if has_choice(c.layout, choice)), None)
        if first is None:
            assert why.startswith("not possible")
        elif first is best:
            assert why == "the best has it"
        elif first.parts is None:
            assert why.startswith(f"does not fit: at least {first.total_bytes / 1e9:,.1f} GB")
        else:
            slower = first.step_time / best.step_time
            more = {name: value - best.parts[name] for name, value in first.parts.items()}
            name = max(more, key=more.get)
            expected = f"{slower:,.2f} times the best's time ({first.layout.name}): {name} takes "
            is_as_fast = slower < 1.0005 or more[name] <= 0
            assert why.startswith("as fast as the best" if is_as_fast else expected)
