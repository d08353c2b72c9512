"""What the cells of a notebook define, run in worlds of 1, 2, ... ranks of torch.distributed, and
what checks say there.

World after world on the same processes: a rank takes seconds to load torch.
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
        dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/{{n}}", n), rank=comm.rank, world_size=n)
        exec({text!r}, known | dict(me=Rank(comm.rank, n, comm.rank, "cpu", "gloo"), __name__=f"on {{n}}"))
        time.sleep(0.1)  # s, see pi2zero.ranks.leave
        dist.destroy_process_group()
    done = comm.Ibarrier()  # those that are not in the world sleep: a rank that waits in MPI spins
    while not done.Test():
        time.sleep(0.01)
"""


def definitions(book, cell_id, values=True):
    """What a notebook's cell defines, without what it runs, magics and `@solution`. values: also
    what it assigns.
    """
    cells = json.loads((ROOT / "notebooks" / f"{book}.ipynb").read_text())["cells"]
    [cell] = [cell for cell in cells if cell["id"] == cell_id]
    kept = (
        ast.FunctionDef,
        ast.ClassDef,
        ast.Import,
        ast.ImportFrom,
        *((ast.Assign, ast.AugAssign) if values else ()),
    )
    tree = ast.parse("".join(line for line in cell["source"] if not line.startswith("%")))
    tree.body = [node for node in tree.body if isinstance(node, kept)]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.decorator_list = [
                each for each in node.decorator_list if ast.unparse(each) != "solution"
            ]
    return ast.unparse(tree)


def checks(sizes, text, folder):
    """What each `tell(name, good)` says in worlds of those sizes: a dict {name: whether it held on
    all ranks} for each.

    text: a program in which `me` is this rank of the world. folder: an empty one, where the ranks
    meet.
    """
    program = PROGRAM.format(sizes=sizes, folder=folder, scripts=str(ROOT / "scripts"), text=text)
    return told(program, sizes)


def told(program, sizes):
    """Run a program on as many ranks as the largest world has; what its lines "CHECK size name
    held" say, as `checks` has it.
    """
    mpi_env()
    command = [
        "mpirun",
        "-n",
        str(max(sizes)),
        "-x",
        "OMP_NUM_THREADS=1",
        sys.executable,
        "-m",
        "mpi4py",
        "-c",
        program,
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found = [{} for _ in sizes]
    for line in done.stdout.splitlines():
        if line.startswith("CHECK "):
            _, size, rest = line.split(" ", 2)
            name, _, held = rest.rpartition(" ")
            found[sizes.index(int(size))][name] = held == "True"
    return found
