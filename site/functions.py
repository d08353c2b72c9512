"""Which page documents a function (functions.toml), and which of them a notebook's cells call."""

import re
import tomllib
from pathlib import Path

LIBRARIES = tomllib.loads(Path(__file__).with_name("functions.toml").read_text())["library"]


def _spellings():
    """{a function as pages and cells write it: (its library, full name, documentation)}."""
    spellings = {}
    for library in LIBRARIES:
        for name in library["names"]:
            whole = f"{library['object']}.{name}".lstrip(".")
            page = library["name"], whole, library["url"].format(name=name)
            written = [whole, *(f"{before}.{name}" for before in library["receivers"])]
            for spelling in (*written, name) if library["alone"] else written:
                spellings.setdefault(spelling, page)
    return spellings


SPELLINGS = _spellings()


def url_of(code):
    """The documentation of the function that inline code such as `comm.Bcast(n)` begins with."""
    name = re.match(r"(?:with )?([\w.]*\w)", code)
    return SPELLINGS[name[1]][2] if name and name[1] in SPELLINGS else None


def imported(code):
    """{a name that cells import: its full name}, such as F: torch.nn.functional."""
    names_of = {}
    for module, imports in re.findall(
        r"^\s*(?:from ([\w.]+) )?import ([^#\n]+)", code, re.MULTILINE
    ):
        for name, alias in re.findall(r"([\w.]+)(?: as (\w+))?", imports):
            whole = f"{module}.{name}".lstrip(".")
            head = name.partition(".")[0]
            names_of[alias or head] = whole if module or alias else head
    return names_of


def called(code):
    """{library: {full name: URL}} of the functions that cells use, in alphabetical order.

    A name without a dot counts where it is called. In lower case it must be imported, because
    `reduce(...)` may be another function.
    """
    urls, names = {}, imported(code)
    for name, calls in re.findall(r"(?<![\w.\"'])([A-Za-z_][\w.]*\w)(\(?)", code):
        head, dot, rest = name.partition(".")
        whole = names.get(head, head) + dot + rest
        if whole in SPELLINGS and (dot or (calls and (head in names or not name.islower()))):
            name = whole
        elif not dot or name not in SPELLINGS:
            continue
        library, whole, url = SPELLINGS[name]
        urls.setdefault(library, {})[whole] = url
    return {library: dict(sorted(urls[library].items())) for library in sorted(urls)}
