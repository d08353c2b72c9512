"""Sphinx extension: cells, their folds, and what stands around every page."""

import html
import re

from content import setting, source_of
from docutils import nodes
from ipython_pygments_lexers import IPython3Lexer
from pygments.lexer import bygroups
from pygments.token import Keyword, Operator, Text

LABEL = ' aria-label="Toggle hidden content"'  # myst-nb's, which hides the words of a fold


class PxLexer(IPython3Lexer):
    """IPython's lexer, which also colours the Python below `%%px`."""

    tokens = {  # noqa: RUF012
        **IPython3Lexer.tokens,
        "root": [
            (r"(%%)(px)(.*\n?)", bygroups(Operator, Keyword, Text)),
            *IPython3Lexer.tokens["root"],
        ],
    }


def description(doctree, length=155):
    """The first paragraph of a page, shortened at a word."""
    paragraphs = (node.astext() for node in doctree.findall(nodes.paragraph))
    words = " ".join(next((text for text in paragraphs if len(text) > 40), "").split())
    return words if len(words) <= length else words[:length].rsplit(" ", 1)[0] + " …"


def complete(app, page, template, context, doctree):
    """Name the folds by their words, describe the page to search engines, and give its source."""
    if "body" in context:
        context["body"] = context["body"].replace(LABEL, "")
    title = html.escape(re.sub(r"<[^>]+>", "", context.get("title", "")))
    tags = {"og:title": title, "og:type": "article", "og:site_name": app.config.project}
    picture = re.search(r'src="[./]*(_images/[^"]+\.png)"', context.get("body", ""))
    if picture and (address := setting("url")):
        tags["og:image"] = f"{address}/{picture[1]}"
    if doctree is not None and (text := html.escape(description(doctree))):
        tags |= {"description": text, "og:description": text}
    for name, content in tags.items():
        kind = "property" if ":" in name else "name"
        context["metatags"] = (
            context.get("metatags", "") + f'\n<meta {kind}="{name}" content="{content}">'
        )
    context["source"] = source_of(page)


def setup(app):
    app.add_lexer("ipython3", PxLexer)
    app.connect("html-page-context", complete)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
