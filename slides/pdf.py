"""PDF from the built HTML, printed by a Chromium or Chrome that is already on the machine."""

import os
import shutil
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

from pypdf import PdfWriter
from pypdf.generic import NameObject, TextStringObject

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
    # The HTML alone needs no Playwright.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=QUIET)
        try:
            yield browser.new_page(
                viewport={"width": width, "height": height}, device_scale_factor=scale
            )
        finally:
            browser.close()


def print_pdfs(pages):
    """Print each HTML file to a PDF next to it; reveal.js's print view gives each slide a page."""
    made = []
    with browser_page() as page:
        for html in pages:
            page.goto(html.as_uri() + "?view=print")
            # reveal.js lays its pages out some time after loading; the notes are ready at once.
            page.wait_for_function("!window.Reveal || document.documentElement.dataset.pages")
            page.evaluate("document.fonts.ready")
            made.append(html.with_suffix(".pdf"))
            page.pdf(path=made[-1], prefer_css_page_size=True, print_background=True)
            make_links_relative(made[-1])
    return made


def make_links_relative(path):
    """The browser writes this machine's paths; paths from the PDF's folder on work on any."""
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
