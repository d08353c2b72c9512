#!/usr/bin/env python3
"""Make .venv-tensorflow, with TensorFlow and Horovod, for scripts/train_tensorflow.py. Called by `make tensorflow`.

It is optional and apart from .venv: TensorFlow 2.15, the last that Horovod 0.28.1 builds with, needs NumPy 1, the kit NumPy 2.
An interrupted run can be run again. Standard library only, and old syntax, as tools/setup.py.
"""

import argparse
import os
import subprocess
import sys

from setup import ROOT, check_disk, check_folder, find_python, make_environment, probe, take_lock
from setup_packages import Packages, pins
from setup_talk import say, stop

REQUIREMENTS = os.path.join(ROOT, "requirements-tensorflow.txt")
NEED_GB = 3.0  # TensorFlow is 1.2 GB; pip unpacks beside it, and Horovod compiles


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--python", default=os.environ.get("PYTHON") or None, help="the Python 3.11 to use"
    )
    parser.add_argument(
        "--venv",
        default=os.path.join(ROOT, ".venv-tensorflow"),
        help="where to make the environment",
    )
    args = parser.parse_args()
    python = find_python(args.python)
    version, _ = probe(python)
    if version != "3.11":
        stop(
            "TensorFlow 2.15 needs Python 3.11; found %s (%s)." % (python, version),
            "name one: make tensorflow PYTHON=python3.11",
        )
    check_folder(args.venv)
    check_disk(NEED_GB)
    lock = take_lock(args.venv)
    make_environment(python, args.venv)
    log = os.path.join(args.venv, "set-up.log")
    open(log, "w").close()
    packages = Packages(args.venv, log, lock)
    packages.mend()
    packages.fetch_uv(os.path.join(ROOT, "requirements.lock"))
    name = os.path.relpath(args.venv, ROOT)
    say(
        "[1/2] Installing TensorFlow and what it needs in %s (the installer's words are in %s/set-up.log)"
        % (name, name)
    )
    packages.install(["-r", REQUIREMENTS], pins(REQUIREMENTS))
    say("[2/2] Horovod for TensorFlow (some minutes)")
    kit = dict(packages.env, PYTHONPATH=os.path.join(ROOT, "src"))
    if subprocess.call([packages.python, "-m", "pi2zero", "built", "--again", "--wait"], env=kit):
        sys.exit(1)
    say(
        "Ready. Two ranks: %s/bin/mpirun -n 2 %s/bin/python scripts/train_tensorflow.py"
        % (name, name)
    )


if __name__ == "__main__":
    main()
