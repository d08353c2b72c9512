"""The planner: known formulas, what holds of every layout, its file, its errors.

Measured: benchmarks/plan.md.
"""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_planner_by_hand import BATCH, GPT, NET

from pi2zero import costs
from pi2zero.costs.planner.layouts import SCHEDULES, layouts
from pi2zero.mpi import mpi_env

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NODE = costs.Machine(8, 4, 4e9, 1e13, 1e11, 1e10)
ALL = [(model, layout) for model in (GPT, NET) for layout in layouts(model, NODE, BATCH)]
STATES = ("parameters", "gradients", "master", "moments")


def bytes_of(model=GPT, batch=BATCH, **layout):
    return costs.bytes_per_rank(model, costs.Layout(**layout), batch)


def total_time(model, layout, machine=NODE, batch=BATCH):
    return sum(costs.step_time(model, layout, machine, batch)[0].values())


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "billions"),
    [(24, 2304, 24, 1.7), (36, 4096, 32, 7.5), (80, 12_288, 96, 145.6), (128, 25_600, 160, 1008.0)],
)
def test_parameters_and_operations_are_megatrons(layers, hidden, heads, billions):
    """arXiv:2104.04473: table 1, and 72 B s l h² (1 + s/6h + V/12lh) operations."""
    gpt = costs.transformer(layers, hidden, heads, 51_200, 2048, tied_embeddings=True)
    assert gpt.parameters / 1e9 == pytest.approx(billions, rel=0.03)
    factor = 1 + 2048 / 6 / hidden + 51_200 / 12 / layers / hidden
    assert gpt.flops == pytest.approx(72 * 2048 * layers * hidden**2 * factor, rel=1e-9)


@pytest.mark.parametrize("t", [1, 8])
def test_activations_are_those_of_korthikanti(t):
    """arXiv:2205.05198, table 2: s b h (34 + 5 a s/h) bytes per layer, and its forms for tensor and
    sequence parallelism."""
    s, h, a, layers = 2048, 12_288, 96, 96
    gpt = {
        kind: costs.transformer(layers, h, a, 51_200, s, attention=kind, dropout=True)
        for kind in ("standard", "flash")
    }

    def kept(kind, norms):
        block = gpt[kind].layers[1]
        return block.act_bytes_tp / t + block.act_bytes_replicated / norms

    scores = 5 * a * s / h
    assert kept("standard", 1) == pytest.approx(s * h * (10 + (24 + scores) / t), rel=1e-3)
    assert kept("standard", t) == pytest.approx(s * h * (34 + scores) / t, rel=1e-3)
    assert kept("flash", t) == pytest.approx(s * h * 34 / t, rel=1e-3)
    recomputed = bytes_of(gpt["flash"], 1, recompute="full")["activations"]
    first, block, head = (
        layer.act_bytes_tp + layer.act_bytes_replicated
        for layer in (gpt["flash"].layers[k] for k in (0, 1, -1))
    )
    # The head's backward pass is over when a block is recomputed.
    assert recomputed == pytest.approx(2 * s * h * layers + first + max(block, head), rel=1e-9)


