"""The pictures and the explorer of ZeRO show what costs says."""

import matplotlib

matplotlib.use("Agg")

import pytest
from matplotlib.colors import to_hex

from pi2zero import costs, plots
from pi2zero.widgets import ZeroExplorer

pytestmark = pytest.mark.usefixtures("close_pictures")
ROWS = {f"stage {stage}": costs.zero_bytes(1e6, 4, stage) for stage in range(4)}
PICTURES = {  # test_plots.py checks what holds of every picture
    "memory_bars": lambda **k: plots.memory_bars(
        ROWS, {row: sum(parts.values()) for row, parts in ROWS.items()}, **k
    ),
    "partitions": lambda **k: plots.partitions(**k),
    "stage3_moments": lambda **k: plots.stage3_moments(**k),
}


def test_bars_are_the_bytes_and_the_mark_is_the_prediction():
    ax = plots.memory_bars(ROWS, {"stage 3": 4e6})
    ends = {}
    for bar in ax.patches:
        row = round(bar.get_y() + bar.get_height() / 2)
        ends[row] = max(ends.get(row, 0), bar.get_x() + bar.get_width())
    assert list(ends.values()) == pytest.approx([16, 7, 5.5, 4])  # MB
    (mark,) = ax.lines
    assert list(mark.get_xdata()) == [4, 4]


def test_a_component_that_nobody_holds_is_not_in_the_legend():
    (legend,) = plots.memory_bars(ROWS).figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "parameters",
        "gradients",
        "master",
        "moments",
    ]


@pytest.mark.parametrize("stage", range(4))
def test_the_coloured_part_of_a_row_is_the_ranks_share(stage):
    colors = {color.lower(): name for name, color in plots.COMPONENT_COLORS.items()}
    held = dict.fromkeys(("parameters", "gradients", "master", "moments"), 0.0)
    for bar in plots.partitions(4, stage).patches:
        if (name := colors.get(to_hex(bar.get_facecolor()))) in held:
            held[name] += bar.get_width() / 4  # the mean over 4 ranks
    assert held == pytest.approx(costs.zero_bytes(1, 4, stage))


def test_a_stage_3_step_gathers_each_layer_twice():
    blue = plots.COMPONENT_COLORS["parameters"].lower()
    boxes = [
        box
        for box in plots.stage3_moments(layers=3, ranks=4).patches
        if to_hex(box.get_facecolor()) == blue
    ]
    whole = [box for box in boxes if box.get_width() == pytest.approx(0.42)]
    assert len(whole) == 2 * 3 * 4  # forward and backward, layers, ranks


def test_the_explorer_says_what_fits():
    explorer = ZeroExplorer()
    before = explorer.picture.value
    assert explorer.largest == pytest.approx(costs.largest_model(32e9, 64, 1))
    explorer.stage.value = 3
    assert (
        explorer.picture.value != before
        and "128.00 billion" in explorer.text.value
        and "on 4 or more" in explorer.sentence
    )
    (
        explorer.offload.value,
        explorer.stage.value,
        explorer.ranks.value,
        explorer.parameters.value,
    ) = True, 2, 1, 13
    assert (
        explorer.largest == pytest.approx(16e9)
        and "13 billion fit on 1 or more" in explorer.sentence
    )
    explorer.stage.value = 0
    assert "on no number of them" in explorer.sentence
    explorer.reserve.value = 50
    assert explorer.largest == pytest.approx(1e9)
