#!/usr/bin/env python
"""Time of an all-reduce among MPI ranks, over the size of the array, for several algorithms.

  mpirun -n 2 python scripts/allreduce_bench.py                     what is there, 1 KiB to 64 MiB
  mpirun -n 4 python scripts/allreduce_bench.py --algorithms ring mpi --sizes 4K 16M --json

algorithms: ring (notebook 03's, with Sendrecv), naive (gather to rank 0, add, broadcast), mpi
(MPI.Allreduce), gloo and nccl (torch.distributed), horovod. Each time is the median of the repeats
on the slowest rank. The repeats of ring, naive and mpi take turns, so that a machine that slows
down slows all of them. Then come Horovod and torch, whose threads would slow the short messages of
the others. --json has the minimum, too: other work only adds time, so alpha and beta are fitted to
that. algbw = size / time; busbw = algbw x 2 (p-1)/p on p ranks (nccl-tests). Arrays are float32. A
size that takes longer than --longest ends the run, and each rank prints its stack.
"""

import argparse
import contextlib
import faulthandler
import json
import os
import platform
import statistics
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one rank, one thread: ranks do not fight for cores

import numpy as np
from mpi4py import MPI

from pi2zero import mpi
from pi2zero.hosts import limits

DEFAULT_SIZES = ["1K", "4K", "16K", "64K", "256K", "1M", "4M", "16M", "64M"]


def ring_allreduce(comm, x):
    """Add up x over all ranks, in place."""
    rank, p = comm.rank, comm.size
    right, left = (rank + 1) % p, (rank - 1) % p
    chunks = np.array_split(x, p)  # views: writing to a chunk writes to x
    room = np.empty_like(chunks[0])
    for step in range(p - 1):  # reduce-scatter
        send, add = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        comm.Sendrecv(send, right, recvbuf=room[: add.size], source=left)
        add += room[: add.size]
    for step in range(p - 1):  # all-gather
        send, take = chunks[(rank - step + 1) % p], chunks[(rank - step) % p]
        comm.Sendrecv(send, right, recvbuf=take, source=left)


def naive_allreduce(comm, x):
    """Gather all arrays on rank 0, add them up there, broadcast the sum. In place."""
    everything = np.empty((comm.size, x.size), x.dtype) if comm.rank == 0 else None
    comm.Gather(x, everything, root=0)
    if comm.rank == 0:
        np.sum(everything, axis=0, out=x)
    comm.Bcast(x, root=0)


def torch_allreduce(backend):
    """torch.distributed's all_reduce; nccl wants a GPU for each rank on this host."""
    import torch
    import torch.distributed as dist

    from pi2zero import ranks

    here = ranks.join()
    if backend == "nccl" != here.backend:
        found = f"rank {here.rank}'s device is {here.device}, over {here.backend}"
        raise RuntimeError(f"nccl wants a GPU for each rank; {found}")
    device = (
        here.device if backend == "nccl" else "cpu"
    )  # the world has gloo for tensors on the CPU

    def prepare(x):
        tensor = torch.from_numpy(x).to(device)  # on the CPU the same memory

        def call():
            dist.all_reduce(tensor)
            if backend == "nccl":
                torch.cuda.synchronize()

        return call, tensor

    return prepare


def horovod_allreduce():
    """Horovod's all-reduce of a torch tensor."""
    import horovod.torch as hvd
    import torch

    hvd.init()

    def prepare(x):
        tensor = torch.from_numpy(x)
        return lambda: hvd.allreduce_(tensor, op=hvd.Sum, name="x"), tensor

    return prepare


def on_array(function):
    """`prepare` for an algorithm that works on a NumPy array in place."""
    return lambda x: (lambda: function(MPI.COMM_WORLD, x), x)


