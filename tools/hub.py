"""`make hub`: JupyterHub for a room of people on this node (root). CONFIG=slurm: in Slurm jobs.

Installs what it needs (hub/requirements.lock into .venv, the proxy by npm into hub/), checks that
people can use this clone, and starts. ARGS="--ssl-cert=... --ssl-key=..." goes to jupyterhub.
"""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HUB = ROOT / "hub"
CONFIGS = ("one_node", "slurm")


def main():
    config, *options = sys.argv[1:] or ["one_node"]
    if obstacle := find_obstacle(config):
        sys.exit(f"The hub was not started: {obstacle}")
    install()
    if config == "install":
        return
    os.umask(0o022)
    os.chdir(HUB)
    jupyterhub = Path(sys.executable).with_name("jupyterhub")
    os.execv(jupyterhub, [str(jupyterhub), f"--config={HUB / f'{config}.py'}", *options])


def find_obstacle(config) -> str:
    """Why people could not work here, and what to do; empty if they can."""
    if config not in (*CONFIGS, "install"):
        return f"there is no configuration {config!r}. There are: {', '.join(CONFIGS)}."
    if config != "install" and os.getuid() != 0:
        return "it has to start servers as other users. Run it as root."
    for path in (ROOT, Path(sys.executable).resolve()) if config != "install" else ():
        for folder in (*reversed(path.parents), path):
            if not folder.stat().st_mode & stat.S_IXOTH:
                return (
                    f"other users may not enter {folder}. Clone the kit to a place that all can "
                    "read, such as /srv/pi2zero, and make it with a Python that they can start, "
                    "too: make hub PYTHON=/usr/bin/python3.11"
                )
    temporary = Path(tempfile.gettempdir())
    if config != "install" and not temporary.stat().st_mode & stat.S_IWOTH:
        return f"other users may not write to {temporary}, where MPI does: chmod 1777 {temporary}"
    if not shutil.which("npm"):
        return "there is no npm. Install it (Debian: apt-get install nodejs npm)."
    return ""


def install():
    """Install what is missing. --no-deps: none of the kit's own pins changes."""
    marker, lock = HUB / "node_modules" / "installed", (HUB / "requirements.lock").read_text()
    lock += (HUB / "package-lock.json").read_text()
    jupyterhub = Path(sys.executable).with_name("jupyterhub")
    if marker.exists() and marker.read_text() == lock and jupyterhub.exists():
        return
    print("Installing JupyterHub and its proxy, half a minute", flush=True)
    python = [sys.executable, "-m"]
    pip_options = ["-q", "--no-deps", "--require-hashes", "-r", HUB / "requirements.lock"]
    npm_options = ["--silent", "--no-audit", "--no-fund", "--omit=dev", "--ignore-scripts"]
    commands = [
        [*python, "pip", "install", *pip_options],
        ["npm", "ci", *npm_options, f"--prefix={HUB}"],
        # People may not write here: their Python could not store bytecode.
        [sys.executable, ROOT / "tools" / "bytecode.py"],
        [*python, "compileall", "-q", ROOT / "src", ROOT / "course"],
        [*python, "pi2zero", "build"],  # continues in the background
    ]
    for command in commands:
        if subprocess.run(command, cwd=HUB).returncode:
            words = " ".join(map(str, command[:4]))
            sys.exit(
                f"The hub could not be installed: {words} failed (see above). Fix that, then run "
                "make hub again."
            )
    marker.write_text(lock)


if __name__ == "__main__":
    main()
