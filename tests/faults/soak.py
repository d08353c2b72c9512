"""Rounds of start, run, break at random, go on, stop in one kernel; what is held after each."""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from .kernel import START, WORKS, WORKS_OUTPUT, Notebook, wait_until_gone

SETUP = "%%px\nfrom mpi4py import MPI\nimport os, signal, time\ncomm = MPI.COMM_WORLD"
CONTROLLER = "import os\nos.kill(cluster._engines.ipp.controller.pid, 9)"
BREAKS = {  # name: (the cell, is the stop button pressed, is only a stop wanted afterwards)
    "nothing": ("%%px\npass", False, False),
    "an exception": ("%%px\nif comm.rank == 1:\n    raise ValueError('soak')", False, False),
    "an exception, others in Barrier": (
        "%%px\nif comm.rank == 1:\n    raise ValueError('soak')\ncomm.Barrier()",
        False,
        False,
    ),
    "SIGKILL": (
        "%%px\nif comm.rank == 0:\n    os.kill(os.getpid(), signal.SIGKILL)\ncomm.Barrier()",
        False,
        False,
    ),
    "os._exit": ("%%px\nif comm.rank == 1:\n    os._exit(3)", False, False),
    "MPI_Abort": ("%%px\nif comm.rank == 1:\n    comm.Abort(7)", False, False),
    "receive without send": (
        "%%px --timeout 3\nif comm.rank == 0:\n    comm.recv(source=1)",
        False,
        False,
    ),
    "stop button": (
        "%%px\nprint('on', flush=True)\nwhile True:\n    time.sleep(0.01)",
        True,
        False,
    ),
    "the controller is killed": (CONTROLLER, False, True),
    "kernel restarted": (None, False, True),
}

MACHINE = (
    "shared",
    "semaphores",
    "files",
    "ports",
)  # what is counted on the machine, not in the kernel
# Namespaces without anybody else's listeners, shared memory and files. Root may make them.
APART = ["unshare", "--mount", "--net", "--ipc", "--", "sh", "-c"]
INSIDE = (
    "ip link set lo up && mount -t tmpfs soak /dev/shm"
    ' && mount -t tmpfs soak "$TMPDIR" && exec "$@"'
)


def apart(*command, **options):
    """subprocess.run with its own /dev/shm, temporary folder and ports. Wants root and iproute2."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        return subprocess.run(
            [*APART, INSIDE, "soak", *command], env={**os.environ, "TMPDIR": folder}, **options
        )


def rounds(notebook, count: int, seed: int = 0, names=tuple(BREAKS)):
    """Yields a dict per round: what broke, seconds of the start, what is held when all has stopped.

    names: of BREAKS; each comes once, then they come at random. descriptors, threads and memory
    (bytes of its own) are the kernel's; shared: entries of /dev/shm, named semaphores among them;
    semaphores: System V's; files: of the temporary folder; ports: on which this machine listens;
    processes: what the kernel has left.
    """
    chance = random.Random(seed)
    for at in range(count):
        name = names[at] if at < len(names) else chance.choice(names)
        cell, press, only_stop = BREAKS[name]
        owner = notebook.owner
        start = must(notebook.run(START)).seconds
        must(notebook.run(SETUP))
        assert must(notebook.run(WORKS)).text == WORKS_OUTPUT
        if cell is None:
            notebook.restart()
        else:
            notebook.run(cell, timeout=60, interrupt_after=0.3 if press else None)
            if not only_stop:
                must(notebook.run(SETUP))
                assert must(notebook.run(WORKS)).text == WORKS_OUTPUT, name
            must(notebook.run("cluster.stop()"))
        _, left = wait_until_gone(notebook, owner, 20)
        yield {
            "round": at,
            "broken": name,
            "start": start,
            "processes": len(left),
            **held(notebook.pid),
        }


def must(reply):
    assert reply.ok, reply.text
    return reply


def held(pid: int) -> dict:
    time.sleep(0.2)  # sockets close in a thread of their own
    kernel = psutil.Process(pid)
    return {
        "descriptors": kernel.num_fds(),
        "threads": kernel.num_threads(),
        "memory": kernel.memory_full_info().uss,
        "shared": len(list(Path("/dev/shm").iterdir())),
        "semaphores": len(Path("/proc/sysvipc/sem").read_text().splitlines()) - 1,
        "files": len(list(Path(tempfile.gettempdir()).iterdir())),
        "ports": sum(one.status == psutil.CONN_LISTEN for one in psutil.net_connections("tcp")),
    }


if __name__ == "__main__":  # each break once, in one kernel: what test_soak.py looks at
    book = Notebook()
    try:
        json.dump(list(rounds(book, len(BREAKS))), sys.stdout)
    finally:
        book.close()
