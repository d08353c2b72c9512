"""The planner: known formulas, what must hold of every layout, its file, its errors. Measured: benchmarks/plan.md."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pi2zero import costs
from pi2zero.costs.planner.layouts import SCHEDULES, layouts
from pi2zero.mpi import mpi_env

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
GPT = costs.transformer(layers=8, width=512, heads=8, vocabulary=1024, sequence=256)
NET = costs.convolutions([3, 256, 256], [[16, 3, 1], [32, 3, 2], [32, 3, 1], [64, 3, 2]], 10)
NODE = costs.Machine(ranks=8, per_node=4, memory=4e9, speed=1e13, inside=1e11, between=1e10)
EVERY = [(model, layout) for model in (GPT, NET) for layout in layouts(model, NODE, 16)]


@pytest.mark.parametrize(
    ("layers", "width", "heads", "billions"),
    [(24, 2304, 24, 1.7), (36, 4096, 32, 7.5), (80, 12_288, 96, 145.6), (128, 25_600, 160, 1008.0)],
)
def test_parameters_and_operations_are_megatrons(layers, width, heads, billions):
    """arXiv:2104.04473: table 1, and 96 B s l h² (1 + s/6h + V/16lh) operations with recomputing; 72 without."""
    gpt = costs.transformer(layers, width, heads, 51_200, 2048, tied=True)
    assert gpt.parameters / 1e9 == pytest.approx(billions, rel=0.03)
    theirs = 72 * 2048 * layers * width**2 * (1 + 2048 / 6 / width + 51_200 / 12 / layers / width)
    assert gpt.operations == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("tensor", [1, 8])
def test_activations_are_those_of_korthikanti(tensor):
    """arXiv:2205.05198, table 2: bytes a layer, s b h (34 + 5 a s/h) and its forms for tensor and sequence parallelism."""
    s, h, a, layers = 2048, 12_288, 96, 96
    gpt = {
        kind: costs.transformer(layers, h, a, 51_200, s, attention=kind, dropout=True)
        for kind in ("matrix", "blocks")
    }
    block = {kind: made.layers[1] for kind, made in gpt.items()}

    def held(kind, sharded):
        return block[kind].kept / tensor + block[kind].kept_whole / (tensor if sharded else 1)

    close = pytest.approx
    assert held("matrix", False) == close(
        s * h * (10 + 24 / tensor + 5 * a * s / h / tensor), rel=1e-3
    )
    assert held("matrix", True) == close(s * h * (34 + 5 * a * s / h) / tensor, rel=1e-3)
    assert held("blocks", True) == close(s * h * 34 / tensor, rel=1e-3)
    recomputed = costs.held(gpt["blocks"], costs.Layout(recompute="full"), 1)["activations"]
    first, again, head = (
        layer.kept + layer.kept_whole for layer in (gpt["blocks"].layers[k] for k in (0, 1, -1))
    )
    assert recomputed == close(2 * s * h * layers + first + max(again, head), rel=1e-9), (
        "the head is done when a layer is made again"
    )


@pytest.mark.parametrize(("stage", "published"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_states_are_the_zero_papers(stage, published):
    """7.5 billion parameters on 64 GPUs, figure 1: here of a GPT of that size."""
    gpt = costs.transformer(36, 4096, 32, 51_200, 2048, tied=True)
    parts = costs.held(gpt, costs.Layout(data=64, zero=stage), 64)
    states = sum(parts[name] for name in ("parameters", "gradients", "master", "moments"))
    assert states / 1e9 == pytest.approx(published * gpt.parameters / 7.5e9, rel=0.02)


def test_micro_batches_held_are_the_schedules():
    """Notebook 11 counts them in rows: GPipe m, 1F1B p - s, and a first rank of interleaved 1F1B (p - 1) / (p v) more."""
    kept = costs.held(GPT, costs.Layout(), 16)["activations"]
    of = {
        name: costs.held_by_stages(GPT, costs.Layout(pipeline=4, schedule=name), 16)
        for name in ("gpipe", "1f1b", "zb-h1")
    }
    stage = of["1f1b"][0]["activations"] / 4
    assert of["gpipe"][0]["activations"] == pytest.approx(16 * stage)
    assert of["zb-h1"] == of["1f1b"]
    assert 4 * stage < kept < 5 * stage, (
        "1F1B: four micro-batches of a quarter of the layers, without the head"
    )
    two = costs.held_by_stages(GPT, costs.Layout(pipeline=4, schedule="interleaved", chunks=2), 16)[
        0
    ]["activations"]
    assert two / (4 * stage) == pytest.approx(1 + 3 / 8, rel=0.02)


def plan_of(row, ranks, batches):
    """A schedule as notebook 11 writes it."""

    def ahead(rank):
        return min(ranks - 1 - rank, batches)

    rows = {
        "gpipe": lambda r: [(r, kind, i) for kind in "FB" for i in range(batches)],
        "1f1b": lambda r: (
            [(r, "F", i) for i in range(ahead(r))]
            + [
                step
                for i in range(batches - ahead(r))
                for step in ((r, "F", ahead(r) + i), (r, "B", i))
            ]
            + [(r, "B", i) for i in range(batches - ahead(r), batches)]
        ),
        "gems": lambda r: [
            (r if i % 2 == 0 else ranks - 1 - r, kind, i) for i in range(batches) for kind in "FB"
        ],
    }
    return [rows[row](rank) for rank in range(ranks)]


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "gems"])
@pytest.mark.parametrize(("stages", "count"), [(2, 2), (2, 6), (4, 4), (4, 8), (8, 8)])
def test_pipelines_take_as_long_as_their_rows(schedule, stages, count, recompute):
    """Equal stages, no messages: costs.pipeline_spans of the rows. Backward is two forwards, three if layers are made again."""
    block = GPT.layers[1]
    model = replace(
        GPT, layers=(costs.Layer(output=1), *[replace(block, summed=0, sums=0)] * 8, costs.Layer())
    )
    fast = replace(NODE, latency=0, inside=1e30, between=1e30, update=1e30)
    parts, _ = costs.seconds(
        model, costs.Layout(pipeline=stages, schedule=schedule, recompute=recompute), fast, count
    )
    forward, backward = 8 / stages * block.operations / fast.speed, 3 if recompute == "full" else 2
    spans = costs.pipeline_spans(
        plan_of(schedule, stages, count),
        lambda stage, kind: forward * {"F": 1, "B": backward}[kind],
    )
    assert sum(parts.values()) == pytest.approx(max(row[-1][2] for row in spans))
    if schedule != "gems":
        assert parts["bubble"] / sum(parts.values()) == pytest.approx(
            costs.pipeline_bubble(stages, count)
        )


def test_what_holds_of_every_layout():
    seen = set()
    for model, layout in EVERY:
        parts, held = costs.seconds(model, layout, NODE, 16)[0], costs.held(model, layout, 16)
        seen |= {layout.schedule, layout.zero, layout.recompute}
        assert layout.ranks == NODE.ranks and 16 % (layout.data * layout.micro) == 0
        assert all(
            math.isfinite(value) and value >= -1e-12 for value in (*parts.values(), *held.values())
        ), layout
        # No layout beats the arithmetic: all operations on all ranks at full speed.
        assert sum(parts.values()) >= 16 * model.operations / NODE.speed / NODE.ranks * (
            1 - 1e-9
        ), layout
        # Nor holds less than its share of the parameters.
        most = max(one["parameters"] for one in costs.held_by_stages(model, layout, 16))
        assert most >= 2 * model.parameters / NODE.ranks * (1 - 1e-9), layout
    assert seen == {*SCHEDULES, 0, 1, 2, 3, "none", "full"}


def test_a_better_machine_is_never_slower_nor_a_higher_stage_fuller():
    better = {
        name: replace(NODE, **{name: 2 * getattr(NODE, name)})
        for name in ("speed", "inside", "between", "update", "host")
    }
    better |= {"latency": replace(NODE, latency=0), "overlap": replace(NODE, overlap=1.0)}
    for model, layout in EVERY:
        time = sum(costs.seconds(model, layout, NODE, 16)[0].values())
        for name, machine in better.items():
            assert sum(costs.seconds(model, layout, machine, 16)[0].values()) <= time * (
                1 + 1e-9
            ), (name, layout)
        states = [
            costs.held(model, replace(layout, zero=zero, offload=False), 16) for zero in range(4)
        ]
        sums = [sum(size for part, size in one.items() if part != "buffers") for one in states]
        assert sums == sorted(sums, reverse=True)


def test_splits_divide_what_they_say():
    one = costs.held(GPT, costs.Layout(), 1)
    for layout in (costs.Layout(tensor=4), costs.Layout(sequence=4), costs.Layout(zero=3, data=4)):
        four = costs.held(GPT, layout, 4)
        shared = {
            "tensor": ("parameters", "activations"),
            "sequence": ("activations",),
            "data": ("parameters", "moments"),
        }
        (way,) = [name for name in shared if getattr(layout, name) == 4]
        for part in shared[way]:
            assert four[part] == pytest.approx(one[part] / 4, rel=0.03), (way, part)
    whole, strips = (
        costs.held(NET, layout, 1)["activations"]
        for layout in (costs.Layout(), costs.Layout(space=4))
    )
    assert strips == pytest.approx(whole / 4)


def test_ranks_that_share_devices_compute_longer():
    """A laptop: four ranks on two cores take twice as long, and a pipeline's bubble costs less, for others use the core."""
    laptop = replace(NODE, ranks=4, devices=2)
    alone = replace(laptop, devices=None)
    for layout, low, high in ((costs.Layout(data=4), 2, 2), (costs.Layout(pipeline=4), 1, 2)):
        compute = [costs.seconds(GPT, layout, machine, 16)[0] for machine in (laptop, alone)]
        times = [parts["compute"] + parts["bubble"] for parts in compute]
        assert low - 1e-9 <= times[0] / times[1] <= high + 1e-9


