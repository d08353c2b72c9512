"""Words that documentation of the field does not use: python tools/prose.py [FILE ...]

prose.toml lists them, with what to write instead and the files that are searched: in notebooks, the
Markdown cells. Prints a line for each find, and fails if there is one.
"""

import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFIG = tomllib.loads((ROOT / "tools" / "prose.toml").read_text())
# Code is not prose: blocks between fences, `inline`, HTML tags, and the addresses of links.
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`]*`|<[^>]*>|\]\([^)]*\)|https?://\S+", re.M | re.S)


def files() -> list[Path]:
    """The files that prose.toml names."""
    exceptions = {ROOT / name for name in CONFIG["except"]}
    found = {path for pattern in CONFIG["files"] for path in ROOT.glob(pattern)}
    return sorted(found - exceptions)


def blank(match: re.Match) -> str:
    """As many characters and lines as the code had, without its letters."""
    return re.sub(r"\S", "#", match[0])


def finds(text: str) -> list[tuple[int, str, str]]:
    """Line, word and what to write instead, of each such word in the text."""
    prose = CODE.sub(blank, text)
    found = []
    for word, better in CONFIG["words"].items():
        pattern = word.replace(" ", r"\s+")  # words of a phrase may be on two lines
        for match in re.finditer(rf"\b(?:{pattern})\b", prose, re.IGNORECASE):
            line = prose.count("\n", 0, match.start()) + 1
            found.append((line, " ".join(match[0].split()), better))
    return sorted(found)


def texts(path: Path) -> dict[str, str]:
    """The prose of a file by its place in it: a notebook's Markdown cells, or all of the text."""
    if path.suffix != ".ipynb":
        return {"": path.read_text()}
    cells = enumerate(json.loads(path.read_text())["cells"])
    return {
        f":cell {number}": "".join(cell["source"])
        for number, cell in cells
        if cell["cell_type"] == "markdown"
    }


def finds_in(path: Path) -> list[str]:
    """A message for each such word in a file."""
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return [
        f'{name}{place}:{line}: "{word}"; write: {better}'
        for place, text in texts(path).items()
        for line, word, better in finds(text)
    ]


def main() -> int:
    paths = [Path(name).resolve() for name in sys.argv[1:]] or files()
    messages = [message for path in paths for message in finds_in(path)]
    print(*messages, sep="\n", end="\n" if messages else "")
    return int(bool(messages))


if __name__ == "__main__":
    sys.exit(main())