MAKERS = {
    "ring": lambda: on_array(ring_allreduce),
    "naive": lambda: on_array(naive_allreduce),
    "mpi": lambda: on_array(lambda comm, x: comm.Allreduce(MPI.IN_PLACE, x)),
    "gloo": lambda: torch_allreduce("gloo"),
    "nccl": lambda: torch_allreduce("nccl"),
    "horovod": horovod_allreduce,
}
TOGETHER = (
    ("ring", "naive", "mpi"),
    ("horovod",),
    ("gloo", "nccl"),
)  # without and with threads of their own


def available(wanted, required):
    """{name: prepare} of the algorithms that every rank has. required: end if one is missing."""
    comm, found = MPI.COMM_WORLD, {}
    for name in wanted:
        try:
            prepare, problem = MAKERS[name](), ""
        except (ImportError, RuntimeError, ValueError) as error:
            prepare, problem = None, f"{type(error).__name__}: {error}"
        problems = [
            f"rank {rank}: {text}" for rank, text in enumerate(comm.allgather(problem)) if text
        ]
        if not problems:
            found[name] = prepare
        elif required:
            stop(f"{name} is not possible here. {problems[0]}. Leave it out of --algorithms.")
        elif comm.rank == 0:
            print(f"left out: {name} ({problems[0]})", file=sys.stderr)
    return found


def measure(prepared, nbytes, warmups, repeats):
    """{name: [s of each repeat, on the slowest rank]}, after a check that the sum is right."""
    comm, calls = MPI.COMM_WORLD, {}
    for name, prepare in prepared.items():
        x = np.full(nbytes // 4, comm.rank + 1, dtype="float32")
        calls[name], result = prepare(x)
        calls[name]()
        wrong = np.abs(
            np.asarray(result.cpu() if hasattr(result, "cpu") else result)
            - comm.size * (comm.size + 1) / 2
        ).max()
        if (worst := comm.allreduce(float(wrong), op=MPI.MAX)) > 0:
            stop(f"{name}: the sum of {nbytes} bytes is wrong by {worst}")
        result[:] = 0  # sums of sums would overflow
    seconds = {name: [] for name in calls}
    for number in range(warmups + repeats):
        for name, call in calls.items():
            comm.Barrier()
            start = time.perf_counter()
            call()
            mine = time.perf_counter() - start
            slowest = comm.allreduce(mine, op=MPI.MAX)
            if number >= warmups:
                seconds[name].append(slowest)
    return seconds


def rows(options, prepared):
    """One dict per size and algorithm: bytes, median and minimum in s, bandwidths in bytes/s."""
    p = MPI.COMM_WORLD.size
    for nbytes in options.sizes:
        faulthandler.dump_traceback_later(
            options.longest, exit=True
        )  # anew: mpirun ends all ranks when one has ended
        for name, times in measure(prepared, nbytes, options.warmups, options.repeats).items():
            t = statistics.median(times)
            time_of = {"seconds": t, "smallest_seconds": min(times)}
            yield {
                "bytes": nbytes,
                "algorithm": name,
                **time_of,
                "algbw": nbytes / t,
                "busbw": nbytes / t * 2 * (p - 1) / p,
            }


def every_row(options, wanted):
    """The rows of all wanted algorithms: first of those without threads of their own."""
    for some in TOGETHER:
        faulthandler.dump_traceback_later(options.longest, exit=True)
        with contextlib.redirect_stdout(sys.stderr):  # what libraries say on import is no result
            prepared = available(
                [name for name in wanted if name in some], required=bool(options.algorithms)
            )
        yield from rows(options, prepared)
        if "horovod" in prepared:
            import horovod.torch

            horovod.torch.shutdown()
    faulthandler.cancel_dump_traceback_later()


def size_argument(text):
    """'4K', '16M', '1G' or '1000' in bytes: a multiple of 4, because float32 has 4."""
    number, unit = (
        (text[:-1], text[-1].upper()) if text[-1:].upper() in ("K", "M", "G") else (text, "")
    )
    try:
        nbytes = int(number) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[unit]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no size; write 4096, 4K, 16M or 1G"
        ) from None
    if nbytes < 4 or nbytes % 4:
        raise argparse.ArgumentTypeError(
            f"{text}: {nbytes} bytes are no whole number of float32 values; give a multiple of 4"
        )
    return nbytes


