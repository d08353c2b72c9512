"""JupyterLab's menu has all notebooks and labs in their order, and each leads back to the map."""

import json
import re
import sys
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "site"))

import content  # noqa: E402

SETTINGS = json.loads(
    (ROOT / "tools" / "lab_settings" / "overrides.json").read_text(encoding="utf-8")
)
MAP = "notebooks/00_start_here.ipynb"


def paths(items):
    assert {item["command"] for item in items} == {"filebrowser:open-path"}
    return [item["args"]["path"] for item in items]


def test_the_menu_has_every_part_in_its_order():
    [menu] = SETTINGS["@jupyterlab/mainmenu-extension:plugin"]["menus"]
    shown = {item["submenu"]["label"]: paths(item["submenu"]["items"]) for item in menu["items"]}
    due = {
        f"{number} · {part['title']}": content.pages_of(part)
        for number, part in enumerate(content.PARTS, 1)
    }
    assert shown == due and list(shown) == list(due)


def test_every_notebook_has_the_way_to_the_map():
    [button] = SETTINGS["@jupyterlab/notebook-extension:panel"]["toolbar"]
    assert (
        paths([button]) == [MAP]
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
