"""Markdown to HTML for slides: math as drawings, code from its source, figures from functions.

Nothing needs a network.
"""

import base64
import html
import io
import re
import shlex

import matplotlib
from diagrams import INK, PX_PER_INCH, STYLE
from extract import (
    ROOT,
    SlideError,
    between,
    broken,
    cell_output,
    cell_picture,
    cell_source,
    function_source,
    heading_ids,
    picked,
)
from markdown_it import MarkdownIt
from matplotlib import pyplot
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import math_to_image
from matplotlib.text import Text
from mdit_py_plugins.attrs import attrs_block_plugin
from mdit_py_plugins.container import container_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.front_matter import front_matter_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from vectors import in_our_typeface, svg_width, text_sizes

MIN_PT = 15  # of text in a figure: 20 px on the slide
# The notebooks' pictures have 12 pt text at 110 dots per inch, which is 18 px. They are enlarged,
# but not beyond a slide's body.
PICTURE_ZOOM, MIN_PICTURE_ZOOM, PICTURE_ROOM = 1.1, 1.04, (1150, 520)


def make_markdown(figures):
    """A markdown-it parser; the function `name` of the module `figures` draws `figure:name`."""
    md = MarkdownIt("commonmark", {"html": True, "typographer": False}).enable("table")
    md.use(front_matter_plugin).use(attrs_block_plugin)
    md.use(
        dollarmath_plugin,
        allow_digits=False,
        renderer=lambda tex, opts: math(tex, opts["display_mode"]),
    )
    for name in ("notes", "cols", "col", "source", "big", "answer"):
        md.use(container_plugin, name, render=container)
    md.add_render_rule("fence", lambda self, tokens, i, options, env: fence(tokens[i]))
    md.add_render_rule("image", lambda self, tokens, i, options, env: image(tokens[i], figures))
    md.add_render_rule("link_open", link)
    return md


def container(self, tokens, i, options, env):
    """`::: cols wide-left` becomes a div with both classes; the next key shows an answer."""
    words = tokens[i].info.strip() + " fragment" * tokens[i].info.strip().startswith("answer")
    return f'<div class="{html.escape(words)}">\n' if tokens[i].nesting == 1 else "</div>\n"


def data_uri(content, mime):
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


def math(tex, display):
    """TeX drawn by Matplotlib, like the figures' labels; sized in em, relative to the text."""
    size = 20.0
    buffer = io.BytesIO()
    try:
        with matplotlib.rc_context({"svg.hashsalt": "pi2zero", "savefig.transparent": True}):
            depth = math_to_image(
                f"${tex}$", buffer, prop=FontProperties(size=size), dpi=72, format="svg", color=INK
            )
    except ValueError as error:
        raise SlideError(
            f"the formula ${tex}$ cannot be drawn: {str(error).strip().splitlines()[-1]}"
        ) from None
    svg = buffer.getvalue()
    width, height = map(float, re.search(rb'width="([\d.]+)pt" height="([\d.]+)pt"', svg).groups())
    style = f"width:{width / size:.3f}em;height:{height / size:.3f}em;"
    style += f"vertical-align:{-depth / size:.3f}em"
    source = data_uri(svg, "image/svg+xml")
    picture = f'<img class="math" style="{style}" alt="{html.escape(tex)}" src="{source}">'
    return f'<p class="display">{picture}</p>' if display else picture


def image(token, figures):
    """`![alt](figure:name)`: the figure at its true size.

    `![alt](steps:name)`: several of one size; the next key covers one with the next.
    `![alt](picture:notebooks/x.ipynb#tag)`: the picture that a cell left in a notebook, enlarged.
    """
    source = token.attrs["src"]
    if not source.startswith(("figure:", "steps:", "picture:")):
        raise SlideError(
            f"the image {source!r} is not a figure:name; slides draw their figures, they load none."
        )
    kind, name = source.split(":", 1)
    if not token.content.strip():
        raise SlideError(
            f"the figure {name!r} has no alternative text: write ![what it shows]({kind}:{name})."
        )
    if kind == "picture":
        return picture(name, html.escape(token.content))
    drawn = draw(figures, name)
    if kind == "figure":
        return embedded(drawn, name, token.content)
    shown = [
        embedded(figure, name, token.content, "figure fragment" if i else "figure")
        for i, figure in enumerate(drawn)
    ]
    return f'<span class="steps">{"".join(shown)}</span>'


def embedded(figure, name, alt, classes="figure"):
    width, height = figure.get_size_inches() * PX_PER_INCH
    buffer = io.BytesIO()
    # The dots per inch are for rasterized parts.
    figure.savefig(buffer, format="svg", dpi=200, metadata={"Date": None})
    return (
        f'<img class="{classes}" data-figure="{name}" width="{width:.0f}" height="{height:.0f}" '
        f'alt="{html.escape(alt)}" src="{data_uri(buffer.getvalue(), "image/svg+xml")}">'
    )


