"""MPI as the kit needs it: its settings, its name, and how its ranks are called in a sentence."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, MutableMapping
from pathlib import Path

from pi2zero import environment

RUN_DIR = "PI2ZERO_RUN_DIR"  # on a cluster's ranks: its private folder
ADDRESS = "PI2ZERO_ADDRESS"  # on ranks on several hosts: this host's address in their network
LOCAL_RANKS = (
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
)
LAUNCHED = {  # how many ranks were started, and by what
    "OMPI_COMM_WORLD_SIZE": "mpirun (Open MPI's)",
    "PMI_SIZE": "mpirun (MPICH's, or one of its family)",
    "SLURM_STEP_NUM_TASKS": "srun",
}
VARIABLES = {"RANK": "RANK", "SIZE": "WORLD_SIZE"}  # a launcher's names, and torch's
ONE_SIDED, NO_UCX = "OMPI_MCA_osc", "^ucx"  # which of Open MPI's components does it
MPIRUN_PATIENCE = 30.0  # s for mpirun to tell its version; a wrapper of a site may do more
is_rank = False  # this process is a rank of a cluster: MPI says who it is
_reserved: list[socket.socket] = []  # ports of `reserve_port`


def mpi_env() -> None:
    """Set in `os.environ` what Open MPI needs, and to which kernel its processes belong."""
    from pi2zero import ownership

    mpi_settings()
    # On a rank, what it starts belongs to its cluster.
    if "/cluster-" not in os.environ.get(ownership.MARK, ""):
        os.environ[ownership.MARK] = ownership.owner_mark()


def mpi_settings(env: MutableMapping[str, str] = os.environ) -> None:
    """Set in an environment what Open MPI needs on a laptop, in a container and in a kernel.

    Root is allowed, and so are more ranks than cores. (Open MPI 5 reads the PRTE names, 4.x the
    OMPI ones; unknown names are ignored.) Values that are set already win. This Python's `bin`
    comes first on the PATH, because `mpirun` has to be the one that mpi4py uses. What would stop
    its ranks is taken out: another MPI's libraries, a temporary folder that is gone.
    """
    for family in ("OMPI", "PRTE"):
        env.setdefault(f"{family}_ALLOW_RUN_AS_ROOT", "1")
        env.setdefault(f"{family}_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    # "slot" keeps a host's local ranks in the order of the ranks, which DeepSpeed asserts; without
    # it Open MPI 5 maps by package or NUMA domain.
    env.setdefault("PRTE_MCA_rmaps_default_mapping_policy", "slot:oversubscribe")
    env.setdefault("OMPI_MCA_rmaps_base_oversubscribe", "1")
    # A waiting rank gives its core away. After sched_yield Linux soon gives it back, and four ranks
    # on two cores would spend most of their time so; nanosleep (60 us) leaves it to the others.
    env.setdefault("OMPI_MCA_threads_pthreads_yield_strategy", "nanosleep")
    # Open MPI leaves loopback out, and a spawned process would have no way to its parent.
    if loopback := only_interface():
        env.setdefault("OMPI_MCA_btl_tcp_if_include", loopback)
    # Without UCX's hardware, each window of one-sided MPI would print an error that is none.
    if not any(Path("/sys/class/infiniband").glob("*")):
        env.setdefault(ONE_SIDED, NO_UCX)
    # Else a rank that torchrun has started again may read the address of a dead one, and hang.
    env.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    environment.stay_on_this_host(env)
    environment.correct(env)
    bin_dir = str(Path(sys.executable).parent)
    path = env.get("PATH", os.defpath).split(os.pathsep)
    if path[0] != bin_dir:
        env["PATH"] = os.pathsep.join([bin_dir, *path])


def reserve_port() -> int:
    """A port where no process of this host listens, kept for this process.

    DeepSpeed names shared memory by address and port, and a program may make a world of its own.
    """
    _reserved.append(reserved := socket.socket())
    reserved.bind(("", 0))  # it does not listen
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # this process may listen there
    return reserved.getsockname()[1]


def only_interface() -> str | None:
    """The loopback interface's name, where no other is up: on a laptop without any network."""
    import psutil

    up = [name for name, state in psutil.net_if_stats().items() if state.isup]
    return up[0] if len(up) == 1 and up[0].startswith("lo") else None


def one_host_env(folder: str) -> dict[str, str]:
    """Variables that keep the messages of ranks on one host in its memory: none listens on a port.

    folder: for the files of that memory, which goes with the cluster: a killed rank leaves its own.
    Values that are set already win. Ranks that spawn others need TCP for it: set OMPI_MCA_btl to
    self,sm,tcp before the start.
    """
    # A site's Open MPI or MPICH over UCX or libfabric: its ranks listen on loopback alone.
    wanted = {"UCX_NET_DEVICES": "lo", "FI_TCP_IFACE": "lo"}
    version = mpirun_version()
    if not version or "Open MPI" in version:
        old = "Open MPI) 4" in version
        transport = "vader" if old else "sm"
        for framework, components in environment.NO_SCHEDULER.items():
            # All ranks are here, whatever job this kernel is in.
            wanted[f"{'OMPI' if old else 'PRTE'}_MCA_{framework}"] = components
        wanted |= {
            "OMPI_MCA_pml": "ob1",  # where there is a fast network, another one ignores the next
            "OMPI_MCA_btl": f"self,{transport}",
            f"OMPI_MCA_btl_{transport}_backing_directory": folder,
        }
    return {name: os.environ.get(name, value) for name, value in wanted.items()}


