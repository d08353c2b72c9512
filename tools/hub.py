"""`make hub`: JupyterHub for a room of people on this node (root). `make hub CONFIG=slurm`: each person in a Slurm job.

Installs what it needs beside the kit (hub/requirements.lock into .venv, the proxy by npm into hub/), looks whether people can use
this clone at all, and starts. What follows CONFIG goes to jupyterhub: ARGS="--ssl-cert=... --ssl-key=...".
"""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HUB = ROOT / "hub"


def main():
    config, *options = sys.argv[1:] or ["one_node"]
    if wrong := what_is_wrong(config):
        sys.exit(f"The hub was not started: {wrong}")
    install()
    if config == "install":
        return
    os.umask(0o022)
    os.chdir(HUB)
    jupyterhub = Path(sys.executable).with_name("jupyterhub")
    os.execv(jupyterhub, [str(jupyterhub), f"--config={HUB / f'{config}.py'}", *options])


def what_is_wrong(config) -> str:
    """Why people could not work here, and what to do; empty if all is well."""
    known = sorted(path.stem for path in HUB.glob("[os]*.py"))
    if config not in (*known, "install"):
        return f"there is no configuration {config!r}. There are: {', '.join(known)}."
    if config != "install" and (wrong := what_keeps_people_out()):
        return wrong
    if not shutil.which("npm"):
        return "there is no npm. Install it (Debian: apt-get install nodejs npm)."
    return ""


def what_keeps_people_out() -> str:
    """Why other users could not work with this clone, and what to do; empty if they can."""
    if os.getuid() != 0:
        return "it has to start servers as other users. Run it as root."
    for path in (ROOT, Path(sys.executable).resolve()):
        if closed := first_closed(path):
            return (
                f"other users may not enter {closed}. Clone the kit to a place that all can read, such as /srv/pi2zero, and make \
it with a Python that they can start, too: make hub PYTHON=/usr/bin/python3.11"
            )
    return ""


def first_closed(path) -> Path | None:
    """The first of a path's folders that others may not enter; None if they may read it."""
    for folder in (*reversed(path.parents), path):
        if not folder.stat().st_mode & stat.S_IXOTH:
            return folder
    return None


def install():
    """What is not there yet. Nothing of the kit's own pins changes: --no-deps, and a test holds the two lists together."""
    marker, wanted = HUB / "node_modules" / "installed", (HUB / "requirements.lock").read_text()
    wanted += (HUB / "package-lock.json").read_text()
    if (
        marker.exists()
        and marker.read_text() == wanted
        and Path(sys.executable).with_name("jupyterhub").exists()
    ):
        return
    print("Installing JupyterHub and its proxy, half a minute", flush=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--require-hashes",
        "-r",
        HUB / "requirements.lock",
    ]
    npm = [
        "npm",
        "ci",
        "--silent",
        "--no-audit",
        "--no-fund",
        "--omit=dev",
        "--ignore-scripts",
        f"--prefix={HUB}",
    ]
    # People may not write here: what Python would make of the sources at their first start, and what is compiled, is made now.
    bytecode = (
        [sys.executable, "-m", "pi2zero.built.bytecode"],
        [sys.executable, "-m", "compileall", "-q", ROOT / "src", ROOT / "course"],
    )
    built = [sys.executable, "-m", "pi2zero", "built"]  # goes on in the background
    for command in (pip, npm, *bytecode, built):
        if subprocess.run(command, cwd=HUB).returncode:
            sys.exit(
                f"{command[0]} could not install the hub. Its words are above. Mend that, then run make hub again."
            )
    marker.write_text(wanted)


if __name__ == "__main__":
    main()
