"""The slides: built, self-contained, with notes, printed, and looked at in a browser."""

import hashlib
import io
import json
import re
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from pypdf import PdfReader

ROOT = Path(__file__).resolve().parents[2]
SLIDES = ROOT / "slides"
sys.path[:0] = [str(SLIDES), str(ROOT / "tools")]

# isort: off
import deck as deck_module  # noqa: E402
import extract  # noqa: E402
import live  # noqa: E402
import notebooks  # noqa: E402
import pdf  # noqa: E402
import render  # noqa: E402
import vectors  # noqa: E402

# isort: on

NAMES = [folder.parent.name for folder in sorted(SLIDES.glob("*/deck.md"))]
PRINTED = "6_clusters"  # the shortest one; it has links, code, figures and notebooks' pictures
NO_BROWSER = not any(map(shutil.which, pdf.NAMES))
needs_browser = pytest.mark.skipif(NO_BROWSER, reason="no Chromium on the PATH")
every_deck = pytest.mark.parametrize("name", NAMES)


@every_deck
def test_pages_load_nothing_from_anywhere(decks, name):
    for page in (decks / f"{name}.html", decks / f"{name}_notes.html"):
        text = page.read_text(encoding="utf-8")
        # reveal.js has HTML in its strings, so only the opening tags of scripts stay
        text = re.sub(r"(<script[^>]*>).*?</script>", r"\1", text, flags=re.DOTALL)
        loaded = re.findall(r"<(?:script|img|iframe|link)[^>]*\s(?:src|href)=\"([^\"]*)\"", text)
        styles = "".join(re.findall(r"<style>(.*?)</style>", text, re.DOTALL))
        loaded += re.findall(r"url\(['\"]?([^)'\"]+)", styles)
        assert [url[:100] for url in loaded if not url.startswith(("data:", "#"))] == []
        assert "@import" not in styles and len(loaded) > 5


@every_deck
def test_every_slide_has_notes_and_minutes(decks, name):
    text = (decks / f"{name}.html").read_text(encoding="utf-8")
    sections = text.split("<section id=")[1:]
    notes = (decks / f"{name}_notes.html").read_text(encoding="utf-8")
    assert len(sections) > 10 and notes.count('<div class="said">') == len(sections)
    for section in sections:
        assert re.search(r'data-timing="[1-9]\d*"', section)
        spoken = section.partition('<aside class="notes">')[2]
        for part in ("Say.", "Ask.", "Watch for."):
            assert f"<strong>{part}</strong>" in spoken, section[:60]


@every_deck
def test_links_lead_to_notebooks_that_exist(decks, name):
    text = (decks / f"{name}.html").read_text(encoding="utf-8")
    links = re.findall(r'href="\.\./\.\./([^"#]+)[^"]*" data-notebook="([^"]+)"', text)
    assert links and all(href == path and (ROOT / path).is_file() for href, path in links)


def test_vendored_files_are_unchanged():
    folder = SLIDES / "vendor" / "reveal.js"
    listed = (folder / "SHA256SUMS").read_text(encoding="utf-8").split()
    assert len(listed) >= 12
    for digest, name in zip(listed[::2], listed[1::2], strict=True):
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


# --- mistakes in a deck are named -----------------------------------------------------------------

NOTES = "::: notes 1 min\n**Say.** a **Ask.** b **Watch for.** c\n:::\n"
GOOD = f"## A title\n\nText, $x^2$.\n\n{NOTES}"
FIGURES = """
from matplotlib import pyplot
def facts():
    return {'three': 3}
def tiny():
    figure, axes = pyplot.subplots()
    axes.set_title("too small", fontsize=9)
    return figure
"""


def load_text(tmp_path, text):
    (tmp_path / "deck.md").write_text(text, encoding="utf-8")
    (tmp_path / "figures.py").write_text(FIGURES, encoding="utf-8")
    return deck_module.load(tmp_path)


def test_a_good_deck_loads(tmp_path):
    second = GOOD.replace("1 min", "2.5 min")
    deck = load_text(tmp_path, GOOD.replace("Text", "<< three >> ranks") + "\n---\n\n" + second)
    assert [slide.minutes for slide in deck.slides] == [1.0, 2.5] and deck.minutes == 3.5
    assert "3 ranks" in deck.slides[0].html and "notes" not in deck.slides[0].html
    assert 'alt="x^2"' in deck.slides[0].html and deck.slides[1].starts == 1.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("## A title", "A title", "no heading"),
        ("::: notes 1 min", "::: notes soon", "expected `::: notes 1.5 min`"),
        ("::: notes 1 min", "::: answer", "0 notes"),
        ("$x^2$", r"$\frac{1$", "cannot be drawn"),
        ("Text", "<< four >>", "'four' is undefined"),
        ("Text", "![a plot](figure:nothing)", "no function 'nothing'"),
        ("Text", "![a plot](figure:tiny)", "'too small' has 9 pt"),
        ("Text", "![a plot](http://example.org/a.png)", "is not a figure:name"),
        ("Text", "[here](notebook:notebooks/99_none.ipynb#x)", "no such notebook"),
        ("Text", "::: col\n\n::: answer\nx\n:::\n:::\n\nText", "stray `:::`"),
        ("Text", "```python from=scripts/none.py def=f\n```\n\nText", "no such script"),
        ("Text", '<< minutes("notebooks/99_none") >>', "minutes of notebooks/99_none"),
    ],
)
def test_mistakes_are_named(tmp_path, old, new, message):
    with pytest.raises(extract.SlideError, match=re.escape(message)):
        load_text(tmp_path, GOOD.replace(old, new, 1))


