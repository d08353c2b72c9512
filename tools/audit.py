"""`make audit`: licences into docs/licences.md, a bill of materials into build/sbom.json, and known vulnerabilities asked for.

The bill is CycloneDX's. PyPI's own vulnerability data, and OSV's after it, want a network that reaches pypi.org or api.osv.dev:
a mirror that serves packages alone has neither, and then this says that nothing is known.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from setup_uv import pip_settings, uv_environment

ROOT = Path(__file__).resolve().parents[1]
PAGE, BILL = ROOT / "docs" / "licences.md", ROOT / "build" / "sbom.json"
PIN = re.compile(
    r"^(?:# (?=horovod))?([\w.-]+)==([^\s;\\]+)", re.M
)  # Horovod's stands in a comment
HEAD = """# Licences of what the kit installs

As each package declares it, of the pins in `requirements.txt`, installed on Linux. Written by `make audit`; a test holds it equal
to the pins. None of them is part of the kit's own files; those under `slides/vendor/` carry their licences with them.

| package | version | licence |
|---|---|---|
"""


def tool(*words):
    """One of the programs of requirements-audit.txt, run by uv; its words are shown if it fails."""
    env = uv_environment(pip_settings(sys.executable, os.environ), os.environ)
    command = [
        Path(sys.executable).with_name("uv"),
        "run",
        "--no-project",
        "--quiet",
        "--with-requirements",
    ]
    return subprocess.run(
        [*command, ROOT / "requirements-audit.txt", "--", *words],
        capture_output=True,
        text=True,
        env=env,
    )


def licences():
    """The rows of the page: every pin with its version and licence."""
    done = tool(
        "pip-licenses", "--python", sys.executable, "--from=mixed", "--format=json", "--with-system"
    )
    if done.returncode:
        sys.exit(f"pip-licenses failed:\n{done.stderr}")
    found = {plain(row["Name"]): row["License"] for row in json.loads(done.stdout)}
    pins = PIN.findall((ROOT / "requirements.txt").read_text())
    return [
        f"| {name} | {version} | {short(found.get(plain(name), 'UNKNOWN'))} |"
        for name, version in sorted(pins, key=str)
    ]


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def short(text):
    """Some packages declare a whole text: its first line."""
    return text.strip().partition("\n")[0].replace("|", "or").replace("UNKNOWN", "not declared")


def pins():
    """A file with every version that the kit, its site and its hub install, torch's and Horovod's too."""
    files = (
        "requirements.txt",
        "requirements.lock",
        "site/requirements.lock",
        "hub/requirements.lock",
    )
    found = {
        f"{name}=={version}"
        for file in files
        for name, version in PIN.findall((ROOT / file).read_text())
    }
    every = ROOT / "build" / "audited.txt"
    every.write_text("\n".join(sorted(found)) + "\n")
    return every


def vulnerabilities():
    """What is known of these versions, in a sentence and the tool's own words; whether anything is bad."""
    every = pins()
    for source in ("pypi", "osv"):
        done = tool(
            "pip-audit", "-r", every, "--no-deps", "--disable-pip", "--strict", "-s", source
        )
        if done.returncode == 0:
            return False, f"Known vulnerabilities, by {source}: none."
        if re.search(r"^Found \d+ known vulnerabilit", done.stderr, re.M):
            return True, f"Known vulnerabilities, by {source}:\n{done.stdout}"
    return (
        False,
        "Known vulnerabilities: not asked. Neither PyPI's nor OSV's data can be reached from here.",
    )


def main():
    PAGE.write_text(HEAD + "\n".join(licences()) + "\n")
    BILL.parent.mkdir(exist_ok=True)
    done = tool("cyclonedx-py", "environment", "--output-file", BILL, sys.executable)
    if done.returncode:
        sys.exit(f"cyclonedx-py failed:\n{done.stderr}")
    parts = json.loads(BILL.read_text())["components"]
    print(f"{PAGE.relative_to(ROOT)}; {BILL.relative_to(ROOT)}: {len(parts)} packages", flush=True)
    bad, words = vulnerabilities()
    print(words)
    sys.exit(bad)


if __name__ == "__main__":
    main()
