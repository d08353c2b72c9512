"""Slides from notebooks: cells that run while the slides are built, pictures that cells left, lines picked from a script."""

import base64
import json
import struct
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "slides"))

# isort: off
import extract
import live
import render

# isort: on


def test_cells_run_while_the_slides_are_built(tmp_path, monkeypatch):
    cells = [
        (
            "ring",
            "%%px\nx = np.full(1, comm.rank)\ncomm.Sendrecv(x + 0, (comm.rank + 1) % 3, recvbuf=x, source=(comm.rank - 1) % 3)",
        )
    ]
    cells += [("wrong", "y = 1 / 0"), ("plot", "plt.subplots()"), ("text", "y = 2")]
    cells = [
        {"cell_type": "code", "id": name, "metadata": {}, "source": [code], "outputs": []}
        for name, code in cells
    ]
    (tmp_path / "live.ipynb").write_text(json.dumps({"cells": cells}))
    monkeypatch.setattr(extract, "ROOT", tmp_path)
    assert [names["x"].tolist() for names in live.on_threads("live.ipynb", "ring", 3)] == [
        [2],
        [0],
        [1],
    ]
    assert live.drawn_by_cells("live.ipynb", "text,plot", (3, 2)).get_size_inches().tolist() == [
        3,
        2,
    ]
    for ids, message in {
        "wrong": "cell 'wrong': ZeroDivisionError",
        "gone": "0 code cells carry the tag 'gone'",
        "text": "no figure",
    }.items():
        with pytest.raises(extract.SlideError, match=message):
            live.drawn_by_cells("live.ipynb", ids, (3, 2))


def test_pictures_and_picked_lines_say_what_is_gone(tmp_path, monkeypatch):
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n0000IHDR" + struct.pack(">II", 1000, 400)).decode()
    outputs = [{"output_type": "display_data", "data": {"image/png": png}}]
    cells = [
        {"cell_type": "code", "id": name, "metadata": {}, "source": [""], "outputs": out}
        for name, out in (("a", outputs), ("b", []))
    ]
    (tmp_path / "picture.ipynb").write_text(json.dumps({"cells": cells}))
    monkeypatch.setattr(extract, "ROOT", tmp_path)
    assert 'width="1100" height="440"' in render.picture("picture.ipynb#a", "what it shows")
    with pytest.raises(extract.SlideError, match="the cell 'b' has no picture"):
        render.picture("picture.ipynb#b", "what it shows")
    monkeypatch.setattr(render, "PICTURE_ROOM", (900, 300))
    with pytest.raises(extract.SlideError, match="too large to be legible"):
        render.picture("picture.ipynb#a", "what it shows")
    text = "def f():\n    call(one, two)  # NEW (why)\n    last = 1"
    assert extract.picked(text, "last|call", "s.py", width=10) == "last = 1\ncall(one,\n    two)"
    with pytest.raises(extract.SlideError, match="no line contains 'gone'"):
        extract.picked(text, "gone", "s.py")
