"""What the doctor tries on real processes.

`python -m pi2zero.doctor.probes NAME` prints one line of JSON, or its error. Each probe runs in a
process of its own: it may hang or die without taking the doctor, or a learner's kernel, with it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from typing import Any


def mpi() -> dict:
    """Which MPI library mpi4py loads, and the first mpirun on the PATH. Starts no MPI."""
    import mpi4py

    mpi4py.rc.initialize = False
    from pi2zero.mpi import ask_mpirun, mpi_env, mpi_library

    mpi_env()
    library = mpi_library()  # without it, mpirun does not matter
    version, why = ask_mpirun()
    return {"library": library, "mpirun": version, "why": why}


def world() -> dict:
    """Four processes by mpirun, and their all-reduced sum of rank + 1: 10 in a world of 4."""
    from pi2zero.mpi import mpi_env

    mpi_env()
    command = ["mpirun", "-n", "4", sys.executable, "-P", "-m", "pi2zero.doctor.probes", "rank"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def rank() -> dict | None:
    """What one of the four does. Rank 0 reports; pids prove that the processes differ."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    total = comm.allreduce(comm.rank + 1, op=MPI.SUM)
    pids = comm.gather(os.getpid(), root=0)
    if pids is None:
        return None
    return {"size": comm.size, "sum": total, "processes": len(set(pids))}


def spawn() -> dict:
    """Two children of a plain process. It sends 7; they return the sum of 7 (rank + 1): 21."""
    from pi2zero.mpi import mpi_env

    mpi_env()
    from mpi4py import MPI

    args = ["-P", "-m", "pi2zero.doctor.probes", "child"]
    children = MPI.COMM_SELF.Spawn(sys.executable, args=args, maxprocs=2)
    children.bcast(7, root=MPI.ROOT)
    total = children.reduce(None, op=MPI.SUM, root=MPI.ROOT)
    children.Disconnect()
    return {"sum": total}


def child() -> None:
    """What one of the two does."""
    from mpi4py import MPI

    parent = MPI.Comm.Get_parent()
    factor = parent.bcast(None, root=0)
    parent.reduce(factor * (MPI.COMM_WORLD.rank + 1), op=MPI.SUM, root=0)
    parent.Disconnect()


def cluster() -> dict:
    """A small cluster as the notebooks start it, and a cell on it: [0, 1] from its two ranks."""
    from pi2zero.cluster import live_ranks
    from pi2zero.cluster.api import start

    os.environ[live_ranks.PROBE] = "1"
    # Local, whatever the site file says: no job is submitted, and nobody waits in a queue.
    ranks = start(n=2, on="local")
    ranks.run("from mpi4py import MPI\nseen = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.allreduce(1)")
    seen = ranks.view["seen"]
    ranks.stop()
    return {"ranks": [rank for rank, _ in seen], "size": seen[0][1], "closed": may_close_ports()}


def may_close_ports() -> bool:
    """Whether this user may restrict another process's listening socket (port_filter.py)."""
    from pi2zero.hosts.port_filter import restrict_listeners

    program = "import socket, sys; s = socket.create_server(('', 0)); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        count = restrict_listeners(other.pid)
        other.kill()
        return count > 0


def torch() -> dict:
    """torch's version, a matrix product against its closed form, and the same on accelerators."""
    import torch

    def works(device) -> bool:
        a = torch.arange(64.0, device=device)
        outer = torch.outer(a, a)
        return torch.allclose(outer @ outer, (a @ a) * outer, rtol=1e-5)  # (64, 64): |a|² a aᵀ

    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    count = torch.accelerator.device_count() if kind else 0
    devices = [torch.device(kind.type, i) for i in range(count)] if kind else []
    found = [
        {
            "name": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            "works": works(device),
        }
        for device in devices
    ]
    return {"version": torch.__version__, "cpu": works("cpu"), "devices": found}


def horovod() -> dict:
    """Horovod's version, and an all-reduced 3 of a world of one: library and thread work."""
    import horovod  # pyright: ignore[reportMissingImports]
    import horovod.torch as hvd  # pyright: ignore[reportMissingImports]
    import torch

    hvd.init()
    total = hvd.allreduce(torch.tensor([3.0]), op=hvd.Sum)
    return {"version": horovod.__version__, "sum": total.item()}


def deepspeed() -> dict:
    """DeepSpeed's version. On CPUs also its operators, and how far its Adam is from torch's."""
    import deepspeed
    import torch
    from deepspeed.accelerator import get_accelerator
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    from pi2zero.native_build.parts import load_operators

    accelerator: Any = get_accelerator()
    found = {"version": deepspeed.__version__, "accelerator": accelerator.device_name()}
    if found["accelerator"] != "cpu":
        return found
    load_operators()
    steps = []
    for kind in (torch.optim.AdamW, DeepSpeedCPUAdam):
        weights = torch.nn.Parameter(torch.linspace(-1, 1, 1000))
        weights.grad = torch.linspace(1, -2, 1000)
        kind([weights], lr=0.01, weight_decay=0).step()
        steps.append(weights.detach())
    return found | {"error": (steps[0] - steps[1]).abs().max().item()}


PROBES = {
    probe.__name__: probe
    for probe in (mpi, world, rank, spawn, child, cluster, torch, horovod, deepspeed)
}


class Probe:
    """Runs probes by name, and leaves nothing behind. `deadline` is on time.monotonic()."""

    def __init__(self, deadline: float):
        self.deadline = deadline

    def __call__(self, name: str) -> tuple[dict | None, str]:
        """(what the probe found, "") or (None, why it found nothing)."""
        from pi2zero import environment, mpi, ownership

        env = {n: os.environ[n] for n in os.environ.keys() - set(environment.not_for_ranks())}
        mpi.mpi_settings(env)
        # A process that uses MPI without mpirun leaves 16 MB of shared memory (Open MPI 5.0): here
        # in a folder that is removed.
        folder = ownership.make_run_dir(ownership.SHM_DIR)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pi2zero.doctor.probes", name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=env | {"OMPI_MCA_btl_sm_backing_directory": str(folder)},
        )
        mark = ownership.owner_mark(process.pid)  # its children carry it, see mpi.mpi_env
        try:
            patience = max(0.1, self.deadline - time.monotonic())
            out, errors = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            return None, "it did not end in time"
        finally:
            process.kill()
            ownership.end_marked(mark)
            ownership.remove_run_dirs(mark)
            shutil.rmtree(folder, ignore_errors=True)
            process.communicate()
        if process.returncode:
            return None, last_words(errors)
        return json.loads(out.splitlines()[-1]), ""


def last_words(text: str) -> str:
    """The most telling part of a failed program's output.

    Python's error and the two lines after it; else the last line.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip(" -*")]
    errors = [i for i, line in enumerate(lines) if re.match(r"[\w.]*(Error|Exception)\b", line)]
    telling = lines[errors[-1] : errors[-1] + 3] if errors else lines[-1:]
    return " ".join(telling)[:300] or "it said nothing"


if __name__ == "__main__":
    answer = PROBES[sys.argv[1]]()
    if answer is not None:
        print(json.dumps(answer))
