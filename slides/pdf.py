"""PDF from the built HTML, printed by a Chromium or Chrome that is already on the machine."""

import shutil
from contextlib import contextmanager

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# No updates, no accounts, no first-run page: the browser has nothing to fetch.
QUIET = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]


class NoBrowser(Exception):
    """There is no browser to print with; the message says what to do."""


def find_browser():
    """Path of the browser's program. Raises NoBrowser."""
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    raise NoBrowser(
        "No PDF this time: neither Chromium nor Chrome is on the PATH. "
        "Install one (Debian, Ubuntu: `apt-get install chromium`) and run `make slides` again; the HTML is complete."
    )


@contextmanager
def browser_page(width=1280, height=720, scale=1):
    """A page of a headless browser of `width` x `height` CSS pixels, closed on leaving."""
    program = find_browser()
    from playwright.sync_api import sync_playwright  # imported late: the HTML alone needs no Playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=QUIET)
        try:
            yield browser.new_page(viewport={"width": width, "height": height}, device_scale_factor=scale)
        finally:
            browser.close()


def print_pdfs(pages):
    """Print each HTML file to a PDF beside it; slides go through reveal.js's print view, one page a slide."""
    made = []
    with browser_page() as page:
        for html in pages:
            page.goto(html.as_uri() + "?view=print")
            # reveal.js lays its pages out some time after loading; the notes are plain HTML and ready at once.
            page.wait_for_function("!window.Reveal || document.documentElement.dataset.pages")
            page.evaluate("document.fonts.ready")
            target = html.with_suffix(".pdf")
            page.pdf(path=target, prefer_css_page_size=True, print_background=True)
            made.append(target)
    return made
