"""The site, built and opened in a browser: it loads nothing, and its links and pages work."""

import contextlib
import functools
import http.server
import itertools
import os
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from no_network import CUT, can_be_cut

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "site"), str(ROOT / "slides")]

# isort: off
import pdf  # noqa: E402
from content import PARTS, all_pages, notebook, setting  # noqa: E402

# isort: on

from pi2zero import costs, widgets  # noqa: E402
from pi2zero_course.dashboard import page as glance  # noqa: E402
from pi2zero_course.dashboard.board import Board, State  # noqa: E402

pytestmark = pytest.mark.long
SCREENS = ROOT / "build" / "screens"
DECK = "6_clusters"  # one of them stands for all: the slides have tests of their own
BROWSER = next((name for name in pdf.NAMES if pdf.shutil.which(name)), None)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium on the PATH (Debian: apt-get install chromium)"
)
NO_PACKAGES = "a package index could not be reached"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built pages.

    Once its packages are there, it is built without a network, where that can be cut.
    """
    out = tmp_path_factory.mktemp("site")
    packages = [sys.executable, "-c", "import build; build.environment()"]
    done = subprocess.run(packages, cwd=ROOT / "site", capture_output=True, text=True, timeout=300)
    if done.returncode == 0:
        command = [sys.executable, ROOT / "site" / "build.py", "--out", out, "--deck", DECK]
        done = subprocess.run(
            [*CUT, *command] if can_be_cut() else command,
            capture_output=True,
            text=True,
            timeout=500,
        )
    if NO_PACKAGES in done.stdout + done.stderr:
        pytest.skip(f"the site's packages cannot be had here: {NO_PACKAGES}")
    assert done.returncode == 0, done.stdout + done.stderr
    return out / "html"


class Page(HTMLParser):
    """What a page loads, leads to, shows, and can be led to."""

    def __init__(self, path):
        super().__init__()
        self.loads, self.links, self.places, self.pictures, self.folds = [], [], set(), [], 0
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.places.add(given.get("id"))
        if tag in ("script", "img", "iframe", "source") and given.get("src"):
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(given["href"])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag == "img":
            self.pictures.append(given.get("alt") or "")
        if tag == "svg" and given.get("role") == "img" and not given.get("aria-hidden"):
            self.pictures.append(given.get("aria-label") or "")
        self.folds += tag == "details"


@pytest.fixture(scope="module")
def pages(site):
    """{path in the site: its Page}; the deck aside, whose tests are in test_slides.py."""
    return {
        path.relative_to(site): Page(path)
        for path in site.rglob("*.html")
        if "slides" not in path.relative_to(site).parts[:-1]
    }


def test_every_part_is_there(site, pages):
    there = {path.with_suffix("").as_posix() for path in pages}
    assert {path.removesuffix(".ipynb") for path in all_pages()} <= there
    numbers = range(1, len(PARTS) + 1)
    assert {f"{folder}/{number}" for folder in ("parts", "quiz") for number in numbers} <= there
    own = {"index", "start", "learn", "teach", "run", "reference", "glossary", "bibliography"}
    assert own | {"slides", "measured", "benchmarks/zero", "docs/faq", "reports/README"} <= there


def test_no_page_loads_from_elsewhere(pages):
    assert not {
        (str(path), url)
        for path, page in pages.items()
        for url in page.loads
        if re.match(r"(https?:)?//", url)
    }


def test_every_link_within_the_site_leads_somewhere(site, pages):
    wrong = set()
    for path, page in pages.items():
        for link in page.links:
            address, place = urldefrag(link)
            if re.match(r"\w+:", address) or "slides/" in address:
                continue
            target = (site / path.parent / unquote(address)).resolve() if address else site / path
            known = (
                pages.get(target.relative_to(site.resolve())) if target.suffix == ".html" else None
            )
            if not target.is_file() or (place and known and unquote(place) not in known.places):
                wrong.add((str(path), link))
    assert not wrong


def test_every_picture_has_an_alternative_text(pages):
    assert sum(len(page.pictures) for page in pages.values()) > 50
    assert not {
        str(path) for path, page in pages.items() if any(len(alt) < 5 for alt in page.pictures)
    }


def test_stored_outputs_are_shown_and_answers_folded(site, pages):
    text = re.sub(r"<[^>]+>", "", (site / "notebooks" / "00_start_here.html").read_text())
    assert "I am rank 3 of 4" in text and "Rank 3 raised IndexError" in text
    for path in all_pages():
        cells = notebook(path)["cells"]
        hidden = [
            cell
            for cell in cells
            if cell["metadata"].get("jupyter", {}).get("outputs_hidden") and cell.get("outputs")
        ]
        answers = sum(
            "".join(cell["source"]).count("<details")
            for cell in cells
            if cell["cell_type"] == "markdown"
        )
        assert pages[Path(path).with_suffix(".html")].folds >= answers + len(hidden), path


CELL = re.compile(r'<div class="cell_input.*?<pre>(.*?)</pre>', re.DOTALL)


def test_python_below_a_magic_is_coloured(site):
    cells = [
        cell.partition("\n")[2]
        for path in all_pages()
        for cell in CELL.findall((site / path).with_suffix(".html").read_text())
        if re.sub(r"<[^>]+>", "", cell).startswith("%%px")
    ]
    assert len(cells) > 600
    plain = [cell for cell in cells if cell.strip() and not re.search('<span class="[knosc]', cell)]
    assert not plain


def test_every_page_says_whose_it_is(site, pages):
    """Description, icon, licence, version, source, and where to report a mistake."""
    others = {Path("search.html"), Path("genindex.html"), Path("_static/webpack-macros.html")}
    for path in pages.keys() - others:
        text = (site / path).read_text()
        described = re.search(r'<meta name="description" content="([^"]{20,250})">', text)
        assert described and 'rel="icon" href=' in text, path
        footer = re.sub(r"<[^>]+>", "", text[text.index('class="about-kit"') :])
        words = ("BSD-3-Clause", "CC BY 4.0", setting("version"), "Source", "Report a mistake")
        assert all(word in footer for word in words), path
    footer = (site / "labs" / "01_pi.html").read_text().partition('class="about-kit"')[2]
    assert "solutions/01_pi.ipynb" in footer and setting("repository-code") in footer


def test_functions_are_linked_where_they_are_first_used(site):
    text = (site / "notebooks" / "02_mpi_pi.html").read_text()
    article = text[text.index("<article") : text.index("Functions on this page</")]
    links = re.findall(r'class="function[^"]*" href="https://mpi4py[^"]*Comm.Reduce"', article)
    assert len(links) == 1


def test_the_slides_lead_to_the_pages(site):
    deck = (site / "slides" / f"{DECK}.html").read_text()
    links = re.findall(r'href="(\.\./notebooks/[^"#]+)(?:#([^"]+))?"', deck)
    assert links and "../../notebooks" not in deck
    for page, place in links:
        there = (site / "slides" / page).read_text()
        assert not place or f'id="{place}"' in there


# --- in the browser

BEYOND = """(what) => {
    const end = document.querySelector("article").getBoundingClientRect().right + 1;
    return [...document.querySelectorAll(what)]
        .filter(e => e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > end)
        .map(e => e.textContent.slice(0, 80));
}"""


@pytest.fixture(scope="module")
def browser(site):
    with pdf.browser_page(1400, 900) as page:
        page.requested = []
        page.on("request", lambda request: page.requested.append(request.url))
        yield page


def keep(page, name):
    SCREENS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENS / f"site_{name}.png")


@needs_browser
def test_mathematics_and_diagrams_need_no_network(site, browser):
    browser.set_viewport_size({"width": 1400, "height": 900})
    browser.goto((site / "notebooks" / "01_monte_carlo_pi.html").as_uri())
    browser.wait_for_selector("mjx-container")
    assert (
        browser.locator("mjx-container").count() > 5 and browser.locator("mjx-merror").count() == 0
    )
    keep(browser, "light")
    browser.goto((site / "docs" / "architecture.html").as_uri())
    assert browser.locator("figure.diagram svg").bounding_box()["height"] > 100
    assert browser.requested and not [
        url for url in browser.requested if not url.startswith(("file:", "data:", "blob:"))
    ]


@needs_browser
def test_a_quiz_answers_by_keyboard_and_keeps_its_score_in_sight(site, browser):
    browser.goto((site / "quiz" / "1.html").as_uri())
    questions = browser.locator(".question")
    wrong, right = questions.first.locator(".wrong").first, questions.first.locator(".right")
    assert not wrong.locator("p").is_visible()
    wrong.locator("summary").focus()
    browser.keyboard.press("Enter")
    assert wrong.locator("p").is_visible() and wrong.locator("p").inner_text().startswith("No.")
    right.locator("summary").focus()
    browser.keyboard.press("Enter")
    assert right.locator("p").is_visible() and not wrong.locator("p").is_visible(), "one at a time"
    score, count = browser.locator(".quiz-score"), questions.count()
    score.get_by_text(f"0 of 1 right at the first try; {count - 1} to go.").wait_for()
    for number in range(1, count):
        questions.nth(number).locator(".right summary").click()
    score.get_by_text(f"Finished: {count - 1} of {count} right at the first try.").wait_for()
    about = questions.first.locator(".about a").get_attribute("href")
    assert score.locator("a").get_attribute("href") == about, "what to read again"
    header = browser.locator("#pst-header").bounding_box()
    place = score.bounding_box()
    assert browser.evaluate("scrollY") > 1000
    assert header["y"] + header["height"] <= place["y"] + 1 < 200, "below the menu, and in sight"


@needs_browser
def test_code_and_tables_fit(site, browser):
    browser.goto((site / "notebooks" / "10_dailymail.html").as_uri())
    after = browser.get_by_role("columnheader", name="After", exact=True).bounding_box()
    article = browser.locator("article").bounding_box()
    assert after["width"] > 100 and after["x"] + after["width"] <= article["x"] + article["width"]
    for name in ("notebooks/06_ddp", "notebooks/10_dailymail", "notebooks/11_model_parallel"):
        browser.goto((site / f"{name}.html").as_uri())
        assert browser.evaluate(BEYOND, "article pre") == [], name
        assert browser.evaluate(BEYOND, ".cell_output table") == [], name


@needs_browser
def test_code_is_copied_and_a_notebook_downloaded(site, browser):
    with serving(functools.partial(Files, directory=site)) as address:
        browser.goto(f"{address}/notebooks/02_mpi_pi.html")
        assert browser.locator(".cell_output .copybtn").count() == 0
        browser.locator(".cell_input .copybtn").first.click()
        browser.keyboard.press("Control+k")
        browser.wait_for_function("document.activeElement.name === 'q'")
        browser.keyboard.press("Control+v")
        first = browser.locator(".cell_input pre").first.inner_text().split("\n")[0]
        assert browser.evaluate("document.activeElement.value").startswith(first)
        browser.keyboard.press("Escape")
        with browser.expect_download() as download:
            browser.get_by_role("link", name="Download this notebook").click()
        kit = ROOT / "notebooks" / "02_mpi_pi.ipynb"
        assert download.value.suggested_filename == kit.name
        assert Path(download.value.path()).read_bytes() == kit.read_bytes()


@needs_browser
def test_folds_are_read_by_their_words_and_figures_keep_their_colours(site, browser):
    browser.emulate_media(color_scheme="dark")
    browser.goto((site / "notebooks" / "02_mpi_pi.html").as_uri())
    assert browser.locator("article summary[aria-label]").count() == 0
    assert "Guess first" in browser.locator("article details.hide summary").first.inner_text()
    style = "element => getComputedStyle(element).filter"
    assert browser.locator(".cell_output img").first.evaluate(style) == "none"
    browser.emulate_media(color_scheme="light")


@needs_browser
def test_zero_s_explorer_computes_as_costs_does(site, browser):
    browser.goto((site / "notebooks" / "09_zero.html").as_uri())
    constants = "JSON.parse(document.querySelector('[data-zero]').dataset.zero)"
    explorer = widgets.ZeroExplorer()
    every = itertools.product(
        (0.13, 7.5, 175.0),
        (1, 8, 1024),
        range(4),
        ("mixed", "fp32"),
        ("adam", "sgd"),
        (False, True),
    )
    for billions, ranks, stage, precision, optimizer, offload in every:
        explorer.parameters.value, explorer.ranks.value = billions, ranks
        explorer.stage.value, explorer.offload.value = stage, offload
        explorer.precision.value, explorer.optimizer.value = precision, optimizer
        state = {"parameters": billions * 1e9, "ranks": ranks, "stage": stage, "memory": 32}
        state |= {"precision": precision, "optimizer": optimizer, "offload": offload}
        state |= {"reserve": 0}
        sentence, sizes = browser.evaluate(
            f"s => [zeroSentence({constants}, s), zeroBytes({constants}, s, s.stage)]", state
        )
        options = explorer.options(stage)
        assert sizes == pytest.approx(costs.zero_bytes(billions * 1e9, ranks, stage, **options))
        assert sentence == explorer.sentence
    stage = browser.get_by_label("stage", exact=True)
    stage.select_option("3")
    assert (
        "at stage 3: the largest model has 128.00 billion"
        in browser.locator(".zero-sentence").inner_text()
    )
    browser.get_by_label("model", exact=True).select_option("GPT-3 175B")
    assert "175 billion fit on 88 ranks or more" in browser.locator(".zero-sentence").inner_text()


class Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(handler):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@needs_browser
def test_search_finds_and_the_skip_link_comes_first(site, browser):
    with serving(functools.partial(Files, directory=site)) as address:
        browser.goto(f"{address}/index.html")
        browser.keyboard.press("Tab")
        assert "Skip" in browser.evaluate("document.activeElement.textContent")
        browser.keyboard.press("Control+k")
        browser.wait_for_function("document.activeElement.name === 'q'")
        browser.keyboard.type("straggler")
        browser.keyboard.press("Enter")
        browser.wait_for_selector(".search a[href*='04b_who_waits']")


MENU = ["Start", "Learn", "Teach", "Run it at your site", "Reference", "Quality reports"]


@needs_browser
def test_the_menu_is_short(site, browser):
    browser.goto((site / "index.html").as_uri())
    items = browser.locator(".bd-header ul.bd-navbar-elements > li")
    assert [words.strip() for words in items.all_inner_texts()] == MENU
    browser.get_by_role("link", name="Teach").first.click()
    browser.locator(".bd-sidebar-primary").get_by_role("link", name="Plans").wait_for()


@needs_browser
def test_the_first_hit_answers(site, browser):
    answers = {
        "install": "docs/start.html",
        "out of memory": "notebooks/09_zero.html",
        "ZeRO-3": "notebooks/09_zero.html",
        "hang": "docs/no_cell_hangs.html",
        "loss scale": "notebooks/08_deepspeed.html",
    }
    with serving(functools.partial(Files, directory=site)) as address:
        for query, page in answers.items():
            browser.goto(f"{address}/search.html?q={query.replace(' ', '+')}")
            first = browser.locator("ul.search li").first
            first.locator("p.context").wait_for()
            assert first.locator("a").first.get_attribute("href").startswith(page), query
            excerpts = browser.locator("ul.search p.context").all_inner_texts()
            assert excerpts and not [words for words in excerpts if "breadcrumb" in words.lower()]
            assert browser.locator("ul.search a[href^='reports/']").count() == 0, query


AXE = """async (rules) => {
    const found = await axe.run(document, {runOnly: rules, resultTypes: ["violations"]});
    return found.violations.map(v => [v.id, v.nodes.length, \
v.nodes[0].html.slice(0, 200), v.nodes[0].failureSummary]);
}"""
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


def axe(page, rules=WCAG):
    """What axe-core finds wrong on the page that is open."""
    (script,) = (ROOT / ".venv-site").glob(
        "lib/python3*/site-packages/axe_playwright_python/axe.min.js"
    )
    page.add_script_tag(path=script)
    return page.evaluate(AXE, rules)


WIDE = """() => [...document.querySelectorAll("article *")]\
.filter(e => e.getBoundingClientRect().right > innerWidth + 1
  && !e.closest("pre, table, .math, mjx-container, figure.diagram, .output"))\
