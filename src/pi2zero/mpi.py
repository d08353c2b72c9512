"""MPI as the kit needs it: its settings, its name, and how its ranks are called in a sentence."""

import os
import re
import subprocess
import sys
from collections.abc import MutableMapping
from pathlib import Path

RUN_DIR = "PI2ZERO_RUN_DIR"  # on a cluster's ranks: its private folder
LOCAL_RANKS = (
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
)
LAUNCHED = {  # how many were started, and by whom
    "OMPI_COMM_WORLD_SIZE": "mpirun (Open MPI's)",
    "PMI_SIZE": "mpirun (MPICH's, or one of its family)",
    "SLURM_STEP_NUM_TASKS": "srun",
}
ADDRESS = (
    "PI2ZERO_ADDRESS"  # on a cluster's ranks on several hosts: this host's address in their network
)


def mpi_env() -> None:
    """Set in `os.environ` what Open MPI needs on a laptop, in a container and in a kernel, and whom its ranks belong to."""
    from pi2zero import ownership

    mpi_settings()
    if "/cluster-" not in os.environ.get(
        ownership.MARK, ""
    ):  # on a rank, what it starts belongs to its cluster
        os.environ[ownership.MARK] = ownership.owner_mark()


def mpi_settings(env: MutableMapping[str, str] = os.environ) -> None:
    """Set in an environment what Open MPI needs; each kernel of the kit does so at its start, and JupyterLab for its terminals.

    Root is allowed, and so are more ranks than cores (Open MPI 5 reads the PRTE names, 4.x the OMPI ones; names that are
    not known are ignored). Values that are already set win. The environment's own `bin` comes first on the
    PATH, because a kernel may run without it, and `mpirun` has to be the one that mpi4py uses.
    """
    for family in ("OMPI", "PRTE"):
        env.setdefault(f"{family}_ALLOW_RUN_AS_ROOT", "1")
        env.setdefault(f"{family}_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    # "slot" also keeps a host's local ranks in the order of the ranks, which DeepSpeed asserts; with ":oversubscribe" alone
    # Open MPI 5 maps by package or NUMA domain, and numbers them across.
    env.setdefault("PRTE_MCA_rmaps_default_mapping_policy", "slot:oversubscribe")
    env.setdefault("OMPI_MCA_rmaps_base_oversubscribe", "1")
    # Where ranks share cores, one that waits gives its core away. Linux soon gives it back after sched_yield, and four ranks
    # on two busy cores spend most of their time so; asleep for a moment (some 60 us) it leaves the core to those who work.
    env.setdefault("OMPI_MCA_threads_pthreads_yield_strategy", "nanosleep")
    if (
        loopback := only_interface()
    ):  # Open MPI leaves it out, and a spawned process would have no way to its parent
        env.setdefault("OMPI_MCA_btl_tcp_if_include", loopback)
    bin_dir = str(Path(sys.executable).parent)
    path = env.get("PATH", os.defpath).split(os.pathsep)
    if path[0] != bin_dir:
        env["PATH"] = os.pathsep.join([bin_dir, *path])


def only_interface() -> str | None:
    """The loopback interface's name, where no other is up: on a laptop without any network."""
    import psutil

    up = [name for name, state in psutil.net_if_stats().items() if state.isup]
    return up[0] if len(up) == 1 and up[0].startswith("lo") else None


def one_host_env(folder: str) -> dict[str, str]:
    """What keeps the messages of ranks that all run on this host in its memory: no rank listens on a port.

    folder: for the files of that memory, which goes with the cluster: a rank that is killed leaves its own behind.
    Values that are already set win. (Ranks that spawn others need TCP for it: set OMPI_MCA_btl to self,sm,tcp before the
    start. Spawned from a kernel, processes have it.)
    """
    words = mpirun_words()
    if (
        words and "Open MPI" not in words
    ):  # MPICH and its family, over UCX or libfabric: they listen, on loopback alone
        wanted = {"UCX_NET_DEVICES": "lo", "FI_TCP_IFACE": "lo"}
    else:
        by = "vader" if "Open MPI) 4" in words else "sm"
        wanted = {"OMPI_MCA_btl": f"self,{by}", f"OMPI_MCA_btl_{by}_backing_directory": folder}
    return {name: os.environ.get(name, value) for name, value in wanted.items()}


def refuse_worlds_of_one(size: int) -> None:
    """Raise RuntimeError if a launcher started several processes, and each became a world of its own. size: of this one's.

    Slurm's srun, or another MPI library's mpirun, starts them; one world they are only if it speaks the same PMI as the MPI
    library here. If not, each would be rank 0 of 1, do the whole work, and write the same files.
    """
    if size > 1 or "WORLD_SIZE" in os.environ:  # torchrun and deepspeed set it
        return
    for name, launcher in LAUNCHED.items():
        if (started := int(os.environ.get(name, "1"))) > 1:
            raise RuntimeError(
                f"{launcher} has started {started} tasks, and each is an MPI world of its own: rank 0 of 1. It and this Python's "
                f"MPI library do not speak the same PMI. Start them by that library's own: {own_mpirun()} -n {started} ..."
            )


def own_mpirun() -> str:
    """The mpirun of this Python's environment; else the name alone."""
    beside = Path(sys.executable).with_name("mpirun")
    return str(beside) if beside.exists() else "mpirun"


def local_rank(comm) -> tuple[int, int]:
    """(the rank among those on this host, how many they are). All ranks of the communicator call it.

    Launchers number the ranks of a host their own way (Open MPI's, where they are more than the cores), and DeepSpeed insists on
    that. A variable counts if it numbers this host's ranks: SLURM_LOCALID is 0 in all that mpirun starts from a job's script.
    """
    from mpi4py import MPI

    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    told, rank, size = (
        here.allgather([os.environ.get(name) for name in LOCAL_RANKS]),
        here.rank,
        here.size,
    )
    here.Free()
    for numbers in zip(*told, strict=True):
        if set(numbers) == {str(number) for number in range(size)}:
            return int(numbers[rank]), size
    return rank, size


def mpi_library() -> str:
    """Name and version of the MPI library that mpi4py has loaded, e.g. 'Open MPI 5.0.11'."""
    from mpi4py import MPI

    text = MPI.Get_library_version().replace("\0", "").strip()
    found = re.match(r"(Open MPI|MPICH|MVAPICH2?|Intel\(R\) MPI Library)\D*(\d[\w.]*)", text)
    return f"{found[1]} {found[2]}" if found else text.splitlines()[0]


def mpirun_words() -> str:
    """What the first mpirun on the PATH says of its version, e.g. 'mpirun (Open MPI) 5.0.11'; empty if there is none."""
    try:
        told = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    except OSError:
        return ""
    return next(
        (" ".join(line.split()) for line in told.splitlines() if re.search(r"\d", line)),
        told.strip(),
    )


def name_ranks(ranks) -> str:
    """[2] -> 'rank 2'; [0, 1, 3] -> 'ranks 0, 1 and 3'; many are cut in the middle."""
    ranks = sorted(ranks)
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 8:
        return f"ranks {', '.join(map(str, ranks[:4]))}, ... {ranks[-1]} ({len(ranks)} in all)"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
