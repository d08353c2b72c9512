"""Which page documents a function: functions.toml as a table, and what of it a notebook's cells call."""

import re
import tomllib
from pathlib import Path

LIBRARIES = tomllib.loads(Path(__file__).with_name("functions.toml").read_text())["library"]


def _spellings():
    """{a function as pages and cells write it: (its library, its own full name, its documentation)}."""
    found = {}
    for library in LIBRARIES:
        for name in library["names"]:
            whole = f"{library['object']}.{name}".lstrip(".")
            page = library["name"], whole, library["url"].format(name=name)
            written = [whole, *(f"{before}.{name}" for before in library["receivers"])]
            for spelling in (*written, name) if library["alone"] else written:
                found.setdefault(spelling, page)
    return found


SPELLINGS = _spellings()


def url_of(code):
    """The documentation of what inline code such as `comm.Bcast(n, root=0)` begins with; None if the table has no such name."""
    name = re.match(r"(?:with )?([\w.]*\w)", code)
    return SPELLINGS[name[1]][2] if name and name[1] in SPELLINGS else None


def called(code):
    """{library: {full name: URL}} of the functions that cells use, in the order of the alphabet.

    A name without a dot counts only where it is called, and not in small letters: `reduce(...)` may be anybody's.
    """
    found = {}
    for name, calls in re.findall(r"(?<![\w.\"'])([A-Za-z_][\w.]*\w)(\(?)", code):
        if name in SPELLINGS and ("." in name or (calls and not name.islower())):
            library, whole, url = SPELLINGS[name]
            found.setdefault(library, {})[whole] = url
    return {library: dict(sorted(found[library].items())) for library in sorted(found)}
