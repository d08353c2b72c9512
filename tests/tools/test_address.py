"""CITATION.cff says where the repository is, and all other files have the same address."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import address

ROOT = Path(__file__).parents[2]
NEW = "https://github.com/the-university/from-pi-to-zero"


def test_the_tool_writes_a_new_address_everywhere(tmp_path):
    names = [
        "CITATION.cff",
        "README.md",
        "docs/your_own_environment.md",
        "docs/colab_and_kaggle.md",
    ]
    for name in [*names, "tools/address.py"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run("git init -q . && git add .", shell=True, cwd=tmp_path, check=True)  # noqa: S602
    command = [sys.executable, "tools/address.py", f"{NEW}.git"]
    subprocess.run(command, cwd=tmp_path, check=True)
    owner = address.repository().split("/")[-2]
    texts = {name: (tmp_path / name).read_text() for name in names}
    assert not [name for name, text in texts.items() if owner in text]
    assert [name for name, text in texts.items() if NEW not in text] == []
    assert "colab.research.google.com/github/the-university/from-pi-to-zero/blob" in "".join(
        texts.values()
    )
    shown = subprocess.check_output([sys.executable, "tools/address.py"], cwd=tmp_path, text=True)
    assert shown == f"{NEW}\nhttps://the-university.github.io/from-pi-to-zero\n"


def test_no_file_invites_to_clone_from_elsewhere():
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    cloned = [
        found
        for path in texts
        for found in re.findall(r"git clone .*?(\S+//\S+)", path.read_text())
    ]
    assert cloned and set(cloned) == {address.repository()}
