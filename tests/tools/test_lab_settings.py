"""JupyterLab's menu has all notebooks and labs in their order, with what belongs to each, and each
leads back to the map."""

import json
import re
import runpy
import sys
from itertools import pairwise
from pathlib import Path

from traitlets.config import Config

from pi2zero_course.dashboard import notes

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "site"))

import content  # noqa: E402

SETTINGS = json.loads(
    (ROOT / "tools" / "lab_settings" / "overrides.json").read_text(encoding="utf-8")
)
MAP = "notebooks/00_start_here.ipynb"


[MENU] = SETTINGS["@jupyterlab/mainmenu-extension:plugin"]["menus"]
PARTS = [item["submenu"] for item in MENU["items"] if "submenu" in item]
PAGES = [item["args"] for part in PARTS for item in part["items"]]


def tasks_of(path):
    """What a notebook's or a lab's checks note: its blanks, or its tasks by number."""
    cells = content.notebook(path)["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    checked = re.findall(r"^check\.(\w+)\(", "\n".join(sources), re.MULTILINE)
    if lab := re.match(r"labs/0(\d)", path):
        return [f"lab {lab[1]}, task {i}" for i, _ in enumerate(dict.fromkeys(checked), start=1)]
    return [f"blank {name}" for name in checked]


def test_what_was_only_live_is_not_saved(monkeypatch):
    """The summary under a cell, and places that are empty at its end."""
    monkeypatch.setenv("PI2ZERO_BIN", "")  # the configuration sets it
    config = Config()
    runpy.run_path(str(ROOT / "tools" / "jupyter_lab_config.py"), {"get_config": lambda: config})
    live, kept = {"metadata": {"pi2zero": {"live": True}}}, [{"metadata": {}}, {"text": "on"}]
    kept.append({"metadata": {"pi2zero": {"unlabelled": True}}})
    cells = [{"source": "# text"}, {"outputs": [live, *kept]}]
    config.ContentsManager.pre_save_hook(
        model={"type": "notebook", "content": {"cells": cells}}, path="a.ipynb"
    )
    assert cells == [{"source": "# text"}, {"outputs": kept}]
    config.ContentsManager.pre_save_hook(model={"type": "file", "content": "text"}, path="a.py")


def test_the_menu_has_every_part_in_its_order():
    shown = {part["label"]: [item["args"]["path"] for item in part["items"]] for part in PARTS}
    due = {
        f"{number} · {part['title']}": content.pages_of(part)
        for number, part in enumerate(content.PARTS, 1)
    }
    assert shown == due and list(shown) == list(due)


def test_the_menu_knows_each_pages_title_minutes_and_tasks():
    for page in PAGES:
        path = page["path"]
        due = content.title_of(path), content.minutes_of(path), tasks_of(path)
        assert (page["title"], page["minutes"], page["tasks"]) == due, path
    tasks = [task for page in PAGES for task in page["tasks"]]
    assert len(set(tasks)) == len(tasks) and all(map(notes.TASKS.fullmatch, tasks))


def test_every_notebook_has_the_way_to_the_map():
    [button] = SETTINGS["@jupyterlab/notebook-extension:panel"]["toolbar"]
    assert (
        button["args"]["path"] == MAP
        and button["label"] == "Map"
        and "## The map" in content.text_of(MAP)
    )


def test_the_map_leads_everywhere():
    links = set(
        re.findall(
            r"\]\(((?:\.\./labs/)?\w+\.ipynb)\)",
            content.text_of(MAP).split("## The map")[1].split("## ")[0],
        )
    )
    due = {
        path.replace("notebooks/", "").replace("labs/", "../labs/")
        for path in content.all_pages()
        if path != MAP
    }
    assert links == due


def test_every_notebook_and_lab_leads_to_the_next_one():
    """Within its part, in its own words. (What is beside the way, A1, is led to by the map.)"""
    for part in content.PARTS:
        pages = content.pages_of(part)
        for path, after in pairwise(pages):
            assert Path(after).name in content.text_of(path) or "A1" in after, (
                f"{path} does not lead to {after}"
            )
