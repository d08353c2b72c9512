"""Sphinx extension: Mermaid diagrams become SVG while the site is built."""

import re
import tomllib
from html import escape
from pathlib import Path

import mermaidx
from docutils import nodes
from sphinx.errors import ExtensionError

DESCRIBED = tomllib.loads(Path(__file__).with_name("alt.toml").read_text())


def draw(app, doctree):
    for block in list(doctree.findall(nodes.literal_block)):
        if block.get("language") == "mermaid":
            alt = DESCRIBED.get(app.env.docname, {}).get("mermaid")
            if not alt:
                raise ExtensionError(
                    f"{app.env.docname}: its diagram has no description. Add `mermaid = ...` "
                    f"under it in site/alt.toml."
                )
            block.replace_self(nodes.raw("", figure(block.astext(), alt), format="html"))


def figure(source, alt):
    """The picture with a description, as wide as it is drawn or narrower."""
    svg = mermaidx.render(source, theme="neutral").svg()
    svg = re.sub(
        r"^.*?<svg", f'<svg role="img" aria-label="{escape(alt)}"', svg, count=1, flags=re.DOTALL
    )
    return f'<figure class="diagram">{svg}</figure>'


def setup(app):
    app.connect("doctree-read", draw)
    return {"parallel_read_safe": True, "version": "1"}
