"""Notebook 11b's cells on 1 to 4 ranks: a sharded image gives one process's output and gradients.

The cells are taken from the notebook by their ids, so what is tested is what a learner reads. In
double precision, so that differences are not rounding. Tolerance: a relative error of 1e-10.
"""

from textwrap import indent

import pytest
import worlds
from worlds import definitions

pytestmark = pytest.mark.long

BOOK = "11b_space_and_hybrids"
SIZES = [1, 2, 3, 4]
CELLS = """
    px-join px-edges px-margin px-margins px-line px-swap px-ends px-halo-forward px-halo-backward
    px-halo px-network px-layer px-sum px-classify px-gradients px-off px-tiles px-enter
    px-filters px-filters-run px-mesh px-data-space px-data-pipeline px-fsdp
"""
CHECKS = """
n = me.world_size
for height, width in ((128, 96), (101, 67), (77, 45), (64, 9)):
    images, labels = slides(2, height, width)
    alone, lines = serial(images, labels), strips(height, range(n))
    tell(f"strips: {height} x {width}", off(in_space(images, labels, lines), alone, lines) < 1e-10)
    if n == 4:
        lines = [line_of(tiles, "down", 2, height), \
line_of(tiles, "across", 3, width)] if width > 9 else lines
        tell(f"tiles: {height} x {width}", \
off(in_space(images, labels, lines), alone, lines) < 1e-10)
odd, even = [(3, 1, 1), (5, 1, 2), (3, 2, 1), (5, 2, 2), (1, 1, 0), (1, 2, 0), \
(3, 1, 0), (7, 3, 3)], [(2, 2, 0), (4, 2, 1)]
for kernel, stride, padding in odd + even:
    for layer in (PreConv(3, 4, kernel, stride, padding), \
nn.MaxPool2d(kernel, stride, min(padding, kernel // 2))):
        for height in (40, 41, 43):
            x = slides(2, height, 11)[0].requires_grad_()
            lines = strips(height, range(n))
            y = layer(x)
            weights = torch.arange(y.numel()).reshape(y.shape) % 7 - 3.0
            (y * weights).sum().backward()
            part = mine(x.detach(), lines).requires_grad_()
            ours, after_it = on_lines(layer, part, lines)
            (ours * mine(weights, after_it)).sum().backward()
            same = torch.allclose(ours, mine(y, after_it), rtol=0, atol=1e-10)
            same &= torch.allclose(part.grad, mine(x.grad, lines), rtol=0, atol=1e-10)
            tell(f"{type(layer).__name__} {kernel} {stride} {padding}: {height}", same)
try:
    strips_of = margins(edges_of(5, n), 5, 1, 2)
    tell("a strip thinner than its halo", n < 3)
except ValueError as error:
    tell("a strip thinner than its halo", n >= 3 and "Take fewer ranks" in str(error))
for channels, filters in ((5, 10), (3, 7)):
    shapes, draw = ((2, channels, 9, 11), (filters, channels, 3, 3), (4, filters, 3, 3)), \
torch.Generator().manual_seed(3)
    x, first, second = (torch.rand(shape, generator=draw) for shape in shapes)
    theirs, ours = gradients(pair, x, first, second), \
gradients(split_pair, x, share(first, 0), share(second, 1))
    theirs = [*theirs[:2], share(theirs[2], 0), share(theirs[3], 1)]
    tell(f"filters: {filters} of {channels}", \
all(torch.allclose(a, b, rtol=1e-10, atol=1e-10) for a, b in zip(ours, theirs)))
shapes = sorted({(2, n // 2), (n // 2, 2)}) if n % 2 == 0 else []
for shape in shapes:
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "space"))
    for count in (2, 7):
        images, labels = slides(count, 101, 67)
        near = apart(data_and_space(images, labels, mesh), serial(images, labels)[2:]) < 1e-10
        tell(f"data x space: {shape}, {count} slides", near)
if n % 2 == 0:
    pipes = init_device_mesh("cpu", (n // 2, 2), mesh_dim_names=("data", "pipeline"))
    images, labels = slides(8, 51, 67)
    for micro in (2, 4):
        part, alone = data_and_pipeline(images, labels, pipes, micro), Network()
        F.cross_entropy(alone(images), labels).backward()
        its = stages_of(alone)[pipes.get_local_rank("pipeline")]
        near = apart([p.grad for p in part.parameters()], \
[p.grad for p in its.parameters()]) < 1e-10
        tell(f"data x pipeline: {micro} micro-batches", near)
        group, adam = pipes["data"].get_group(), torch.optim.Adam(alone.parameters(), lr=1e-3)
        dealt = optim.ZeroRedundancyOptimizer(part.parameters(), torch.optim.Adam, \
process_group=group, lr=1e-3)
        dealt.step(), adam.step()
        tell(f"ZeRO-1 on a pipeline: {micro} micro-batches", \
apart(part.parameters(), its.parameters()) < 1e-8)
for shape in shapes:
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "tensor"))
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    for tokens in (10, 7):
        x, alone = torch.randn(tokens, 64, generator=torch.Generator().manual_seed(4)), MLP()
        mine_of_them = x.tensor_split(shape[0])[mesh.get_local_rank("data")]
        alone(x).square().mean().backward()
        theirs = [p.grad for p in alone.parameters()]
        net = parallelize_module(MLP(), mesh["tensor"], plan)
        (net(mine_of_them).square().sum() / x.numel()).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad.to_local(), group=mesh["data"].get_group())
        tell(f"data x tensor: {shape}, {tokens} tokens", \
apart([p.grad.full_tensor() for p in net.parameters()], theirs) < 1e-10)
        net = fsdp.fully_shard(parallelize_module(MLP(), mesh["tensor"], plan), mesh=mesh["data"])
        (shape[0] * net(mine_of_them).square().sum() / x.numel()).backward()  \
# FSDP takes the mean over `data`
        tell(f"FSDP x tensor: {shape}, {tokens} tokens", \
apart([p.grad.full_tensor() for p in net.parameters()], theirs) < 1e-10)
"""
WRONG = {
    "nothing comes": ("px-halo-forward", "part.copy_(came)", "pass"),
    "the halo's gradient stays": ("px-halo-backward", "part.add_(came)", "pass"),
    "it replaces mine": ("px-halo-backward", "part.add_(came)", "part.copy_(came)"),
    "the layer pads the seams, too": ("px-layer", "0 if dim in dealt else shape[2]", "shape[2]"),
    "a maximum over padding of zeros": ("px-layer", "-math.inf if", "0.0 if"),
    "a mean of weights' gradients": (
        "px-gradients",
        "dist.all_reduce(p.grad, group=group)",
        "dist.all_reduce(p.grad.div_(2), group=group)",
    ),
}
TOLD = """
images, labels = slides(2, 61, 35)
alone, lines = serial(images, labels), strips(61, range(2))
below_zero, pool = images - 2, nn.MaxPool2d(3, 2, 1)


def told(name):
    try:
        pooled, its = on_lines(pool, mine(below_zero, lines), lines)
        right = off(in_space(images, labels, lines), alone, lines) < 1e-10
        tell(name, right and torch.equal(pooled, mine(pool(below_zero), its)))
    except Exception:  # shapes that do not fit
        tell(name, False)
"""


