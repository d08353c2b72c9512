"""The pictures of summarization show the lengths and the scores that they are given."""

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib.colors import to_hex

from pi2zero import plots

RNG = np.random.default_rng(1)
LENGTHS = {"article": RNG.poisson(160, 500), "highlights": RNG.poisson(40, 500)}
CUTS = {"article": 170, "highlights": 64}
NAMES = {
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "facts": "names and numbers",
}
RESULTS = {
    "lead-3": {
        "rouge1": [29.0, 30.5, 32.1],
        "rouge2": [9.0, 10.0, 11.0],
        "rougeL": [20, 21, 22],
        "facts": [60, 70, 90],
    },
    "first training": {
        "rouge1": [40, 41, 42],
        "rouge2": [0.0, 0.0, 0.0],
        "rougeL": [35, 36, 37],
        "facts": [10, 11, 12],
    },
    "t5-small": {
        "rouge1": [99, 100, 100],
        "rouge2": [45, 50, 55],
        "rougeL": [48, 49, 52],
        "facts": [100, 100, 100],
    },
}
pytestmark = pytest.mark.usefixtures("close_pictures")
PICTURES = {
    "token_lengths": lambda **k: plots.token_lengths(LENGTHS, CUTS, **k),
    "token_lengths, uncut": lambda **k: plots.token_lengths(LENGTHS, **k),
    "scores": lambda **k: plots.scores(RESULTS, NAMES, **k),
    "one score of one": lambda **k: plots.scores(
        {"lead-3": RESULTS["lead-3"]}, {"rouge2": "ROUGE-2"}, **k
    ),
}


def legend(ax):
    (found,) = [*ax.figure.legends, *filter(None, [ax.get_legend()])]
    return [text.get_text() for text in found.get_texts()]


def test_lengths_are_counted_and_the_share_that_is_cut_is_said():
    ax = PICTURES["token_lengths"]()
    assert [sum(bar.get_height() for bar in bars) for bars in ax.containers] == [500, 500]
    shares = [np.mean(LENGTHS[label] > CUTS[label]) for label in LENGTHS]
    assert legend(ax) == [
        f"{label}, {share:.0%} cut at {CUTS[label]}"
        for label, share in zip(LENGTHS, shares, strict=True)
    ]
    assert [line.get_xdata()[0] for line in ax.lines] == [170, 64]
    assert legend(PICTURES["token_lengths, uncut"]()) == ["article", "highlights"]


def test_a_text_as_long_as_the_cut_is_not_cut():
    assert legend(plots.token_lengths({"a": [1, 2, 3, 4]}, {"a": 3})) == ["a, 25% cut at 3"]


def test_a_cut_far_beyond_the_longest_does_not_widen_the_picture():
    ax = plots.token_lengths({"a": [10, 20]}, {"a": 512})
    assert not ax.lines and ax.get_xlim()[1] < 30 and legend(ax) == ["a, 0% cut at 512"]


def test_bars_are_the_means_and_their_lines_the_intervals():
    ax = PICTURES["scores"]()
    bars = [group for group in ax.containers if hasattr(group, "patches")]
    for name, group in zip(NAMES, bars, strict=True):
        assert [bar.get_width() for bar in group] == [
            result[name][1] for result in RESULTS.values()
        ]
        rows = [round(bar.get_y() + bar.get_height() / 2) for bar in group]
        assert rows == [0, 1, 2]
    drawn = [tuple(segment[:, 0]) for lines in ax.collections for segment in lines.get_segments()]
    assert drawn == [
        (low, high)
        for name in NAMES
        for low, _, high in (result[name] for result in RESULTS.values())
    ]
    assert [text.get_text() for text in ax.get_yticklabels()] == list(
        RESULTS
    ) and ax.yaxis_inverted()
    assert legend(ax) == list(NAMES.values())
    assert len({to_hex(group[0].get_facecolor()) for group in bars}) == len(NAMES)


def test_bars_do_not_touch_those_of_the_next_row():
    boxes = [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in PICTURES["scores"]().patches]
    for row in range(3):
        own = [box for box in boxes if round(sum(box) / 2) == row]
        assert len(own) == 4 and min(own)[0] > row - 0.5 and max(box[1] for box in own) < row + 0.5


def test_numbers_stand_beside_their_intervals_and_not_on_each_other():
    ax = PICTURES["scores"]()
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert [text.get_text() for text in ax.texts[:3]] == ["30", "41", "100"]
    assert all(
        text.get_position()[0] > high
        for text, (*_, high) in zip(
            ax.texts[:3], [RESULTS[r]["rouge1"] for r in RESULTS], strict=True
        )
    )
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
