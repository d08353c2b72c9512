"""The README's pictures, from what the notebooks have stored: python site/pictures.py writes
docs/pictures/.

A report is drawn as text in SVG, plots are the PNG of their cell; badges state what pyproject.toml
says.
"""

import base64
import re
import tomllib
from html import escape

from content import ROOT, notebook

FOLDER = ROOT / "docs" / "pictures"
LINE, WIDE, PAPER, INK, BLUE, RED = 21, 7.83, "#ffffff", "#1c2331", "#1f5fa8", "#b3261e"
PLOTS = {
    "ring": ("notebooks/03_collectives.ipynb", "ring-picture"),
    "zero": ("notebooks/09_zero.ipynb", "bars"),
}
REPORT = ("notebooks/00_start_here.ipynb", "one-raises")


def cell_of(path, name):
    (cell,) = (cell for cell in notebook(path)["cells"] if cell["id"] == name)
    return cell


def report():
    """A cell and the report of its failing rank, as lines of (text, colour)."""
    cell = cell_of(*REPORT)
    (error,) = (output for output in cell["outputs"] if output["output_type"] == "error")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error["traceback"])).splitlines()
    lines = [(line, BLUE) for line in "".join(cell["source"]).splitlines()] + [("", INK)]
    for line in shown:
        if set(line) != {"-"}:
            lines.append((line, RED if "IndexError" in line or "---->" in line else INK))
    return lines


def svg(lines):
    """Lines of text in a typewriter's letters; long ones are broken at a space."""
    broken = []
    for text, colour in lines:
        while len(text) > 76:
            cut = text.rindex(" ", 0, 76)
            broken.append((text[:cut], colour))
            text = "    " + text[cut + 1 :]
        broken.append((text, colour))
    width, height = round(max(len(text) for text, _ in broken) * WIDE + 32), LINE * len(broken) + 28
    rows = "".join(
        f'<text x="16" y="{24 + LINE * row}" fill="{colour}" xml:space="preserve">'
        f"{escape(text)}</text>\n"
        for row, (text, colour) in enumerate(broken)
        if text
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" '
        f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13">\n'
        f'<rect width="100%" height="100%" rx="6" fill="{PAPER}" stroke="#c4ccd9"/>\n{rows}</svg>\n'
    )


def badge(left, right):
    a, b = (round(6.6 * len(words) + 14) for words in (left, right))
    letters = 'font-family="DejaVu Sans, Verdana, sans-serif" font-size="11"'
    shape = (
        f'<rect width="{a + b}" height="20" rx="3" fill="{BLUE}"/>'
        f'<rect width="{a}" height="20" rx="3" fill="#444"/>'
    )
    words = f'<text x="{a / 2}" y="14">{left}</text><text x="{a + b / 2}" y="14">{right}</text>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{a + b}" height="20" {letters}>'
    return f'{head}{shape}<g fill="#fff" text-anchor="middle">{words}</g></svg>\n'


def main():
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "report.svg").write_text(svg(report()))
    for name, where in PLOTS.items():
        data = next(
            output["data"]
            for output in cell_of(*where)["outputs"]
            if "image/png" in output.get("data", {})
        )
        (FOLDER / f"{name}.png").write_bytes(base64.b64decode("".join(data["image/png"])))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    first, beyond = map(
        int, re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project["requires-python"]).groups()
    )
    python, licence = f"3.{first} to 3.{beyond - 1}", project["license"]["text"]
    for name, words in {
        "python": ("Python", python),
        "licence": ("licence", licence),
        "gpu": ("GPU", "not needed"),
        "colab": ("open in", "Colab"),
        "kaggle": ("open in", "Kaggle"),
        "codespaces": ("open in", "Codespaces"),
    }.items():
        (FOLDER / f"badge_{name}.svg").write_text(badge(*words))


if __name__ == "__main__":
    main()
