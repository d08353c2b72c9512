"""The stored notebooks can be compared: what nbval does not compare is asserted next to it."""

import ast
import re
import sys
from pathlib import Path

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import notebooks  # noqa: E402 - after the path

BOOKS = sorted(
    path for where in ("notebooks", "solutions") for path in (ROOT / where).glob("*.ipynb")
)
EXEMPT = "nbval-ignore-output"


def is_exempt(cell):
    return EXEMPT in cell.metadata.get("tags", [])


def has_text(cell):
    """Whether a stored output says something; a picture's "<Figure size ...>" does not."""
    for output in cell.outputs:
        data = output.get("data", {})
        picture = any(kind.startswith("image/") or "widget" in kind for kind in data)
        if (
            output.get("text", "").strip()
            or "ename" in output
            or ("text/plain" in data and not picture)
        ):
            return True
    return False


def can_fail(source, language):
    """Whether a cell holds an assert or calls a check."""
    if language == "R":
        return bool(re.search(r"^ *stopifnot\((?!TRUE\))", source, re.MULTILINE))
    source = source.partition("\n")[2] if source.startswith("%%") else source
    try:
        nodes = list(ast.walk(ast.parse(TransformerManager().transform_cell(source))))
    except SyntaxError:  # the cell shows a mistake on purpose
        return False
    asserts = [node for node in nodes if isinstance(node, ast.Assert)]
    calls = [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]
    return any(name.startswith("check.") for name in calls) or any(
        not isinstance(node.test, ast.Constant) for node in asserts
    )


def unchecked(cells, language="python"):
    """The numbers of exempt cells with text for which neither they nor a neighbour assert anything.

    Neighbours are the exempt cells in one run with it, and one more cell on either side.
    """
    numbers = []
    for at, cell in enumerate(cells):
        if is_exempt(cell) and has_text(cell):
            first = last = at
            while first > 0 and is_exempt(cells[first - 1]):
                first -= 1
            while last + 1 < len(cells) and is_exempt(cells[last + 1]):
                last += 1
            near = cells[max(first - 1, 0) : last + 2]
            if not any(can_fail(other.source, language) for other in near):
                numbers.append(at)
    return numbers


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_cell_that_is_not_compared_has_an_assert_next_to_it(path):
    book = nbformat.read(path, 4)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert any(not is_exempt(cell) and has_text(cell) for cell in cells), "nbval compares no text"
    never_run = [cell for cell in cells if not cell.execution_count]
    assert never_run == [cell for cell in cells if notebooks.is_of_learner(cell)], (
        "nbval compares no cell that was never run"
    )
    assert not any(cell.outputs for cell in never_run)
    language = book.metadata.get("language_info", {}).get("name")
    assert [cells[at].source for at in unchecked(cells, language)] == []


@pytest.mark.parametrize(
    ("sources", "wrong"),
    [
        (["x = 1", "print(x) # exempt", "y = 2"], [1]),
        (["x = 1", "print(x) # exempt", "%%px\nassert x == 1"], []),
        (["check.ring(f)", "print(1) # exempt", "print(2) # exempt"], []),
        (["assert x", "y = 2", "print(1) # exempt", "assert True"], [2]),
    ],
)
def test_the_rule(sources, wrong):
    cells = []
    for source in sources:
        tags = [EXEMPT] if "# exempt" in source else []
        output = nbformat.v4.new_output("stream", text="1\n")
        cells.append(
            nbformat.v4.new_code_cell(
                source, metadata={"tags": tags}, outputs=[output] * bool(tags)
            )
        )
    assert unchecked(cells) == wrong