def notebook_of(folder, monkeypatch, **cells):
    """Write live.ipynb in a folder that the slides take for the kit's. cells: the code of each."""
    cells = [
        {"cell_type": "code", "id": name, "metadata": {}, "source": [code], "outputs": output}
        for name, (code, output) in cells.items()
    ]
    text = {"cell_type": "markdown", "source": "## Two words"}
    (folder / "live.ipynb").write_text(json.dumps({"cells": [*cells, text]}))
    monkeypatch.setattr(extract, "ROOT", folder)
    extract.notebook.cache_clear()  # tests reuse the name live.ipynb


def test_extracts_follow_their_source(tmp_path, monkeypatch):
    printed = [{"output_type": "stream", "name": "stdout", "text": ["1\n"]}]
    notebook_of(tmp_path, monkeypatch, a=("x = 1\nprint(x)", printed), b=("", []))
    (tmp_path / "s.py").write_text("def f():\n    a = 1\n    return a\n")
    assert extract.cell_source("live.ipynb", "a") == "x = 1\nprint(x)"
    assert extract.cell_output("live.ipynb", "a") == "1"
    assert extract.heading_ids("live.ipynb") == {"Two-words"}
    code = extract.function_source("s.py", "f")
    assert extract.between(code, "a = 1", "return", "s.py") == "a = 1\nreturn a"
    text = "def f():\n    call(one, two)  # NEW (why)\n    last = 1"
    picked = extract.picked(text, "last|call", "s.py", width=10)
    assert picked == "last = 1\ncall(one,\n    two)"
    with pytest.raises(extract.SlideError, match="no line contains 'gone'"):
        extract.picked(text, "gone", "s.py")
    with pytest.raises(extract.SlideError, match="0 code cells carry the tag 'c' or have it"):
        extract.cell_source("live.ipynb", "c")
    with pytest.raises(extract.SlideError, match="the cell 'b' has no picture"):
        render.picture("live.ipynb#b", "what it shows")


RING = """%%px
x = np.full(1, comm.rank)
comm.Sendrecv(x + 0, (comm.rank + 1) % 3, recvbuf=x, source=(comm.rank - 1) % 3)"""


def test_cells_run_while_the_slides_are_built(tmp_path, monkeypatch):
    cells = {"ring": RING, "wrong": "y = 1 / 0", "plot": "plt.subplots()", "text": "y = 2"}
    cells = {name: (code, []) for name, code in cells.items()}
    notebook_of(tmp_path, monkeypatch, **cells)
    received = [names["x"].tolist() for names in live.on_threads("live.ipynb", "ring", 3)]
    assert received == [[2], [0], [1]]
    figure = live.drawn_by_cells("live.ipynb", "text,plot", (3, 2))
    assert figure.get_size_inches().tolist() == [3, 2]
    for ids, message in {"wrong": "'wrong': ZeroDivisionError", "text": "no figure"}.items():
        with pytest.raises(extract.SlideError, match=message):
            live.drawn_by_cells("live.ipynb", ids, (3, 2))


# --- pictures from notebooks ----------------------------------------------------------------------


def svg_of(title, **text):
    """An SVG as a notebook's kernel writes it."""
    import matplotlib
    from matplotlib.figure import Figure

    figure, buffer = Figure((4, 3)), io.StringIO()
    figure.add_subplot().set_title(title, **text)
    with matplotlib.rc_context({"svg.fonttype": "none", "font.size": 12}):
        figure.savefig(buffer, format="svg")
    return buffer.getvalue()


def test_text_is_set_in_the_slides_typeface_which_the_picture_carries():
    svg = vectors.in_our_typeface(svg_of("Größe µ", weight="bold", fontsize=14.4))
    assert "Größe µ" in svg and not re.search(r"(?<!'Source Sans Pro', )'DejaVu Sans'", svg)
    faces = re.findall(r"font-weight:(\d+);font-style:(\w+);src:url\(data:font/woff;base64,", svg)
    assert faces == [("400", "normal"), ("700", "normal")]
    assert vectors.text_sizes(svg)["Größe µ"] == pytest.approx(14.4)
    assert vectors.in_our_typeface("<svg><path/></svg>") == "<svg><path/></svg>"


