"""The site's own parts, pictures, quizzes and lists agree with notebooks, labs and slides."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "site"
sys.path[:0] = [str(SITE), str(ROOT / "slides")]

# isort: off
import bibliography  # noqa: E402
import content  # noqa: E402
import quiz  # noqa: E402
import stage  # noqa: E402
from content import PARTS, all_pages, notebook, path_of, text_of  # noqa: E402

# isort: on

PAPERS = (
    r"https://(?:arxiv\.org|doi\.org|aclanthology\.org|www\.usenix\.org"
    r"|papers\.nips\.cc|opendatascience\.com)/[^)\s]+"
)


def test_every_notebook_lab_and_deck_is_in_one_part():
    books = [
        path.relative_to(ROOT).as_posix()
        for folder in ("notebooks", "labs")
        for path in (ROOT / folder).glob("*.ipynb")
    ]
    assert sorted(all_pages()) == sorted(books)
    assert sorted(part["deck"] for part in PARTS if "deck" in part) == sorted(
        path.parent.name for path in (ROOT / "slides").glob("*/deck.md")
    )


def pictures(path):
    """The cells of a notebook that left a picture, and `mermaid` if there is a diagram."""
    cells = notebook(path)["cells"]
    drawn = {
        cell["id"]
        for cell in cells
        if any(
            output.get("data", {}).keys() & {"image/png", "image/svg+xml"}
            for output in cell.get("outputs", [])
        )
    }
    return drawn | {"mermaid"} if "```mermaid" in text_of(path) else drawn


@pytest.mark.parametrize("path", all_pages())
def test_every_picture_has_an_alternative_text(path):
    described = stage.ALT.get(path.removesuffix(".ipynb"), {})
    assert not pictures(path) - described.keys(), "say in site/alt.toml what these pictures show"
    assert not described.keys() - pictures(path), "site/alt.toml describes pictures that are gone"


# --- quizzes


@pytest.mark.parametrize("number", range(1, len(PARTS) + 1))
def test_every_question_has_one_right_answer(number):
    for question in quiz.questions(number):
        assert path_of(question["about"]) in content.pages_of(PARTS[number - 1]), question["about"]
        marks = [mark for mark, _, _ in question["answers"]]
        assert marks.count("+") == 1 and marks.count("-") >= 2, question["ask"]


# --- lists


def test_the_bibliography_has_what_the_pages_cite():
    known = {work["url"] for work in bibliography.WORKS}
    assert len(known) == len(bibliography.WORKS)
    texts = {path: text_of(path) for path in all_pages()} | {
        path: (ROOT / path).read_text() for path in [*stage.DOCS, *stage.REPORTS]
    }
    missing = {
        url: path
        for path, text in texts.items()
        for url in re.findall(PAPERS, text)
        if url not in known
    }
    assert not missing
    assert not [url for url in known if not any(url in text for text in texts.values())], (
        "works that no page cites"
    )


def test_the_menu_names_every_page_once_and_its_answers_are_there(tmp_path):
    pages = [path for group in content.MENU.values() for path in group["pages"]]
    assert len(pages) == len(set(pages)) and all((ROOT / path).is_file() for path in pages)
    docs = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert docs <= set(pages)
    stage.stage(tmp_path)
    for place, entries in content.ANSWERS.items():
        text = (tmp_path / place.partition("#")[0]).read_text()
        assert all(f"{{index}} ! {entry}" in text for entry in entries), f"{place}: no such heading"


# --- staging


def test_an_output_that_is_hidden_in_jupyterlab_is_folded_on_the_site():
    output = {"output_type": "stream", "name": "stdout", "text": "4\n"}
    cells = [
        {"id": "a", "metadata": {"jupyter": {"outputs_hidden": True}}, "outputs": [output]},
        {"id": "b", "metadata": {}, "outputs": []},
        {"id": "c", "metadata": {"jupyter": {"source_hidden": True}}, "outputs": []},
        {"id": "d", "metadata": {"scrolled": True}, "outputs": [output]},
    ]
    for cell in cells:
        stage._stage_cell(cell, {"a": "what it shows"})
    assert cells[0]["metadata"]["tags"] == ["hide-output"] and cells[1]["metadata"]["tags"] == []
    assert cells[2]["metadata"]["tags"] == ["hide-input"]
    assert cells[3]["metadata"]["tags"] == ["hide-output"], "a long one is folded, too"
    assert cells[0]["metadata"]["mystnb"] == {"image": {"alt": "what it shows"}}


def test_staging_leaves_what_has_not_changed_and_removes_what_is_gone(tmp_path):
    stage.stage(tmp_path)
    page, gone = (
        tmp_path / "notebooks" / "00_start_here.ipynb",
        tmp_path / "notebooks" / "99_gone.ipynb",
    )
    assert json.loads(page.read_text())["cells"][-1]["id"] == "site-functions"
    before = page.stat().st_mtime_ns
    gone.write_text("{}")
    stage.stage(tmp_path)
    assert page.stat().st_mtime_ns == before and not gone.exists()
    assert (tmp_path / "scripts" / "cpi.py").exists() and not (tmp_path / "solutions").exists()


def test_the_pins_are_locked_and_touch_none_of_the_kit_s():
    own, kit = (
        re.findall(r"^([\w.-]+)==", (ROOT / name).read_text(), re.MULTILINE)
        for name in ("site/requirements.lock", "requirements.lock")
    )
    assert "sphinx" in own and not {*own} & {*kit}
