#!/usr/bin/env python
"""The kit under another MPI library: an environment that borrows the kit's packages and has that MPI in place of the wheel's.

  python tools/mpi_environments.py mpich       .venv-mpich: the wheel of MPICH (its ABI is MVAPICH's and Intel MPI's, too)
  python tools/mpi_environments.py openmpi4    .venv-openmpi4: the system's Open MPI 4 (Debian: openmpi-bin libopenmpi-dev)

--horovod compiles Horovod for it, which takes some minutes.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setup import take_lock
from setup_packages import Packages
from setup_talk import stop

ROOT = Path(__file__).resolve().parents[1]
SITE = Path("lib") / f"python3.{sys.version_info.minor}" / "site-packages"
NOT_BORROWED = ("openmpi", "mpich", "horovod", "deepspeed", "__pycache__")
SYSTEM = ("mpirun", "mpiexec", "mpicc", "mpicxx")
TITLES = {"openmpi5": "Open MPI 5", "openmpi4": "Open MPI 4", "mpich": "MPICH 5"}


def make(library, folder):
    """Make the environment, or bring it up to date. Returns its Python; ends with a sentence if that MPI cannot be had."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        own = folder / SITE / path.name
        if not path.name.startswith(NOT_BORROWED) and not own.exists():
            own.unlink(missing_ok=True)  # a link to what is gone
            own.symlink_to(path)
    link(folder / "bin" / "cmake", Path(sys.prefix) / "bin" / "cmake")  # Horovod is built with it
    if library == "mpich":
        install_mpich(folder)
    else:
        link_system(folder)
    (folder / "built").mkdir(exist_ok=True)  # Horovod may be compiled here
    return python


def install_mpich(folder):
    packages = Packages(str(folder), str(folder / "set-up.log"), take_lock(str(folder)))
    packages.uv = str(Path(sys.prefix) / "bin" / "uv")
    packages.install(["--no-deps", "--require-hashes", "-r", str(ROOT / "requirements-mpich.txt")])


def link_system(folder):
    """The system's programs, in front of others on the PATH; mpi4py finds the library by itself."""
    system = os.pathsep.join(
        part
        for part in os.environ["PATH"].split(os.pathsep)
        if not Path(part).is_relative_to(sys.prefix)
    )
    found = {name: shutil.which(name, path=system) for name in SYSTEM}
    told = subprocess.run(
        [found["mpirun"] or "false", "--version"], capture_output=True, text=True
    ).stdout
    if not re.search(r"Open MPI\) 4\.", told):
        what = (
            f"The system's mpirun is {told.splitlines()[0]}" if told else "The system has no mpirun"
        )
        stop(
            f"{what}; this environment is for Open MPI 4.",
            "on Debian 12: apt-get install openmpi-bin libopenmpi-dev",
        )
    for name, path in found.items():
        link(folder / "bin" / name, path)


def link(own, path):
    own.unlink(missing_ok=True)
    if path:
        own.symlink_to(path)


def variables(python):
    """The environment variables for programs of such an environment: no other MPI on the PATH, no setting for another one."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not re.match("(OMPI|PRTE|PMIX|MPI4PY|VIRTUAL_ENV)", name)
    }
    others = [
        part for part in env["PATH"].split(os.pathsep) if not (Path(part) / "mpirun").exists()
    ]
    others += [
        part for part in ("/usr/bin", "/bin") if part not in others
    ]  # compilers; the environment's MPI comes first
    return env | {
        "PATH": os.pathsep.join([str(python.parent), *others]),
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'course' / 'src'}",
    }


def main():
    description, ways = __doc__.split("\n\n", 1)
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        description=description, epilog=ways, formatter_class=formatter
    )
    parser.add_argument(
        "library", choices=[name for name in TITLES if name != "openmpi5"], help="which MPI"
    )
    parser.add_argument(
        "--folder", type=Path, help="where to make it (default: .venv-LIBRARY in the clone)"
    )
    parser.add_argument("--horovod", action="store_true", help="compile Horovod for it")
    options = parser.parse_args()
    python = make(options.library, (options.folder or ROOT / f".venv-{options.library}").absolute())
    if options.horovod:
        command = [python, "-m", "pi2zero", "built", "horovod", "--again", "--wait"]
        if subprocess.run(command, env=variables(python)).returncode:
            sys.exit(1)
    print(f"{TITLES[options.library]}: {python}")


if __name__ == "__main__":
    main()
