"""Pictures from notebooks in the decks: lines and text, legible, in the slides' typeface; no notebook carries one for nothing."""

import base64
import io
import re
import sys
from pathlib import Path

import nbformat
import pytest
from fontTools.ttLib import TTFont

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "slides"), str(ROOT / "tools")]

# isort: off
import build  # noqa: E402
import extract  # noqa: E402
import notebooks  # noqa: E402
import render  # noqa: E402
import vectors  # noqa: E402

# isort: on

LEAST = 19.9  # px on a slide, as for the figures that the decks draw
MOST = 150_000  # characters of one SVG in a notebook
SHOWN = [
    (folder.name, *picture)
    for folder in build.decks()
    for picture in re.findall(
        r"\(picture:([^#\s]+)#([\w-]+)\)", (folder / "deck.md").read_text(encoding="utf-8")
    )
]
OUTLINES = {"notebooks/A1_mpi_in_r.ipynb"}  # R writes its letters as outlines


def small(svg, pixels):
    """Words below the least size on a slide, where the picture is so many pixels wide."""
    scale = pixels / vectors.width(svg)
    return {
        words: round(size * scale, 1)
        for words, size in vectors.text_sizes(svg).items()
        if size * scale < LEAST
    }


def on_slide(svg, *size):
    """Its width on a slide, in pixels."""
    return size[0] * min(
        render.PICTURE_ZOOM,
        *(room / side for room, side in zip(render.PICTURE_ROOM, size, strict=True)),
    )


@pytest.mark.parametrize(
    ("deck", "book", "tag"), SHOWN, ids=[f"{deck}-{tag}" for deck, _, tag in SHOWN]
)
def test_a_notebook_s_picture_is_vectors_and_legible(deck, book, tag):
    drawn, *size = extract.cell_picture(book, tag)
    assert isinstance(drawn, str), (
        f"only a PNG: python tools/notebooks.py {book} stores the SVG, too"
    )
    assert len(drawn) < MOST and "<image" not in drawn
    if book not in OUTLINES:
        assert vectors.text_sizes(drawn) and small(drawn, on_slide(drawn, *size)) == {}


def drawn_here(title, **text):
    """An SVG as a notebook's kernel writes it."""
    import matplotlib
    from matplotlib.figure import Figure

    figure, buffer = Figure((4, 3)), io.StringIO()
    axes = figure.add_subplot()
    axes.set_title(title, **text)
    axes.set(yscale="log", ylim=(1, 1e4), xticks=[])
    with matplotlib.rc_context({"svg.fonttype": "none", "font.size": 12}):
        figure.savefig(buffer, format="svg")
    return buffer.getvalue()


def test_the_look_sees_small_text():
    assert small(drawn_here("tiny", fontsize=5), 600) == {"tiny": 10.4}  # 4 inches are 288 units
    assert small(drawn_here("large", fontsize=12), 600) == {}


def test_text_is_set_in_the_slides_typeface_which_the_picture_carries():
    svg = vectors.in_our_typeface(drawn_here("Größe µ", weight="bold"))
    assert "Größe µ" in svg and not re.search(r"(?<!'Source Sans Pro', )'DejaVu Sans'", svg)
    faces = re.findall(
        r"font-weight:(\d+);font-style:(\w+);src:url\(data:font/woff;base64,([^)]*)\)", svg
    )
    assert [face[:2] for face in faces] == [("400", "normal"), ("700", "normal")]
    for *_, data in faces:
        letters = set(map(chr, TTFont(io.BytesIO(base64.b64decode(data))).getBestCmap()))
        assert set("Größe 10") <= letters and len(letters) < 30 and len(data) < 12_000


def test_a_formula_s_letters_follow_each_other():
    svg = vectors.in_our_typeface(drawn_here("t"))
    formula = next(
        text
        for text in re.findall(r"<text>.*?</text>", svg, re.DOTALL)
        if text.count("<tspan") == 3
    )
    assert formula.count(' x="') == 1 and len(set(re.findall(r'y="([-\d.]+)"', formula))) == 2, (
        "the exponent stands higher"
    )
    assert re.sub(r"<[^>]*>|\s", "", formula) in ("100", "101", "102", "103", "104")


def test_a_picture_without_text_of_matplotlib_stays_as_it_is():
    assert vectors.in_our_typeface("<svg><path/></svg>") == "<svg><path/></svg>"


def test_a_notebook_keeps_vectors_where_a_deck_shows_them():
    def cell(name, tags=()):
        data = {
            "image/png": "",
            "image/svg+xml": "<svg>\n <metadata>\n now </metadata><path/></svg>",
        }
        output = nbformat.v4.new_output("display_data", data)
        return nbformat.v4.new_code_cell(id=name, outputs=[output], metadata={"tags": list(tags)})

    book = nbformat.v4.new_notebook(cells=[cell("a"), cell("b"), cell("c", ["slide-c"])])
    notebooks.keep_vectors(book, {"a", "slide-c", "gone"})
    kept = {cell.id: cell.outputs[0].data.get("image/svg+xml") for cell in book.cells}
    assert kept == {"a": "<svg><path/></svg>", "b": None, "c": "<svg><path/></svg>"}
    assert all("image/png" in cell.outputs[0].data for cell in book.cells)


def test_the_tool_knows_what_the_decks_show():
    due = {}
    for _, book, tag in SHOWN:
        due.setdefault(book, set()).add(tag)
    assert {book: notebooks.in_decks(ROOT / book) for book in due} == due
    assert notebooks.in_decks(ROOT / "notebooks" / "00_start_here.ipynb") == set()


def test_a_kernel_draws_both(tmp_path):
    """What is said to the kernel before the first cell does what it should, and is no cell."""
    source = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.title('here')\nplt.show()"
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    client = notebooks.Client(book, kernel_name="python3", timeout=120)
    client.sockets = str(tmp_path)
    client.execute()
    [output] = book.cells[0].outputs
    assert (
        "image/png" in output.data and vectors.text_sizes(output.data["image/svg+xml"])["here"] > 0
    )
    assert book.cells[0].execution_count == 1
