"""`make lock`: write requirements.lock, the workshop's one set of versions with hashes, and the
locks of hub/ and site/.

The ranges are in pyproject.toml and course/pyproject.toml. The versions of the lock that is there
stay where the ranges allow them; `python tools/lock.py --upgrade` takes the newest. torch has no
hashes and stands in a comment, because the set-up chooses its build.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAD = "# Versions with hashes, of what {} ask for. Written by `make lock`.\n"
ENTRY = re.compile(r"^([\w.-]+)==.*(?:\n +--hash.*)*\n", re.MULTILINE)
OF_TORCH = re.compile(r"torch|triton|nvidia-.*|cuda-.*")  # what its build for GPUs brings


def compiled(*words: str, old: str = "") -> dict[str, str]:
    """uv's answer to `uv pip compile WORDS`: {package: its entry}.

    old: entries whose versions are preferred.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "lock"
        output.write_text(old)
        uv = [Path(sys.executable).with_name("uv"), "pip", "compile", "--no-config", "--quiet"]
        options = ["--generate-hashes", "--python-version", "3.11.2", "--no-annotate"]
        env = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
        command = [*uv, *words, *options, "--output-file", output]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, env=env)
        if done.returncode:
            sys.exit("uv could not make the lock.")
        return {match[1]: match[0] for match in ENTRY.finditer(output.read_text())}


def main():
    upgrade = ["--upgrade"] * ("--upgrade" in sys.argv)
    lock = ROOT / "requirements.lock"
    sources = ["pyproject.toml", "course/pyproject.toml"]
    old = lock.read_text().replace("# torch==", "torch==")
    everything = compiled(*sources, "--all-extras", "--group", "dev", *upgrade, old=old)
    entries = {name: entry for name, entry in everything.items() if not OF_TORCH.fullmatch(name)}
    torch = everything["torch"].split()[0]
    head = HEAD.format(" and ".join(sources)) + f"# {torch}\n"
    lock.write_text(head + "".join(entries.values()))
    print(f"requirements.lock: {len(entries)} packages")
    for group in ("hub", "site"):
        lock = ROOT / group / "requirements.lock"
        words = ["--group", f"pyproject.toml:{group}", "--constraint", "requirements.lock"]
        more = compiled(*words, *upgrade, old=lock.read_text())
        kept = [entry for name, entry in more.items() if name not in everything]
        head = HEAD.format(f"the group `{group}` of pyproject.toml, beside requirements.lock,")
        lock.write_text(head + "".join(kept))


if __name__ == "__main__":
    main()
