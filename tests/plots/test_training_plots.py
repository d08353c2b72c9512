"""The pictures of training draw what they are given; a rank keeps its row and an activity its colour."""

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib.colors import to_hex

from pi2zero import plots

SPANS = [
    [("compute", 10.0, 10.2), ("wait", 10.2, 10.5), ("communicate", 10.5, 10.6)],
    [("compute", 10.0, 10.5), ("communicate", 10.5, 10.6), ("load", 10.6, 10.7)],
]
pytestmark = pytest.mark.usefixtures("close_pictures")
PICTURES = {  # test_plots.py checks what holds of every picture
    "images": lambda **k: plots.images(np.random.default_rng(1).random((7, 64)), range(7), 5, **k),
    "loss_curves": lambda **k: plots.loss_curves(
        {"right": [2, 1, 0.5], "too high": ([0, 10, 20], [2, 9, np.nan])}, **k
    ),
    "timeline": lambda **k: plots.timeline(SPANS, **k),
    "bytes_by_ranks": lambda **k: plots.bytes_by_ranks(
        {"a": lambda n: 100 * n}, {"a": {2: 200, 3: 300}}, range(2, 9), **k
    ),
}


def bars(ax):
    """(row, left, width, colour) of every bar of a timeline, in ms."""
    found = []
    for collection in ax.collections:
        for path in collection.get_paths():
            box = path.get_extents()
            found.append(
                (
                    round((box.y0 + box.y1) / 2),
                    box.x0,
                    box.width,
                    to_hex(collection.get_facecolor()[0]).upper(),
                )
            )
    return found


def test_every_span_is_a_bar_in_its_ranks_row_since_the_first_start():
    drawn = {
        (row, round(left), round(width), color)
        for row, left, width, color in bars(plots.timeline(SPANS))
    }
    colors = {name: color.upper() for name, color in plots.ACTIVITY_COLORS.items()}
    expected = {
        (row, round(1e3 * (start - 10)), round(1e3 * (stop - start)), colors[name])
        for row, spans in enumerate(SPANS)
        for name, start, stop in spans
        if name in colors
    }
    assert expected < drawn
    [other] = drawn - expected
    assert other[:3] == (1, 600, 100) and other[3] not in colors.values(), (
        "an unknown name has a colour of its own"
    )


def test_rows_are_named_by_rank_or_by_their_label():
    ax = plots.timeline({3: SPANS[0], "rank 3, network": SPANS[1]})
    assert [text.get_text() for text in ax.get_yticklabels()] == ["rank 3", "rank 3, network"]


def test_an_activity_keeps_its_colour_whatever_else_is_drawn():
    [(_, _, _, alone)] = bars(plots.timeline([[("wait", 0.0, 1.0)]]))
    assert alone == plots.ACTIVITY_COLORS["wait"].upper()


def test_a_timeline_without_spans_says_what_to_do():
    with pytest.raises(ValueError, match="no spans to draw: use"):
        plots.timeline([[], []])


def test_a_loss_that_diverges_ends_in_a_cross_and_is_not_drawn_further():
    ax = plots.loss_curves({"too high": [2.0, 9.0, np.inf, np.nan]})
    curve, cross = ax.get_lines()
    assert np.isfinite(curve.get_ydata()).tolist() == [True, True, False, False]
    assert (cross.get_xdata().item(), cross.get_ydata().item(), cross.get_marker()) == (2, 9.0, "X")


def test_dots_lie_where_the_run_counted_in_the_colour_of_their_formula():
    ax = plots.bytes_by_ranks({"a": lambda n: 1000 * n}, {"a": {2: 2000, 3: 3100}}, range(2, 9))
    line, dots = ax.get_lines()[:2]
    assert line.get_ydata().tolist() == list(range(2, 9))
    assert (list(dots.get_xdata()), list(dots.get_ydata())) == ([2, 3], [2.0, 3.1])
    assert dots.get_color() == line.get_color()


def test_over_batch_size_draws_a_panel_a_quantity():
    axes = plots.over_batch_size([1, 10], {"seconds": [2, 1], "accuracy": [0.8, 0.9]})
    assert [ax.get_ylabel() for ax in axes] == ["seconds", "accuracy"]
    assert axes[1].get_lines()[0].get_ydata().tolist() == [0.8, 0.9]


def test_images_shows_each_with_its_label():
    ax = PICTURES["images"]()
    assert len(ax.images) == 7 and [text.get_text() for text in ax.texts] == list("0123456")
    assert all(image.get_array().shape == (8, 8) for image in ax.images)