def test_the_plan_is_sorted_and_says_why():
    found = costs.plan(GPT, NODE, 16)
    times = [row.seconds for row in found.rows]
    assert times == sorted(times) and all(row.held <= found.room for row in found.fitting)
    assert len(found.best(10)) == 10 and found.best(10)[0] is found.rows[0]
    small = costs.plan(GPT, replace(NODE, memory=found.rows[0].held), 16)
    assert len(small.fitting) < len(found.fitting), (
        "a tenth is kept free, so the best does not fit any more"
    )
    others = small.others()
    assert "does not fit" in others["data alone"] and "not possible" in others["tensor alone"]
    assert (
        any("times the best's time" in why for why in others.values())
        and "the best has it" in others.values()
    )
    none = costs.plan(GPT, replace(NODE, memory=1e6), 16)
    assert not none.fitting and "0 of them fit" in costs.plan_text(none)


def test_the_example_is_a_file_that_can_be_planned(tmp_path):
    file = tmp_path / "model.toml"
    words = [sys.executable, "-m", "pi2zero", "plan"]
    example = subprocess.run(
        [*words, "--example"], capture_output=True, text=True, check=True
    ).stdout
    file.write_text(
        example.replace("ranks = 64", "ranks = 16").replace("batch = 512", "batch = 16")
    )
    done = subprocess.run([*words, file, "--best", "3"], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr
    assert "22.4 billion parameters" in done.stdout and "Why the others lose" in done.stdout
    assert "does not fit: at least" in done.stdout


GOOD = costs.EXAMPLE.replace("ranks = 64", "ranks = 8").replace("batch = 512", "batch = 8")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("batch = 8 ", "batch = ", "this is no TOML"),
        (
            "batch = 8 ",
            "batch = 0 ",
            "batch: samples in a step over all ranks, a whole number of 1 or more; got 0",
        ),
        ("batch = 8 ", "batches = 8 ", "the file: 'batches' is unknown"),
        ("[model]", "[modell]", "is wanted; there is none"),
        ("[machine]", "[images]\n[machine]", "there is model and images"),
        ("heads = 64", "heads = 7", "7 do not divide 6144"),
        ("heads = 64", "", r"\[model\]: 'heads' is missing"),
        ("heads = 64", "head = 64", r"\[model\]: 'head' is unknown; there are layers, width"),
        ("layers = 48", "layers = 4.5", "layers: whole numbers of 1 or more; got 4.5"),
        ("layers = 48", 'precision = "fp8"\nlayers = 48', "precision: one of mixed, fp32"),
        ("layers = 48", 'attention = "none"\nlayers = 48', "attention: blocks or matrix"),
        ("memory = 80e9", 'memory = "80 GB"', "memory: a number; got '80 GB'"),
        ("memory = 80e9", "memory = 0", "memory: above 0"),
        ("memory = 80e9", "memory = 80e9\nreserve = 10", "reserve: a share between 0 and 1"),
        ("ranks = 8", "ranks = 12", "nodes are full"),
        ("ranks = 8", "ranks = 2.5", "ranks: a whole number"),
    ],
)
def test_a_wrong_file_says_what_is_wrong_in_one_sentence(old, new, says):
    assert old in GOOD
    with pytest.raises(ValueError, match=says) as caught:
        costs.plan_from(GOOD.replace(old, new, 1))
    assert "\n" not in str(caught.value)


