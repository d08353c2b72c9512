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
# For figures and for formulas; a letter that the first family lacks (most Greek ones) is taken from
# the next.
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
    """Tell Matplotlib of the fonts: it reads no .woff, so they are unpacked into a folder that goes
    when Python ends.
    """
    folder = Path(tempfile.mkdtemp(prefix="pi2zero-fonts-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for source in FONTS.glob("*.woff"):
        font = TTFont(source)
        font.flavor = None
        if "semibold" in source.name:  # the family's bold one here, as in the style sheet
            for record in font["name"].names:
                text = {1: FAMILY, 2: "Bold", 4: f"{FAMILY} Bold", 16: FAMILY, 17: "Bold"}.get(
                    record.nameID
                )
                if text:
                    record.string = text
            font["OS/2"].usWeightClass = 700
        target = folder / f"{source.stem}.ttf"
        font.save(target)
        font_manager.fontManager.addfont(target)


def use_typeface():
    """Draw with it from here on."""
    register()
    matplotlib.rcParams.update(STYLE)
