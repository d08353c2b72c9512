"""The slides' PDFs. One deck is printed; that every deck's print view has a page for every slide is in test_slides.py."""

import sys
from pathlib import Path

import pytest
from pypdf import PdfReader

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "slides"))

# isort: off
import build
import pdf

# isort: on

SHORTEST = (
    build.HERE / "5_clusters"
)  # with links, code, figures and notebooks' pictures, as the others


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """The deck and its PDFs: slides, slides two a page, notes."""
    try:
        pdf.find_browser()
    except pdf.NoBrowser as missing:
        pytest.skip(str(missing))
    deck, *pages = build.build_html(SHORTEST, tmp_path_factory.mktemp("printed"))
    return deck, *(PdfReader(path) for path in pdf.print_pdfs(pages))


def test_pdf_has_a_page_for_every_slide(printed):
    deck, slides, handout, _ = printed
    assert len(slides.pages) == len(deck.slides) and len(handout.pages) == -(-len(deck.slides) // 2)
    for number, (page, slide) in enumerate(zip(slides.pages, deck.slides, strict=True)):
        assert abs(page.mediabox.width / page.mediabox.height - 16 / 9) < 0.01
        assert squeezed(slide.title) in squeezed(page.extract_text()), (
            f"the page of {slide.title!r} shows another slide"
        )
        placed = handout.pages[number // 2]["/Resources"]["/XObject"][
            f"/Slide{number % 2}"
        ].get_object()
        assert placed.get_data() == page.get_contents().get_data(), (
            f"{slide.title!r} is not in its place two a page"
        )


def test_links_lead_somewhere_on_any_machine(printed):
    deck, slides, *_ = printed
    notes = [note.get_object() for page in slides.pages for note in page.get("/Annots", [])]
    leads = [note["/A"]["/URI"] for note in notes if "/URI" in note.get("/A", {})]
    assert sum("notebooks/12_clusters.ipynb" in uri for uri in leads) == "".join(
        s.html for s in deck.slides
    ).count("<a href=")
    assert leads and not [uri for uri in leads if uri.startswith(("file:", "/"))], (
        "links to this machine's folders"
    )


def test_every_slide_has_its_notes(printed):
    deck, *_, notes = printed
    spoken = squeezed("".join(page.extract_text() for page in notes.pages))
    assert spoken.count("Watchfor.") == len(deck.slides)


def squeezed(text):
    return "".join(text.split())
