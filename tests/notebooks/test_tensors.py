"""Notebook 11a's cells on 1 to 4 ranks: a layer that is split over ranks gives one process's output
and gradients, odd sizes too.

The cells are taken from the notebook by their ids, so what is tested is what a learner reads.
"""

from textwrap import indent

import pytest
import worlds
from worlds import definitions

pytestmark = pytest.mark.long

BOOK = "11a_tensors_and_experts"
SIZES = [1, 2, 3, 4]
CELLS = """
    px-f-g px-g px-mlp px-check px-attention px-parallel-attention px-block px-all-to-all
    px-halves px-sp-ends px-sp-exit px-sp px-rotate px-swap px-announce px-ring-tools
    px-ring-forward px-ring-backward px-ring px-ring-check px-ulysses px-ulysses-check px-exchange
    px-moe px-moe-check px-capacity px-dtensor px-sp-dtensor
"""
CHECKS = """
n, SPLIT = me.world_size, (1, 1, 0, 1)
for tokens, hidden, heads in ((97, 130, 6), (64, 128, 8), (5, 7, 4)):
    what = f"{tokens} tokens, {hidden} hidden, {heads} heads"
    x, weights = random(tokens, 64), \
[random(3, heads, 16, 64, seed=3), random(64, heads, 16, seed=4)]
    weights += [random(hidden, 64, seed=1), random(64, hidden, seed=2)]
    split = [mine(weight, dim) for weight, dim in zip(weights, SPLIT)]
    serial = gradients(attention, x, *weights[:2])
    tell(f"attention: {what}", off(gradients(parallel_attention, x, *split[:2]), \
dealt(serial, *SPLIT[:2])) < 1e-5)
    serial = gradients(mlp, x, *weights[2:])
    tell(f"MLP: {what}", off(gradients(parallel_mlp, x, *split[2:]), \
dealt(serial, *SPLIT[2:])) < 1e-5)
    serial = dealt(gradients(block, x, *weights), *SPLIT)
    tell(f"block: {what}", off(gradients(tensor_parallel, x, *split), serial) < 1e-5)
    ours = gradients(sequence_parallel(tokens), mine(x, 0), *split)
    tell(f"sequence: {what}", off(ours, \
[mine(serial[0], 0), mine(serial[1], 0), *serial[2:]]) < 1e-5)
for tokens in (401, 64, 5):
    whole = [random(12, tokens, 16, seed=seed) * 4 for seed in range(3)]
    serial, parts = [mine(x, 1) for x in with_gradients(plain, *whole)], [mine(x, 1) for x in whole]
    ours = with_gradients(lambda q, k, v: RingAttention.apply(q, k, v, tokens), *parts)
    tell(f"ring: {tokens} tokens", off(ours, serial) < 1e-5)
    token_shares = shares(tokens)
    tell(f"Ulysses: {tokens} tokens", off(with_gradients(ulysses, *parts), serial) < 1e-5)
for tokens in (203, 11) if n > 1 else ():  # one expert leaves the router no choice
    x, router, ups, downs = random(tokens, 32) * 5, random(n, 32, seed=1), \
random(n, 48, 32, seed=2), random(n, 32, 48, seed=3)
    ours = with_gradients(mixture, mine(x, 0), router, ups[me.rank], downs[me.rank])
    dist.all_reduce(ours[2])
    serial = with_gradients(serial_mixture, x, router, ups, downs)
    serial = [mine(serial[0], 0), mine(serial[1], 0), \
serial[2], serial[3][me.rank], serial[4][me.rank]]
    near = [torch.allclose(a, b, rtol=1e-4, atol=1e-5 * b.abs().max()) \
for a, b in zip(ours, serial)]
    tell(f"experts: {tokens} tokens", all(near))
    for capacity in (1, 5, tokens):
        ours = with_gradients(limited, mine(x, 0), router, ups[me.rank], downs[me.rank])
        dist.all_reduce(ours[2])
        serial = with_gradients(serial_limited, x, router, ups, downs)
        serial = [mine(serial[0], 0), mine(serial[1], 0), \
serial[2], serial[3][me.rank], serial[4][me.rank]]
        near = [torch.allclose(a, b, rtol=1e-4, atol=1e-5 * b.abs().max()) \
for a, b in zip(ours, serial)]
        tell(f"experts: {tokens} tokens, capacity {capacity}", all(near))
mesh = init_device_mesh("cpu", (n,), mesh_dim_names=("tensor",))
for tokens in (97, 5) if n != 3 else ():  \
# these styles want equal parts, and three do not divide 128
    torch.manual_seed(0)
    x, alone, net = random(tokens, 64), MLP(), MLP()
    net.load_state_dict(alone.state_dict())
    parallelize_module(net, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    ours, theirs = with_gradients(net, x), with_gradients(alone, x)
    ours, theirs = [*ours, *(p.grad.full_tensor() for p in net.parameters())], \
[*theirs, *(p.grad for p in alone.parameters())]
    tell(f"DTensor: {tokens} tokens", off(ours, theirs) < 1e-5)
    x, alone, net = x[: tokens // n * n], Normed(), Normed()
    net.load_state_dict(alone.state_dict())
    parallelize_module(net, mesh, sharded | {"norm": SequenceParallel(sequence_dim=0)})
    ours, theirs = with_gradients(net, mine(x, 0)), \
[mine(each, 0) for each in with_gradients(alone, x)]
    ours, theirs = [*ours, *(p.grad.full_tensor() for p in net.parameters())], \
[*theirs, *(p.grad for p in alone.parameters())]
    tell(f"DTensor, sequence: {tokens} tokens", off(ours, theirs) < 1e-5)
"""


