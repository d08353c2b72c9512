"""Notebook 11's cells on 1 to 4 ranks: every pipeline gives one process's gradients, whatever the
layers, the batch and the schedule.

The cells are taken from the notebook by their ids, so what is tested is what a learner reads.
"""

import numpy as np
import pytest
import worlds
from worlds import definitions

from pi2zero import costs

BOOK = "11_model_parallel"
SIZES = [1, 2, 3, 4]


# --- Schedules on paper ---


@pytest.fixture(scope="module")
def paper():
    """What the notebook's cells on schedules define."""
    space = {"np": np, "costs": costs, "expected": {}}
    for cell in ("gpipe", "gpipe-draw", "bubble", "idle", "one-f-one-b", "held", "gems"):
        exec(definitions(BOOK, cell), space)
    return space


def spans_of(plan, units):
    return costs.pipeline_spans(plan, lambda stage, kind: units[kind])


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("m", [1, 2, 3, 8, 13])
def test_gpipe_and_1f1b_have_the_bubble_and_the_activations_that_the_notebook_states(paper, p, m):
    for name, most in (("gpipe", lambda s: m), ("one_f_one_b", lambda s: min(m, p - s))):
        plan = [paper[name](stage, p, m) for stage in range(p)]
        assert all(
            sorted(row) == sorted((s, kind, i) for kind in "FB" for i in range(m))
            for s, row in enumerate(plan)
        )
        assert paper["idle"](spans_of(plan, paper["UNITS"])) == pytest.approx((p - 1) / (m + p - 1))
        assert (
            paper["bubble"](p, m)
            == pytest.approx(costs.pipeline_bubble(p, m))
            == pytest.approx((p - 1) / (m + p - 1))
        )
        assert [paper["held"](row) for row in plan] == [most(s) for s in range(p)]


def test_an_action_begins_when_its_rank_is_free_and_what_it_needs_is_done():
    plan = [
        [(0, "F", 0), (0, "F", 1), (0, "B", 0), (0, "B", 1)],
        [(1, "F", 0), (1, "I", 0), (1, "F", 1), (1, "B", 1), (1, "W", 0)],
    ]
    first, second = spans_of(plan, {"F": 1, "B": 2, "I": 1, "W": 1})
    assert first == [
        ((0, "F", 0), 0, 1),
        ((0, "F", 1), 1, 2),
        ((0, "B", 0), 3, 5),
        ((0, "B", 1), 6, 8),
    ]
    assert [(start, stop) for _, start, stop in second] == [(1, 2), (2, 3), (3, 4), (4, 6), (6, 7)]


def test_two_ways_take_the_time_that_the_notebook_states(paper):
    times = {}
    for name, plan in paper["gems"].items():
        times[name] = (
            max(row[-1][2] for row in spans_of(plan, {"F": 1, "B": 2})) / paper["ways"][name][1]
        )
    basic = times.pop("Basic, 4 batches")
    assert {name: value / basic for name, value in times.items()} == {
        "MAST": 7 / 8,
        "MASTER, η = 4": 13 / 16,
    }


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ([[(0, "B", 0), (0, "F", 0)]], "plan: a deadlock, because rank 0 with 0B0 for 0F0 wait"),
        ([[(0, "F", 0), (0, "B", 0)], []], None),
        ([[(0, "F", 0), (0, "B", 0)], [(1, "F", 0)]], "rank 0 with 0B0 for 1I0"),
    ],
)
def test_a_plan_that_cannot_end_says_who_waits(plan, says):
    if says is None:
        assert spans_of(plan, {"F": 1, "B": 1})[0][-1][2] == 2
    else:
        with pytest.raises(ValueError, match=says):
            spans_of(plan, {"F": 1, "B": 1})


# --- On ranks ---

