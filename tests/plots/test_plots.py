"""Every picture: nothing is cut off, the given Axes and size are used, what is drawn is right."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch
from pictures import assert_nothing_is_cut_off

from pi2zero import costs, plots

RNG = np.random.default_rng(1)
NS = 10.0 ** np.arange(1, 6)
SIZES = 4.0 ** np.arange(5, 14)
SECONDS = costs.ring_allreduce_seconds(SIZES, 4, 1e-6, 1e-10)
MODELS = {
    "ring": lambda n, p: costs.ring_allreduce_seconds(n, p, 1e-6, 1e-10),
    "doubling": lambda n, p: costs.recursive_doubling_allreduce_seconds(n, p, 1e-6, 1e-10),
}
SPANS = [
    [("compute", 10.0, 10.2), ("wait", 10.2, 10.5), ("communicate", 10.5, 10.6)],
    [("compute", 10.0, 10.5), ("communicate", 10.5, 10.6), ("load", 10.6, 10.7)],
]
ACTIONS = [[((0, "F", 0), 0, 1)], [((1, "F", 0), 1, 2), ((1, "B", 0), 2, 4)]]
ROWS = {f"stage {stage}": costs.zero_bytes(1e6, 4, stage) for stage in range(4)}
LENGTHS = {"article": RNG.poisson(160, 500), "highlights": RNG.poisson(40, 500)}
CUTS = {"article": 170, "highlights": 64}
NAMES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "facts": "names and numbers"}
SCORES = {
    "lead-3": {"rouge1": [29.0, 30.5, 32.1], "rouge2": [9, 10, 11], "facts": [60, 70, 90]},
    "first": {"rouge1": [40, 41, 42], "rouge2": [0, 0, 0], "facts": [10, 11, 12]},
    "t5-small": {"rouge1": [99, 100, 100], "rouge2": [45, 50, 55], "facts": [100, 100, 100]},
}
TIMES = {"a": [8, 4, 4], "b": [8, 5, 6]}
LOSSES = {"right": [2, 1, 0.5], "too high": ([0, 10, 20], [2, 9, np.nan])}
STEPS = {"data 4": {"compute": 2, "gradients": 1}, "tensor 4": {"compute": 3}}
PARTS = {"1 rank": {"start-up": 1, "computing": 2}, "2 ranks": {"computing": 1}}
FORMULA = {"a": lambda n: 1000 * n}
GRID = costs.Layout(data=2, pipeline=4, spatial=2)

# name: its arguments
PICTURES = {
    "allreduce_seconds": (SIZES, {"ring": SECONDS}),
    "amdahl": ([0.01, 0.1], 64),
    "bus_bandwidth": (SIZES, {"ring": 2 * SECONDS}, 4, {"ring": SECONDS}),
    "bytes_by_ranks": (FORMULA, {"a": {2: 2000, 3: 3100}}, range(2, 9)),
    "collective": ("Bcast", [["N"], [], []], [["N"], ["N"], ["N"]]),
    "convergence": (NS, RNG.random((3, 5)) / np.sqrt(NS)),
    "darts": (RNG.random(300), RNG.random(300)),
    "efficiency": ([1, 2, 4], [8, 4, 4], False, 2),
    "fastest": (SIZES, [4, 8], MODELS),
    "images": (RNG.random((7, 64)), range(7), 5),
    "imagenet_records": (costs.IMAGENET_RECORDS,),
    "layout_grid": (GRID, 8),
    "loss_curves": (LOSSES,),
    "memory_bars": (ROWS, {row: sum(parts.values()) for row, parts in ROWS.items()}),
    "midpoint_slices": (10, 3),
    "partitions": (),
    "pipeline": (ACTIONS,),
    "plan_steps": (STEPS,),
    "rates": ({"weak": ([1, 2], [10, 15])},),
    "regions": ([1, 10, 100], [1, 10], [[0, 0, 1], [0, 1, 1]], ["near", "far"]),
    "ring_steps": (np.full((3, 5, 3), 0b111),),
    "samples_by_rank": (RNG.random((4, 50)), RNG.random((4, 50)), np.arange(4)[:, None]),
    "scaling_model": ([1, 2, 2048], {"model": [1, 0.9, 0.5]}, costs.PUBLISHED),
    "scores": (SCORES, NAMES),
    "spans": (PARTS,),
    "speedup": ([1, 2, 4], TIMES, 0.1, 2),
    "spread": ({"a": np.pi + 0.1 * RNG.normal(size=99)}, 0.1),
    "stage3_moments": (),
    "step_parts": ([1, 2], 0.1, [0, 0.05]),
    "strips": ([0, 3, 6, 10], [(1, 1), (1, -1), (2, 0)]),
    "time_against_n": ({"loop": (NS, NS * 1e-6), "NumPy": (NS, NS * 1e-8)},),
    "time_bars": ({"Allreduce": 0.001, "allreduce": 0.004},),
    "timeline": (SPANS,),
    "token_lengths": (LENGTHS, CUTS),
}
WIDE = {"scaling_model", "imagenet_records", "layout_grid", "step_parts"}
pytestmark = pytest.mark.usefixtures("close_pictures")


def draw(name, **options):
    return getattr(plots, name)(*PICTURES[name], **options)


def legend(ax):
    (found,) = [*ax.figure.legends, *filter(None, [ax.get_legend()])]
    return [text.get_text() for text in found.get_texts()]


def boxes_in(ax, color):
    return [box for box in ax.patches if to_hex(box.get_facecolor()) == color.lower()]


@pytest.mark.parametrize("font_size", [12, 18])
@pytest.mark.parametrize("name", PICTURES)
def test_no_text_is_cut_off(name, font_size):
    if font_size == 18 and name in WIDE:
        pytest.skip("slides give it a larger figure")
    plots.use_style(font_size)
    assert_nothing_is_cut_off(draw(name).figure, margin=0.05)


@pytest.mark.parametrize("name", PICTURES)
def test_the_given_axes_or_size_are_used(name):
    figure, ax = plt.subplots()
    assert draw(name, ax=ax) is ax
    assert plt.get_fignums() == [figure.number], "a second figure was made"
    assert draw(name, figsize=(5, 3)).figure.get_size_inches() == pytest.approx([5, 3])


# --- π and speed-up ---


def test_a_rank_has_the_same_colour_everywhere():
    dots, slices = draw("samples_by_rank"), plots.midpoint_slices(8, 4)
    by_dots = {c.get_label(): to_hex(np.ravel(c.get_facecolor())[:3]) for c in dots.collections}
    by_bars = {c.get_label(): to_hex(c.patches[0].get_facecolor()) for c in slices.containers}
    expected = {f"rank {rank}": plots.rank_color(rank).lower() for rank in range(4)}
    assert by_dots == by_bars == expected and plots.rank_color(9) == plots.rank_color(1)


def test_darts_counts_those_inside():
    ax = plots.darts([0.1, 0.9, 0.2, 0.3], [0.1, 0.9, 0.2, 0.3])
    assert ax.get_title() == "3 of 4 inside: π ≈ 3.000"
    assert [len(c.get_offsets()) for c in ax.collections] == [3, 1]


def test_midpoint_slices_are_dealt_in_turn_and_sum_to_pi():
    bars = plots.midpoint_slices(7, 3).containers
    assert [len(bar.patches) for bar in bars] == [3, 2, 2]
    area = sum(b.get_width() * b.get_height() for bar in bars for b in bar.patches)
    assert area == pytest.approx(np.pi, abs=8 / (24 * 7**2))  # |f''| <= 8


def test_speedup_and_efficiency_are_computed_from_the_times():
    lines = plots.speedup([1, 2, 4], {"a": [8, 4, 4]}, 0.5).lines
    values = {line.get_label(): line.get_ydata() for line in lines}
    assert values["a"] == pytest.approx([1, 2, 2])
    assert values["Amdahl, 50 % serial"][-1] == pytest.approx(1 / (0.5 + 0.5 / 4))
    strong = plots.efficiency([1, 2, 4], [8, 4, 4]).lines[-1].get_ydata()
    weak = plots.efficiency([1, 2, 4], [8, 8, 16], weak=True).lines[-1].get_ydata()
    assert strong == pytest.approx([100, 100, 50]) and weak == pytest.approx([100, 100, 50])


def test_the_band_of_convergence_is_sigma_standard_errors():
    expected, band, measured = plots.convergence([100, 10_000], [0.1, 0.01], sigma=3).lines
    assert band.get_ydata() == pytest.approx(3 * expected.get_ydata())
    assert expected.get_ydata() == pytest.approx([0.1642, 0.01642], rel=1e-3)
    assert list(measured.get_ydata()) == [0.1, 0.01]


# --- Collectives ---


@pytest.mark.parametrize(
    ("before", "after", "arrows"),
    [
        ([["N"], [], []], [["N"], ["N"], ["N"]], {(0, 0), (0, 1), (0, 2)}),  # Bcast
        ([["a"], ["b"], ["c"]], [["a+b+c"], [], []], {(0, 0), (1, 0), (2, 0)}),  # Reduce
        ([["a", "b"], []], [["a"], ["b"]], {(0, 0), (0, 1)}),  # Scatter
        ([["a"], ["b"]], [["a", "b"], ["a", "b"]], {(0, 0), (0, 1), (1, 0), (1, 1)}),  # Allgather
    ],
)
def test_arrows_of_a_collective_go_where_the_values_go(before, after, arrows):
    drawn = {
        tuple(int(y) for _, y in patch._posA_posB)
        for patch in plots.collective("any", before, after).patches
        if isinstance(patch, FancyArrowPatch)
    }
    assert drawn == arrows


def ring(ranks):
    """The sums of each rank before each step of a ring all-reduce; rank r puts in 2**r."""
    now = np.repeat(2 ** np.arange(ranks)[:, None], ranks, axis=1)
    steps = [now]
    for step in range(2 * ranks - 2):
        before, now = now, now.copy()
        for rank in range(ranks):
            chunk, to = (rank - step) % ranks, (rank + 1) % ranks
            own = 0 if step >= ranks - 1 else before[to, chunk]
            now[to, chunk] = before[rank, chunk] + own
        steps.append(now)
    return np.stack(steps, axis=1)


@pytest.mark.parametrize("ranks", [2, 3, 4, 5])
def test_ring_steps_frame_the_chunk_that_the_next_rank_gets(ranks):
    sums = ring(ranks)
    ax = plots.ring_steps(sums)
    words = [text.get_text() for text in ax.texts]
    assert words.count("all") == ranks * ranks + sum(ranks + s * ranks for s in range(ranks - 1))
    arrows = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    frames = [patch for patch in ax.patches if not patch.get_fill() and patch not in arrows]
    assert len(arrows) == len(frames) == ranks * 2 * (ranks - 1)
    sent = [int(frame.get_x() % (ranks + 1.6)) for frame in frames]  # the distance of panels
    assert sent == [
        np.argmax(sums[(rank + 1) % ranks, step + 1] != sums[(rank + 1) % ranks, step])
        for step in range(2 * ranks - 2)
        for rank in range(ranks)
    ]


def test_bus_bandwidth_is_nccl_tests():
    some = np.where(SIZES > 4096, SECONDS, np.nan)
    lines = plots.bus_bandwidth(SIZES, {"a": SECONDS, "b": some}, 4).lines
    assert lines[0].get_ydata() == pytest.approx(1.5 * SIZES / SECONDS / 1e9)
    assert len(lines[1].get_ydata()) == len(SIZES) - 2, "what was not measured is not drawn"


def test_fastest_maps_the_models():
    drawn = np.asarray(draw("fastest").collections[0].get_array()).reshape(len(SIZES), 2)
    for i, n in enumerate(SIZES):
        for j, p in enumerate((4, 8)):
            assert list(MODELS)[drawn[i, j]] == min(MODELS, key=lambda name: MODELS[name](n, p))


def test_bytes_text():
    texts = {1: "1 B", 1000: "1000 B", 1536: "1.5 KiB", 2**26: "64 MiB", 2**41: "2048 GiB"}
    assert {nbytes: plots.bytes_text(nbytes) for nbytes in texts} == texts


# --- Training and scaling ---


def bars_of(ax):
    """{(row, left, width, colour)} of every bar of a timeline, in ms."""
    found = set()
    for collection in ax.collections:
        color = to_hex(collection.get_facecolor()[0]).upper()
        for path in collection.get_paths():
            box = path.get_extents()
            found.add((round((box.y0 + box.y1) / 2), round(box.x0), round(box.width), color))
    return found


def test_every_span_is_a_bar_in_its_ranks_row_since_the_first_start():
    drawn = bars_of(draw("timeline"))
    expected = {
        (row, round(1e3 * (start - 10)), round(1e3 * (stop - start)), plots.ACTIVITY_COLORS[name])
        for row, spans in enumerate(SPANS)
        for name, start, stop in spans
        if name in plots.ACTIVITY_COLORS
    }
    [unknown] = drawn - expected
    assert expected < drawn and unknown[:3] == (1, 600, 100)
    assert unknown[3] not in plots.ACTIVITY_COLORS.values(), "a name has a colour of its own"
    [(*_, alone)] = bars_of(plots.timeline([[("wait", 0.0, 1.0)]]))
    assert alone == plots.ACTIVITY_COLORS["wait"]
    ax = plots.timeline({3: SPANS[0], "rank 3, network": SPANS[1]})
    assert [text.get_text() for text in ax.get_yticklabels()] == ["rank 3", "rank 3, network"]


def test_a_loss_that_diverges_ends_in_a_cross():
    curve, cross = plots.loss_curves({"too high": [2.0, 9.0, np.inf, np.nan]}).get_lines()
    assert np.isfinite(curve.get_ydata()).tolist() == [True, True, False, False]
    assert (cross.get_xdata().item(), cross.get_ydata().item(), cross.get_marker()) == (2, 9.0, "X")


def test_dots_have_the_colour_of_their_formula():
    line, dots = draw("bytes_by_ranks").get_lines()[:2]
    assert line.get_ydata().tolist() == list(range(2, 9))
    assert (list(dots.get_xdata()), list(dots.get_ydata())) == ([2, 3], [2.0, 3.1])
    assert dots.get_color() == line.get_color()


def test_over_batch_size_draws_a_panel_per_quantity():
    axes = plots.over_batch_size([1, 10], {"seconds": [2, 1], "accuracy": [0.8, 0.9]})
    assert [ax.get_ylabel() for ax in axes] == ["seconds", "accuracy"]
    assert axes[1].get_lines()[0].get_ydata().tolist() == [0.8, 0.9]


def test_images_have_their_labels():
    ax = draw("images")
    assert len(ax.images) == 7 and [text.get_text() for text in ax.texts] == list("0123456")


def test_scaling_pictures_show_their_data():
    ax = draw("scaling_model")
    assert list(ax.lines[0].get_ydata()) == [100, 90, 50]
    published = {p.name for p in costs.PUBLISHED if costs.published_efficiency(p)}
    assert set(legend(ax)) == {"model"} | published
    assert len(draw("imagenet_records").collections) == len(costs.IMAGENET_RECORDS)
    assert list(draw("rates").lines[1].get_ydata()) == [10, 20], "the ideal line"
    assert len(draw("step_parts").patches) == 4


# --- ZeRO and plans ---


def test_memory_bars_are_the_bytes_and_the_mark_is_the_prediction():
    ax = plots.memory_bars(ROWS, {"stage 3": 4e6})
    ends = [0.0] * 4
    for bar in ax.patches:
        row = round(bar.get_y() + bar.get_height() / 2)
        ends[row] = max(ends[row], bar.get_x() + bar.get_width())
    assert ends == pytest.approx([16, 7, 5.5, 4])  # MB
    assert list(ax.lines[0].get_xdata()) == [4, 4]
    assert legend(plots.memory_bars(ROWS)) == ["parameters", "gradients", "master", "moments"]


@pytest.mark.parametrize("stage", range(4))
def test_the_coloured_part_of_a_row_is_the_ranks_shard(stage):
    ax = plots.partitions(4, stage)
    mean = {
        name: sum(box.get_width() for box in boxes_in(ax, plots.COMPONENT_COLORS[name])) / 4
        for name in ROWS["stage 0"]
    }
    assert mean == pytest.approx(costs.zero_bytes(1, 4, stage))


def test_a_stage_3_step_gathers_each_layer_twice():
    boxes = boxes_in(draw("stage3_moments"), plots.COMPONENT_COLORS["parameters"])
    whole = [box for box in boxes if box.get_width() == pytest.approx(0.42)]
    assert len(whole) == 2 * 3 * 4  # forward and backward, layers, ranks


@pytest.mark.parametrize("schedule", ["1f1b", "gems"])
def test_a_layout_has_each_rank_once_and_strips_on_one_node(schedule):
    layout = costs.Layout(data=2, pipeline=4, spatial=2, schedule=schedule)
    ax = plots.layout_grid(layout, ranks_per_node=8)
    texts = [text.get_text().split("\n") for text in ax.texts]
    places = {int(text[0]): box.get_position() for text, box in zip(texts, ax.texts, strict=True)}
    assert sorted(places) == list(range(16))
    assert len({box.get_facecolor() for box in ax.patches}) == 2, "a colour per node"
    assert all(places[rank + 1][0] == places[rank][0] + 1 for rank in range(0, 16, 2))
    assert {len(text) for text in texts} == {2 if schedule == "gems" else 1}


# --- Summaries ---


def test_lengths_are_counted_and_the_truncated_share_is_said():
    ax = draw("token_lengths")
    assert [sum(bar.get_height() for bar in bars) for bars in ax.containers] == [500, 500]
    shares = {label: np.mean(LENGTHS[label] > cut) for label, cut in CUTS.items()}
    assert legend(ax) == [f"{k}, {share:.0%} cut at {CUTS[k]}" for k, share in shares.items()]
    assert [line.get_xdata()[0] for line in ax.lines] == [170, 64]
    assert legend(plots.token_lengths(LENGTHS)) == ["article", "highlights"]
    assert legend(plots.token_lengths({"a": [1, 2, 3, 4]}, {"a": 3})) == ["a, 25% cut at 3"]
    ax = plots.token_lengths({"a": [10, 20]}, {"a": 512})
    assert not ax.lines and ax.get_xlim()[1] < 30, "a distant cut does not widen the picture"


def test_scores_are_bars_with_intervals_and_numbers_beside_them():
    ax = draw("scores")
    ax.figure.canvas.draw()
    bars = [group for group in ax.containers if hasattr(group, "patches")]
    for name, group in zip(NAMES, bars, strict=True):
        assert [bar.get_width() for bar in group] == [row[name][1] for row in SCORES.values()]
        rows = [round(bar.get_y() + bar.get_height() / 2) for bar in group]
        assert rows == [0, 1, 2]
    drawn = [tuple(segment[:, 0]) for c in ax.collections for segment in c.get_segments()]
    intervals = [row[name] for name in NAMES for row in SCORES.values()]
    assert drawn == [(low, high) for low, _, high in intervals]
    assert legend(ax) == list(NAMES.values()) and ax.yaxis_inverted()
    texts = [text.get_window_extent() for text in ax.texts]
    assert not any(one.overlaps(other) for i, one in enumerate(texts) for other in texts[:i])
    assert [text.get_text() for text in ax.texts[:3]] == ["30", "41", "100"]


# --- Errors ---


@pytest.mark.parametrize(
    ("draw_wrong", "says"),
    [
        (lambda: plots.timeline([[], []]), "no spans to draw: use"),
        (lambda: plots.ring_steps(np.ones((4, 4, 4))), "the shape is .ranks, 2 ranks - 1, ranks"),
        (lambda: plots.pipeline([[], []]), "no action on any rank"),
        (lambda: plots.strips([0, 3, 6], [(1, 1)]), "1 pairs for 2 strips"),
    ],
)
def test_wrong_input_says_what_is_expected(draw_wrong, says):
    with pytest.raises(ValueError, match=says):
        draw_wrong()