@pytest.mark.parametrize(("stage", "published"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_states_are_the_zero_papers(stage, published):
    """7.5 billion parameters on 64 GPUs, figure 1: here of a GPT of that size."""
    gpt = costs.transformer(36, 4096, 32, 51_200, 2048, tied_embeddings=True)
    parts = bytes_of(gpt, 64, data=64, zero_stage=stage)
    states = sum(parts[name] for name in STATES) / 1e9
    assert states == pytest.approx(published * gpt.parameters / 7.5e9, rel=0.02)


def test_a_schedule_keeps_its_micro_batches():
    """GPipe m, 1F1B p - s; a first rank of interleaved 1F1B (p - 1) / (p v) more."""
    first = {
        name: costs.bytes_by_pipeline_rank(
            GPT, costs.Layout(pipeline=4, schedule=name, chunks=chunks), 16
        )
        for name, chunks in (("gpipe", 1), ("1f1b", 1), ("zb-h1", 1), ("interleaved", 2))
    }
    kept = {name: ranks[0]["activations"] for name, ranks in first.items()}
    stage = kept["1f1b"] / 4
    assert kept["gpipe"] == pytest.approx(16 * stage) and first["zb-h1"] == first["1f1b"]
    whole = bytes_of()["activations"]
    assert 4 * stage < whole < 5 * stage, "four micro-batches of a quarter, without the head"
    assert kept["interleaved"] / kept["1f1b"] == pytest.approx(1 + 3 / 8, rel=0.02)


def schedule_of(name, ranks, batches):
    """A schedule as notebook 11 writes it."""
    rows = []
    for r in range(ranks):
        ahead = min(ranks - 1 - r, batches)
        if name == "gpipe":
            row = [(r, kind, i) for kind in "FB" for i in range(batches)]
        elif name == "1f1b":
            row = [(r, "F", i) for i in range(ahead)]
            for i in range(batches - ahead):
                row += [(r, "F", ahead + i), (r, "B", i)]
            row += [(r, "B", i) for i in range(batches - ahead, batches)]
        else:
            stages = [r if i % 2 == 0 else ranks - 1 - r for i in range(batches)]
            row = [(stage, kind, i) for i, stage in enumerate(stages) for kind in "FB"]
        rows.append(row)
    return rows


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "gems"])
@pytest.mark.parametrize(("stages", "count"), [(2, 2), (2, 6), (4, 4), (4, 8), (8, 8)])
def test_pipelines_take_as_long_as_their_rows(schedule, stages, count, recompute):
    """Equal stages, no messages. Backward is two forwards, three with recomputation."""
    block = replace(GPT.layers[1], tp_allreduce_bytes=0, tp_allreduces=0)
    model = replace(GPT, layers=(costs.Layer(output_bytes=1), *[block] * 8, costs.Layer()))
    free = dict.fromkeys(["intra_node_bandwidth", "inter_node_bandwidth", "optimizer_bandwidth"])
    fast = replace(NODE, latency=0, **dict.fromkeys(free, 1e30))
    layout = costs.Layout(pipeline=stages, schedule=schedule, recompute=recompute)
    parts, _ = costs.step_time(model, layout, fast, count)
    units = {"F": 1, "B": 3 if recompute == "full" else 2}
    forward = 8 / stages * block.flops / fast.flops_per_s
    spans = costs.pipeline_spans(
        schedule_of(schedule, stages, count), lambda stage, kind: forward * units[kind]
    )
    total = sum(parts.values())
    assert total == pytest.approx(max(row[-1][2] for row in spans))
    if schedule != "gems":
        assert parts["bubble"] / total == pytest.approx(costs.pipeline_bubble(stages, count))


def test_what_holds_of_every_layout():
    seen = set()
    for model, layout in ALL:
        seen |= {layout.schedule, layout.zero_stage, layout.recompute}
        assert layout.ranks == NODE.ranks and BATCH % (layout.data * layout.micro_batch) == 0
        times = costs.step_time(model, layout, NODE, BATCH)[0].values()
        ranks = costs.bytes_by_pipeline_rank(model, layout, BATCH)
        sizes = [size for parts in ranks for size in parts.values()]
        assert all(math.isfinite(each) and each >= -1e-12 for each in (*times, *sizes)), layout
        # No layout beats the arithmetic, nor has less than its share of the parameters.
        assert sum(times) >= 0.999999 * BATCH * model.flops / NODE.flops_per_s / 8, layout
        most = max(parts["parameters"] for parts in ranks)
        assert most >= 0.999999 * 2 * model.parameters / 8, layout
    assert seen == {*SCHEDULES, 0, 1, 2, 3, "none", "full"}


def test_a_better_machine_is_never_slower_nor_a_higher_stage_fuller():
    bandwidths = ["flops_per_s", "optimizer_bandwidth", "host_bandwidth"]
    bandwidths += ["intra_node_bandwidth", "inter_node_bandwidth"]
    better = [replace(NODE, **{name: 2 * getattr(NODE, name)}) for name in bandwidths]
    better += [replace(NODE, latency=0), replace(NODE, overlap=1.0)]
    for model, layout in ALL[::3]:
        time = total_time(model, layout) * (1 + 1e-9)
        assert all(total_time(model, layout, machine) <= time for machine in better), layout
        by_stage = [
            costs.bytes_per_rank(model, replace(layout, zero_stage=stage, offload=False), BATCH)
            for stage in range(4)
        ]
        sums = [sum(parts.values()) - parts["buffers"] for parts in by_stage]
        assert sums == sorted(sums, reverse=True)