def refuse_worlds_of_one(size: int) -> None:
    """Raise RuntimeError if a launcher started several ranks, and each became a world of its own.

    size: of this rank's world. Slurm's srun, or another MPI library's mpirun, makes one world only
    if it speaks the same PMI as the MPI library here. Else each rank would do the whole work and
    write the same files.
    """
    if size > 1 or "WORLD_SIZE" in os.environ:  # torchrun and deepspeed set it
        return
    for name, launcher in LAUNCHED.items():
        if (started := int(os.environ.get(name, "1"))) > 1:
            raise RuntimeError(
                f"{launcher} has started {started} tasks, and each is an MPI world of its own: "
                "rank 0 of 1. It and this Python's MPI library do not speak the same PMI. Start "
                f"them by that library's own: {own_mpirun()} -n {started} ..."
            )


def refuse_another_launcher() -> None:
    """Raise RuntimeError if RANK and WORLD_SIZE are not those of the mpirun that started this rank.

    They are left from another start in the same shell or notebook. Each rank would believe them,
    and train alone. (torchrun and DeepSpeed's launcher may be started by a rank.)
    """
    env = os.environ
    if "TORCHELASTIC_RUN_ID" in env or "CROSS_SIZE" in env:
        return
    for family in ("OMPI_COMM_WORLD_", "PMI_"):
        rank, size = (env.get(family + name, env[old]) for name, old in VARIABLES.items())
        if (rank, size) != (env["RANK"], env["WORLD_SIZE"]):
            raise RuntimeError(
                f"{LAUNCHED[f'{family}SIZE']} has started {size} ranks, and this is rank {rank}. "
                f"But RANK={env['RANK']} and WORLD_SIZE={env['WORLD_SIZE']} are set, which another "
                "start has left in this shell or notebook. Remove them: unset RANK WORLD_SIZE, or "
                "in a notebook os.environ.pop('RANK'); os.environ.pop('WORLD_SIZE')."
            )


def own_mpirun() -> str:
    """The mpirun of this Python's environment; else the name alone."""
    path = Path(sys.executable).with_name("mpirun")
    return str(path) if path.exists() else "mpirun"


def local_rank(comm) -> tuple[int, int]:
    """(the rank among those on this host, how many they are). All ranks of `comm` call it.

    A launcher's own number counts if it numbers this host's ranks, because DeepSpeed insists on it.
    (SLURM_LOCALID is 0 in all ranks that mpirun starts from a job's script.)
    """
    from mpi4py import MPI

    local = comm.Split_type(MPI.COMM_TYPE_SHARED)
    rank, size = local.rank, local.size
    by_rank = local.allgather([os.environ.get(name) for name in LOCAL_RANKS])
    local.Free()
    for numbers in zip(*by_rank, strict=True):
        if set(numbers) == {str(number) for number in range(size)}:
            return int(numbers[rank]), size
    return rank, size


def mpi_library() -> str:
    """Name and version of the MPI library that mpi4py has loaded, e.g. 'Open MPI 5.0.10'."""
    from mpi4py import MPI

    text = MPI.Get_library_version().replace("\0", "").strip()
    known = r"(Open MPI|MPICH|MVAPICH2?|Intel\(R\) MPI Library)\D*(\d[\w.]*)"
    match = re.match(known, text)
    return f"{match[1]} {match[2]}" if match else text.splitlines()[0]


def mpirun_version() -> str:
    """What the first mpirun on the PATH says of its version, e.g. 'mpirun (Open MPI) 5.0.10'.

    Empty if there is none, or if it does not answer.
    """
    return ask_mpirun()[0]


def ask_mpirun() -> tuple[str, str]:
    """(what the first mpirun on the PATH says of its version, why it says nothing)."""
    try:
        done = subprocess.run(
            ["mpirun", "--version"], capture_output=True, text=True, timeout=MPIRUN_PATIENCE
        )
    except FileNotFoundError:
        return "", "there is no mpirun on the PATH"
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"{shutil.which('mpirun')} does not answer: {error}"
    with_number = [line for line in done.stdout.splitlines() if re.search(r"\d", line)]
    if version := " ".join((with_number or [done.stdout])[0].split()):
        return version, ""
    last = [line.strip() for line in done.stderr.splitlines() if line.strip()][-1:]
    return "", f"{shutil.which('mpirun')} fails: {' '.join(last) or 'without a word'}"


def name_ranks(ranks: Iterable[int]) -> str:
    """[2] -> 'rank 2'; [0, 1, 3] -> 'ranks 0, 1 and 3'; of many, the middle is left out."""
    *others, last = map(str, sorted(ranks))
    if not others:
        return f"rank {last}"
    if len(others) > 7:
        return f"ranks {', '.join(others[:4])}, ... {last} ({len(others) + 1} in all)"
    return f"ranks {', '.join(others)} and {last}"
