#!/usr/bin/env python3
"""What the hub starts as a person: their copy of the notebooks in ~/pi2zero, and a Jupyter server.

Nobody else can read what the person's programs write, whatever the system's default is.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import lab  # noqa: E402
from own_copy import make_own_copy  # noqa: E402


def main() -> None:
    os.umask(0o077)
    folder = make_own_copy(Path.home() / "pi2zero")
    os.chdir(folder)
    server = Path(sys.executable).with_name("jupyterhub-singleuser")
    options = [
        f"--config={ROOT / 'tools' / 'jupyter_lab_config.py'}",
        f"--ServerApp.root_dir={folder}",
    ]
    os.execve(server, [str(server), *options, *sys.argv[1:]], lab.environment())


if __name__ == "__main__":
    main()