def test_splits_divide_what_they_say():
    one = bytes_of(batch=1)
    for layout, shared in (
        ({"tensor": 4}, ("parameters", "activations")),
        ({"context": 4}, ("activations",)),
        ({"zero_stage": 3, "data": 4}, ("parameters", "moments")),
    ):
        four = bytes_of(batch=4, **layout)
        for name in shared:
            assert four[name] == pytest.approx(one[name] / 4, rel=0.03), (layout, name)
    whole, strips = (bytes_of(NET, 1, spatial=n)["activations"] for n in (1, 4))
    assert strips == pytest.approx(whole / 4)


def test_ranks_that_share_devices_compute_longer():
    """Four ranks on two cores take twice as long; a pipeline's bubble leaves the core to others."""
    alone = replace(NODE, ranks=4)
    for layout, low in (({"data": 4}, 2), ({"pipeline": 4}, 1), ({"tensor": 2, "data": 2}, 2)):
        seconds = {}
        for devices in (None, 2, 4, 64):
            machine = replace(alone, devices=devices)
            parts, _ = costs.step_time(GPT, costs.Layout(**layout), machine, BATCH)
            seconds[devices] = parts["compute"] + parts["bubble"]
        assert low - 1e-9 <= seconds[2] / seconds[None] <= 2 + 1e-9
        assert "pipeline" in layout or seconds[4] == seconds[64] == seconds[None]


def test_the_plan_is_sorted_and_says_why():
    plan = costs.plan(GPT, NODE, BATCH)
    times, best = [each.step_time for each in plan.candidates], plan.best(10)
    assert times == sorted(times) and len(best) == 10 and best[0] is plan.candidates[0]
    assert all(each.total_bytes <= plan.usable_memory for each in plan.fitting)
    small = costs.plan(GPT, replace(NODE, memory=plan.candidates[0].total_bytes), BATCH)
    assert len(small.fitting) < len(plan.fitting), "a tenth is kept free, so the best does not fit"
    reasons = small.why_others_lose()
    assert "does not fit" in reasons["data alone"] and "not possible" in reasons["tensor alone"]
    none = costs.plan(GPT, replace(NODE, memory=1e6), BATCH)
    assert not none.fitting and "0 of them fit" in costs.plan_text(none)


def test_the_text_shows_the_plan():
    plan = costs.plan(GPT, NODE, BATCH)
    lines, best = costs.plan_text(plan, 4).splitlines(), plan.best(4)
    start = next(number for number, line in enumerate(lines) if line.startswith("step, s"))
    names = [name.strip() for name in lines[start].split("  ") if name.strip()]
    assert {"step, s", "GB", "compute", "(gradients)", "micro", "layout"} <= set(names)
    for line, each in zip(lines[start + 1 :], best, strict=False):
        begin = (
            f"{each.step_time:7.3g}  {each.total_bytes / 1e9:3.0f}  {each.parts['compute']:9.3g}"
        )
        assert line.startswith(begin) and line.endswith(f"  {each.layout.name}")
    assert lines[-len(plan.why_others_lose()) - 1] == "Why the others lose"
    for part in costs.PARTS:
        is_noticeable = any(each.parts[part] > each.step_time / 2000 for each in best)
        assert (part in names) == is_noticeable, part


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ({}, "1 rank"),
        ({"zero_stage": 3, "data": 2}, "data 2, ZeRO-3"),
        (
            {"data": 4, "pipeline": 2, "zero_stage": 1, "recompute": "full"},
            "data 4, pipeline 2 (1f1b), ZeRO-1, recompute",
        ),
        (
            {"tensor": 2, "pipeline": 2, "context": 4, "schedule": "interleaved", "chunks": 2}
            | {"zero_stage": 1, "offload": True},
            "tensor 2, pipeline 2 (interleaved x 2), context 4, ZeRO-1, offload",
        ),
    ],
)
def test_a_layout_in_words(layout, words):
    assert costs.Layout(**layout).name == words


# --- The file ---

GOOD = costs.EXAMPLE.replace("ranks = 64", "ranks = 8").replace("= 512 ", "= 8 ")


