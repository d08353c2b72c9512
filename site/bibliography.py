"""The bibliography: bibliography.toml, and for each work the notebooks that have its address."""

import tomllib

from content import HERE, all_pages, number_of, text_of

WORKS = tomllib.loads((HERE / "bibliography.toml").read_text())["work"]


def markdown():
    """A list, ordered by author and year."""
    lines = []
    for work in sorted(WORKS, key=lambda work: (work["by"].lower(), work["year"])):
        where = [
            f"[{number_of(path)}]({path})" for path in all_pages() if work["url"] in text_of(path)
        ]
        cited = f" Cited in {', '.join(where)}." if where else ""
        lines.append(
            f"- {work['by']} ({work['year']}). [{work['title']}]({work['url']}). "
            f"{work['in']}.{cited}"
        )
    return "\n".join(lines)
