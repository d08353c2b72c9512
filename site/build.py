"""`make site`: the notebooks, labs and slides as pages that need no network.

Opens with any browser: site/build/html/index.html

    python site/build.py                          everything, into site/build/
    python site/build.py --deck 6_clusters        with this deck only; several times: these decks;
                                                  --deck none: no slides

Sphinx and its extensions are in .venv-site, on top of the kit's own environment, with the pins of
site/requirements.lock. Notebooks are shown with their stored outputs; nothing is executed but the
slides' own figures.
"""

import argparse
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from content import HERE, PARTS, ROOT, all_pages

sys.path.insert(0, str(ROOT / "tools"))
from setup import uv_install

VENV = ROOT / ".venv-site"
LOCK = HERE / "requirements.lock"
DECKS = [part["deck"] for part in PARTS if "deck" in part]


def environment(venv=VENV):
    """The Python of the site's environment, which is made or updated if necessary."""
    python, done = venv / "bin" / "python", venv / "pi2zero-site"
    kit = sysconfig.get_paths()["purelib"]
    contents = f"{LOCK.read_text()}{kit}"
    if done.exists() and done.read_text() == contents and python.exists():
        return python
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python3*/site-packages")
    (site / "kit.pth").write_text(f"import site; site.addsitedir({kit!r})\n")
    uv_install(["--no-deps", "--require-hashes", "--quiet", "-r", str(LOCK)], str(python))
    done.write_text(contents)
    return python


def slides(folder, decks):
    """Build the decks' HTML into `folder`."""
    command = [sys.executable, ROOT / "slides" / "build.py", "--no-pdf", "--out", folder, *decks]
    if decks and subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
        sys.exit(
            "The slides could not be built, and the site needs them. Their message is above; "
            "`make slides` shows it alone."
        )


def link_to_pages(deck, anchors):
    """Replace a deck's links to notebooks by links to the site's pages.

    anchors: {page: {JupyterLab's anchor: the page's}}.
    """

    def page(match):
        name, words = match[1], match[2] or ""
        place = anchors.get(name, {}).get(words.removeprefix("#"))
        return f'href="../{name}.html{f"#{place}" if place else ""}" target="_top"'

    link = r'href="\.\./\.\./((?:notebooks|labs)/\w+)\.ipynb(#[^"]*)?" data-notebook="[^"]*"'
    deck.write_text(re.sub(link, page, deck.read_text()))


def anchors(html):
    """{page: {a heading's words joined by hyphens: its id}} of the built pages."""
    heading = r'<section id="([^"]+)">\s*(?:<span[^>]*></span>)*<h\d>(.*?)<a class="headerlink"'
    anchors_of = {}
    for page in (*html.glob("notebooks/*.html"), *html.glob("labs/*.html")):
        anchors_of[page.relative_to(html).with_suffix("").as_posix()] = {
            re.sub(r"<[^>]+>", "", words).strip().replace(" ", "-"): place
            for place, words in re.findall(heading, page.read_text(), re.DOTALL)
        }
    return anchors_of


def sphinx(python, builder, source, out):
    options = ["-q", "-W", "--keep-going", "-j", "2", "-b", builder, "-c", HERE]
    command = [python, "-m", "sphinx", *options, "-d", out.parent / "doctrees", source, out]
    return subprocess.run(command).returncode


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=HERE / "build", help="where to build (default: site/build)"
    )
    parser.add_argument(
        "--deck",
        action="append",
        choices=[*DECKS, "none"],
        help="build only these decks (default: all)",
    )
    options = parser.parse_args()
    begin, out = time.monotonic(), options.out.resolve()
    python = environment()
    import stage

    stage.stage(out / "source")
    if sphinx(python, "html", out / "source", out / "html"):
        sys.exit("The site was not built, or not well: the messages of Sphinx are above.")
    for path in all_pages():  # as the kit has them, to be downloaded
        shutil.copy2(ROOT / path, out / "html" / path)
    decks = [deck for deck in options.deck or DECKS if deck != "none"]
    slides(out / "html" / "slides", decks)
    headings = anchors(out / "html")
    for deck in (out / "html" / "slides").glob("*.html"):
        link_to_pages(deck, headings)
    print(
        f"{out / 'html' / 'index.html'}: {len(list((out / 'html').rglob('*.html')))} pages, "
        f"{time.monotonic() - begin:.0f} s"
    )


if __name__ == "__main__":
    main()