def run_plan(*words):
    command = [sys.executable, "-m", "pi2zero", "plan", *words]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_example_is_a_file_that_can_be_planned(tmp_path):
    (file := tmp_path / "model.toml").write_text(GOOD)
    assert run_plan("--example").stdout == costs.EXAMPLE
    done = run_plan(file, "--best", "3")
    assert done.returncode == 0 and not done.stderr
    assert "22.4 billion parameters" in done.stdout and "does not fit: at least" in done.stdout


def test_a_file_that_is_not_there_is_one_sentence(tmp_path):
    for words, says in (
        ([tmp_path / "no.toml"], "No such file"),
        ([], "which file?"),
        ([tmp_path], "Is a directory"),
    ):
        done = run_plan(*words)
        assert done.returncode == 2 and says in done.stdout and not done.stderr
        assert len(done.stdout.splitlines()) == 1


def test_the_examples_comments_are_the_defaults():
    text, rest = GOOD.partition("# [images]")[0], GOOD.partition("[machine]")[2]
    spelt_out = text.replace("\n# ", "\n") + "[machine]" + rest.replace("\n# ", "\n")
    assert spelt_out.count("#") < GOOD.count("#") - 8
    for one, other in zip(
        costs.plan_from(GOOD).candidates, costs.plan_from(spelt_out).candidates, strict=True
    ):
        assert one == other


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("_batch = 8 ", "_batch = ", "this is no TOML"),
        ("_batch = 8 ", "_batch = 0 ", "global_batch: .* a whole number of 1 or more; got 0"),
        ("global_batch", "batches", "the file: 'batches' is unknown"),
        ("global_batch", "batch", "the file: 'batch' is now called 'global_batch'"),
        ("global_batch = 8 ", "global_batch = 7 ", "no layout of 7 samples uses all 8 ranks"),
        ("[model]", "[modell]", "is expected; there is none"),
        ("[machine]", "[images]\n[machine]", "there is model and images"),
        ("heads = 64", "heads = 7", "7 do not divide hidden_size, 6144"),
        ("heads = 64", "", r"\[model\]: 'heads' is missing"),
        ("heads = 64", "head = 64", r"\[model\]: 'head' is unknown; there are layers, hidden_size"),
        ("hidden_size", "width", r"\[model\]: 'width' is now called 'hidden_size'"),
        ("inter_node_bandwidth", "between", "'between' is now called 'inter_node_bandwidth'"),
        ("layers = 48", "layers = 4.5", "layers: whole numbers of 1 or more; got 4.5"),
        ("layers = 48", "layers = 10_001", "layers: at most 10,000; got 10,001"),
        ("layers = 48", 'precision = "fp8"\nlayers = 48', "precision: one of mixed, fp32"),
        ("layers = 48", 'attention = "no"\nlayers = 48', "attention: flash or standard"),
        ("memory = 80e9", 'memory = "80 GB"', "memory: a number; got '80 GB'"),
        ("memory = 80e9", "memory = 0", "memory: above 0"),
        ("memory = 80e9", "memory = 80e9\nreserve = 10", "reserve: a share between 0 and 1"),
        ("ranks = 8", "ranks = 12", "a multiple of ranks_per_node"),
        ("ranks = 8", "ranks = 2.5", "ranks: a whole number"),
        ("ranks = 8", "ranks = 1_000_008", "ranks: at most 1,000,000"),
    ],
)
def test_a_wrong_file_says_what_is_wrong_in_one_sentence(old, new, says):
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    if "layout of 7" in says:  # neither the heads nor the sequence can be split
        text = text.replace("heads = 64", "heads = 1").replace("2048", "1").replace("48", "1")
    with pytest.raises(ValueError, match=says) as caught:
        costs.plan_from(text)
    assert "\n" not in str(caught.value)


def test_a_value_of_a_page_is_not_quoted_whole():
    text = GOOD.replace("heads = 64", f'heads = 64\nprecision = "{"x" * 5000}"')
    with pytest.raises(ValueError, match="fp32; got") as caught:
        costs.plan_from(text)
    assert len(str(caught.value)) < 1000
    with pytest.raises(ValueError, match="the kernel of row 2, 5, is larger than the image there"):
        costs.convolutions([3, 8, 8], [[4, 3, 2], [4, 5, 1]], 2)


