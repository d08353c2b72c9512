"""Runs of scripts: one process, or many runs on one start of ranks.

A rank takes seconds to import torch, a small training run a fraction of one.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
# All restarts of torchrun share one store, in which a rank may read the address of a dead one.
# One run in four hung without this variable.
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
# The ranks add the same 64 gradients in another order. Float32 has 7 digits; momentum and 66 steps
# enlarge the difference.
TOLERANCE = 1e-4

# Of each run: the lines that it printed, and the sentence with which it ended on each rank.
PROGRAM = """
import contextlib, io, json, os, resource, runpy, shutil, sys
from pathlib import Path
sys.path[:0] = [{scripts!r}, {folder!r}]
import torch
import torch.distributed as dist
from mpi4py import MPI
from pi2zero import ranks
import common
comm = MPI.COMM_WORLD
destroy, dist.destroy_process_group = dist.destroy_process_group, lambda: None
results, folder = {{}}, Path({folder!r})
def train(name, script, *options):
    path = next(path for path in (folder / script, Path({scripts!r}, script)) if path.exists())
    sys.argv, shown, message = [script, "--json", *map(str, options)], io.StringIO(), None
    os.environ.pop("RANK", None)  # as in a fresh process
    with contextlib.redirect_stdout(shown):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except (SystemExit, RuntimeError) as stop:
            message = str(stop)
    messages = comm.allgather(message)
    records = [json.loads(line) for line in shown.getvalue().splitlines()]
    results[name] = dict(records=records, messages=messages)
def copy(name, source):
    if comm.rank == 0:
        shutil.copytree(folder / source, folder / name)
    comm.barrier()
    return folder / name
def damage(path, kind):
    whole = path.read_bytes()
    at = len(whole) // 2
    bit = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    path.write_bytes({{"cut short": whole[:at], "empty": b"", "one bit": bit}}[kind])
{body}
dist.destroy_process_group = destroy
if comm.rank == 0:
    (folder / {result!r}).write_text(json.dumps(results))
ranks.leave()
"""


def many_runs(folder, ranks, body, silent=False):
    """Run PROGRAM on that many ranks. Returns {name of a run: its records and messages}.

    Scripts are sought in `folder`, too. silent: neither the ranks nor a library may print a word.
    """
    result = f"{ranks} ranks.json"
    names = {"scripts": str(SCRIPTS), "folder": str(folder), "result": result}
    program = PROGRAM.format(body=body, **names)
    command = ["mpirun", "-n", str(ranks), sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=590)
    assert done.returncode == 0, done.stderr
    assert not silent or not done.stderr.strip() + done.stdout.strip(), done.stderr + done.stdout
    return json.loads((folder / result).read_text())


def run(*parts, **env):
    """A finished process."""
    command = [str(part) for part in parts]
    env = dict(os.environ, **env)
    return subprocess.run(command, capture_output=True, text=True, timeout=200, env=env)


def records(*parts, **env):
    """The JSON objects that a program printed. (horovodrun writes [0]<stdout>: before each.)"""
    done = run(*parts, **env)
    assert done.returncode == 0, done.stderr
    return [json.loads(line[line.index("{") :]) for line in done.stdout.splitlines()]


def assert_same_curve(ours, theirs, tolerance=TOLERANCE):
    """The same epochs, losses and accuracies; the last record has the parameters."""
    assert len(ours) == len(theirs) > 1, "one rank prints"
    for left, right in zip(ours[:-1], theirs[:-1], strict=True):
        assert left["epoch"] == right["epoch"]
        assert left["loss"] == pytest.approx(right["loss"], abs=tolerance)
        one_image = 1.5 / 360  # may lie on the edge
        assert left["accuracy"] == pytest.approx(right["accuracy"], abs=max(one_image, tolerance))
