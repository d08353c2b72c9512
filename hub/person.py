#!/usr/bin/env python3
"""What the hub starts for a person, as that person: their own copy of the notebooks in ~/pi2zero, and a Jupyter server on it.

What the person's programs write can be read by nobody else, whatever the system's habit is.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import lab  # noqa: E402
from own_copy import own_copy  # noqa: E402


def main() -> None:
    os.umask(0o077)
    folder = own_copy(Path.home() / "pi2zero")
    os.chdir(folder)
    server = Path(sys.executable).with_name("jupyterhub-singleuser")
    options = [
        f"--config={ROOT / 'tools' / 'jupyter_lab_config.py'}",
        f"--ServerApp.root_dir={folder}",
    ]
    os.execve(server, [str(server), *options, *sys.argv[1:]], lab.environment())


if __name__ == "__main__":
    main()