.map(e => e.outerHTML.slice(0, 120))"""


@needs_browser
def test_a_phone_shows_every_page_without_scrolling_sideways(site, browser):
    browser.set_viewport_size({"width": 390, "height": 844})
    for name in (
        "index",
        "parts/2",
        "quiz/2",
        "notebooks/02_mpi_pi",
        "notebooks/06_ddp",
        "notebooks/09c_torch_and_time",
        "notebooks/10_dailymail",
        "labs/02_allreduce",
        "benchmarks/zero",
    ):
        browser.goto((site / f"{name}.html").as_uri())
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), name
        assert browser.evaluate(WIDE) == [], name
        assert axe(browser, {"type": "rule", "values": ["scrollable-region-focusable"]}) == [], name
    keep(browser, "phone")
    browser.set_viewport_size({"width": 1400, "height": 900})


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_problem(site, browser, scheme):
    """Contrast, names, roles, order of headings: by axe-core, in both schemes."""
    browser.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    for name in ("index", "quiz/1", "notebooks/00_start_here", "benchmarks/zero"):
        browser.goto((site / f"{name}.html").as_uri())
        assert axe(browser) == [], name
    keep(browser, scheme)


@needs_browser
def test_slides_and_the_room_s_page_have_contrast(site, browser, tmp_path):
    """One deck stands for all: they have one style sheet."""
    contrast = {"type": "rule", "values": ["color-contrast"]}
    browser.emulate_media(color_scheme="light", reduced_motion="reduce")
    browser.goto((site / "slides" / f"{DECK}.html").as_uri())
    for number in range(browser.evaluate("Reveal.getTotalSlides()")):
        browser.evaluate("number => Reveal.slide(number, 0, 99)", number)
        assert axe(browser, contrast) == [], number
    states = {7: {"task 1": State(0, 0, 2, True), "task 2": State(0, 0, 1), "task 3": State(0, 0)}}
    shown = glance.room(Board(states, {7: "task 2"}, ["task 1", "task 2", "task 3"]), 600)
    (tmp_path / "room.html").write_text(
        glance.PAGE.replace("REFRESH", "999").replace("ROOM", shown)
    )
    browser.goto((tmp_path / "room.html").as_uri())
    assert axe(browser) == []


# --- addresses outside


@pytest.fixture
def elsewhere():
    """A server on loopback with two pages and one that is forbidden."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response({"/": 200, "/good": 200, "/closed": 403}.get(self.path, 404))
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    with serving(Handler) as address:
        yield address


def links(*options):
    env = dict(os.environ, NO_PROXY="127.0.0.1", no_proxy="127.0.0.1")
    command = [sys.executable, ROOT / "site" / "links.py", *options]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)


def test_without_a_network_no_address_is_asked_for():
    done = links("--probe", "http://127.0.0.1:9")
    assert (done.returncode, done.stdout) == (
        0,
        "There is no network here, so no address was asked for.\n",
    )


def test_a_broken_address_is_named(site, elsewhere, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "index.md").write_text(
        f"# A page\n\n[good]({elsewhere}/good), [closed]({elsewhere}/closed), "
        f"[gone]({elsewhere}/gone/403)\n"
    )
    done = links("--probe", elsewhere, "--source", tmp_path / "source", "--out", tmp_path)
    assert done.returncode == 1, done.stderr
    assert f"index.md: {elsewhere}/gone/403 does not answer well" in done.stdout
    assert f"index.md: {elsewhere}/closed refuses programs" in done.stdout
    assert "3 addresses: 1 answer, 1 refuse programs, 1 are broken" in done.stdout
