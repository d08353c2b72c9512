"""The README's pictures, from what the notebooks have stored: python site/pictures.py writes
docs/pictures/.

They are drawn narrow and with large letters, because a phone shows them 360 pixels wide. Badges
state what pyproject.toml says.
"""

import re
import tomllib
from html import escape

from content import ROOT, notebook

FOLDER = ROOT / "docs" / "pictures"
LINE, WIDE, PAPER, INK, BLUE, RED = 21, 7.83, "#ffffff", "#1c2331", "#1f5fa8", "#b3261e"
CHARACTERS = 54  # of a line
BARS = ("notebooks/09_zero.ipynb", "bars")
PATH = re.compile(r'<path d="M ([^"]+)" clip-path="[^"]+" style="fill: ([^"]+)"')
PARTS = ("parameters", "gradients", "master", "moments", "buffers")
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
        if set(line) != {"-"} and "most recent call last" not in line:
            lines.append((line, RED if "IndexError" in line or "---->" in line else INK))
    return lines


def svg(lines):
    """Lines of text in a typewriter's letters; long ones are broken at a space."""
    broken = []
    for text, colour in lines:
        while len(text) > CHARACTERS:
            cut = text.rindex(" ", 0, CHARACTERS)
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


def bars():
    """Matplotlib's bars of four ranks: (stage's bars as (left, right, colour), predicted) in MB."""
    (drawn,) = (output["data"]["image/svg+xml"] for output in cell_of(*BARS)["outputs"])
    ticks, marks, boxes = [], [], []
    for path, style in PATH.findall("".join(drawn)):
        corners = [float(line.split()[0]) for line in path.replace("z", "").split("L")]
        if len(corners) == 4:
            boxes.append((corners[0], corners[1], style))
        else:
            (marks if "stroke-width: 3" in style else ticks).append(corners[0])
    megabytes = [20 * (x - ticks[0]) / (ticks[1] - ticks[0]) for x in marks]
    boxes = [
        (*(20 * (x - ticks[0]) / (ticks[1] - ticks[0]) for x in box[:2]), box[2]) for box in boxes
    ]
    rows = [boxes[row : row + len(PARTS)] for row in range(0, len(boxes), len(PARTS))]
    return list(zip(rows, megabytes, strict=True))[-4:]


def memory():
    """Bytes on each of four ranks for ZeRO's stages, measured, with a mark at the prediction."""
    scale, left, high = 2.45, 74, 44
    rows = bars()
    lines = [
        f'<rect width="460" height="{high * 4 + 92}" rx="6" fill="{PAPER}" stroke="#c4ccd9"/>',
        f'<text x="12" y="26" fill="{INK}">MB on each of four ranks; black mark: predicted</text>',
    ]
    for stage, (boxes, predicted) in enumerate(rows):
        y = 42 + high * stage
        lines.append(f'<text x="12" y="{y + 21}" fill="{INK}">stage {stage}</text>')
        for start, end, colour in boxes:
            x, wide = left + scale * start, scale * (end - start)
            lines.append(
                f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="30" fill="{colour}"/>'
            )
        x = left + scale * predicted
        lines.append(f'<rect x="{x - 1.5:.1f}" y="{y - 5}" width="3" height="40" fill="{INK}"/>')
        number = f"{boxes[-1][1]:.0f}"
        lines.append(
            f'<text x="{left + scale * boxes[-1][1] + 9:.1f}" y="{y + 21}">{number}</text>'
        )
    x, y = 12, 42 + high * 4 + 14
    for name, (_, _, colour) in zip(PARTS, rows[0][0], strict=True):
        if x + 24 + 8.6 * len(name) > 450:
            x, y = 12, y + 22
        lines.append(f'<rect x="{x}" y="{y - 11}" width="12" height="12" fill="{colour}"/>')
        lines.append(f'<text x="{x + 17}" y="{y}" fill="{INK}">{name}</text>')
        x += 30 + round(8.6 * len(name))
    size = f'viewBox="0 0 460 {high * 4 + 92}" width="460" height="{high * 4 + 92}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-size="15"'
    return (
        f'{head} font-family="DejaVu Sans, Verdana, sans-serif">\n'
        + "\n".join(lines)
        + "\n</svg>\n"
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
    (FOLDER / "zero.svg").write_text(memory())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    first, beyond = map(
        int, re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project["requires-python"]).groups()
    )
    python = f"3.{first} tested, 3.{first + 1} to 3.{beyond - 1} in part"
    for name, words in {
        "python": ("Python", python),
        "licence": ("licence", f"{project['license']['text']}, CC BY 4.0"),
        "gpu": ("GPU", "not needed"),
        "colab": ("open in", "Colab"),
        "kaggle": ("open in", "Kaggle"),
        "codespaces": ("open in", "Codespaces"),
    }.items():
        (FOLDER / f"badge_{name}.svg").write_text(badge(*words))


if __name__ == "__main__":
    main()
