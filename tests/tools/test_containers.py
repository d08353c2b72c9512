"""The containers' recipes: what they run is there, goes through the one set-up, and fetches from registries only.

`make containers` (tools/bare_tree.py) runs them in a bare Debian.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import bare_tree  # noqa: E402

NAMES = ["docker", "apptainer", "devcontainer", "binder"]
FILES = [
    "Dockerfile",
    "apptainer.def",
    ".devcontainer/devcontainer.json",
    ".binder/postBuild",
    ".binder/start",
    ".binder/apt.txt",
]


def lines_of(name):
    """All lines of sh that a recipe runs, with those of the scripts of the clone that it names."""
    make, start = bare_tree.recipe(name)
    lines = "\n".join(step.line for step in (*make, start))
    scripts = [
        word for word in re.findall(r"\.binder/\w+", lines) if os.access(ROOT / word, os.X_OK)
    ]
    return lines + "\n" + "\n".join((ROOT / script).read_text() for script in scripts)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_runs_the_set_up_and_names_what_is_there(name):
    lines = lines_of(name)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert re.findall(r"\bmake ([a-z-]+)", lines) == ["set-up"] and "set-up" in targets
    own = r"(?<![\w./])(?:/srv/pi2zero/)?((?:\.binder|tools|hub|notebooks|scripts)/[\w./]+)"
    named = {
        word
        for word in re.findall(own, lines)
        if "." in word.rpartition("/")[2] or word.startswith(".binder")
    }
    assert named and not [word for word in named if not (ROOT / word).exists()], named
    for script in (word for word in named if word in (".binder/postBuild", ".binder/start")):
        assert os.access(ROOT / script, os.X_OK)


@pytest.mark.parametrize("name", NAMES)
def test_every_step_copies_what_is_there_and_is_sh(name):
    for step in bare_tree.recipe(name)[0]:
        if step.copy:
            assert (ROOT / step.copy[0]).exists()
        else:
            assert (
                subprocess.run(["sh", "-n", "-c", step.line], capture_output=True).returncode == 0
            ), step.line


def test_all_have_the_same_system_and_packages():
    dockerfile, apptainer = (ROOT / "Dockerfile").read_text(), (ROOT / "apptainer.def").read_text()
    assert (
        re.search(r"^FROM (\S+) AS base", dockerfile, re.M)[1]
        == re.search(r"^From: (\S+)", apptainer, re.M)[1]
    )
    installed = r"xargs -a (?:/tmp/|\.binder/)apt\.txt apt-get install -y --no-install-recommends (.+?)(?: \\)?$"
    assert re.search(installed, dockerfile, re.M)[1] == re.search(installed, apptainer, re.M)[1]
    assert bare_tree.devcontainer()["build"]["target"] == "base"
    assert (ROOT / ".binder" / "runtime.txt").read_text() == "python-3.11\n"


@pytest.mark.parametrize("file", FILES)
def test_nothing_is_fetched_from_an_address(file):
    """Debian's and PyPI's clients know where to look, as the machine has it set."""
    assert not re.findall(r"\w+://\S+|\b(?:curl|wget|git clone)\b", (ROOT / file).read_text())


def test_binder_s_server_is_the_kit_s():
    told = subprocess.run(
        [".binder/start", "sh", "-c", "command -v python"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    assert (
        told.strip() == str(ROOT / ".venv" / "bin" / "python")
        or not (ROOT / ".venv" / "bin" / "python").exists()
    )
