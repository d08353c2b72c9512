"""Which page documents a function: functions.toml as a table, and what of it a notebook's cells
call.
"""

import re
import tomllib
from pathlib import Path

LIBRARIES = tomllib.loads(Path(__file__).with_name("functions.toml").read_text())["library"]


def _spellings():
    """{a function as pages and cells write it: (its library, its own full name, its
    documentation)}.
    """
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
    """The documentation of what inline code such as `comm.Bcast(n, root=0)` begins with; None if
    the table has no such name.
    """
    name = re.match(r"(?:with )?([\w.]*\w)", code)
    return SPELLINGS[name[1]][2] if name and name[1] in SPELLINGS else None


def imported(code):
    """{a name that cells import: its full name}, such as F: torch.nn.functional."""
    found = {}
    for module, names in re.findall(r"^\s*(?:from ([\w.]+) )?import ([^#\n]+)", code, re.MULTILINE):
        for name, alias in re.findall(r"([\w.]+)(?: as (\w+))?", names):
            whole = f"{module}.{name}".lstrip(".")
            found[alias or name.partition(".")[0]] = (
                whole if module or alias else name.partition(".")[0]
            )
    return found


def called(code):
    """{library: {full name: URL}} of the functions that cells use, in the order of the alphabet.

    A name without a dot counts where it is called; in small letters only if it was imported:
    `reduce(...)` may be anybody's.
    """
    found, names = {}, imported(code)
    for name, calls in re.findall(r"(?<![\w.\"'])([A-Za-z_][\w.]*\w)(\(?)", code):
        head, dot, rest = name.partition(".")
        whole = names.get(head, head) + dot + rest
        if whole in SPELLINGS and (dot or (calls and (head in names or not name.islower()))):
            name = whole
        elif not dot or name not in SPELLINGS:
            continue
        library, whole, url = SPELLINGS[name]
        found.setdefault(library, {})[whole] = url
    return {library: dict(sorted(found[library].items())) for library in sorted(found)}
