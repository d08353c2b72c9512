"""The slides: built, self-contained, with notes, and every slide looked at by a browser for what a room could not read."""

import contextlib
import hashlib
import io
import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SLIDES = ROOT / "slides"
sys.path.insert(0, str(SLIDES))

# isort: off
import build  # noqa: E402
import deck as deck_module  # noqa: E402
import extract  # noqa: E402
import pdf  # noqa: E402
import render  # noqa: E402

# isort: on

DECKS = [folder.name for folder in build.decks()]
LOADS = {
    "script",
    "img",
    "iframe",
    "audio",
    "video",
    "source",
    "embed",
    "object",
    "link",
    "track",
    "input",
}


def browser_missing():
    try:
        pdf.find_browser()
    except pdf.NoBrowser as missing:
        return str(missing)
    return ""


needs_browser = pytest.mark.skipif(
    bool(browser_missing()), reason=browser_missing() or "there is a browser"
)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All decks, built once as where there is no browser: (folder, what was said, {name: what build_html gave}, the figures)."""
    folder, decks, figures, said = tmp_path_factory.mktemp("slides"), {}, {}, io.StringIO()
    build_html, draw = build.build_html, render.draw

    def keep_deck(source, out):
        return decks.setdefault(source.name, build_html(source, out))

    def keep_figure(module, name):
        return figures.setdefault((module.__name__, name), draw(module, name))

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        patch.setattr(shutil, "which", lambda name: None)
        patch.setattr(build, "build_html", keep_deck)
        patch.setattr(render, "draw", keep_figure)
        assert build.main(["--out", str(folder)]) == 0
    return folder, said.getvalue(), decks, figures


@pytest.fixture(params=DECKS)
def built(request, everything):
    """(deck, slides' HTML path, notes' HTML path) of each deck."""
    return everything[2][request.param]


class Loaded(HTMLParser):
    """Collects what a page loads by itself: src and friends, not the links a person may follow."""

    def __init__(self):
        super().__init__()
        self.urls = []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if value and tag in LOADS and name in ("src", "href", "data", "poster", "srcset"):
                self.urls.append(value)


def test_there_is_a_deck():
    assert set(SIZES) == set(DECKS)


def test_pages_load_nothing_from_anywhere(built):
    for page in built[1:]:
        text = page.read_text(encoding="utf-8")
        parser = Loaded()
        parser.feed(text)
        outside = [url[:100] for url in parser.urls if not url.startswith("data:")]
        styles = "".join(re.findall(r"<style>(.*?)</style>", text, re.DOTALL))
        outside += [
            url[:100]
            for url in re.findall(r"url\(['\"]?([^)'\"]+)", styles)
            if not url.startswith(("data:", "#"))
        ]
        outside += re.findall(r"@import[^;]*", styles)
        assert outside == [], f"{page.name} loads {outside}"
        with_content = [slide for slide in built[0].slides if slide.classes != "divider"]
        assert len(parser.urls) >= len(with_content) / 2, (
            "hardly any picture was found: is the check blind?"
        )


def test_every_slide_has_notes_and_minutes(built):
    deck = built[0]
    for slide in deck.slides:
        for part in ("Say.", "Ask.", "Watch for."):
            assert f"<strong>{part}</strong>" in slide.notes, (
                f"{slide.title}: its notes have no **{part}**"
            )
        assert len(re.sub(r"<[^>]+>", "", slide.notes).split()) >= 30, (
            f"{slide.title}: its notes say next to nothing"
        )
        assert 0.5 <= slide.minutes <= 4, f"{slide.title}: {slide.minutes} minutes is not one idea"
    notes = built[2].read_text(encoding="utf-8")
    assert notes.count('<div class="said">') == len(deck.slides)


SIZES = {  # slides from, to; minutes from, to
    "1_pi_and_mpi": (20, 34, 40, 50),
    "2_data_parallelism": (40, 56, 60, 80),
    "3_deepspeed_and_zero": (30, 44, 48, 62),
    "4_summarization": (20, 30, 30, 42),
    "5_clusters": (14, 19, 16, 24),
    "6_model_parallelism": (32, 42, 45, 60),
}


def test_a_deck_keeps_its_number_of_slides_and_its_time(built):
    fewest, most, shortest, longest = SIZES[built[0].name]
    assert fewest <= len(built[0].slides) <= most
    assert shortest <= built[0].minutes <= longest


def test_the_readme_has_the_slides_and_minutes_of_each_deck(built):
    row = re.search(
        rf"^\| \[{built[0].name}\].*?\) \| (\d+) \| ([\d.]+) \|",
        (SLIDES / "README.md").read_text(),
        re.MULTILINE,
    )
    assert (int(row[1]), float(row[2])) == (len(built[0].slides), built[0].minutes)


def test_a_title_has_a_picture_and_a_section_one_big_number(built):
    title, *others = built[0].slides
    assert title.classes == "title" and 'class="figure"' in title.html
    dividers = [slide for slide in others if slide.classes == "divider"]
    assert len(dividers) >= 2
    for slide in dividers:
        (big,) = re.findall(r'<div class="big">(.*?)</div>', slide.html, re.DOTALL)
        assert re.search(r"\d", big), slide.title


def test_few_words_a_slide(built):
    for slide in built[0].slides:
        text = re.sub(
            r"<figure.*?</figure>|<table.*?</table>|<[^>]+>", " ", slide.html, flags=re.DOTALL
        )
        words = len(text.split())
        assert words <= (110 if "sources" in slide.classes else 65), f"{slide.title}: {words} words"


def test_links_lead_to_notebooks_that_exist(built):
    text = built[1].read_text(encoding="utf-8")
    notebooks = re.findall(r'href="\.\./\.\./([^"#]+)[^"]*" data-notebook="([^"]+)"', text)
    assert notebooks, "no slide leads to a notebook"
    for href, path in notebooks:
        assert href == path and (ROOT / path).is_file(), f"{path} does not exist"


def test_figures_are_legible(everything):
    """Every text in every figure is at least 15 pt, which is 20 px on the slide: figures are embedded at their true size."""
    from matplotlib.text import Text

    figures = everything[3]
    used = {(f"figures_of_{name}", figure) for name in DECKS for figure in figures_in(name)}
    assert set(figures) == used and len(used) > 50
    for name, drawn in figures.items():
        small = [
            (text.get_text(), text.get_fontsize())
            for figure in (drawn if isinstance(drawn, list) else [drawn])
            for text in figure.findobj(Text)
            if text.get_visible() and text.get_text().strip() and text.get_fontsize() < 14.9
        ]
        assert small == [], f"{name}: too small {small}"


def figures_in(name):
    return re.findall(
        r"\((?:figure|steps):(\w+)\)", (SLIDES / name / "deck.md").read_text(encoding="utf-8")
    )


def test_vendored_files_are_unchanged():
    folder = SLIDES / "vendor" / "reveal.js"
    listed = (folder / "SHA256SUMS").read_text(encoding="utf-8").split()
    assert len(listed) >= 12
    for digest, name in zip(listed[::2], listed[1::2], strict=True):
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, (
            f"{name} is not what was taken"
        )


# --- mistakes in a deck are named ------------------------------------------------------------------------------------

GOOD = (
    "## A title\n\nText, $x^2$.\n\n::: notes 1 min\n**Say.** a **Ask.** b **Watch for.** c\n:::\n"
)
FIGURES = "STYLE = {}\ndef facts():\n    return {'three': 3}\n"


def load_text(tmp_path, text):
    (tmp_path / "deck.md").write_text(text, encoding="utf-8")
    (tmp_path / "figures.py").write_text(FIGURES, encoding="utf-8")
    return deck_module.load(tmp_path)


def test_a_good_deck_loads(tmp_path):
    deck = load_text(
        tmp_path,
        GOOD.replace("Text", "<< three >> ranks") + "\n---\n\n" + GOOD.replace("1 min", "2.5 min"),
    )
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


def test_extracts_follow_their_source(tmp_path, monkeypatch):
    cell = {
        "cell_type": "code",
        "metadata": {"tags": ["slide-a"]},
        "source": ["x = 1\n", "print(x)"],
    }
    cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["1\n"]}]
    (tmp_path / "n.ipynb").write_text(
        json.dumps({"cells": [cell, {"cell_type": "markdown", "source": "## Two words"}]})
    )
    (tmp_path / "s.py").write_text("def f():\n    a = 1\n    return a\n")
    monkeypatch.setattr(extract, "ROOT", tmp_path)
    assert extract.cell_source("n.ipynb", "slide-a") == "x = 1\nprint(x)"
    assert extract.cell_output("n.ipynb", "slide-a") == "1"
    assert extract.heading_ids("n.ipynb") == {"Two-words"}
    assert extract.function_source("s.py", "f").startswith("def f():")
    assert (
        extract.between("def f():\n    a = 1\n    return a", "a = 1", "return", "s.py")
        == "a = 1\nreturn a"
    )
    with pytest.raises(extract.SlideError, match="0 code cells carry the tag 'slide-b' or have it"):
        extract.cell_source("n.ipynb", "slide-b")


def test_without_a_browser_the_html_is_built_and_the_remedy_named(everything):
    folder, said, decks, _ = everything
    assert "apt-get install chromium" in said
    assert len(list(folder.glob("*.html"))) == 2 * len(DECKS) == 2 * len(decks) and not list(
        folder.glob("*.pdf")
    )


# --- in the browser --------------------------------------------------------------------------------------------------

LOOK = """index => {
  Reveal.slide(index);
  const slide = Reveal.getCurrentSlide().querySelector(".slide"), frame = slide.getBoundingClientRect(), bad = [];
  const name = e => e.tagName + "." + e.className + ": " + (e.textContent || e.alt || "").trim().slice(0, 40);
  const inside = (r, f) => r.left >= f.left - 1 && r.top >= f.top - 1 && r.right <= f.right + 1 && r.bottom <= f.bottom + 1;
  const boxes = [slide, ...slide.querySelectorAll(".body, .col, pre")];
  for (const box of boxes)
    if (box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1) bad.push("overflows " + name(box));
  const title = slide.querySelector("h2").getBoundingClientRect();
  const source = slide.querySelector(".source");
  const floor = source ? source.getBoundingClientRect().top : frame.bottom - 8;
  for (const e of slide.querySelectorAll("*")) {
    const r = e.getBoundingClientRect();
    if (!inside(r, frame)) bad.push("leaves the slide: " + name(e));
    if (e.closest(".body") && !e.closest(".body").isSameNode(e) && (r.top < title.bottom - 1 || r.bottom > floor + 1))
      bad.push("runs into the title or the source: " + name(e));
    const column = e.closest(".col");
    if (column && !inside(r, column.getBoundingClientRect())) bad.push("leaves its column: " + name(e));
    if (e.tagName == "IMG" && !(e.complete && e.naturalWidth > 0)) bad.push("broken picture: " + name(e));
  }
  const walker = document.createTreeWalker(slide, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode(); ) {
    if (!node.textContent.trim()) continue;
    const e = node.parentElement, size = parseFloat(getComputedStyle(e).fontSize);
    const least = e.closest("pre, code, figcaption, .source") ? 20 : 24;
    if (size < least) bad.push(`${size} px, below ${least}: ` + name(e));
  }
  const text = slide.querySelector(".body").textContent.trim(), pictures = slide.querySelectorAll("img").length;
  if (!text && !pictures) bad.push("empty");
  return bad;
}"""
PRINTED = """() => [...document.querySelectorAll(".pdf-page")].map(page => {
  const heading = page.querySelector("h2").cloneNode(true);
  for (const formula of heading.querySelectorAll("img")) formula.replaceWith(formula.alt);
  return [heading.textContent, page.clientWidth, page.clientHeight];
})"""


@needs_browser
def test_nothing_overflows_and_all_is_legible(built):
    deck, html, _ = built
    requests = []
    with pdf.browser_page() as page:
        page.on("request", lambda request: requests.append(request.url))
        page.goto(html.as_uri())
        page.wait_for_function("window.Reveal && Reveal.isReady()")
        page.evaluate("document.fonts.ready")
        assert page.evaluate("Reveal.getTotalSlides()") == len(deck.slides)
        assert page.evaluate("document.fonts.check('32px \"Source Sans Pro\"')")
        found = {slide.title: page.evaluate(LOOK, i) for i, slide in enumerate(deck.slides)}
        timings = page.evaluate("Reveal.getSlides().map(s => Number(s.dataset.timing))")
        page.goto(html.as_uri() + "?view=print")
        page.wait_for_function("document.documentElement.dataset.pages")
        printed = page.evaluate(PRINTED)  # reveal.js makes a page one pixel lower than the paper
    assert {title: bad for title, bad in found.items() if bad} == {}
    assert timings == [round(60 * slide.minutes) for slide in deck.slides]
    outside = [url[:80] for url in requests if not url.startswith(("data:", "file:"))]
    assert outside == [], f"the page asked for {outside}"
    assert printed == [[slide.title, 1280, 719] for slide in deck.slides], (
        "the PDF would not have a page for every slide"
    )


@needs_browser
def test_the_look_sees_what_is_wrong(tmp_path):
    """The check above must be able to fail: text too small, too long, too wide."""
    wide = "```text\n" + "x" * 200 + "\n```\n\n"
    small = '<p style="font-size:12px">small</p>\n\n'
    for name, text in {"wide": wide, "small": small, "long": "line\n\n" * 40}.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "deck.md").write_text(
            "---\ntitle: t\n---\n\n" + GOOD.replace("Text", text + "Text"), encoding="utf-8"
        )
        (folder / "figures.py").write_text(FIGURES, encoding="utf-8")
        html = build.build_html(folder, tmp_path / "out")[1]
        with pdf.browser_page() as page:
            page.goto(html.as_uri())
            page.wait_for_function("window.Reveal && Reveal.isReady()")
            assert page.evaluate(LOOK, 0), f"a slide that is {name} passed"