def program(text):
    cells = "\n\n".join(definitions(BOOK, cell, values=False) for cell in CELLS.split())
    made = (
        'tiles = init_device_mesh("cpu", (2, 2), mesh_dim_names=("down", "across"))'
        " if me.world_size == 4 else None"
    )
    return "\n".join([cells, "torch.set_default_dtype(torch.float64)", made, text])


@pytest.fixture(scope="module")
def by_size(tmp_path_factory):
    lines = [TOLD, "told('wrong: none')"]
    for name, (cell, right, wrong) in WRONG.items():
        text = definitions(BOOK, cell, values=False)
        assert right in text, name
        lines += [text.replace(right, wrong), f"told({'wrong: ' + name!r})", text]
    text = program(CHECKS + "\nif n == 2:\n" + indent("\n".join(lines), "    "))
    return worlds.checks(SIZES, text, tmp_path_factory.mktemp("worlds"))


@pytest.mark.parametrize("n", SIZES)
def test_a_sharded_image_gives_one_process_s_output_and_gradients(by_size, n):
    found = {name: ok for name, ok in by_size[n].items() if not name.startswith("wrong: ")}
    assert [name for name, is_true in found.items() if not is_true] == []
    assert len(found) == 4 + 60 + 1 + 2 + {1: 0, 2: 4 + 4 + 8, 3: 0, 4: 4 + 2 + 4 + 4}[n]


def test_a_wrong_exchange_is_told_from_the_right_one(by_size):
    found = {name: ok for name, ok in by_size[2].items() if name.startswith("wrong: ")}
    assert found == {"wrong: none": True} | {f"wrong: {name}": False for name in WRONG}