def program(text):
    return "\n\n".join(
        [*(definitions(BOOK, cell, values=cell == "px-sp-dtensor") for cell in CELLS.split()), text]
    )


@pytest.mark.parametrize("n", SIZES)
def test_a_split_layer_gives_one_process_s_output_and_gradients(by_size, n):
    found = {k: ok for k, ok in by_size[n].items() if not k.startswith(("wrong ", "right "))}
    assert [name for name, is_true in found.items() if not is_true] == []
    assert len(found) == 18 + (8 if n > 1 else 0) + (4 if n != 3 else 0)


WRONG = {
    "px-f-g": ("dist.all_reduce(gradient)", "pass"),
    "px-ring-forward": ("l * scale", "l"),
    "px-ring-backward": (
        "gradient @ v.transpose(1, 2) - correction",
        "gradient @ v.transpose(1, 2)",
    ),
    "px-ulysses": (
        "return torch.cat(all_to_all(x.split(token_shares)",
        "x = x.flip(1)\n    return torch.cat(all_to_all(x.split(token_shares)",
    ),
    "px-exchange": (
        "ctx.sizes = (coming, going)",
        "ctx.sizes = (coming, going)\n        x = x.flip(0)",
    ),
}
TOLD = {
    "px-f-g": (
        "off(gradients(parallel_mlp, x, mine(up, 0), mine(down, 1)), "
        "dealt(gradients(mlp, x, up, down), 0, 1))"
    ),
    "px-ring-forward": "off(with_gradients(ring, *parts), serial)",
    "px-ring-backward": "off(with_gradients(ring, *parts), serial)",
    "px-ulysses": "off(with_gradients(ulysses, *parts), serial)",
    "px-exchange": "off([mixture(mine(x, 0), router, ups[me.rank], downs[me.rank])], [mixed])",
}
INPUTS = """
x, up, down, token_shares = random(31, 32) * 5, random(48, 32, seed=1), \
random(32, 48, seed=2), shares(31)
whole = [random(4, 31, 16, seed=seed) * 4 for seed in range(3)]
serial, parts = [mine(x, 1) for x in with_gradients(plain, *whole)], [mine(x, 1) for x in whole]
router, ups, downs = random(2, 32, seed=1), random(2, 48, 32, seed=2), random(2, 32, 48, seed=3)
mixed = mine(serial_mixture(x, router, ups, downs), 0)


def ring(q, k, v):
    return RingAttention.apply(q, k, v, 31)
"""


def wrong_layers():
    """Each cell right, wrong, and right again, on two ranks."""
    lines = [INPUTS]
    for cell, (right, wrong) in WRONG.items():
        text = definitions(BOOK, cell, values=False)
        assert right in text
        for name, layer in ((f"wrong {cell}", text.replace(right, wrong)), (f"right {cell}", text)):
            lines += [layer, f"tell({name!r}, {TOLD[cell]} < 1e-5)"]
    return "if n == 2:\n" + indent("\n".join(lines), "    ")


@pytest.fixture(scope="module")
def by_size(tmp_path_factory):
    text = program(f"{CHECKS}\n{wrong_layers()}")
    return worlds.checks(SIZES, text, tmp_path_factory.mktemp("worlds"))


def test_a_wrong_layer_is_told_from_the_right_one(by_size):
    found = by_size[2]
    assert {cell: (found[f"right {cell}"], found[f"wrong {cell}"]) for cell in WRONG} == (
        dict.fromkeys(WRONG, (True, False))
    )
