"""What attendees get holds no solution, and its notebooks' links lead somewhere."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import handout  # noqa: E402

BODY = re.compile(r"### BEGIN SOLUTION\n(.*?)\s*### END SOLUTION", re.DOTALL)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("handout")
    handout.write(folder / "kit.zip")
    with zipfile.ZipFile(folder / "kit.zip") as file:
        file.extractall(folder)
    return folder / "pi2zero"


def squeezed(text: str) -> str:
    """Without spaces, line ends and JSON's signs: a solution is found also inside of a notebook's file."""
    return re.sub(r"\s|\\n|[\"',]", "", text)


def answers() -> dict[str, str]:
    """{lab and its place: the lines that a learner has to write}, of three lines or more."""
    found = {}
    for path in (ROOT / "solutions").glob("*.ipynb"):
        code = "\n".join(
            cell.source
            for cell in nbformat.read(path, as_version=4).cells
            if cell.cell_type == "code"
        )
        bodies = BODY.findall(code)
        found |= {
            f"{path.stem}, {number}": body
            for number, body in enumerate(bodies)
            if body.count("\n") >= 2
        }
    return found


def test_no_solution_is_in_it(unpacked):
    kept = {
        path.relative_to(unpacked): squeezed(path.read_text(errors="ignore"))
        for path in unpacked.rglob("*")
        if path.is_file()
    }
    assert len(answers()) >= 10
    told = [
        (place, name)
        for place, body in answers().items()
        for name, text in kept.items()
        if squeezed(body) in text
    ]
    assert told == []
    assert not [
        name for name in ("solutions", "tests", "docs/labs.md") if (unpacked / name).exists()
    ]
    assert len(list((unpacked / "labs").glob("*.ipynb"))) == len(
        list((ROOT / "labs").glob("*.ipynb"))
    )


def test_the_search_finds_a_solution_that_is_there():
    body = next(iter(answers().values()))
    assert squeezed(body) in squeezed((ROOT / "solutions" / "01_pi.ipynb").read_text())


def test_what_make_lab_needs_is_in_it(unpacked):
    for name in (
        "Makefile",
        "pyproject.toml",
        "requirements.lock",
        "tools/setup.py",
        "src/pi2zero/__init__.py",
        "course/src/pi2zero_course/__init__.py",
        "data/README.md",
    ):
        assert (unpacked / name).is_file(), name
    programs = [
        name
        for name in handout.tracked()
        if (ROOT / name).is_file() and (ROOT / name).stat().st_mode & 0o100
    ]
    assert all((unpacked / name).stat().st_size for name in programs if (unpacked / name).exists())
    assert "solutions/" not in (unpacked / "README.md").read_text()


def markdown(path: Path) -> str:
    if path.suffix == ".md":
        return path.read_text()
    return "\n".join(
        cell.source
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "markdown"
    )


def test_links_of_the_learners_pages_lead_somewhere(unpacked):
    for path in [
        unpacked / "README.md",
        unpacked / "docs" / "for_instructors.md",
        unpacked / "docs" / "plans.md",
        *unpacked.glob("notebooks/*.ipynb"),
        *unpacked.glob("labs/*.ipynb"),
    ]:
        links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", markdown(path))
        assert not [link for link in links if not (path.parent / link).exists()], path.name


def test_the_slides_have_their_minutes_without_solutions(unpacked):
    """`make slides` and `make site` ask how long each lab takes."""
    labs = [f"labs/{path.stem}" for path in (ROOT / "labs").glob("*.ipynb")]
    command = [sys.executable, "-c", f"import deck; print(*map(deck.minutes, {labs}))"]
    done = subprocess.run(
        command, cwd=unpacked, env={"PYTHONPATH": "slides"}, capture_output=True, text=True
    )
    assert done.returncode == 0 and len(done.stdout.split()) == len(labs), done.stderr