def count_argument(smallest):
    def count(text):
        if not text.isdigit() or int(text) < smallest:
            raise argparse.ArgumentTypeError(f"{text!r}: give a whole number, {smallest} or more")
        return int(text)

    return count


def stop(message):
    """End all ranks; rank 0 says why. Without the barrier mpirun could end rank 0 before that."""
    if MPI.COMM_WORLD.rank == 0:
        print(f"allreduce_bench.py: error: {message}", file=sys.stderr, flush=True)
    MPI.COMM_WORLD.Barrier()
    sys.exit(2)


def check_memory(sizes, algorithms):
    """Stop before a host's memory is full.

    A rank has an array per algorithm; rank 0 has one per rank more, for naive.
    """
    comm = MPI.COMM_WORLD
    _, here = mpi.local_rank(comm)
    needed = max(sizes) * (here * (len(algorithms) + 1) + (comm.size if comm.rank == 0 else 0))
    free = limits.free_memory()
    lacking, needed, free, host = max(
        comm.allgather((needed - free, needed, free, platform.node()))
    )
    if lacking > 0:
        problem = f"{needed / 1e9:.1f} GB on the ranks of {host}, and {free / 1e9:.1f} GB are free"
        stop(f"--sizes: {max(sizes):,} bytes need {problem}. Give less.")


def parse(rank):
    """The options. All ranks read them; only rank 0 says so if they are wrong."""
    description, more = __doc__.split("\n\n", 1)
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        description=description, epilog=more, formatter_class=formatter
    )
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=size_argument,
        default=DEFAULT_SIZES,
        metavar="SIZE",
        help="such as 4K 16M",
    )
    parser.add_argument(
        "--algorithms", nargs="+", choices=list(MAKERS), help="default: all that are possible here"
    )
    parser.add_argument(
        "--warmups",
        type=count_argument(0),
        default=2,
        help="calls that are not counted (default: 2)",
    )
    parser.add_argument(
        "--repeats", type=count_argument(1), default=5, help="calls that are counted (default: 5)"
    )
    parser.add_argument(
        "--longest", type=count_argument(1), default=600, help="seconds for one size (default: 600)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    if rank > 0:
        parser._print_message = lambda *_: None
    try:
        options = parser.parse_args()
    except SystemExit:
        MPI.COMM_WORLD.Barrier()  # see `stop`
        raise
    options.sizes = [
        size_argument(size) if isinstance(size, str) else size for size in options.sizes
    ]
    return options


def main():
    comm = MPI.COMM_WORLD
    mpi.refuse_worlds_of_one(comm.size)
    options = parse(comm.rank)
    wanted = options.algorithms or list(MAKERS)
    check_memory(options.sizes, wanted)
    table = not options.json and comm.rank == 0
    if table:
        units = f"{'time, us':>12} {'algbw, GB/s':>12} {'busbw, GB/s':>12}"
        print(f"{comm.size} ranks\n{'bytes':>12} {'algorithm':>10} {units}")
    results = []
    for row in every_row(options, wanted):
        results.append(row)
        if table:
            bandwidths = f"{row['algbw'] / 1e9:12.3f} {row['busbw'] / 1e9:12.3f}"
            time_us = f"{row['seconds'] * 1e6:12.1f}"
            print(f"{row['bytes']:12,} {row['algorithm']:>10} {time_us} {bandwidths}", flush=True)
    results.sort(
        key=lambda row: (options.sizes.index(row["bytes"]), wanted.index(row["algorithm"]))
    )
    if options.json and comm.rank == 0:
        print(
            json.dumps(
                {
                    "ranks": comm.size,
                    "warmups": options.warmups,
                    "repeats": options.repeats,
                    "results": results,
                }
            )
        )
    if "torch" in sys.modules:
        from pi2zero import ranks

        ranks.leave()


if __name__ == "__main__":
    main()
