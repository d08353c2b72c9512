"""PDF from the built HTML, printed by a Chromium or Chrome that is already on the machine."""

import os
import shutil
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

from pypdf import PdfReader, PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject, TextStringObject

A4 = (595, 842)  # points
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# No updates, no accounts, no first-run page: the browser has nothing to fetch.
QUIET = [
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


class NoBrowserError(Exception):
    """There is no browser to print with; the message says what to do."""


def find_browser():
    """Path of the browser's program. Raises NoBrowserError."""
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    raise NoBrowserError(
        "No PDF this time: neither Chromium nor Chrome is on the PATH. "
        "Install one (Debian, Ubuntu: `apt-get install chromium`) and run `make slides` again; "
        "the HTML is complete."
    )


@contextmanager
def browser_page(width=1280, height=720, scale=1):
    """A page of a headless browser of `width` x `height` CSS pixels, closed on leaving."""
    program = find_browser()
    from playwright.sync_api import (
        sync_playwright,
    )  # imported late: the HTML alone needs no Playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=QUIET)
        try:
            yield browser.new_page(
                viewport={"width": width, "height": height}, device_scale_factor=scale
            )
        finally:
            browser.close()


def print_pdfs(pages):
    """Print each HTML file to a PDF beside it; slides go through reveal.js's print view, one page a
    slide.
    """
    made = []
    with browser_page() as page:
        for html in pages:
            page.goto(html.as_uri() + "?view=print")
            # reveal.js lays its pages out some time after loading; the notes are plain HTML and
            # ready at once.
            page.wait_for_function("!window.Reveal || document.documentElement.dataset.pages")
            page.evaluate("document.fonts.ready")
            target = html.with_suffix(".pdf")
            page.pdf(path=target, prefer_css_page_size=True, print_background=True)
            made.append(target)
            make_links_relative(target)
            if "_notes" not in html.stem:
                made.append(two_a_page(target))
    return made


def make_links_relative(path):
    """The browser writes where files lie on this machine; from the PDF's own folder on, they lead
    somewhere on any.
    """
    writer = PdfWriter(clone_from=path)
    for page in writer.pages:
        for note in page.get("/Annots", []):
            action = note.get_object().get("/A", {})
            parts = urlsplit(action.get("/URI", ""))
            if parts.scheme == "file":
                where = os.path.relpath(unquote(parts.path), path.parent)
                action[NameObject("/URI")] = TextStringObject(
                    where + ("#" + parts.fragment if parts.fragment else "")
                )
    writer.write(path)


def two_a_page(path):
    """A handout: the same slides, two on a sheet of A4."""
    target, writer = path.with_name(f"{path.stem}_two_a_page.pdf"), PdfWriter()
    for number, slide in enumerate(PdfReader(path).pages):
        if number % 2 == 0:
            sheet = writer.add_blank_page(*A4)
            sheet[NameObject("/Resources")] = DictionaryObject(
                {NameObject("/XObject"): DictionaryObject()}
            )
            sheet[NameObject("/Contents")] = writer._add_object(DecodedStreamObject())
        name, scale = f"/Slide{number % 2}", 0.88 * A4[0] / float(slide.mediabox.width)
        sheet["/Resources"]["/XObject"][NameObject(name)] = drawing(slide, writer)
        x, y = 0.06 * A4[0], A4[1] * (0.54 if number % 2 == 0 else 0.08)
        placed = sheet["/Contents"]
        placed.set_data(
            placed.get_data()
            + f"q {scale:.5f} 0 0 {scale:.5f} {x:.2f} {y:.2f} cm {name} Do Q\n".encode()
        )
    writer.write(target)
    return target


def drawing(page, writer):
    """The page as one thing to be placed.

    Its lines are taken as they stand: to read them (merge_page) takes a minute a deck.
    """
    form = DecodedStreamObject()
    form.set_data(page.get_contents().get_data())
    form = form.flate_encode()
    form[NameObject("/Type")], form[NameObject("/Subtype")] = (
        NameObject("/XObject"),
        NameObject("/Form"),
    )
    form[NameObject("/BBox")] = page.mediabox.clone(writer)
    form[NameObject("/Resources")] = page["/Resources"].clone(writer)
    return writer._add_object(form)