def test_a_key_or_a_value_of_a_page_is_not_quoted_whole():
    for old, new, says in (
        ("batch = 8 ", f"{'1' * 5000} = 8 ", "is unknown; there are"),
        ("heads = 64", f'heads = 64\nprecision = "{"x" * 5000}"', "fp32; got"),
    ):
        with pytest.raises(ValueError, match=says) as caught:
            costs.plan_from(GOOD.replace(old, new, 1))
        assert len(str(caught.value)) < 1000


@pytest.mark.long
def test_bytes_of_layouts_that_ran(tmp_path):
    """Four ranks train two steps by 1F1B, by GPipe with recomputing, by ZeRO-2, and on a ring: within 5 % of what was predicted,
    with the same losses."""
    sys.path.insert(0, str(BENCHMARKS))
    from bench_plan import COMPONENTS, LAID, predicted_bytes

    mpi_env()
    chosen, found = (3, 11, 14, 18), tmp_path / "found.json"
    options = ["--rounds", 0, "--layouts", *chosen, "--output", found]
    worker = [sys.executable, "-m", "mpi4py", BENCHMARKS / "plan_worker.py", *options]
    done = subprocess.run(
        ["mpirun", "-n", "4", *map(str, worker)], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(found.read_text())["bytes"]
    for k, (measured, losses) in zip(chosen, told, strict=True):
        assert predicted_bytes(LAID[k]) == pytest.approx(
            sum(measured[part] for part in COMPONENTS), rel=0.05
        ), LAID[k].name
        assert losses == pytest.approx(told[0][1], abs=1e-4) and losses[1] < losses[0]


def test_published_figures_come_out_as_far_as_the_page_says():
    sys.path.insert(0, str(BENCHMARKS))
    import plan_published as published

    off = {
        row[0]: row[2] / row[1] - 1
        for row in (*published.megatron_rows(), *published.korthikanti_rows())
    }
    assert abs(off["175 B"]) < 0.02 and all(
        abs(error) < 0.2 for name, error in off.items() if name not in ("1.7 B", "3.6 B")
    )
    assert all(abs(off[name]) < 0.05 for name in ("310.1 B", "529.6 B", "1008 B"))
    rows = (*published.megatron_rows(), *published.korthikanti_rows(), *published.mt_nlg_rows())
    assert [row.name for row in rows if row.held > 80] == ["1008 B"]
    assert all(-0.25 < row[2] / row[1] - 1 < 0 for row in published.mt_nlg_rows())
    gems = {name: predicted / told for name, told, predicted in published.gems_rows()}
    assert gems["MAST"] == pytest.approx(1, abs=0.02) and gems["MASTER"] < 0.8


def test_published_figures_agree_among_themselves():
    """Seconds, shares of the peak, operations/s: what one source says, computed from another: within 4 % (280 and 2,240 GPUs)."""
    sys.path.insert(0, str(BENCHMARKS))
    import plan_published as published

    rows = list(published.agreement_rows())
    assert len(rows) == 7
    for what, told, computed in rows:
        assert float(computed.rstrip("%")) == pytest.approx(float(told.rstrip("%")), rel=0.04), what
    for name, shorter in published.PRESENT_WORK.items():
        layers, width, heads, _, _, gpus, batch, _, _ = published.KORTHIKANTI[name]
        share = (
            batch * published.gpt(layers, width, heads).operations / gpus / published.PEAK / shorter
        )
        assert share == pytest.approx(published.PRESENT_SHARE[name], abs=0.002), name
        assert 1.28 < published.KORTHIKANTI[name][-1] / shorter < 1.33, name


def test_a_batch_that_no_layout_divides():
    odd = costs.transformer(layers=1, width=6, heads=3, vocabulary=5, sequence=7)
    with pytest.raises(ValueError, match="batch: no layout of 7 samples uses all 8 ranks"):
        costs.plan(odd, NODE, 7)


def test_a_file_that_is_not_there_is_one_sentence(tmp_path):
    for given, says in (
        ([tmp_path / "no.toml"], "No such file"),
        ([], "which file?"),
        ([tmp_path], "Is a directory"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "pi2zero", "plan", *given], capture_output=True, text=True
        )
        assert (
            done.returncode == 2
            and says in done.stdout
            and len(done.stdout.splitlines()) == 1
            and not done.stderr
        )


def test_a_plan_that_is_right_has_no_error_and_ranks_all_pairs():
    sys.path.insert(0, str(BENCHMARKS))
    from bench_plan import COMPONENTS, LAID, kept, model, predicted_bytes, times_of

    sizes = (1e4, 1e6, 1e7)
    rings = [(n, costs.ring_allreduce_seconds(n, 4, 1e-3, 1e-9)) for n in sizes]
    machine = {
        "alone": 1.0,
        "together": 2.0,
        "update": 0.1,
        "rings": rings,
        "samples": 4,
        "parameters": model().parameters,
    }
    one = {"machine": machine, "seconds": np.ones(len(LAID))}
    one["seconds"] = times_of([one]).predicted
    held = [({part: predicted_bytes(layout) / 5 for part in COMPONENTS}, [1.0]) for layout in LAID]
    right = {"bytes": held, "rounds": [one, {**one, "seconds": 2 * one["seconds"]}]}
    assert [round(figure.value, 6) for figure in kept(right)] == [0, 0, 100]
    reverse = {**one, "seconds": one["seconds"].max() + one["seconds"].min() - one["seconds"]}
    wrong = list(
        kept({"bytes": [({**held[0][0], "gradients": 0}, [1.0]), *held[1:]], "rounds": [reverse]})
    )
    assert (
        wrong[0].value == pytest.approx(25)
        and not wrong[0].reached()
        and wrong[1].value > 5
        and wrong[2].value == 0
    )
