"""DeepSpeed's own start on ranks that are a world already, without its words about compilers and accelerators."""

import contextlib
import io
import os
import warnings
from pathlib import Path

BUFFERS = "/dev/shm/deepspeed_allreduce_buffer_"


def start(me) -> None:
    """`deepspeed.init_distributed()`; what DeepSpeed prints meanwhile goes nowhere."""
    import torch.distributed as dist

    from pi2zero import built
    from pi2zero.deepspeed_support import operators

    first = me.local_rank == 0
    built.wait_for("deepspeed", show=first)
    kind, _, number = me.device.partition(":")
    os.environ.setdefault(
        "DS_ACCELERATOR", kind
    )  # else it looks for one, and warns that there is none
    if (
        number
    ):  # it takes LOCAL_RANK for the number of the GPU, and asserts that Open MPI's is the same
        os.environ["LOCAL_RANK"] = number
        if "OMPI_COMM_WORLD_LOCAL_RANK" in os.environ:
            os.environ["OMPI_COMM_WORLD_LOCAL_RANK"] = number
    # DeepSpeed 0.19 calls torch's collectives by names that torch 2.13 calls old, at every step.
    warnings.filterwarnings(
        "ignore", category=FutureWarning, module="torch.distributed.c10d_logger"
    )
    operators.use_folder()
    if first:
        operators.drop_stale_locks()
    dist.barrier()
    refuse_others(shared_buffer(me.rank))
    with contextlib.redirect_stdout(io.StringIO()), silent():
        import deepspeed

        deepspeed.init_distributed(dist_init_required=False)
    refuse_others(shared_buffer(me.rank))
    unlink_shared_buffer(me.rank)


def shared_buffer(rank: int) -> Path:
    """The file of a rank's part of DeepSpeed's all-reduce in shared memory, which it makes under its own launcher alone."""
    told = os.environ.get
    return Path(
        f"{BUFFERS}{os.getuid()}_{told('MASTER_ADDR', '')}_{told('MASTER_PORT', '')}_{rank}"
    )


def refuse_others(buffer: Path) -> None:
    """Raises RuntimeError if another user has laid such a file, which DeepSpeed takes: before a gradient is in it.

    The name can be guessed. What DeepSpeed has opened counts, too, whether or not it has a name by now.
    """
    owners = set()
    with contextlib.suppress(FileNotFoundError):
        owners.add(buffer.lstat().st_uid)
    for descriptor in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):
            if str(descriptor.readlink()).startswith(BUFFERS):
                owners.add(descriptor.stat().st_uid)
    if others := owners - {os.getuid()}:
        raise RuntimeError(
            f"Another user of this machine (uid {max(others)}) has laid {buffer.name} in /dev/shm, through which "
            "DeepSpeed's ranks would exchange gradients.\nNone was written. Start again, at another port, and tell whoever runs "
            "this machine."
        )


def unlink_shared_buffer(rank: int) -> None:
    """Take this rank's file of DeepSpeed's all-reduce in shared memory out of /dev/shm; the ranks keep the memory.

    Under DeepSpeed's launcher each rank makes one of 69 MB (csrc/cpu/comm/shm.cpp), and DeepSpeed 0.19 never removes it: some
    dozen runs fill the memory of a small machine, and it is full until somebody looks there.
    """
    import torch.distributed as dist

    dist.barrier()  # all have opened all
    shared_buffer(rank).unlink(missing_ok=True)


@contextlib.contextmanager
def silent():
    """What programs started meanwhile print goes nowhere: DeepSpeed tries what the compiler can link."""
    kept = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for descriptor in kept:
            os.dup2(nowhere, descriptor)
        yield
    finally:
        for descriptor, former in kept.items():
            os.dup2(former, descriptor)
            os.close(former)
        os.close(nowhere)
