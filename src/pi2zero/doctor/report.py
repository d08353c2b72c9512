"""`python -m pi2zero doctor --report`: one zip file to attach to a report of a mistake.

It contains logs, versions and settings, without secrets: every text goes through `redact`.
"""

import importlib.metadata
import json
import os
import re
import time
import zipfile
from dataclasses import asdict
from pathlib import Path

from pi2zero import log, obstacles, ownership
from pi2zero.doctor.table import quick
from pi2zero.native_build.builder import folder as build_folder

REMOVED = "[removed]"
MAX_CHARS = 300_000  # of one log; its end is kept
README = """What `python -m pi2zero doctor --report` has packed on {date}.
Read it before you send it.

doctor.json     what the doctor says of this machine (its quick checks)
versions.json   versions of Python, the system and all installed packages
settings.json   environment variables that change how ranks run: {settings}...
in_the_way.txt  settings and files of yours that may stop ranks, each with its cure
logs/           one log for each of the last clusters, and those of what is compiled here. They
                name this host, process ids and the kind of each error. They contain no cell's
                text and no output of a cell.

Left out, or replaced by {removed}: other environment variables, and whatever looks like a
token, a key or a password. Your home folder is written as ~.
"""
_NAMED_SECRET = re.compile(
    r"""(?ix) (\b[\w.-]*(?:token|secret|passw(?:or)?d|passphrase|key|credential|authorization
    |cookie)s?["']?\s*[=:]\s*) (?:(?:bearer|basic|token)\s+)?
    (?:(["'])[^"'\n]*["']|[^\s,;&}\])]+)"""
)
_SECRETS = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    r"(?<=://)[^\s/@]+(?=@)",  # user:password@ of an address
    r"(?i)(?<=bearer )[\w.~+/=-]+",
    # Tokens of Hugging Face, GitHub, GitLab, Slack, AWS, OpenAI; JSON web tokens; hexadecimal keys
    r"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|sk-)[\w-]{8,}",
    r"\beyJ[\w-]+\.[\w-]+\.[\w-]*",
    r"\b[0-9a-fA-F]{32,}\b",
)


def redact(text: str) -> str:
    """The text without what looks like a secret, and with ~ for the home folder."""
    for name, value in os.environ.items():
        if log.SECRET_NAME.search(name) and len(value) >= 6:
            text = text.replace(value, REMOVED)
    for pattern in _SECRETS:
        text = re.sub(pattern, REMOVED, text, flags=re.DOTALL)
    text = _NAMED_SECRET.sub(
        lambda match: f"{match[1]}{match[2] or ''}{REMOVED}{match[2] or ''}", text
    )
    return text.replace(str(Path.home()), "~") if Path.home() != Path("/") else text


def logs() -> dict[str, Path]:
    """{name in the report: file} of ended and running clusters, and of what is compiled here."""
    files = [folder / log.NAME for folder in ownership.run_dirs()]  # in shared memory: none
    running = {f"running-{file.parent.name[-8:]}.log": file for file in files if file.exists()}
    builds = {f"build-{file.name}": file for file in build_folder().glob("*.log")}
    return {file.name: file for file in log.kept()} | running | builds


def write(path: Path | None = None) -> Path:
    """Write the report, readable by this user alone; where it is.

    path: the default is a new file in the current folder. Raises OSError if it cannot be written.
    """
    path = path or Path(f"pi2zero-report-{time.strftime('%Y%m%d-%H%M%S')}.zip")
    packages = {dist.name: dist.version for dist in importlib.metadata.distributions()}
    texts = {
        "README.txt": README.format(
            date=time.strftime("%Y-%m-%d"), settings=", ".join(log.SETTINGS), removed=REMOVED
        ),
        "doctor.json": json.dumps([asdict(result) for result in quick()], indent=1),
        "versions.json": json.dumps(log.versions() | {"packages": packages}, indent=1),
        "settings.json": json.dumps(log.settings(), indent=1),
        "in_the_way.txt": obstacles.hint(),
    }
    for name, file in logs().items():
        with log.failures(f"read {file}", OSError):
            texts[f"logs/{name}"] = file.read_text(errors="replace")[-MAX_CHARS:]
    path.touch(0o600)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(name, redact(text))
    return path
