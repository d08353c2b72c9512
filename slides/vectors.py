"""A notebook's picture in the slides' typeface.

The picture contains the font, because it cannot use its page's.
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
    svg = re.sub(r"<text>.*?</text>", lambda text: closed_up(text[0]), svg, flags=re.DOTALL)
    svg = re.sub(rf"{OWN}[^;\"]*", f"'{FAMILY}', {OWN}, sans-serif", svg)
    letters = "".join(re.findall(r"<text.*?</text>", svg, re.DOTALL))
    letters = "".join(sorted(set(re.sub(r"<[^>]*>|\s", "", letters)))) + " "
    used = [("400", "normal")]
    if re.search(r"font(-weight)?:[^;\"]*\b(bold|700)\b", svg):
        used.append(("700", "normal"))
    if re.search(r"font(-style)?:[^;\"]*\bitalic\b", svg):
        used.append(("400", "italic"))
    rules = "".join(rule(*face, letters) for face in used)
    return svg.replace("<defs>", f"<style>{rules}</style><defs>", 1)


def closed_up(text: str) -> str:
    """A formula in which each letter follows the one before: Matplotlib's font is wider."""
    last = float("-inf")

    def place(match):
        nonlocal last
        before, last = last, float(match[1])
        return f"<tspan{match[2]}" if last > before > float("-inf") else match[0]

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
    """{text: size of its largest letters in the picture's own units}."""
    largest = {}
    for text in re.findall(r"<text.*?</text>", svg, re.DOTALL):
        sizes = [float(size) for size in re.findall(r"font(?:-size)?:[^;\"]*?\b([\d.]+)px", text)]
        largest[re.sub(r"<[^>]*>|\s+", " ", text).strip()] = max(sizes)
    return largest


def svg_width(svg: str) -> float:
    """The width of the picture, in its own units."""
    return float(re.search(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+)', svg)[1])
