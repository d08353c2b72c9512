"""Sphinx extension: where a page uses a word of the glossary, or a function, for the first time, it
is linked.
"""

import re
from pathlib import Path

import functions
from docutils import nodes
from sphinx import addnodes

GLOSSARY = Path(__file__).with_name("pages") / "glossary.md"
TERMS = re.findall(r"^(\S.*)\n  \S", GLOSSARY.read_text(), re.MULTILINE)
NO_LINK_IN = (
    nodes.title,
    nodes.reference,
    nodes.literal,
    nodes.literal_block,
    nodes.math,
    nodes.raw,
    addnodes.pending_xref,
)


def slug(title):
    """JupyterLab's anchors: the words of a heading, joined by hyphens."""
    return title.strip().replace(" ", "-")


def link_words(app, doctree):
    """Link inline code to the function's own documentation, and words to the glossary: each once a
    page.
    """
    link_functions(doctree)
    if app.env.docname not in ("glossary", "index"):
        link_terms(doctree, app.env.docname.startswith(("notebooks/", "labs/")))


def link_functions(doctree):
    seen = set()
    for code in list(doctree.findall(nodes.literal)):
        url = functions.url_of(code.astext())
        if url and url not in seen and not inside(code, (nodes.title, nodes.reference)):
            seen.add(url)
            link = nodes.reference("", "", refuri=url, internal=False, classes=["function"])
            code.replace_self(link)
            link += code


def link_terms(doctree, taught):
    """taught: a notebook or a lab. On other pages the root is the user who may do everything."""
    left = {term.lower(): term for term in TERMS if taught or term != "root"}
    for text in list(doctree.findall(nodes.Text)):
        if inside(text, NO_LINK_IN):
            continue
        words, found, at = text.astext(), [], 0
        while left and (match := pattern(left).search(words, at)):
            term = left.pop(key_of(match[0], left))
            found += [nodes.Text(words[at : match.start()]), term_link(match[0], term)]
            at = match.end()
        if found:
            parent = text.parent
            place = parent.index(text)
            parent.remove(text)
            parent.insert(place, [*found, nodes.Text(words[at:])])


def pattern(terms):
    """The longest terms first, in singular or plural."""
    longest = sorted(map(re.escape, terms), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(longest)})(?:s|es)?(?![\w-])", re.IGNORECASE)


def key_of(word, terms):
    return next(end for end in (word.lower(), word.lower()[:-1], word.lower()[:-2]) if end in terms)


def term_link(word, term):
    link = addnodes.pending_xref(
        "", reftype="term", refdomain="std", reftarget=term, refexplicit=True, refwarn=True
    )
    link += nodes.inline("", word, classes=["xref", "std", "std-term"])
    return link


def inside(node, kinds):
    while node := node.parent:
        if isinstance(node, kinds):
            return True
    return False


def setup(app):
    app.connect("doctree-read", link_words)
    return {"parallel_read_safe": True, "version": "1"}
