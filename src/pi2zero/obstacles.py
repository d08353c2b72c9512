"""What of a user's settings, files and machine is in the way of ranks, each with its cure.

The doctor lists them. The message of a start that has failed ends with those that can be the cause.
"""

import os
import re
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from pi2zero import environment, mpi
from pi2zero.hosts.slurm import LEAVE_JOB, SlurmJob

OF_MPI = re.compile(r"(OMPI|PRTE|PMIX|MPI4PY)_\w+")
HARMLESS = re.compile(r"(OMPI|PRTE)_(ALLOW_RUN_AS_ROOT|MCA_(rmaps_|threads_|mpi_yield))")
# Open MPI, PRRTE and PMIx read these in the home folder.
SETTINGS_FILES = tuple(f".{name}/mca-params.conf" for name in ("openmpi", "prte", "pmix"))
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE")
INTERFACES += ("OMPI_MCA_btl_tcp_if_include", "PRTE_MCA_prte_if_include")
# Modules that a start of ranks imports, apart from Python's own
IMPORTED = ("pi2zero", "mpi4py", "ipyparallel", "ipykernel", "IPython", "zmq", "tornado")
IMPORTED += ("traitlets", "psutil", "numpy", "torch", "deepspeed", "horovod", "matplotlib")
LOOK_UP = 2.0  # s for this machine to find its own name


class Obstacle(NamedTuple):
    """what: a sentence without its full stop. remedy: what to do."""

    what: str
    remedy: str


def hint() -> str:
    """What may have stopped ranks from starting, for the end of an error's message; "" if nothing.

    Also settings of MPI that are the user's right, as long as ranks start with them.
    """
    found = [*settings_of_mpi(), *of_the_environment(), *of_the_machine()]
    return "".join(f"\n{what}. {remedy}." for what, remedy in found)


def settings_of_mpi() -> Iterator[Obstacle]:
    """Variables and files that change how MPI works."""
    ours = {name: value for name, value in os.environ.items() if not OF_MPI.fullmatch(name)}
    mpi.mpi_settings(ours)
    names = sorted(
        name
        for name, value in os.environ.items()
        if OF_MPI.fullmatch(name) and not HARMLESS.match(name) and ours.get(name) != value
    )
    theirs = [name for name in names if name not in environment.not_for_ranks()]
    if theirs:
        what = f"Your shell sets {', '.join(theirs)}"
        yield Obstacle(what, f"Try without: unset {' '.join(theirs)}")
    for path in (Path(os.environ.get("HOME") or "/", name) for name in SETTINGS_FILES):
        if lines := settings_in(path):
            yield Obstacle(f"{path} says {'; '.join(lines)}", f"Try without: mv {path} {path}.off")


def settings_in(path: Path) -> list[str]:
    """The settings in one of Open MPI's files; none if it cannot be read."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [line.strip() for line in lines if "=" in line.partition("#")[0]]


def of_the_environment() -> Iterator[Obstacle]:
    """Variables that name what is not there, or what hides the kit's own."""
    folder = os.environ.get("TMPDIR")
    if folder and not environment.is_usable(folder):
        what = f"TMPDIR is {folder}, where nothing can be written"
        yield Obstacle(what, "Run: unset TMPDIR, or make that folder")
    if not Path(home := os.environ.get("HOME", "")).is_dir() or not home:
        what = f"HOME is {home}, and that is no folder" if home else "HOME is not set"
        yield Obstacle(what, "Set it to your home folder: export HOME=...")
    if others := environment.other_mpi_folders():
        yield Obstacle(
            f"LD_LIBRARY_PATH names {', '.join(others)}, whose MPI hides this environment's own",
            "The kit takes it out for its kernels and ranks. For other programs: unset "
            "LD_LIBRARY_PATH, or module unload what has set it",
        )
    if preloaded := os.environ.get("LD_PRELOAD"):
        what = f"LD_PRELOAD puts {preloaded} into every program"
        yield Obstacle(what, "If ranks do not start, try without: unset LD_PRELOAD")
    yield from of_python_path()
    yield from of_interfaces()


