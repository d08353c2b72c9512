"""A notebook's picture as lines and text, in the slides' typeface.

It carries that along: a picture cannot use its page's.
"""

import base64
import io
import re

from fontTools import subset
from typeface import FAMILY, FONTS

OWN = "'DejaVu Sans'"  # Matplotlib's, in which the notebooks draw
FACES = {  # (weight, style): the file
    ("400", "normal"): "source-sans-pro-regular.woff",
    ("700", "normal"): "source-sans-pro-semibold.woff",
    ("400", "italic"): "source-sans-pro-italic.woff",
}
TSPAN = re.compile(r'<tspan x="([-\d.]+)"([^>]*>[^<]*</tspan>)')


def in_our_typeface(svg: str) -> str:
    """The SVG that Matplotlib wrote with svg.fonttype "none", its text set in Source Sans."""
    if OWN not in svg:  # R's: outlines
        return svg
    svg = re.sub(r"<text>.*?</text>", lambda found: closed_up(found[0]), svg, flags=re.DOTALL)
    svg = re.sub(rf"{OWN}[^;\"]*", f"'{FAMILY}', {OWN}, sans-serif", svg)
    letters = "".join(re.findall(r"<text.*?</text>", svg, re.DOTALL))
    letters = "".join(sorted(set(re.sub(r"<[^>]*>|\s", "", letters)))) + " "
    bold, italic = (
        re.search(r"font(-weight)?:[^;\"]*\b(bold|700)\b", svg),
        re.search(r"font(-style)?:[^;\"]*\bitalic\b", svg),
    )
    used = [
        face
        for face in FACES
        if face == ("400", "normal")
        or (face[0] == "700" and bold)
        or (face[1] == "italic" and italic)
    ]
    return svg.replace(
        "<defs>", f"<style>{''.join(rule(*face, letters) for face in used)}</style><defs>", 1
    )


def closed_up(text: str) -> str:
    """A formula: Matplotlib places each letter for its own, wider font; now each one that goes on
    follows the one before it.
    """
    last = float("-inf")

    def place(found):
        nonlocal last
        before, last = last, float(found[1])
        return f"<tspan{found[2]}" if last > before > float("-inf") else found[0]

    return re.sub(r"(?<=</tspan>)\s+(?=<tspan)", "", TSPAN.sub(place, text))


def rule(weight: str, style: str, letters: str) -> str:
    """@font-face with what these letters need."""
    options = subset.Options(flavor="woff")
    font = subset.load_font(str(FONTS / FACES[weight, style]), options)
    worker = subset.Subsetter(options)
    worker.populate(text=letters)
    worker.subset(font)
    buffer = io.BytesIO()
    subset.save_font(font, buffer, options)
    data = base64.b64encode(buffer.getvalue()).decode()
    return (
        f'@font-face{{font-family:"{FAMILY}";font-weight:{weight};font-style:{style};'
        f"src:url(data:font/woff;base64,{data})}}"
    )


def text_sizes(svg: str) -> dict[str, float]:
    """{words: size in the picture's own units}, of each text; in a formula that of its largest
    letters.
    """
    found = {}
    for text in re.findall(r"<text.*?</text>", svg, re.DOTALL):
        sizes = [float(size) for size in re.findall(r"font(?:-size)?:[^;\"]*?\b([\d.]+)px", text)]
        found[re.sub(r"<[^>]*>|\s+", " ", text).strip()] = max(sizes)
    return found


def svg_width(svg: str) -> float:
    """The width of the picture, in its own units."""
    return float(re.search(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+)', svg)[1])
