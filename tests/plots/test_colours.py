"""People whose eyes lack one kind of cone can still tell the pictures' colours apart."""

import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from pi2zero import plots
from pi2zero.costs import PARTS
from pi2zero.plots.style import ACTION_COLORS

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "slides"))

import diagrams

# What is left of linear red, green, blue: G. M. Machado et al., IEEE TVCG 15 (2009), severity 1.
SEEN_BY = {
    "everybody": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
LEAST = 15  # in CIE Lab, where 2 is just seen side by side


def as_seen(color, eye):
    """CIE Lab coordinates."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    white = XYZ.sum(1)
    x, y, z = (XYZ @ np.clip(np.array(SEEN_BY[eye]) @ linear, 0, 1)) / white
    f = [np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z)]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def too_close(colors, eye):
    """Names of colours that are hard to tell apart."""
    seen = {name: as_seen(color, eye) for name, color in colors.items()}
    return {(a, b) for a, b in combinations(seen, 2) if np.linalg.norm(seen[a] - seen[b]) < LEAST}


PALETTES = {
    "ranks": dict(enumerate(plots.RANK_COLORS)),
    "components": plots.COMPONENT_COLORS,
    "activities": plots.ACTIVITY_COLORS,
    "actions": ACTION_COLORS,
    "charts of the decks": {
        name: getattr(diagrams, name) for name in ("INK", "QUIET", "GREY", "WARM")
    },
    "steps": {
        part: color for part, color in plots.STEP_COLORS.items() if part != "spatial"
    },  # as context, which it never meets
}


@pytest.mark.parametrize("eye", SEEN_BY)
@pytest.mark.parametrize("palette", PALETTES)
def test_colours_are_told_apart(palette, eye):
    assert too_close(PALETTES[palette], eye) == set()


def test_every_part_of_a_step_has_its_colour():
    assert set(plots.STEP_COLORS) == set(PARTS)


def test_the_look_sees_what_is_wrong():
    assert too_close({"red": "#C00000", "green": "#5A8000"}, "everybody") == set()
    assert too_close({"red": "#C00000", "green": "#5A8000"}, "protanopia") or too_close(
        {"red": "#C00000", "green": "#5A8000"}, "deuteranopia"
    )
