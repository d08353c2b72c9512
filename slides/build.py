"""Build the slides: per deck one HTML file that needs no network, speaker notes, and PDFs of both.

    python slides/build.py                  all decks, into slides/build/
    python slides/build.py 1_pi_and_mpi     one deck
    python slides/build.py --no-pdf         only the HTML (about 20 seconds, no browser needed)

The HTML is presented by reveal.js: arrows to move, S for the speaker's view with notes and clock, F
for full screen, O for all slides. Chromium or Chrome prints the PDFs.
"""

import argparse
import sys
import time
from pathlib import Path

import jinja2
import matplotlib
from deck import load
from extract import ROOT, SlideError
from pdf import NoBrowserError, print_pdfs
from pygments.formatters import HtmlFormatter
from render import data_uri

HERE = Path(__file__).resolve().parent
REVEAL = HERE / "vendor" / "reveal.js"
OUT = HERE / "build"


def decks():
    return sorted(path.parent for path in HERE.glob("*/deck.md"))


def assets():
    """Style sheets, scripts and fonts as text in the page, so that it loads nothing."""
    dejavu = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSansMono.ttf"
    faces = [
        ("Source Sans Pro", "normal", 400, REVEAL / "fonts" / "source-sans-pro-regular.woff"),
        ("Source Sans Pro", "italic", 400, REVEAL / "fonts" / "source-sans-pro-italic.woff"),
        ("Source Sans Pro", "normal", 600, REVEAL / "fonts" / "source-sans-pro-semibold.woff"),
        ("DejaVu Sans Mono", "normal", 400, dejavu),
    ]
    fonts = [
        f'@font-face{{font-family:"{family}";font-style:{style};font-weight:{weight};'
        f"src:url({data_uri(file.read_bytes(), 'font/' + file.suffix[1:])})}}"
        for family, style, weight, file in faces
    ]
    names = [REVEAL / "reveal.js", REVEAL / "reveal.css", REVEAL / "notes.js"]
    names += [HERE / "theme.css", HERE / "notes.css"]
    return {
        **{path.name.replace(".", "_"): path.read_text(encoding="utf-8") for path in names},
        "code_css": HtmlFormatter(style="xcode").get_style_defs(".slide pre"),
        "fonts_css": "\n".join(fonts),
    }


def clock(minutes):
    return f"{int(minutes)}:{round(minutes % 1 * 60):02d}"


def build_html(folder, out=OUT):
    """Write the deck's slides and notes as HTML. Returns (deck, slides' path, notes' path)."""
    deck = load(folder)
    out.mkdir(parents=True, exist_ok=True)
    jinja = jinja2.Environment(  # noqa: S701  (the sources are the kit's own)
        loader=jinja2.FileSystemLoader(HERE), undefined=jinja2.StrictUndefined
    )
    pages = {
        "template.html": out / f"{deck.name}.html",
        "notes.html": out / f"{deck.name}_notes.html",
    }
    for template, target in pages.items():
        target.write_text(
            jinja.get_template(template).render(deck=deck, assets=assets(), clock=clock),
            encoding="utf-8",
        )
    return deck, *pages.values()


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("decks", nargs="*", help="names of decks (default: all)")
    parser.add_argument(
        "--out", type=Path, default=OUT, help="where to write (default: slides/build)"
    )
    parser.add_argument("--no-pdf", action="store_true", help="only the HTML")
    options = parser.parse_args(argv)
    folders = [HERE / name.strip("/") for name in options.decks] or decks()
    begin, pages = time.perf_counter(), []
    for folder in folders:
        try:
            deck, slides, notes = build_html(folder, options.out.resolve())
        except SlideError as error:
            print(f"{folder.name}: {error}", file=sys.stderr)
            return 1
        pages += [slides, notes]
        print(f"{deck.name}: {len(deck.slides)} slides, {deck.minutes:g} minutes of talking")
    if not options.no_pdf:
        try:
            pages += print_pdfs(pages)
        except NoBrowserError as missing:
            print(missing)
    for page in pages:
        shown = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
        print(f"  {shown}  {page.stat().st_size / 1e6:.1f} MB")
    print(f"{time.perf_counter() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
