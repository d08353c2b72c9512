"""Sphinx extension: the first use of a function on a page leads to its documentation."""

import functions
from docutils import nodes


def slug(title):
    """JupyterLab's anchors: the words of a heading, joined by hyphens."""
    return title.strip().replace(" ", "-")


def link_functions(app, doctree):
    """Link inline code to the function's own documentation, once per page."""
    seen = set()
    for code in list(doctree.findall(nodes.literal)):
        url = functions.url_of(code.astext())
        if url and url not in seen and not inside(code, (nodes.title, nodes.reference)):
            seen.add(url)
            link = nodes.reference("", "", refuri=url, internal=False, classes=["function"])
            code.replace_self(link)
            link += code


def inside(node, kinds):
    while node := node.parent:
        if isinstance(node, kinds):
            return True
    return False


def setup(app):
    app.connect("doctree-read", link_functions)
    return {"parallel_read_safe": True, "version": "1"}
