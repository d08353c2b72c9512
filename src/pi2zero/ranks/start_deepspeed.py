"""DeepSpeed's own start on ranks that are a world already, without its words about compilers and accelerators."""

import contextlib
import io
import os
import warnings


def start(me) -> None:
    """`deepspeed.init_distributed()`; what DeepSpeed prints meanwhile goes nowhere."""
    import torch.distributed as dist

    from pi2zero import built
    from pi2zero.zero import operators

    first = me.local_rank == 0
    built.wait_for("deepspeed", show=first)
    kind, _, number = me.device.partition(":")
    os.environ.setdefault("DS_ACCELERATOR", kind)  # else it looks for one, and warns that there is none
    if number:  # it takes LOCAL_RANK for the number of the GPU, and asserts that Open MPI's is the same
        os.environ["LOCAL_RANK"] = number
        if "OMPI_COMM_WORLD_LOCAL_RANK" in os.environ:
            os.environ["OMPI_COMM_WORLD_LOCAL_RANK"] = number
    # DeepSpeed 0.19 calls torch's collectives by names that torch 2.13 calls old, at every step.
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed.c10d_logger")
    operators.use_folder()
    if first:
        operators.drop_stale_locks()
    dist.barrier()
    with contextlib.redirect_stdout(io.StringIO()), silent():
        import deepspeed

        deepspeed.init_distributed(dist_init_required=False)


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
