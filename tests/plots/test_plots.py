"""The pictures: what is drawn is what was given, in the same colours everywhere, and nothing is cut off."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from pictures import assert_nothing_is_cut_off
from test_summary_pictures import PICTURES as SUMMARIES
from test_training_plots import PICTURES as TRAINING
from test_zero_pictures import PICTURES as ZERO

from pi2zero import plots

RNG = np.random.default_rng(1)
NS = 10.0 ** np.arange(1, 6)
PICTURES = {
    "darts": lambda **k: plots.darts(RNG.random(300), RNG.random(300), **k),
    "samples_by_rank": lambda **k: plots.samples_by_rank(
        RNG.random((4, 50)), RNG.random((4, 50)), np.arange(4)[:, None], **k
    ),
    "convergence": lambda **k: plots.convergence(NS, RNG.random((3, 5)) / np.sqrt(NS), **k),
    "spread": lambda **k: plots.spread({"a": np.pi + 0.1 * RNG.normal(size=99)}, 0.1, **k),
    "midpoint_slices": lambda **k: plots.midpoint_slices(10, 3, **k),
    "time_against_n": lambda **k: plots.time_against_n(
        {"loop": (NS, NS * 1e-6), "NumPy": (NS, NS * 1e-8)}, **k
    ),
    "speedup": lambda **k: plots.speedup(
        [1, 2, 4], {"a": [8, 4, 4], "b": [8, 5, 6]}, 0.1, cores=2, **k
    ),
    "efficiency": lambda **k: plots.efficiency([1, 2, 4], [8, 4, 4], cores=2, **k),
    "amdahl": lambda **k: plots.amdahl([0.01, 0.1], 64, **k),
    "spans": lambda **k: plots.spans(
        {"1 rank": {"start-up": 1, "computing": 2}, "2 ranks": {"computing": 1}}, **k
    ),
    "collective": lambda **k: plots.collective(
        "Bcast", [["N"], [], []], [["N"], ["N"], ["N"]], **k
    ),
    "strips": lambda **k: plots.strips([0, 3, 6, 10], [(1, 1), (1, -1), (2, 0)], **k),
    "regions": lambda **k: plots.regions(
        [1, 10, 100], [1, 10], [[0, 0, 1], [0, 1, 1]], ["near", "far"], **k
    ),
    "plan_steps": lambda **k: plots.plan_steps(
        {"data 4": {"compute": 2, "gradients": 1}, "tensor 4": {"compute": 3}}, **k
    ),
    "pipeline": lambda **k: plots.pipeline(
        [[((0, "F", 0), 0, 1)], [((1, "F", 0), 1, 2), ((1, "B", 0), 2, 4)]], **k
    ),
    **TRAINING,
    **ZERO,
    **SUMMARIES,
}


pytestmark = pytest.mark.usefixtures("close_pictures")


@pytest.mark.parametrize("font_size", [12, 18])
@pytest.mark.parametrize("name", PICTURES)
def test_no_text_is_cut_off(name, font_size):
    plots.use_style(font_size)
    assert_nothing_is_cut_off(PICTURES[name]().figure, margin=0.02)


@pytest.mark.parametrize("name", PICTURES)
def test_draws_on_the_axes_that_are_given(name):
    figure, ax = plt.subplots()
    assert PICTURES[name](ax=ax) is ax
    assert plt.get_fignums() == [figure.number], "a second figure was made"


@pytest.mark.parametrize("name", PICTURES)
def test_size_can_be_chosen(name):
    assert PICTURES[name](figsize=(5, 3)).figure.get_size_inches() == pytest.approx([5, 3])


def test_a_rank_has_the_same_colour_everywhere():
    def colors(ax, artists):
        return {
            a.get_label(): matplotlib.colors.to_hex(np.ravel(a.get_facecolor())[:3])
            for a in artists(ax)
        }

    dots = colors(PICTURES["samples_by_rank"](), lambda ax: ax.collections)
    slices = plots.midpoint_slices(8, 4)
    bars = {
        c.get_label(): matplotlib.colors.to_hex(c.patches[0].get_facecolor())
        for c in slices.containers
    }
    assert dots == bars == {f"rank {r}": plots.rank_color(r).lower() for r in range(4)}
    assert len(set(plots.RANK_COLORS)) == 8
    assert plots.rank_color(9) == plots.rank_color(1)


def test_darts_counts_what_is_inside():
    ax = plots.darts([0.1, 0.9, 0.2, 0.3], [0.1, 0.9, 0.2, 0.3])
    assert ax.get_title() == "3 of 4 inside: π ≈ 3.000"
    assert [len(c.get_offsets()) for c in ax.collections] == [3, 1]


def test_midpoint_slices_are_dealt_like_cards_and_sum_to_pi():
    ax = plots.midpoint_slices(7, 3)
    assert [len(c.patches) for c in ax.containers] == [3, 2, 2]
    area = sum(bar.get_width() * bar.get_height() for c in ax.containers for bar in c.patches)
    assert area == pytest.approx(
        np.pi, abs=1 / (12 * 7**2) * 4
    )  # |f''| <= 8: error below 8 / (24 n²)


def test_speedup_and_efficiency_are_computed_from_the_times():
    lines = {
        line.get_label(): line.get_ydata()
        for line in plots.speedup([1, 2, 4], {"a": [8, 4, 4]}, 0.5).lines
    }
    assert lines["a"] == pytest.approx([1, 2, 2])
    assert lines["Amdahl, 50 % serial"][-1] == pytest.approx(1 / (0.5 + 0.5 / 4))
    strong = plots.efficiency([1, 2, 4], [8, 4, 4]).lines[-1].get_ydata()
    weak = plots.efficiency([1, 2, 4], [8, 8, 16], weak=True).lines[-1].get_ydata()
    assert strong == pytest.approx([100, 100, 50])
    assert weak == pytest.approx([100, 100, 50])


def test_convergence_band_is_sigma_standard_errors():
    ax = plots.convergence([100, 10_000], [0.1, 0.01], sigma=3)
    expected, band, measured = ax.lines
    assert band.get_ydata() == pytest.approx(3 * expected.get_ydata())
    assert expected.get_ydata() == pytest.approx([0.1642, 0.01642], rel=1e-3)
    assert list(measured.get_ydata()) == [0.1, 0.01]


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
    ax = plots.collective("any", before, after)
    drawn = set()
    for patch in ax.patches:
        if isinstance(patch, matplotlib.patches.FancyArrowPatch):
            (_, y0), (_, y1) = patch._posA_posB
            drawn.add((int(y0), int(y1)))
    assert drawn == arrows
