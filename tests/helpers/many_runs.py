"""Many runs of scripts on one start of ranks: a rank takes seconds to import torch, a small training a fraction of one."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

# Of each run: the lines that it printed, and the sentence it ended with on each rank.
PROGRAM = """
import contextlib, io, json, os, resource, shutil, sys
from pathlib import Path
sys.path[:0] = [{scripts!r}, {folder!r}]
import torch
import torch.distributed as dist
from mpi4py import MPI
from pi2zero import ranks
comm = MPI.COMM_WORLD
destroy, dist.destroy_process_group = dist.destroy_process_group, lambda: None
found, folder = {{}}, Path({folder!r})
def train(name, script, *options):
    sys.argv, shown, said = [name, "--json", *map(str, options)], io.StringIO(), None
    os.environ.pop("RANK", None)  # as a fresh process
    with contextlib.redirect_stdout(shown):
        try:
            script.main()
        except (SystemExit, RuntimeError) as stop:
            said = str(stop)
    every = comm.allgather(said)
    found[name] = dict(records=[json.loads(line) for line in shown.getvalue().splitlines()], said=every)
def copy(name, source):
    if comm.rank == 0:
        shutil.copytree(folder / source, folder / name)
    comm.barrier()
    return folder / name
{body}
dist.destroy_process_group = destroy
if comm.rank == 0:
    (folder / {result!r}).write_text(json.dumps(found))
ranks.leave()
"""


def many_runs(folder, ranks, body, silent=False):
    """Run PROGRAM on that many ranks; returns what each run gave, by its name. Scripts are sought in `folder`, too.

    silent: neither the ranks nor a library may say a word.
    """
    result = f"{ranks} ranks.json"
    program = PROGRAM.format(scripts=str(SCRIPTS), folder=str(folder), body=body, result=result)
    command = ["mpirun", "-n", str(ranks), sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=590)
    assert done.returncode == 0, done.stderr
    assert not silent or not done.stderr.strip() + done.stdout.strip(), done.stderr + done.stdout
    return json.loads((folder / result).read_text())
