"""`make canary`: the kit with the newest versions that PyPI serves, in a clone of its own; says what breaks. It decides nothing.

Every pin of requirements.txt is resolved anew, without its version; then that clone's own set-up and checks run. What failed,
and which versions had changed, stand in docs/compatibility.md afterwards, between its marks; the clone stays in build/canary/.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from lock import PYPI
from packaging.utils import canonicalize_name
from setup_uv import pip_settings

ROOT = Path(__file__).resolve().parents[1]
CLONE = ROOT / "build" / "canary"
PAGE = ROOT / "docs" / "compatibility.md"
FOUND = re.compile(r"(?<=<!-- canary -->\n).*?(?=<!-- end of canary -->)", re.DOTALL)
PIN = re.compile(r"^([A-Za-z][\w.-]*)==(\S+)$", re.M)
BOOKS = [
    "notebooks/00_start_here.ipynb",
    "notebooks/02_mpi_pi.ipynb",
    "notebooks/06_ddp.ipynb",
    "notebooks/09_zero.ipynb",
]


def newest(text):
    """requirements.txt with the versions that uv takes where nothing is pinned but the names."""
    command = [
        Path(sys.executable).with_name("uv"),
        "pip",
        "compile",
        "--no-config",
        "--default-index",
        PYPI,
        "--quiet",
    ]
    command += ["--no-header", "--no-annotate", "--prerelease", "disallow"]
    command += ["--python-version", f"{sys.version_info[0]}.{sys.version_info[1]}", "-"]
    for file in pip_settings(sys.executable, os.environ).get("constraint", "").split():
        command += [
            "--constraint",
            file,
        ]  # of this machine: its set-up installs nothing beyond them
    names = "\n".join(name for name, _ in PIN.findall(text))
    done = subprocess.run(command, input=names, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"uv found no versions that go together:\n{done.stderr}")
    found = {canonicalize_name(name): version for name, version in PIN.findall(done.stdout)}
    kept = PIN.sub(lambda pin: f"{pin[1]}=={found.pop(canonicalize_name(pin[1]), pin[2])}", text)
    extra = [
        f"{name}=={version}"
        for name, version in found.items()
        if not name.startswith(("nvidia-", "cuda-", "triton"))
    ]
    return kept + "\n".join(["", *extra, ""])


def changes(old, new):
    old, new = (dict(PIN.findall(text)) for text in (old, new))
    return [
        f"{name} {old.get(name, 'none')} → {version}"
        for name, version in new.items()
        if version != old.get(name)
    ]


def call(*command, cwd=CLONE):
    """(whether it succeeded, its output)."""
    print("$", *command, flush=True)
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode == 0, done.stdout


def tried():
    """What each step of the clone said, a line each; what failed, by name."""
    python = CLONE / ".venv" / "bin" / "python"
    steps = {
        "set-up": ["make", "set-up"],
        "tests that start no ranks": [python, "-m", "pytest", "-q", "-m", "not long"],
        **{book: [python, "tools/compare_notebooks.py", book] for book in BOOKS},
    }
    for name, command in steps.items():
        good, said = call(*command)
        yield f"- {name}: {'passed' if good else '**failed**'}"
        yield from (
            f"  - {line}"
            for line in dict.fromkeys(re.findall(r"^(?:FAILED|set-up stopped:) .*$", said, re.M))
        )
        if name == "set-up" and not good:
            return


def main():
    shutil.rmtree(CLONE, ignore_errors=True)
    call("git", "clone", "--quiet", ROOT, CLONE, cwd=ROOT)
    old = (ROOT / "requirements.txt").read_text()
    new = newest(old)
    (CLONE / "requirements.txt").write_text(new)
    call(sys.executable, "tools/lock.py")
    found, here = changes(old, new), f"{time.strftime('%Y-%m-%d')}, Python {sys.version.split()[0]}"
    newer = (
        f"{len(found)} are newer than the pins: {', '.join(found)}"
        if found
        else "no version is newer than the pins"
    )
    lines = [f"{here}, {len(PIN.findall(new))} packages: {newer}."]
    text = "\n".join([*lines, "", *tried(), ""])
    print(text)
    PAGE.write_text(FOUND.sub(lambda _: text, PAGE.read_text()))


if __name__ == "__main__":
    main()
