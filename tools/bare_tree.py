"""Run what a container's recipe says in a bare Debian 12, where there is no Docker, Apptainer or Binder. Root, Linux, mmdebstrap.

  python tools/bare_tree.py docker            the RUN lines of Dockerfile, its users and folders; then its CMD
  python tools/bare_tree.py apptainer         %post of apptainer.def; then %runscript, as another user, the tree read-only
  python tools/bare_tree.py devcontainer      the stage "base", postCreateCommand; then JupyterLab
  python tools/bare_tree.py binder            apt.txt and postBuild; then JupyterLab through .binder/start

The tree is made by mmdebstrap from Debian's own packages (what the image debian:12-slim holds), and is gone at the end. It takes
over from this machine only how registries are reached (apt's sources, pip's settings, certificates).
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KIT = "/srv/pi2zero"
WAYS = (
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d",
    "/etc/apt/apt.conf.d",
    "/etc/pip.conf",
    "/etc/resolv.conf",
    "/etc/hosts",
)
WAYS += ("/etc/ssl/certs", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates")
WAY_VARIABLES = re.compile(
    r"(?i)^(pip_.*|uv_.*|https?_proxy|no_proxy|ssl_cert_.*|requests_ca_bundle|curl_ca_bundle)$"
)


@dataclass
class Step:
    """A line of sh, by whom and where; or files of the clone that are copied (`copy`: from, to)."""

    line: str = ""
    user: str = "root"
    folder: str = "/"
    copy: tuple[str, str] | None = None
    env: dict = field(default_factory=dict)


# --- what the recipes say -----------------------------------------------------------------------------------------------


def dockerfile(stage: str = "") -> tuple[list[Step], list[str]]:
    """(steps of Dockerfile up to the end of a stage, the last CMD)"""
    steps, env, user, folder, command, name = [], {}, "root", "/", [], ""
    for line in joined((ROOT / "Dockerfile").read_text()):
        what, _, rest = line.partition(" ")
        if what == "FROM":
            if stage and name == stage:
                break
            name = rest.partition(" AS ")[2]
        elif what == "ENV":
            env |= dict(word.split("=", 1) for word in shlex.split(rest))
        elif what == "USER":
            user = rest
        elif what == "WORKDIR":
            folder = rest
        elif what == "COPY":
            options, (source, target) = (
                [w for w in rest.split() if w[:2] == "--"],
                [w for w in rest.split() if w[:2] != "--"],
            )
            owner = "".join(options).partition("--chown=")[2] or "root"
            steps.append(Step(copy=(source, target), user=owner))
        elif what == "RUN":
            steps.append(Step(rest, user, folder, env=dict(env)))
        elif what == "CMD":
            command = json.loads(rest)
        elif what not in ("ARG", "EXPOSE"):
            raise ValueError(f"Dockerfile: {what} is not known here")
    return steps, command


def joined(text: str) -> list[str]:
    """Lines without comments; one that ends with a backslash goes on in the next."""
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    return re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()


def apptainer() -> dict[str, str]:
    """{section: its lines} of apptainer.def"""
    parts = re.split(r"^%(\w+)\n", (ROOT / "apptainer.def").read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def devcontainer() -> dict:
    return json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())


LAB = ".venv/bin/python tools/lab.py"


def recipe(name: str) -> tuple[list[Step], Step]:
    """(what makes it, what starts JupyterLab in it)"""
    if name == "docker":
        steps, command = dockerfile()
        return steps, Step(shlex.join(command), steps[-1].user, steps[-1].folder, env=steps[-1].env)
    base, _ = dockerfile("base")
    if name == "apptainer":
        said = apptainer()
        source, target = said["files"].split()
        start = f"{said['environment']}\n{said['runscript'].replace(chr(34) + '$@' + chr(34), '')}"
        return [Step(copy=(source, target)), Step(f"set -e\n{said['post']}")], Step(
            start, "visitor"
        )
    if name == "devcontainer":
        user = devcontainer()["remoteUser"]
        made = Step(devcontainer()["postCreateCommand"], user, KIT)
        return [*base, Step(copy=(".", KIT), user=user), made], Step(LAB, user, KIT)
    apt = "apt-get update && xargs -a .binder/apt.txt apt-get install -y --no-install-recommends"
    python = "apt-get install -y --no-install-recommends python3.11 python3.11-venv python3.11-dev"  # Binder has it from conda
    make = [
        Step(copy=(".", KIT), user="learner"),
        Step(f"{apt} && {python}", folder=KIT),
        Step(".binder/postBuild", "learner", KIT),
    ]
    return make, Step(f".binder/start {LAB}", "learner", KIT)


# --- the bare tree ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def tree():
    """A bare Debian 12 in a folder, as small as debian:12-slim."""
    with tempfile.TemporaryDirectory(prefix="pi2zero-tree-", dir="/var/tmp") as folder:
        root = Path(folder, "root")
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "bookworm", root], check=True)
        for way in map(Path, WAYS):
            target = root / way.relative_to("/")
            target.unlink(missing_ok=True) if not target.is_dir() else None
            if way.is_dir():
                shutil.copytree(way, target, dirs_exist_ok=True, ignore_dangling_symlinks=True)
            elif way.exists():
                shutil.copy(way, target)
        yield root


def inside(root: Path, step: Step, **options) -> subprocess.Popen:
    """Start a step in the tree, in namespaces of its own: it sees its processes and its files only."""
    here = {name: value for name, value in os.environ.items() if WAY_VARIABLES.match(name)}
    home = "/root" if step.user == "root" else f"/home/{step.user}"
    env = (
        here
        | {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": home, "USER": step.user}
        | step.env
    )
    mounts = [f"mount --rbind /{name} {root}/{name}" for name in ("dev", "sys")] + [
        f"mount -t proc proc {root}/proc"
    ]
    mounts += [f"mount -t tmpfs -o size=1g,mode=1777 tmpfs {root}/dev/shm"]
    line = f"cd {step.folder} && {step.line}" if step.folder != "/" else step.line
    chroot = ["chroot", f"--userspec={step.user}", str(root), "/bin/sh", "-c", line]
    script = " && ".join([*mounts, f"exec {shlex.join(chroot)}"])
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--ipc", "sh", "-c", script]
    return subprocess.Popen(words, env=env, **options)


def copy(root: Path, step: Step) -> None:
    """Copy the clone's files (what git knows or would take), as a container's build does."""
    source, target = step.copy
    if source != ".":
        shutil.copy(ROOT / source, root / target.lstrip("/"))
        return
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).exists():
            place = root / target.lstrip("/") / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place)
    run(
        root,
        Step(
            f"id {step.user} >/dev/null 2>&1 || useradd --create-home {step.user}; chown -R {step.user} {target}"
        ),
    )


def run(root: Path, step: Step) -> None:
    begin = time.monotonic()
    if inside(root, step).wait():
        sys.exit(f"This step failed: {step.line}")
    print(
        f"--- {time.monotonic() - begin:.0f} s: {step.line.strip().splitlines()[-1][:100]}",
        flush=True,
    )


def main():
    if sys.argv[1:] not in (["docker"], ["apptainer"], ["devcontainer"], ["binder"]):
        sys.exit(__doc__)
    if os.getuid() or not shutil.which("mmdebstrap"):
        sys.exit("A bare tree needs root, Linux and mmdebstrap: apt-get install mmdebstrap")
    make, start = recipe(sys.argv[1])
    with tree() as root:
        for step in make:
            copy(root, step) if step.copy else run(root, step)
        prove(root, start)
    print(f"{sys.argv[1]}: made, started, and its notebook 00 ran.")


def prove(root: Path, start: Step) -> None:
    """What was made works: the doctor finds nothing, notebook 00 does what it should, JupyterLab answers who has its token."""
    run(root, Step(f"id {start.user} >/dev/null 2>&1 || useradd --create-home {start.user}"))
    run(root, Step(f"{KIT}/.venv/bin/python -m pi2zero doctor", start.user, KIT, env=start.env))
    nbval = f"{KIT}/.venv/bin/python -m pytest -q -p no:cacheprovider --nbval-lax {KIT}/notebooks/00_start_here.ipynb"
    run(root, Step(nbval, start.user, KIT, env=start.env))
    server = inside(root, start, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in server.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+/lab\S*token=\w+", line):
                code = (
                    f"import urllib.request as u; print(u.urlopen({found[0]!r}, timeout=60).status)"
                )
                asked = subprocess.run(
                    [sys.executable, "-c", code], capture_output=True, text=True, timeout=90
                )
                assert asked.stdout.strip() == "200", asked.stderr
                print("--- JupyterLab answers", flush=True)
                return
        sys.exit("JupyterLab did not start.")
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
