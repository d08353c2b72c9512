"""The README states parts, ways and hours as parts.toml and the notebooks have them."""

import re
import sys
from pathlib import Path

from PIL import Image, ImageSequence

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "site"))

from content import PARTS, WAYS, all_pages, hours, minutes_of, minutes_of_way, pages_of  # noqa: E402

README = (ROOT / "README.md").read_text()


def test_parts_and_ways_have_the_names_and_hours_of_the_notebooks():
    for number, part in enumerate(PARTS, start=1):
        paths = pages_of(part)
        row = rf"^\| {number} · {part['title']} .*\| {hours(sum(map(minutes_of, paths)))} \|$"
        [line] = re.findall(row, README, re.MULTILINE)
        assert re.findall(r"\(((?:notebooks|labs)/[^)]+)\)", line) == paths
    for way in WAYS:
        row = rf"^\| \*\*{way['name']}\*\*: .* \| {hours(minutes_of_way(way))} \|$"
        assert re.search(row, README, re.MULTILINE), way["name"]


def test_each_notebook_and_lab_has_a_row_with_its_minutes():
    for path in all_pages():
        assert re.search(rf"\]\({path}\) \|.*\| {minutes_of(path)} \|$", README, re.MULTILINE), path
    labs = sum(path.startswith("labs/") for path in all_pages())
    assert f"{len(all_pages()) - labs} notebooks and {labs} labs" in README


def test_the_film_at_its_head_is_short_and_small():
    film = ROOT / "docs" / "pictures" / "screencast.gif"
    assert film.stat().st_size < 4e6 and film.name in README.partition("**For whom**")[0]
    with Image.open(film) as pictures:
        milliseconds = [frame.info["duration"] for frame in ImageSequence.Iterator(pictures)]
    assert len(milliseconds) > 40 and sum(milliseconds) < 120_000
