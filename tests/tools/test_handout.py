"""What attendees get holds no solution, and its notebooks' links lead somewhere."""

import re
import subprocess
import zipfile
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
ANSWER = re.compile(r"### BEGIN SOLUTION\n(.*?)\s*### END SOLUTION", re.DOTALL)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The handout as `make handout` packs the last commit, unpacked."""
    folder = tmp_path_factory.mktemp("handout")
    recipe = subprocess.run(
        ["make", "-n", "PY=true", "handout"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    [archive] = [line for line in recipe.stdout.splitlines() if "git archive" in line]
    command = archive.replace("build/pi2zero-handout.zip", str(folder / "kit.zip"))
    subprocess.run(["sh", "-c", command], cwd=ROOT, check=True)
    with zipfile.ZipFile(folder / "kit.zip") as file:
        file.extractall(folder)
    return folder / "pi2zero"


def without_layout(text: str) -> str:
    """Without spaces, line ends and JSON's signs, so that code is found in a notebook's file."""
    return re.sub(r"\s|\\n|[\"',]", "", text)


def test_no_solution_is_in_it(unpacked):
    answers = [
        without_layout(answer)
        for path in (ROOT / "solutions").glob("*.ipynb")
        for cell in nbformat.read(path, as_version=4).cells
        for answer in ANSWER.findall(cell.source)
        if answer.count("\n") >= 2
    ]
    files = [path for path in unpacked.rglob("*") if path.is_file()]
    texts = {path: without_layout(path.read_text(errors="ignore")) for path in files}
    assert len(answers) >= 10
    assert not [path for path, text in texts.items() if any(answer in text for answer in answers)]
    solution = without_layout((ROOT / "solutions" / "01_pi.ipynb").read_text())
    assert any(answer in solution for answer in answers), "the search finds one that is there"


def test_what_make_lab_needs_is_in_it(unpacked):
    for name in ("Makefile", "pyproject.toml", "tools/setup.py", "src/pi2zero", "data", "labs"):
        assert (unpacked / name).exists(), name
    for name in ("solutions", "tests", "docs/labs.md", ".ci"):
        assert not (unpacked / name).exists(), name


def test_links_of_the_notebooks_lead_somewhere(unpacked):
    for path in [*unpacked.glob("notebooks/*.ipynb"), *unpacked.glob("labs/*.ipynb")]:
        cells = nbformat.read(path, as_version=4).cells
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
        assert not [link for link in links if not (path.parent / link).exists()], path.name
