"""One typeface for text, figures and mathematics: Source Sans, which comes with reveal.js.

What it lacks, STIX Sans draws.
"""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import matplotlib
from fontTools.ttLib import TTFont
from matplotlib import font_manager

FONTS = Path(__file__).resolve().parent / "vendor" / "reveal.js" / "fonts"
FAMILY = "Source Sans Pro"
# For figures and formulas. The next family has the letters that the first one lacks (Greek).
STYLE = {
    "font.family": [FAMILY, "DejaVu Sans"],
    "mathtext.fontset": "custom",
    "mathtext.rm": FAMILY,
    "mathtext.it": f"{FAMILY}:italic",
    "mathtext.bf": f"{FAMILY}:bold",
    "mathtext.fallback": "stixsans",
}


@cache
def register():
    """Register the fonts with Matplotlib, which needs them unpacked: it reads no .woff."""
    folder = Path(tempfile.mkdtemp(prefix="pi2zero-fonts-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for source in FONTS.glob("*.woff"):
        font = TTFont(source)
        font.flavor = None
        if "semibold" in source.name:  # It is the family's bold font, as in the style sheet.
            names = {1: FAMILY, 2: "Bold", 4: f"{FAMILY} Bold", 16: FAMILY, 17: "Bold"}
            for record in font["name"].names:
                record.string = names.get(record.nameID, record.string)
            font["OS/2"].usWeightClass = 700
        target = folder / f"{source.stem}.ttf"
        font.save(target)
        font_manager.fontManager.addfont(target)


def use_typeface():
    """Draw with this typeface from here on."""
    register()
    matplotlib.rcParams.update(STYLE)
