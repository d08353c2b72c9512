#!/usr/bin/env python
"""`make handout`: the kit as one file for attendees, build/pi2zero-handout.zip, without the labs' solutions.

Of the clone's tracked files all but solutions/, tests/ and docs/labs.md (which hold answers, too) and what only maintainers need.
Unpacked anywhere, `make lab` works in it.
"""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = ("solutions/", "tests/", "docs/labs.md", ".ci/", ".pre-commit-config.yaml")
TO_SOLUTION = re.compile(r" \(\[solution\]\(solutions/[^)]*\)\)")  # the README's links
TO_ANSWERS = re.compile(r"\[([^]]+)\]\((?:docs/)?labs\.md\)")


def tracked() -> list[str]:
    """The files that a clone has, relative to the kit's folder."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(
            f"The handout is made from a clone, by what git tracks in it. git says: {done.stderr.strip()}"
        )
    return [name for name in done.stdout.split("\0") if name]


def write(target: Path) -> list[str]:
    """The zip file; the names that are in it."""
    names = [
        name for name in tracked() if not name.startswith(LEFT_OUT) and (ROOT / name).is_file()
    ]
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            about = zipfile.ZipInfo.from_file(
                ROOT / name, f"pi2zero/{name}"
            )  # keeps which files are programs
            about.compress_type = zipfile.ZIP_DEFLATED
            content = (ROOT / name).read_bytes()
            if name.endswith(".md"):
                content = TO_ANSWERS.sub(r"\1", TO_SOLUTION.sub("", content.decode()))
            file.writestr(about, content)
    return names


if __name__ == "__main__":
    path = ROOT / "build" / "pi2zero-handout.zip"
    count = len(write(path))
    print(
        f"{path.relative_to(ROOT)}: {count} files, {path.stat().st_size / 1e6:.1f} MB, no solutions. Unpack it, then: make lab"
    )
