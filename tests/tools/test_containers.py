"""The containers' recipes name what exists, run the one set-up, fetch from registries only."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = ["Dockerfile", "apptainer.def", ".devcontainer/devcontainer.json", ".binder/postBuild"]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_runs_the_set_up_and_names_what_is_there(name):
    text = (ROOT / name).read_text()
    assert re.findall(r"\bmake ([a-z-]+)", text) == ["set-up"]
    assert "python -m pi2zero build" in text
    named = re.findall(r"(?<![\w./])((?:\.binder|tools|hub)/[\w./]+)", text)
    assert not [path for path in named if not (ROOT / path).exists()]
    assert not re.findall(r"\w+://\S+|\b(?:curl|wget|git clone)\b", text)


def test_binder_starts_the_kit_s_own_python():
    for script in (".binder/postBuild", ".binder/start"):
        assert os.access(ROOT / script, os.X_OK)
    command = [".binder/start", "sh", "-c", 'echo "$PATH"']
    path = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    assert path.startswith(f"{ROOT}/.venv/bin:")


def test_the_devcontainer_names_a_stage_and_an_interpreter_that_are_there():
    """JSON without comments; VS Code and Codespaces read it."""
    settings = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    recipe = ROOT / ".devcontainer" / settings["build"]["dockerfile"]
    stages = re.findall(r"(?m)^FROM \S+ AS (\S+)", recipe.read_text())
    assert settings["build"]["target"] in stages
    assert f"useradd --create-home --uid 1000 {settings['remoteUser']}" in recipe.read_text()
    interpreter = settings["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"]
    assert interpreter == "${containerWorkspaceFolder}/.venv/bin/python"  # as the set-up makes it
