"""What a notebook's cell holds for nbval: text to compare, an exemption, an assert."""

import ast
import re

from IPython.core.inputtransformer2 import TransformerManager


def kind(cell, options):
    """How nbval treats a cell: 'skipped', 'exempted', 'compared' or 'quiet' (no text among its stored outputs).

    options: nbval's own for this cell, from its tags and comments.
    """
    if options["skip"] or cell.execution_count is None:
        return "skipped"  # nbval compares nothing with a cell that was never run
    if not options["check"]:
        return "exempted"
    return "compared" if any(map(has_text, cell.outputs)) else "quiet"


def has_text(output):
    """Has a stored output text that says something? A picture's '<Figure size ...>' does not."""
    if output.output_type == "stream":
        return bool(output.text.strip())
    if output.output_type == "error":
        return True
    data = output.get("data", {})
    return "text/plain" in data and not any(
        key.startswith("image/") or "widget" in key for key in data
    )


def asserts(source, language="python"):
    """Does a cell hold an assert that can fail, or call one of the labs' checks?"""
    if language == "R":
        return bool(re.search(r"^ *stopifnot\((?!TRUE\))", source, re.MULTILINE))
    if source.startswith("%%"):
        source = source.partition("\n")[2]
    try:
        tree = ast.parse(TransformerManager().transform_cell(source))
    except SyntaxError:  # a cell that shows a mistake on purpose
        return False
    return any(_can_fail(node) for node in ast.walk(tree))


def _can_fail(node):
    if isinstance(node, ast.Assert):
        return not isinstance(node.test, ast.Constant)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
    ):
        return node.func.value.id == "check"
    return False


def beside(kinds, at):
    """The cells that may vouch for the exempted cell `at`: its whole run of exempted cells, and one more on either side."""
    first = last = at
    while first > 0 and kinds[first - 1] == "exempted":
        first -= 1
    while last < len(kinds) - 1 and kinds[last + 1] == "exempted":
        last += 1
    return range(max(first - 1, 0), min(last + 2, len(kinds)))
