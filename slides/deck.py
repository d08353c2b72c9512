"""A deck: a Markdown file whose slides, separated by `---`, have a title, notes and minutes.

README.md in this folder shows what a slide is made of.
"""

import importlib.util
import re
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
import yaml
from extract import ROOT, SlideError
from render import make_markdown
from typeface import use_typeface


@dataclass
class Slide:
    """html: its content; notes: the speaker's text as HTML; minutes: the time planned for it."""

    title: str
    html: str
    notes: str
    minutes: float
    classes: str = ""
    starts: float = 0.0  # minutes from the beginning of the deck
    id: str = ""


@dataclass
class Deck:
    name: str
    meta: dict
    slides: list = field(default_factory=list)

    @property
    def minutes(self):
        return sum(slide.minutes for slide in self.slides)


def load_figures(folder):
    """The deck's figures.py: a function per figure, and `facts()` for the numbers in the text."""
    name = f"figures_of_{folder.name}"
    spec = importlib.util.spec_from_file_location(name, folder / "figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(folder):
    """Read, fill in and render the deck in `folder`.

    Raises SlideError with the slide's title if something is wrong.
    """
    folder = Path(folder)
    source = folder / "deck.md"
    if not source.is_file():
        raise SlideError(
            f"{source}: no such deck. A deck is a folder in slides/ with deck.md and figures.py."
        )
    use_typeface()
    figures = load_figures(folder)
    # Other delimiters than {{ }}, which LaTeX and f-strings use.
    signs = {"variable_start_string": "<<", "variable_end_string": ">>"}
    jinja = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False, **signs)  # noqa: S701  (the decks' own text)
    jinja.globals["minutes"] = minutes
    try:
        text = jinja.from_string(source.read_text(encoding="utf-8")).render(figures.facts())
    except jinja2.UndefinedError as error:
        raise SlideError(
            f"{source}: {error.message}; the numbers of a deck come from facts() in figures.py."
        ) from None

    md = make_markdown(figures)
    tokens = md.parse(text)
    meta = {}
    if tokens and tokens[0].type == "front_matter":
        meta = yaml.safe_load(tokens.pop(0).content)
    deck = Deck(folder.name, meta)
    for number, part in enumerate(split_at_rules(tokens), start=1):
        slide = make_slide(md, part, number)
        slide.starts = deck.minutes
        deck.slides.append(slide)
    return deck


def minutes(name):
    """The minutes that a notebook or a lab states."""
    try:
        return int(re.search(r"\*\*(\d+) minutes", (ROOT / f"{name}.ipynb").read_text())[1])
    except (OSError, TypeError) as error:
        raise SlideError(f"minutes of {name}: {error}.") from None


def split_at_rules(tokens):
    """Lists of tokens between the top-level horizontal rules."""
    parts = [[]]
    for token in tokens:
        if token.type == "hr" and token.level == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def make_slide(md, tokens, number):
    heading = next((i for i, t in enumerate(tokens) if t.type == "heading_open"), None)
    if heading is None:
        raise SlideError(f"slide {number} has no heading; begin it with `## Its title`.")
    title = plain_text(tokens[heading + 1])
    where = f"slide {number} ({title})"
    opens = [i for i, t in enumerate(tokens) if t.type == "container_notes_open"]
    if len(opens) != 1:
        raise SlideError(
            f"{where} has {len(opens)} notes; expected one `::: notes 1.5 min` ... `:::`."
        )
    close = next(i for i, t in enumerate(tokens) if t.type == "container_notes_close")
    timing = re.fullmatch(r"notes\s+(\d+(?:\.\d+)?)\s+min", tokens[opens[0]].info.strip())
    if not timing:
        raise SlideError(
            f"{where}: its notes begin with {tokens[opens[0]].info!r}; expected `::: notes 1.5 "
            f"min`."
        )
    classes = tokens[heading].attrs.pop("class", "")
    head = tokens[heading : heading + 3]
    body = tokens[:heading] + tokens[heading + 3 : opens[0]] + tokens[close + 1 :]
    body, source = without_container(body, "source")
    try:
        content = f'<div class="body">\n{render(md, body)}</div>\n'
        html = render(md, head) + content + render(md, source)
        notes = render(md, tokens[opens[0] + 1 : close])
    except SlideError as error:
        raise SlideError(f"{where}: {error}") from None
    if "<p>:::" in html + notes:
        raise SlideError(
            f"{where}: a stray `:::`; a container around another one needs more colons than the "
            f"inner one."
        )
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    return Slide(
        title, html, notes, float(timing.group(1)), str(classes), id=f"{number:02d}-{slug}"
    )


def render(md, tokens):
    return md.renderer.render(tokens, md.options, {})


def without_container(tokens, name):
    """The tokens outside and inside of the first container of that name."""
    for i, token in enumerate(tokens):
        if token.type == f"container_{name}_open":
            for j in range(i, len(tokens)):
                if tokens[j].type == f"container_{name}_close" and tokens[j].level == token.level:
                    return tokens[:i] + tokens[j + 1 :], tokens[i : j + 1]
    return tokens, []


def plain_text(inline):
    return "".join(
        t.content for t in inline.children or [] if t.type in ("text", "code_inline", "math_inline")
    )
