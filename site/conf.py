"""Sphinx's settings for the site. build.py stages the sources and runs Sphinx on them."""

import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from content import setting

project = "From π to ZeRO"
html_title = project
language = "en"
extensions = ["myst_nb", "sphinx.ext.mathjax", "words", "diagrams", "cells", "sphinx_copybutton"]
exclude_patterns = ["scripts", "hub", ".devcontainer"]

# Notebooks as they are stored. Nothing is executed.
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_error_lexer = "text"  # a report of four ranks is no traceback of Python
nb_ipywidgets_js = {}
nb_code_prompt_show = (
    "Guess first. Then show the {type}"  # stage.py: "Try it first" over the kit's answers
)
nb_code_prompt_hide = "Hide the {type}"
# A PNG looks the same everywhere. The SVG that some cells also have is for the decks.
nb_mime_priority_overrides = [("html", "text/markdown", 5), ("html", "image/svg+xml", None)]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_dmath_allow_digits = False
myst_heading_anchors = 3
myst_heading_slug_func = "words.slug"

# Some outputs have further formats.
suppress_warnings = ["mystnb.unknown_mime_type", "myst.header", "misc.highlighting_failure"]

# MathJax from its package, as files of the site
MATHJAX = Path(importlib.util.find_spec("sphinx-mathjax-offline").origin).parent / "static"
mathjax_path = "mathjax/tex-chtml.js"

# For `make links` (links.py)
linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_anchors = False

html_theme = "pydata_sphinx_theme"
html_static_path = ["static", str(MATHJAX)]
html_css_files = ["site.css"]
html_js_files = ["quiz.js", "zero_explorer.js", ("site.js", {"defer": "defer"})]
html_search_scorer = str(Path(__file__).with_name("static") / "scorer.js")
html_favicon = "static/favicon.svg"
templates_path = ["templates"]
copybutton_selector = "div.highlight pre:not(.cell_output pre)"
html_show_sphinx = False
html_copyright_year = False
html_copy_source = False
html_context = {
    "default_mode": "auto",
    "kit": {"version": setting("version"), "repository": setting("repository-code")},
}
html_sidebars = {page: [] for page in ("index", "search", "genindex")}
html_theme_options = {
    "header_links_before_dropdown": 6,
    "show_prev_next": True,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "article_header_end": ["download"],
    "footer_start": ["about"],
    "footer_center": [],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
