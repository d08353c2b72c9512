"""A rank that ends by an error ends the others, whatever they wait in; one on a notebook's engine
lives on.
"""

import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("mpi_set")]

JOIN = """
import os, sys, time
from mpi4py import MPI
from pi2zero import ranks
me = ranks.join()
"""
RAISES = """
ranks.leave()
me = ranks.join()  # torch puts a hook of its own around the first
if me.rank == 1:
    print("so far", flush=False)
    raise MemoryError("no room on this rank")
MPI.COMM_WORLD.Barrier()  # MPI's end would wait for this rank, and this one for the other
"""
LEFT = """
ranks.leave()
if me.rank == 1:
    raise MemoryError("no room for the table")
time.sleep(2)
print("rank 0 has written its results")
"""
TOLD = """
def say(text):
    os.write(1, f"{me.rank} {text}\\n".encode())  # mpirun may mix pieces
say(ranks.gather_or_raise(lambda: 10 * me.rank))
def load():
    if me.rank == 1:
        raise SystemExit("rank 1's file is damaged")
try:
    ranks.gather_or_raise(load)
except SystemExit as stop:
    say(stop)
ranks.leave()
from IPython.core.interactiveshell import InteractiveShell
shell, sys.excepthook = InteractiveShell.instance(), sys.__excepthook__
ranks.join()
assert not hasattr(sys.excepthook, "func"), sys.excepthook  # torch's own, a function
shell.run_cell("1 / 0")
MPI.COMM_WORLD.Barrier()
ranks.leave()
"""


def two(program):
    return subprocess.run(
        ["mpirun", "-n", "2", sys.executable, "-c", JOIN + program],
        capture_output=True,
        text=True,
        timeout=90,
    )


def test_an_exception_on_one_rank_ends_all_at_once():
    begin = time.monotonic()
    done = two(RAISES)
    assert (
        done.returncode == 1
        and "MemoryError: no room on this rank" in done.stderr
        and "so far" in done.stdout + done.stderr  # mpirun passes on a piece of it as the other
    )
    assert done.stderr.count("Traceback") == 1 and time.monotonic() - begin < 60


def test_who_has_left_the_world_ends_alone():
    done = two(LEFT)
    assert done.returncode == 1 and "MemoryError: no room for the table" in done.stderr
    assert "rank 0 has written its results" in done.stdout


def test_what_ends_one_rank_is_told_on_all_and_an_engine_keeps_its_way():
    done = two(TOLD)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line[:2] in ("0 ", "1 ")]
    assert sorted(lines) == sorted(
        f"{rank} {says}" for rank in (0, 1) for says in ("[0, 10]", "rank 1's file is damaged")
    )
