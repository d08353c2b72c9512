"""Cells of a notebook in worlds of 1, 2, ... ranks of torch.distributed, and what checks say there.

World after world on the same processes, because a rank takes seconds to load torch.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path

from pi2zero.mpi import mpi_env

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import math, os, sys, time
import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI
from pi2zero import costs
from pi2zero.meters import Memory, Timeline
from pi2zero.ranks import Rank
from torch import nn
from torch.nn import functional as F
sys.path.insert(0, {scripts!r})
torch.set_num_threads(1)
comm = MPI.COMM_WORLD
def tell(name, good):
    held = torch.tensor(float(bool(good)))
    dist.all_reduce(held, op=dist.ReduceOp.MIN)  # on every rank
    if comm.rank == 0:
        print("CHECK", dist.get_world_size(), name, held.item() == 1, flush=True)
known = dict(globals())
for n in {sizes}:
    if comm.rank < n:
        dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/{{n}}", n), \
rank=comm.rank, world_size=n)
        exec({text!r}, known | dict(me=Rank(comm.rank, n, comm.rank, "cpu", "gloo"), \
__name__=f"on {{n}}"))
        time.sleep(0.1)  # s, see pi2zero.ranks.leave
        dist.destroy_process_group()
    done = comm.Ibarrier()  # ranks outside the world sleep: waiting in MPI, they would spin
    while not done.Test():
        time.sleep(0.01)
"""


# Groups of 1, 2, ... MPI ranks, one after the other; the others sleep.
GROUPS = """
import sys, time
from mpi4py import MPI

world, text = MPI.COMM_WORLD, {text!r}
for n in {sizes}:
    group = world.Split(0 if world.rank < n else MPI.UNDEFINED)
    if world.rank < n:
        def tell(name, good, comm=group):
            good = comm.allreduce(int(bool(good))) == comm.size  # on every rank
            if comm.rank == 0:
                print("CHECK", comm.size, name, good, flush=True)
        try:
            exec(text, {{"group": group, "tell": tell, "__name__": f"on {{n}}"}})
        except SystemExit:
            pass
    done = world.Ibarrier()
    while not done.Test():
        time.sleep(0.01)
"""


def source(book, cell_id):
    """A code cell of a notebook without its %%px line and without `@solution`."""
    cells = json.loads((ROOT / "notebooks" / f"{book}.ipynb").read_text())["cells"]
    [cell] = [cell for cell in cells if cell["id"] == cell_id]
    lines = "".join(cell["source"]).splitlines()
    return "\n".join(line for line in lines if not line.startswith(("%", "@solution")))


def definitions(book, cell_id, values=True):
    """What a notebook's cell defines, without what it runs. values: also what it assigns."""
    kept = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    kept += (ast.Assign, ast.AugAssign) if values else ()
    tree = ast.parse(source(book, cell_id))
    tree.body = [node for node in tree.body if isinstance(node, kept)]
    return ast.unparse(tree)


def checks(sizes, text, folder):
    """{size: {name: whether it is true on all ranks}} of each `tell(name, good)` in the worlds.

    text: a program in which `me` is this rank of the world. folder: an empty one, where ranks meet.
    """
    program = PROGRAM.format(sizes=sizes, folder=folder, scripts=str(ROOT / "scripts"), text=text)
    return run(program, sizes)


def mpi_checks(sizes, text):
    """The same in groups of MPI ranks without torch.distributed: `group` is the communicator."""
    return run(GROUPS.format(sizes=sizes, text=text), sizes)


def run(program, sizes):
    """Run a program on the ranks of the largest world; returns its lines "CHECK size name true"."""
    mpi_env()
    command = ["mpirun", "-n", str(max(sizes)), "-x", "OMP_NUM_THREADS=1", sys.executable]
    command += ["-m", "mpi4py", "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    results = {size: {} for size in sizes}
    for line in done.stdout.splitlines():
        if line.startswith("CHECK "):
            _, size, rest = line.split(" ", 2)
            name, _, is_true = rest.rpartition(" ")
            results[int(size)][name] = is_true == "True"
    return results