# --- Measured and published figures ---


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.mark.nightly
@pytest.mark.long
def test_bytes_of_layouts_that_ran(tmp_path, benchmarks):
    """Four ranks train two steps by 1F1B, by GPipe with recomputation, by ZeRO-2, and on a ring:
    within 5 % of the prediction, with the same losses."""
    from bench_plan import LAID, measured_bytes, predicted_bytes

    mpi_env()
    chosen, output = (3, 11, 14, 18), tmp_path / "found.json"
    options = ["--rounds", 0, "--layouts", *chosen, "--output", output]
    worker = [sys.executable, "-m", "mpi4py", BENCHMARKS / "plan_worker.py", *options]
    command = ["mpirun", "-n", "4", *map(str, worker)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text())["bytes"]
    for k, (measured, losses) in zip(chosen, results, strict=True):
        predicted = predicted_bytes(LAID[k])
        assert predicted == pytest.approx(measured_bytes(measured), rel=0.05), LAID[k].name
        assert losses == pytest.approx(results[0][1], abs=1e-4) and losses[1] < losses[0]


def test_published_figures_come_out_as_far_as_the_page_says(benchmarks):
    import plan_published as published

    megatron, korthikanti = list(published.megatron_rows()), list(published.korthikanti_rows())
    errors = {row[0]: row[2] / row[1] - 1 for row in megatron + korthikanti}
    assert abs(errors["175 B"]) < 0.02
    assert all(abs(errors[name]) < 0.05 for name in ("310.1 B", "529.6 B", "1008 B"))
    others = [error for name, error in errors.items() if name not in ("1.7 B", "3.6 B")]
    assert all(abs(error) < 0.2 for error in others)
    mt_nlg = list(published.mt_nlg_rows())
    assert [r.name for r in megatron + korthikanti + mt_nlg if r.held > 80] == ["1008 B"]
    assert all(-0.25 < row[2] / row[1] - 1 < 0 for row in mt_nlg)
    gems = {name: predicted / figure for name, figure, predicted in published.gems_rows()}
    assert gems["MAST"] == pytest.approx(1, abs=0.02) and gems["MASTER"] < 0.8


def test_published_figures_agree_among_themselves(benchmarks):
    """One source's seconds and shares of the peak, computed from another's: within 4 %."""
    import plan_published as published

    rows = list(published.agreement_rows())
    assert len(rows) == 7
    for _, figure, computed in rows:
        assert float(computed.rstrip("%")) == pytest.approx(float(figure.rstrip("%")), rel=0.04)
    for name, shorter in published.PRESENT_WORK.items():
        layers, hidden, heads, _, _, gpus, batch, _, full = published.KORTHIKANTI[name]
        flops = batch * published.gpt(layers, hidden, heads).flops
        share = flops / gpus / published.PEAK / shorter
        assert share == pytest.approx(published.PRESENT_SHARE[name], abs=0.002), name
        assert 1.28 < full / shorter < 1.33, name


def test_a_plan_that_is_right_has_no_error_and_ranks_all_pairs(benchmarks):
    from bench_plan import COMPONENTS, LAID, kept, model, predicted_bytes, times_of

    rings = [(n, costs.ring_allreduce_seconds(n, 4, 1e-3, 1e-9)) for n in (1e4, 1e6, 1e7)]
    machine = {"alone": 1.0, "together": 2.0, "update": 0.1, "rings": rings, "samples": 4}
    one = {"machine": machine | {"parameters": model().parameters}, "seconds": np.ones(len(LAID))}
    one["seconds"] = times_of([one]).predicted
    sizes = [({part: predicted_bytes(layout) / 5 for part in COMPONENTS}, [1.0]) for layout in LAID]
    right = {"bytes": sizes, "rounds": [one, {**one, "seconds": 2 * one["seconds"]}]}
    assert [round(figure.value, 6) for figure in kept(right)] == [0, 0, 100]
    reverse = {**one, "seconds": one["seconds"].max() + one["seconds"].min() - one["seconds"]}
    without = [({**sizes[0][0], "gradients": 0}, [1.0]), *sizes[1:]]
    nbytes, seconds, pairs = kept({"bytes": without, "rounds": [reverse]})
    assert nbytes.value == pytest.approx(25) and not nbytes.reached()
    assert seconds.value > 5 and pairs.value == 0