CELLS = """
    px-network px-neighbours px-forward px-backward px-forward-backward px-backward-tagged px-run
    px-run-check gpipe one-f-one-b px-spend px-takes px-slow px-trace px-stages px-curves
    px-curves-by-hand px-curves-serial px-torch px-two-ways px-gems-check px-deepspeed gpipe-draw
    gems
"""
MORE = """
def off(ours, serial):
    return max((g - h).abs().max().item() for g, h in zip(ours, serial, strict=True))


n, layer_seconds, trace = me.world_size, 0, []
schedule_of = {"GPipe": gpipe, "1F1B": one_f_one_b}
"""
CHECKS = """
for depth in (4, 7, 8):
    network.__defaults__ = (depth, 0)
    part = cut(network(), n)[me.rank]
    images, labels = train[:33]
    x, y = forward_once(images)
    backward_once(x, y, labels)
    tell(f"layers: {depth} on {n}", \
off([p.grad for p in part.parameters()], serial_gradients(33)) < 1e-7)
    for size_of_batch, micro in ((515, 8), (13, 5), (3, 3), (64, 1)):
        for name, schedule in schedule_of.items():
            ours = gradients_of(schedule(me.rank, n, micro), size_of_batch, micro)
            tell(f"{name}: {depth} layers, {size_of_batch} in {micro}", \
off(ours, serial_gradients(size_of_batch)) < 1e-6)
network.__defaults__ = (8, 0)
part = stages_of(n, [me.rank])[me.rank]
size, losses, (images, labels) = 515, [], train[:515]
run(one_f_one_b(me.rank, n, 8), lambda s, i: part, one_way, \
images.tensor_split(8), labels.tensor_split(8))
tell("a stage that takes its time computes the same", \
off([p.grad for p in part.parameters()], serial_gradients(515)) < 1e-6)
tell("its trace is the plan", \
[action for action, _, _ in actions_of(trace)] == one_f_one_b(me.rank, n, 8))
if n % 2 == 0:
    for batches in (2, 4):
        ours, _ = gems_gradients(two_way(me.rank, n, batches), two_ways, 515, batches)
        tell(f"two ways: 515 in {batches}", off(ours, serial_gradients(515)) < 1e-6)
    layer_seconds = 0
    for images_a_step in (256, 264):  # 32 in each micro-batch, and 33: \
PyTorch's stages receive messages of one size only
        exec(STEPS["px-curves"].replace("256", str(images_a_step)))
        alone = one_process()
        for name in ("Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"):
            curve = by_torch(name)
            owns = me.rank == (0 if name in ("ZBVZeroBubble", "DualPipeV") else n - 1)
            tell(f"torch: {name}, {images_a_step}", \
not owns or np.allclose(curve, alone, rtol=0, atol=1e-5))
"""
DEEPSPEED = """
if n % 2 == 0:
    enter_deepspeed()
    for each in ("px-curves", "px-deepspeed"):
        exec(STEPS[each].replace("256", "264"))
    trace = []
    curve, engine = by_deepspeed()
    tell("DeepSpeed's PipelineModule: 264", np.allclose(curve, one_process(), rtol=0, atol=1e-5))
"""
ENTER = """
def enter_deepspeed():  # a world of its own: it keeps the one before
    from pi2zero.ranks import start_deepspeed

    if "deepspeed" in sys.modules:
        import importlib

        sys.modules["deepspeed.comm.comm"].cdb = None
        importlib.reload(sys.modules["deepspeed.utils.groups"])
    os.environ |= {"RANK": str(me.rank), "LOCAL_RANK": str(me.rank), "WORLD_SIZE": str(n)}
    start_deepspeed.start(me)
    global deepspeed, PipelineModule
    import deepspeed
    from deepspeed.pipe import PipelineModule
"""


WRONG = {
    "each micro-batch's mean, not divided": ("reduction='sum') / size", "reduction='mean')"),
    "the sum over the batch": (" / size", ""),
    "another micro-batch's labels": ("targets[i]", "targets[0]"),
}
TOLD = """
if n == 2:
    for name, loop in LOOPS.items():
        exec(loop)
        ours = gradients_of(gpipe(me.rank, n, 5), 60, 5)
        tell(f"told: {name}", off(ours, serial_gradients(60)) < 1e-6)
"""


@pytest.fixture(scope="module")
def by_size(tmp_path_factory):
    names = "from common import digits\ntrain, expected = digits()[0], {}"
    right = definitions(BOOK, "px-backward-tagged") + "\n\n\n" + definitions(BOOK, "px-run")
    assert all(was in right for was, _ in WRONG.values())
    loops = {"right": right} | {
        name: right.replace(was, becomes) for name, (was, becomes) in WRONG.items()
    }
    steps = {cell: definitions(BOOK, cell) for cell in ("px-curves", "px-deepspeed")}
    cells = [definitions(BOOK, cell) for cell in CELLS.split()]
    loops = f"STEPS, LOOPS = {steps!r}, {loops!r}"
    text = "\n\n".join([names, *cells, MORE, loops, ENTER, CHECKS, TOLD, DEEPSPEED])
    return worlds.checks(SIZES, text, tmp_path_factory.mktemp("worlds"))


@pytest.mark.long
@pytest.mark.parametrize("n", SIZES)
def test_every_way_gives_one_process_s_gradients(by_size, n):
    found = {name: held for name, held in by_size[n].items() if not name.startswith("told: ")}
    assert [name for name, held in found.items() if not held] == []
    assert len(found) == (29 + (11 if n % 2 == 0 else 0))


@pytest.mark.long
def test_a_wrong_loop_is_told_from_the_right_one(by_size):
    found = {name: held for name, held in by_size[2].items() if name.startswith("told: ")}
    assert found == {"told: right": True} | {f"told: {name}": False for name in WRONG}