def of_python_path() -> Iterator[Obstacle]:
    """Folders on PYTHONPATH that have packages which the environment has, too."""
    if Path(sys.prefix, "pi2zero-site").exists():  # there the site's packages are wanted
        return
    for folder in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        others = [name for name in IMPORTED[1:] if Path(folder, name, "__init__.py").exists()]
        if others and not folder.startswith(sys.prefix):
            yield Obstacle(
                f"PYTHONPATH names {folder}, whose {' and '.join(others)} this Python loads "
                "instead of its own",
                "Run: unset PYTHONPATH",
            )


def of_interfaces() -> Iterator[Obstacle]:
    """Variables that name a network interface which this machine does not have."""
    import psutil

    have = sorted(psutil.net_if_addrs())
    for variable in INTERFACES:
        value = os.environ.get(variable, "")
        if not value or value.startswith("^") or any("/" in word for word in value.split(",")):
            continue  # those that are not wanted, or networks
        begins = variable.startswith("NCCL") and not value.startswith("=")
        names = [word.partition(":")[0] for word in value.lstrip("=").split(",")]
        if not [n for n in names for i in have if i == n or (begins and i.startswith(n))]:
            yield Obstacle(
                f"{variable}={value} is no network interface of this machine, which has "
                f"{', '.join(have)}",
                f"Run: unset {variable}",
            )


def of_the_machine() -> Iterator[Obstacle]:
    """What is on this machine, and in the current folder."""
    yield from own_name()
    try:
        folder = Path.cwd()
    except FileNotFoundError:
        what = "The folder of this notebook or program was removed"
        yield Obstacle(what, "Go to another one, and start again there")
        return
    if files := hiding_files(folder):
        those = "these files" if len(files) > 1 else "this file"
        yield Obstacle(
            f"{', '.join(files)} in {folder} {'hide modules' if files[1:] else 'hides a module'} "
            "that Python or the kit imports by that name",
            f"Rename {those}, such as my_{files[0]}",
        )


def own_name() -> Iterator[Obstacle]:
    """This machine's name, if it leads to no address: torchrun and horovodrun look it up."""
    name, answers = socket.gethostname(), []

    def look_up() -> None:
        try:
            answers.append(socket.getaddrinfo(name, None))
        except OSError:
            answers.append(None)

    thread = threading.Thread(target=look_up, daemon=True)  # a dead name server may take 20 s
    thread.start()
    thread.join(LOOK_UP)
    if not answers or answers[0] is None:
        finds = "does not know" if answers else f"needs more than {LOOK_UP:.0f} s to look up"
        yield Obstacle(
            f"This machine {finds} its own name, {name}, which torchrun and horovodrun want",
            f"As root: echo '127.0.1.1 {name}' >> /etc/hosts. "
            "Without root: torchrun --local-addr 127.0.0.1",
        )


def hiding_files(folder: Path) -> list[str]:
    """Files and packages in a folder whose names are those of modules that ranks import."""
    names = {*sys.stdlib_module_names, *IMPORTED}
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    return [
        entry.name
        for entry in entries
        if entry.stem in names and (entry.suffix == ".py" or (entry / "__init__.py").exists())
    ]


def of_jobs() -> Iterator[Obstacle]:
    """A Slurm job that is over, whose variables are still set."""
    job = os.environ.get("SLURM_JOB_ID")
    if job and shutil.which("scontrol"):
        if over := SlurmJob(job).why_over():
            yield Obstacle(f"SLURM_JOB_ID is {job}. {over}", LEAVE_JOB)


def of_kernels() -> Iterator[Obstacle]:
    """A kernel `python3` of another Python that Jupyter takes for this environment's."""
    if os.environ.get("JUPYTER_PREFER_ENV_PATH") or not find_spec("jupyter_client"):
        return
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        spec = KernelSpecManager().get_kernel_spec("python3")
    except NoSuchKernel:
        return
    python = spec.argv[0] if spec.argv else ""
    own = Path(sys.executable).parent
    if "/" in python and Path(python).parent != own:
        yield Obstacle(
            f"The kernel python3 in {spec.resource_dir} starts {python}, and Jupyter takes it for "
            "this environment's",
            "make lab takes the right one. For other ways of starting Jupyter: "
            "export JUPYTER_PREFER_ENV_PATH=1, or jupyter kernelspec remove python3",
        )
