"""DeepSpeed's own start on ranks that are a world already, without its messages."""

import contextlib
import io
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

BUFFERS = "/dev/shm/deepspeed_allreduce_buffer_"


def start(rank) -> None:
    """`deepspeed.init_distributed()`; what DeepSpeed prints meanwhile is dropped. rank: a Rank."""
    import torch.distributed as dist

    from pi2zero import environment, native_build
    from pi2zero.deepspeed_support import operators

    first = rank.local_rank == 0
    native_build.wait_for("deepspeed", show=first)
    kind, _, number = rank.device.partition(":")
    # Else DeepSpeed looks for an accelerator, and warns that there is none.
    os.environ.setdefault("DS_ACCELERATOR", kind)
    if number:  # DeepSpeed takes LOCAL_RANK for it, and asserts that Open MPI's is the same
        for name in {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"} & {"LOCAL_RANK", *os.environ}:
            environment.export(**{name: number})
    # DeepSpeed 0.19 calls torch's collectives, at every step, by names that torch 2.13 calls old.
    warnings.filterwarnings(
        "ignore", category=FutureWarning, module="torch.distributed.c10d_logger"
    )
    operators.use_folder()
    if first:
        operators.drop_stale_locks()
    dist.barrier()
    refuse_others(shared_buffer(rank.rank))
    with contextlib.redirect_stdout(io.StringIO()), silent():
        import deepspeed

        deepspeed.init_distributed(dist_init_required=False)
    refuse_others(shared_buffer(rank.rank))
    unlink_shared_buffer(rank.rank)


def shared_buffer(rank: int) -> Path:
    """The file of a rank's part of DeepSpeed's all-reduce in shared memory.

    DeepSpeed makes it under its own launcher alone.
    """
    address, port = (os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    return Path(f"{BUFFERS}{os.getuid()}_{address}_{port}_{rank}")


def refuse_others(buffer: Path) -> None:
    """Raise RuntimeError if another user has made such a file before any gradient is in it.

    The name can be guessed, and DeepSpeed takes the file. A file that DeepSpeed has opened counts,
    too, whether or not it has a name by now.
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
            f"Another user of this machine (uid {max(others)}) has made {buffer.name} in /dev/shm, "
            "through which DeepSpeed's ranks would exchange gradients.\n"
            "None was written. Start again, at another port, and tell whoever runs this machine."
        )


def unlink_shared_buffer(rank: int) -> None:
    """Remove this rank's file from /dev/shm; the ranks keep the memory.

    It has 69 MB (csrc/cpu/comm/shm.cpp), and DeepSpeed 0.19 never removes it: some dozen runs fill
    the memory of a small machine.
    """
    import torch.distributed as dist

    dist.barrier()  # all ranks have opened all files
    shared_buffer(rank).unlink(missing_ok=True)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Drop what programs print meanwhile: DeepSpeed tries what the compiler can link."""
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
