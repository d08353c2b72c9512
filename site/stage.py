"""The site's source tree: the kit's own notebooks, labs and pages, and what their pages need.

A notebook gets alternative texts for its pictures (alt.toml), folds over answers and over outputs
that are to be guessed first, and links to the documentation of what it calls. Nothing is executed:
the outputs are those that the kit has stored.
"""

import copy
import html
import json
import os
import re
import shutil
import tomllib
from pathlib import Path

import bibliography
import functions
import quiz
from content import (
    ANSWERS,
    HERE,
    MENU,
    PARTS,
    ROOT,
    WAYS,
    all_pages,
    code_of,
    hours,
    minutes_of,
    minutes_of_deck,
    minutes_of_way,
    notebook,
    number_of,
    outcomes_of,
    pages_of,
    setting,
    title_of,
)

ALT = tomllib.loads((HERE / "alt.toml").read_text())
DOCS = [path for group in MENU.values() for path in group["pages"]]
MEASURED = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "benchmarks").glob("*.md")
    if "explained" not in path.name
)
REPORTS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "reports").rglob("*.md"))
OWN = sorted(path.name for path in (HERE / "pages").glob("*.md"))
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
WIDGET = "application/vnd.jupyter.widget-view+json"
NO_WIDGET = "*An explorer: its sliders need the running notebook. This is what it shows at first.*"


def stage(folder):
    """Write the tree into `folder`. Unchanged files keep their time; files that are gone go."""
    wanted = {}
    for path in all_pages():
        wanted[path] = json.dumps(staged(path), ensure_ascii=False)
    for path in (*DOCS, *REPORTS, *MEASURED):
        wanted[path] = answering(path, (ROOT / path).read_text())
    for path in REPORTS:  # their titles can be searched for, their words cannot
        wanted[path] = f"---\nno-search: true\n---\n{wanted[path]}"
    wanted["reports/README.md"] += _toctree(
        [f"../{path}" for path in REPORTS if path != "reports/README.md"]
    )
    for name in OWN:
        wanted[name] = filled((HERE / "pages" / name).read_text())
    for number, part in enumerate(PARTS, start=1):
        wanted[f"parts/{number}.md"] = part_page(number, part)
        wanted[f"quiz/{number}.md"] = quiz.page(number)
    pages = set(wanted)
    for page in [*OWN, *DOCS, *REPORTS, *MEASURED, *all_pages()]:
        wanted[page] = with_targets(page, wanted[page], pages, wanted)
    for name, content in wanted.items():
        _write(folder / name, content)
    for path in folder.rglob("*"):
        if path.is_file() and path.relative_to(folder).as_posix() not in wanted:
            path.unlink()


def answering(path, text):
    """A page's Markdown with the entries of menu.toml's `answers` below its headings."""
    for place, entries in ANSWERS.items():
        page, _, heading = place.partition("#")
        if page == path:
            index = "\n\n" + "".join(f"```{{index}} ! {e}\n```\n" for e in entries)
            line = rf"(?m)^#+ {re.escape(heading)}$" if heading else r"(?m)^# .+$"
            text = re.sub(line, lambda match, index=index: match[0] + index, text, count=1)
    return text


def _write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        if not path.exists() or path.stat().st_mtime < content.stat().st_mtime:
            shutil.copy2(content, path)
    elif not path.exists() or path.read_text() != content:
        path.write_text(content)


def with_targets(page, text, pages, wanted):
    """The page's text. Adds the files it links to to `wanted`; links to folders become text."""

    def keep(match):
        target = os.path.normpath(Path(page).parent / match[1])
        if target in pages:
            return match[0]
        if (ROOT / target).is_file():
            wanted[target] = ROOT / target
            return match[0]
        return "]"

    return LINK.sub(keep, text)


# --- notebooks


def staged(path):
    """A notebook or lab of the kit as the site shows it."""
    book = copy.deepcopy(notebook(path))
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            _stage_cell(cell, ALT.get(path.removesuffix(".ipynb"), {}))
        else:
            cell["source"] = answering(path, "".join(cell["source"]))
    book["metadata"].setdefault("language_info", {})["pygments_lexer"] = "ipython3"
    called = functions.called(code_of(path))
    if called:
        cell = {"cell_type": "markdown", "id": "site-functions", "metadata": {}}
        book["cells"].append({**cell, "source": _documented(called)})
    return book


def _described(svg, text):
    """An explorer's picture with a text for who does not see it; on the page's own ground."""
    text = html.escape(text)
    svg = svg.replace("background:white;", "").replace(' role="img"', "")  # its parts' as well
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{text}"', 1)
    return re.sub(r"<title>.*?</title>", lambda _: f"<title>{text}</title>", svg)


def _zero_explorer(picture):
    """The picture in an element that zero_explorer.js makes live, with the constants of costs."""
    from pi2zero import widgets
    from pi2zero.costs import zero

    constants = {
        "precisions": zero.PRECISIONS,
        "optimizers": zero.OPTIMIZERS,
        "partitionedFrom": zero.PARTITIONED_FROM,
        "colors": {name: widgets.COMPONENT_COLORS[name] for name in zero.PARTITIONED_FROM},
        "models": widgets.MODELS,
        "devices": widgets.DEVICES,
    }
    return f"<div data-zero='{html.escape(json.dumps(constants))}'>{picture}</div>"