def picture(source, alt):
    path, _, tag = source.partition("#")
    drawn, *size = cell_picture(path, tag)
    fits = (room / pixels for room, pixels in zip(PICTURE_ROOM, size, strict=True))
    zoom = min(PICTURE_ZOOM, *fits)
    if zoom < MIN_PICTURE_ZOOM:
        raise SlideError(
            f"{path}: the picture of {tag!r}, {size[0]} x {size[1]} px, is too large to be "
            f"legible on a slide."
        )
    width, height = (round(zoom * pixels) for pixels in size)
    where = f'data-figure="{html.escape(source)}" width="{width}" height="{height}"'
    if isinstance(drawn, str):
        check_vectors(source, drawn, width)
        uri = data_uri(in_our_typeface(drawn).encode(), "image/svg+xml")
    else:
        uri = data_uri(drawn, "image/png")
    return f'<img class="figure" {where} alt="{alt}" src="{uri}">'


def check_vectors(source, svg, pixels):
    """The text of a notebook's picture must be legible, too. R's is outlines, without sizes."""
    scale = pixels / svg_width(svg)
    for words, size in text_sizes(svg).items():
        if size * scale < MIN_PT * 4 / 3 - 0.1:
            raise SlideError(f"{source}: {words!r} has {size * scale:.1f} px on the slide.")


def draw(figures, name):
    function = getattr(figures, name, None)
    if function is None:
        raise SlideError(f"no function {name!r} in {figures.__file__}.")
    with matplotlib.rc_context(STYLE):
        drawn = function()
    for figure in drawn if isinstance(drawn, list) else [drawn]:
        pyplot.close(figure)
        check_legible(name, figure)
    return drawn


def check_legible(name, figure):
    """Figures are embedded at their true size: their text must be legible from the last row."""
    for text in figure.findobj(Text):
        size, words = text.get_fontsize(), text.get_text().strip()
        if words and text.get_visible() and size < MIN_PT - 0.1:
            raise SlideError(f"the figure {name!r}: {words!r} has {size:g} pt, below {MIN_PT}.")


def fence(token):
    """A code block: written here, or `from=FILE` with `tag=`, `def=`, and optionally `first=` and
    `last=` lines, or `pick=`.

    `width=80` breaks longer lines after a comma. `reveal="a|b"`: what follows comes with the next
    key, from the line that contains a on, then from b on.
    """
    language, *words = shlex.split(token.info.strip()) or ["text"]
    options = dict(word.split("=", 1) for word in words)
    code, caption = token.content.rstrip("\n"), ""
    if "from" in options:
        code, caption = included(language, options), options["from"]
    lexer = get_lexer_by_name("text" if language == "output" else language)
    markup = revealed(
        highlight(code, lexer, HtmlFormatter(nowrap=True)), code, options.get("reveal")
    )
    caption = (
        f"<figcaption>{html.escape(options.get('caption', caption))}</figcaption>"
        if caption
        else ""
    )
    return (
        f'<figure class="code {html.escape(language)}"><pre><code>{markup}</code></pre>'
        f"{caption}</figure>\n"
    )


def revealed(markup, code, parts):
    """Highlighted code, with a fragment from each line on that has one of `parts` (a|b|c)."""
    if not parts:
        return markup
    lines, plain = markup.rstrip("\n").split("\n"), code.split("\n")
    starts = []
    for part in parts.split("|"):
        lowest = max(starts, default=0)
        matches = [i for i, line in enumerate(plain) if part in line and i > lowest]
        if not matches:
            raise SlideError(f"reveal: no line after the one before contains {part!r}.")
        starts.append(matches[0])
    blocks = [lines[a:b] for a, b in zip([0, *starts], [*starts, len(lines)], strict=True)]
    first, *others = ["\n".join(block) for block in blocks]
    return first + "\n" + "".join(f'<span class="fragment">{block}\n</span>' for block in others)


def included(language, options):
    path = options["from"]
    if language == "output":
        code = cell_output(path, options["tag"])
    elif path.endswith(".ipynb"):
        code = cell_source(path, options["tag"])
    elif "def" in options:
        code = function_source(path, options["def"])
    else:
        code = (ROOT / path).read_text(encoding="utf-8")
    if "pick" in options:
        code = picked(code, options["pick"], path)
    if "first" in options:
        code = between(code, options["first"], options.get("last", options["first"]), path)
    if "width" in options:
        code = "\n".join(
            piece for line in code.splitlines() for piece in broken(line, int(options["width"]))
        )
    return code


def link(self, tokens, i, options, env):
    """`notebook:02_x.ipynb#Heading` becomes a link to the notebook, which must have the heading."""
    href = str(tokens[i].attrs.get("href", ""))
    if href.startswith("notebook:"):
        path, _, anchor = href.removeprefix("notebook:").partition("#")
        headings = heading_ids(path)  # raises if there is no such notebook
        if anchor and anchor not in headings:
            raise SlideError(
                f"{path} has no heading {anchor!r}; it has: {', '.join(sorted(headings))}"
            )
        tokens[i].attrs["href"] = f"../../{path}" + (f"#{anchor}" if anchor else "")
        tokens[i].attrs["data-notebook"] = path
    return self.renderToken(tokens, i, options, env)
