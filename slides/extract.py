"""Code and output for the slides from scripts and notebooks, so that the slides stay true."""

import ast
import base64
import json
import re
import struct
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class SlideError(Exception):
    """Something in a deck's source is wrong; the message says what and what to do."""


@cache
def notebook(path):
    """The notebook at `path` (relative to the repository's root) as a dict."""
    file = ROOT / path
    if not file.is_file():
        raise SlideError(
            f"{path}: no such notebook. Slides take code and numbers from the committed notebooks."
        )
    return json.loads(file.read_text(encoding="utf-8"))


def tagged_cell(path, tag):
    """The one code cell of the notebook that carries the tag, or has it as its id."""
    cells = [
        cell
        for cell in notebook(path)["cells"]
        if cell["cell_type"] == "code"
        and tag in [cell.get("id"), *cell.get("metadata", {}).get("tags", [])]
    ]
    if len(cells) != 1:
        raise SlideError(
            f"{path}: {len(cells)} code cells carry the tag {tag!r} or have it as their id; "
            f"expected exactly one."
        )
    return cells[0]


def cell_code(path, tag):
    """The code of one tagged cell, without the decorator that a blank's solution has there."""
    return "".join(tagged_cell(path, tag)["source"]).strip("\n").replace("@solution\n", "")


def cell_source(path, tags):
    """The code of one tagged cell, or of several (`tag,tag`) with an empty line between them."""
    return "\n\n".join(cell_code(path, tag) for tag in tags.split(","))


def cell_output(path, tag):
    """What the tagged cell printed when the notebook was run (stdout and plain-text results)."""
    texts = []
    for output in tagged_cell(path, tag)["outputs"]:
        if output["output_type"] == "stream" and output["name"] == "stdout":
            texts.append("".join(output["text"]))
        elif output["output_type"] in ("execute_result", "display_data"):
            texts.append("".join(output["data"].get("text/plain", "")) + "\n")
        elif output["output_type"] == "error":
            texts.append("\n".join(output["traceback"]) + "\n")
    text = re.sub(r"\x1b\[[0-9;]*m", "", "".join(texts)).strip("\n")
    if not text:
        raise SlideError(
            f"{path}: the cell tagged {tag!r} has no text output. Run the notebook and commit "
            f"its outputs."
        )
    return text


def cell_picture(path, tag):
    """(the cell's picture in the notebook: SVG text or PNG bytes; width and height in pixels)."""
    for output in tagged_cell(path, tag)["outputs"]:
        if "image/png" in output.get("data", {}):
            png = base64.b64decode("".join(output["data"]["image/png"]))
            return "".join(output["data"].get("image/svg+xml", "")) or png, *struct.unpack(
                ">II", png[16:24]
            )
    raise SlideError(
        f"{path}: the cell {tag!r} has no picture. Run the notebook and commit its outputs."
    )


def printed(path, tag, pattern):
    """All that a pattern finds in what a cell printed."""
    matches = re.findall(pattern, cell_output(path, tag))
    if not matches:
        raise SlideError(f"{path}: the cell {tag!r} prints nothing like {pattern!r}.")
    return matches


def printed_table(path, tag, first_column):
    """A table that a cell printed, as {column: list of floats}; per cents are 0 to 100.

    Its header begins with `first_column`; it ends before the first line that is not all numbers.
    """
    lines = cell_output(path, tag).splitlines()
    header = next((i for i, line in enumerate(lines) if line.split()[:1] == [first_column]), None)
    if header is None:
        raise SlideError(
            f"{path}: the cell tagged {tag!r} prints no table that begins with {first_column!r}."
        )
    columns = {name: [] for name in lines[header].split()}
    for line in lines[header + 1 :]:
        if not re.fullmatch(r"\s*(?:-?[\d.]+ ?%?\s*)+", line):
            break
        for column, value in zip(columns.values(), line.replace("%", " ").split(), strict=True):
            column.append(float(value))
    return columns


def function_source(path, name):
    """The text of one function of a script, without its decorators."""
    file = ROOT / path
    if not file.is_file():
        raise SlideError(f"{path}: no such script.")
    text = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])
    raise SlideError(f"{path}: no function or class {name!r}.")


def between(text, first, last, where):
    """The lines from the one that contains `first` to the one that contains `last`, dedented."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if first in line]
    if not starts:
        raise SlideError(f"{where}: no line contains {first!r}.")
    start = starts[0]
    for end in range(start, len(lines)):
        if last in lines[end]:
            block = lines[start : end + 1]
            margin = min(
                (len(line) - len(line.lstrip()) for line in block if line.strip()), default=0
            )
            return "\n".join(line[margin:] for line in block)
    raise SlideError(f"{where}: no line after {first!r} contains {last!r}.")


def picked(text, parts, where, width=86):
    """The lines that contain `parts` (separated by |), dedented, without `# NEW` comments."""
    chosen = []
    for part in parts.split("|"):
        match = next((line for line in text.splitlines() if part in line), None)
        if match is None:
            raise SlideError(f"{where}: no line contains {part!r}.")
        chosen += broken(match.split("  # NEW")[0].strip(), width)
    return "\n".join(chosen)


def broken(line, width):
    """The line in pieces of at most `width` characters, split after commas and indented further."""
    indent, pieces = " " * (len(line) - len(line.lstrip()) + 4), []
    while len(line) > width and ", " in line[:width]:
        cut = line.rindex(", ", 0, width) + 1
        pieces.append(line[:cut])
        line = indent + line[cut:].strip()
    return [*pieces, line]


def heading_ids(path):
    """The anchors of a notebook's headings, as JupyterLab makes them: words joined by hyphens."""
    text = "\n".join(
        "".join(c["source"]) for c in notebook(path)["cells"] if c["cell_type"] == "markdown"
    )
    return {
        m.group(1).strip().replace(" ", "-")
        for m in re.finditer(r"^#{1,6} +(.+?)\s*$", text, re.MULTILINE)
    }