def test_a_notebook_keeps_vectors_where_a_deck_shows_them():
    def cell(name, tags=()):
        svg = "<svg>\n <metadata>\n now </metadata><path/></svg>"
        output = nbformat.v4.new_output("display_data", {"image/png": "", "image/svg+xml": svg})
        return nbformat.v4.new_code_cell(id=name, outputs=[output], metadata={"tags": list(tags)})

    book = nbformat.v4.new_notebook(cells=[cell("a"), cell("b"), cell("c", ["slide-c"])])
    notebooks.keep_vectors(book, {"a", "slide-c", "gone"})
    kept = {cell.id: cell.outputs[0].data.get("image/svg+xml") for cell in book.cells}
    assert kept == {"a": "<svg><path/></svg>", "b": None, "c": "<svg><path/></svg>"}


# --- in the browser -------------------------------------------------------------------------------


def test_without_a_browser_the_remedy_is_named(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(pdf.NoBrowserError, match="apt-get install chromium"):
        pdf.find_browser()


LOOK = """index => {
  Reveal.slide(index);
  const slide = Reveal.getCurrentSlide().querySelector(".slide"), bad = [];
  const frame = slide.getBoundingClientRect();
  const name = e => `${e.tagName}.${e.className}: ${(e.textContent || e.alt || "").slice(0, 40)}`;
  const inside = (r, f) => r.left >= f.left - 1 && r.top >= f.top - 1
    && r.right <= f.right + 1 && r.bottom <= f.bottom + 1;
  for (const box of [slide, ...slide.querySelectorAll(".body, .col, pre")])
    if (box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1)
      bad.push("overflows " + name(box));
  const title = slide.querySelector("h2").getBoundingClientRect();
  const source = slide.querySelector(".source");
  const floor = source ? source.getBoundingClientRect().top : frame.bottom - 8;
  for (const e of slide.querySelectorAll("*")) {
    const r = e.getBoundingClientRect(), column = e.closest(".col"), body = e.closest(".body");
    if (!inside(r, frame)) bad.push("leaves the slide: " + name(e));
    if (body && !body.isSameNode(e) && (r.top < title.bottom - 1 || r.bottom > floor + 1))
      bad.push("runs into the title or the source: " + name(e));
    if (column && !inside(r, column.getBoundingClientRect())) bad.push("leaves column: " + name(e));
    if (e.tagName == "IMG" && !(e.complete && e.naturalWidth > 0)) bad.push("broken: " + name(e));
  }
  const walker = document.createTreeWalker(slide, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode(); ) {
    if (!node.textContent.trim()) continue;
    const e = node.parentElement, size = parseFloat(getComputedStyle(e).fontSize);
    const least = e.closest("pre, code, figcaption, .source") ? 20 : 24;
    if (size < least) bad.push(`${size} px, below ${least}: ` + name(e));
  }
  return bad;
}"""


@needs_browser
@every_deck
def test_nothing_overflows_and_all_is_legible(decks, name):
    html, requests = decks / f"{name}.html", []
    with pdf.browser_page() as page:
        page.on("request", lambda request: requests.append(request.url))
        page.goto(html.as_uri())
        page.wait_for_function("window.Reveal && Reveal.isReady()")
        page.evaluate("document.fonts.ready")
        assert page.evaluate("document.fonts.check('32px \"Source Sans Pro\"')")
        count = page.evaluate("Reveal.getTotalSlides()")
        problems = {index: page.evaluate(LOOK, index) for index in range(count)}
        page.goto(html.as_uri() + "?view=print")
        page.wait_for_function("document.documentElement.dataset.pages")
        printed = page.evaluate("document.querySelectorAll('.pdf-page').length")
    assert {index: bad for index, bad in problems.items() if bad} == {}
    assert printed == count > 10, "a page for each slide"
    assert [url[:80] for url in requests if not url.startswith(("data:", "file:"))] == []


@pytest.fixture(scope="module")
def printed(decks, tmp_path_factory):
    """The PDFs of one deck: slides and notes."""
    folder = tmp_path_factory.mktemp("printed")
    names = (f"{PRINTED}.html", f"{PRINTED}_notes.html")
    pages = [Path(shutil.copy(decks / name, folder)) for name in names]
    return [PdfReader(path) for path in pdf.print_pdfs(pages)]


@needs_browser
def test_pdf_has_a_page_for_every_slide(printed, decks):
    slides, notes = printed
    text = (decks / f"{PRINTED}.html").read_text(encoding="utf-8")
    count = text.count("<section id=")
    assert len(slides.pages) == count
    first = slides.pages[0].mediabox
    assert abs(first.width / first.height - 16 / 9) < 0.01
    spoken = "".join("".join(page.extract_text().split()) for page in notes.pages)
    assert spoken.count("Watchfor.") == count


@needs_browser
def test_links_of_a_pdf_lead_somewhere_on_any_machine(printed):
    notes = [note.get_object() for page in printed[0].pages for note in page.get("/Annots", [])]
    links = [note["/A"]["/URI"] for note in notes if "/URI" in note.get("/A", {})]
    assert any("notebooks/12_clusters.ipynb" in link for link in links)
    assert not [link for link in links if link.startswith(("file:", "/"))]
