"""The pictures of collectives: what is drawn is what was given, and nothing is cut off."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch
from pictures import assert_nothing_is_cut_off

from pi2zero import costs, plots

SIZES = 4.0 ** np.arange(5, 14)
SECONDS = costs.ring_allreduce_seconds(SIZES, 4, 1e-6, 1e-10)
FULL = np.full((3, 5, 3), 0b111)
MODELS = {
    "ring": lambda n, p: costs.ring_allreduce_seconds(n, p, 1e-6, 1e-10),
    "recursive doubling": lambda n, p: costs.recursive_doubling_allreduce_seconds(
        n, p, 1e-6, 1e-10
    ),
}
PICTURES = {
    "ring_steps": lambda **k: plots.ring_steps(FULL, **k),
    "bus_bandwidth": lambda **k: plots.bus_bandwidth(
        SIZES, {"ring": 2 * SECONDS}, 4, fits={"ring": SECONDS}, **k
    ),
    "allreduce_seconds": lambda **k: plots.allreduce_seconds(SIZES, {"ring": SECONDS}, **k),
    "fastest": lambda **k: plots.fastest(SIZES, [2, 4, 8], MODELS, **k),
    "time_bars": lambda **k: plots.time_bars({"Allreduce": 0.001, "allreduce": 0.004}, **k),
}


pytestmark = pytest.mark.usefixtures("close_pictures")


@pytest.mark.parametrize("font_size", [12, 18])
@pytest.mark.parametrize("name", PICTURES)
def test_no_text_is_cut_off_and_the_given_axes_are_used(name, font_size):
    plots.use_style(font_size)
    figure, ax = plt.subplots(figsize=(11, 6))
    assert PICTURES[name](ax=ax) is ax
    assert_nothing_is_cut_off(figure, margin=0.05)
    assert PICTURES[name](figsize=(8, 5)).figure.get_size_inches() == pytest.approx([8, 5])


def ring(ranks):
    """What each rank holds before each step: a ring all-reduce on paper, rank r putting in 2**r."""
    now = np.repeat(2 ** np.arange(ranks)[:, None], ranks, axis=1)
    seen = [now]
    for step in range(2 * ranks - 2):
        gathering, before = step >= ranks - 1, now
        now = before.copy()
        for rank in range(ranks):
            chunk, to = (rank - step) % ranks, (rank + 1) % ranks
            now[to, chunk] = before[rank, chunk] + (0 if gathering else before[to, chunk])
        seen.append(now)
    return np.stack(seen, axis=1)


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_ring_steps_draw_a_ring_that_ends_with_the_sum_everywhere(ranks):
    ax = plots.ring_steps(ring(ranks))
    words = [text.get_text() for text in ax.texts]
    assert words.count("all") == ranks * ranks + sum(ranks + s * ranks for s in range(ranks - 1))
    arrows = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == ranks * 2 * (ranks - 1)  # each rank sends one chunk in each step


def test_ring_steps_frames_the_chunk_that_the_next_rank_gets():
    held = ring(4)
    ax = plots.ring_steps(held)
    frames = [
        patch
        for patch in ax.patches
        if not patch.get_fill() and not isinstance(patch, FancyArrowPatch)
    ]
    sent = [int(frame.get_x() % (4 + 1.6)) for frame in frames]  # panels are 4 + 1.6 apart
    changed = [
        np.argmax(held[(r + 1) % 4, s + 1] != held[(r + 1) % 4, s])
        for s in range(6)
        for r in range(4)
    ]
    assert sent == changed


def test_bus_bandwidth_is_nccl_tests():
    lines = plots.bus_bandwidth(
        SIZES, {"a": SECONDS, "b": np.where(SIZES > 4096, SECONDS, np.nan)}, 4
    ).lines
    assert lines[0].get_ydata() == pytest.approx(1.5 * SIZES / SECONDS / 1e9)
    assert len(lines[1].get_ydata()) == len(SIZES) - 2  # what was not measured is not drawn


def test_fastest_maps_what_the_models_say():
    ax = plots.fastest(SIZES, [4, 8], MODELS)
    drawn = np.asarray(ax.collections[0].get_array()).reshape(len(SIZES), 2)
    for i, n in enumerate(SIZES):
        for j, p in enumerate((4, 8)):
            assert list(MODELS)[drawn[i, j]] == min(MODELS, key=lambda name: MODELS[name](n, p))


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (1, "1 B"),
        (1000, "1000 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (2**26, "64 MiB"),
        (2**41, "2048 GiB"),
    ],
)
def test_bytes_text(nbytes, text):
    assert plots.bytes_text(nbytes) == text


def test_ring_steps_says_which_shape_it_wants():
    with pytest.raises(ValueError, match=r"the shape is \(ranks, 2 ranks - 1, ranks\)"):
        plots.ring_steps(np.ones((4, 4, 4)))