def _stage_cell(cell, alt):
    tags = cell["metadata"].setdefault("tags", [])
    hidden = cell["metadata"].get("jupyter", {})
    if (hidden.get("outputs_hidden") or cell["metadata"].get("scrolled")) and cell.get("outputs"):
        tags.append("hide-output")
    if hidden.get("source_hidden"):  # the kit's answer to a blank
        tags.append("hide-input")
        prompts = {"show": "Try it first. Then show the solution", "hide": "Hide the solution"}
        cell["metadata"]["mystnb"] = {f"code_prompt_{k}": text for k, text in prompts.items()}
    if cell["id"] in alt:
        cell["metadata"].setdefault("mystnb", {})["image"] = {"alt": alt[cell["id"]]}
    for output in list(cell.get("outputs", [])):
        data = output.get("data", {})
        if data.pop(WIDGET, None):  # its picture stays
            note = {"output_type": "display_data", "metadata": {}}
            note["data"] = {"text/markdown": NO_WIDGET}
            cell["outputs"].insert(cell["outputs"].index(output), note)
            if svg := "".join(data.pop("image/svg+xml", "")):
                data["text/html"] = _described(svg, alt.get(cell["id"], ""))
            if "ZeroExplorer(" in "".join(cell["source"]):
                note["data"]["text/markdown"] = "*Live on this page: move the sliders.*"
                data["text/html"] = _zero_explorer(data["text/html"])
            if not data.keys() & {"text/html", "image/png"}:
                cell["outputs"].remove(output)
        # IPython's Code: its colours are for white paper only
        elif "text/html" in data and "text/latex" in data:
            data["text/markdown"] = f"```python\n{''.join(data['text/plain'])}\n```"
            del data["text/html"], data["text/latex"]


def _documented(called):
    lines = ["## Functions on this page\n", "In the libraries' own documentation:\n"]
    for library, urls in called.items():
        links = ", ".join(f"[`{name}`]({url})" for name, url in urls.items())
        lines.append(f"- {library}: {links}")
    return "\n".join(lines) + "\n"


# --- the site's own pages


def part_page(number, part):
    """What one will be able to do after a part, and its pages."""
    paths = pages_of(part)
    lines = [f"# Part {number} · {part['title']}", ""]
    time = f"Self-paced: {hours(sum(map(minutes_of, paths)))}"
    if deck := part.get("deck"):
        lines += [f"{time}. Taught: plus {minutes_of_deck(deck)} min of slides.", ""]
        lines += [
            f'<p><a href="../slides/{deck}.html">Open the slides</a> '
            "(S: speaker notes, O: overview).</p>",
            "",
        ]
    else:
        lines += [f"{time}.", ""]
    lines += ["## What you will be able to do", ""]
    for path in paths:
        lines += [f"From [{title_of(path)}](../{path}), {minutes_of(path)} min:", ""]
        lines += [f"- {outcome}" for outcome in outcomes_of(path)] + [""]
    lines += [f"Then see what stayed: [the quiz](../quiz/{number}.md).", ""]
    return "\n".join(lines) + _toctree([*(f"../{path}" for path in paths), f"../quiz/{number}.md"])


def _toctree(pages, options=":hidden:\n"):
    return f"```{{toctree}}\n{options}\n" + "\n".join(pages) + "\n```\n"


def filled(text):
    """A page of pages/ with a list instead of each `<!-- name -->`."""
    lists = {
        "parts": _parts,
        "ways": _ways,
        "quizzes": lambda: ", ".join(
            f"[{number}](quiz/{number}.md)" for number in range(1, len(PARTS) + 1)
        ),
        "menu": lambda: _toctree(
            ["Start <start>", "Learn <learn>"]
            + [f"{group['title']} <{name}>" for name, group in list(MENU.items())[1:]]
            + ["Quality reports <reports/README>"]
        ),
        "learn": lambda: _toctree([f"parts/{number}" for number in range(1, len(PARTS) + 1)]),
        **{name: lambda group=group: _listed(group["pages"]) for name, group in MENU.items()},
        "clone": _clone,
        "counts": _counts,
        "decks": _decks,
        "measured": lambda: _listed(MEASURED),
        "bibliography": bibliography.markdown,
    }
    return re.sub(r"<!-- (\w+) -->", lambda match: lists[match[1]](), text)


def _clone():
    """The commands of a first start; the address is that of CITATION.cff."""
    address = setting("repository-code") or "ADDRESS"
    return f"```bash\ngit clone {address} pi2zero\ncd pi2zero\nmake lab\n```"


def _counts():
    labs = sum(path.startswith("labs/") for path in all_pages())
    return f"{len(all_pages()) - labs} notebooks and {labs} labs"


def _parts():
    rows = ["| part | notebooks and labs | self-paced |", "|---|---|---|"]
    for number, part in enumerate(PARTS, start=1):
        names = ", ".join(f"[{number_of(path)}]({path})" for path in pages_of(part))
        time = hours(sum(map(minutes_of, pages_of(part))))
        rows.append(f"| [{number} · {part['title']}](parts/{number}.md) | {names} | {time} |")
    return "\n".join(rows)


def _ways():
    rows = ["| way | for whom | time |", "|---|---|---|"]
    rows += [f"| {way['name']} | {way['why']} | {hours(minutes_of_way(way))} |" for way in WAYS]
    return "\n".join(rows)


def _decks():
    items = []
    for number, part in enumerate(PARTS, start=1):
        if "deck" not in part:
            continue
        page, minutes = f"slides/{part['deck']}", minutes_of_deck(part["deck"])
        slides = f'<a href="{page}.html">{number} · {part["title"]}</a>'
        notes = f'<a href="{page}_notes.html">speaker notes</a>'
        items.append(f"<li>{slides}, {minutes} min ({notes})</li>")
    return "\n".join(items)


def _listed(paths):
    titles = (re.search(r"(?m)^# (.+)$", (ROOT / path).read_text())[1] for path in paths)
    items = [f"- [{title}]({path})" for path, title in zip(paths, titles, strict=True)]
    return "\n".join(items) + "\n\n" + _toctree(paths)
