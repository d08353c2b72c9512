"""`make lock`: write requirements.lock, the pins of requirements.txt with PyPI's hashes; so for hub/ and site/.

Not in it: torch, whose build is chosen by the machine. Horovod, which pip cannot install, is there in a comment, for the
package's built/horovod.py. uv (the environment's) asks PyPI itself, whatever other indexes this machine has.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAD = (
    "# The pins of {} with their hashes. Written by `make lock`; a test holds the two together.\n"
)
PYPI = "https://pypi.org/simple"


def with_hashes(pins):
    """The entries of a lock file for some pins."""
    command = [
        Path(sys.executable).with_name("uv"),
        "pip",
        "compile",
        "--no-config",
        "--default-index",
        PYPI,
        "--no-deps",
        "-",
    ]
    command += [
        "--generate-hashes",
        "--python-version",
        "3.11",
        "--no-header",
        "--no-annotate",
        "--quiet",
    ]
    env = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    done = subprocess.run(command, input="\n".join(pins), capture_output=True, text=True, env=env)
    if done.returncode:
        sys.exit(f"uv could not make the lock:\n{done.stderr}")
    return done.stdout


def main():
    text = (ROOT / "requirements.txt").read_text()
    pins = [
        line
        for line in text.splitlines()
        if re.match(r"\w", line) and not line.startswith("torch==")
    ]
    (horovod,) = re.findall(r"^# (horovod==\S+)$", text, re.M)
    source = " ".join(with_hashes([horovod]).replace("\\\n", "").split())
    (ROOT / "requirements.lock").write_text(
        f"{HEAD.format('requirements.txt')}# {source}\n{with_hashes(pins)}"
    )
    print(f"requirements.lock: {len(pins)} packages")
    for folder in ("hub", "site"):
        more = re.findall(r"^\w.*$", (ROOT / folder / "requirements.txt").read_text(), re.M)
        (ROOT / folder / "requirements.lock").write_text(
            HEAD.format(f"{folder}/requirements.txt") + with_hashes(more)
        )


if __name__ == "__main__":
    main()
