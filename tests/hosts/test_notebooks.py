"""The notebooks as they are, with all their compared cells, on two hosts: by ssh, and in a Slurm job."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosts.conftest import nothing_is_left

ROOT = Path(__file__).resolve().parents[2]
TIMED = {"02_mpi_pi"}  # what it asserts of times says itself: other work disturbed this, measure once more
SITES = {"ssh": 'on = ["node1:2", "node2:2"]\n', "slurm": 'on = "slurm"\nnodes = 2\nranks_per_node = 2\n'}


@pytest.mark.parametrize("by", SITES)
@pytest.mark.parametrize("name", ["00_start_here", "02_mpi_pi", "06_ddp", "09_zero"])
def test_every_cell_does_on_two_hosts_what_it_did_on_one(site, name, by):
    site(SITES[by])
    compared(name, tries=2 if name in TIMED else 1)


def test_notebook_12(site):
    site(SITES["slurm"])
    compared("12_clusters", tries=2)


def compared(name: str, tries: int) -> None:
    """Run a notebook by nbval in this place; afterwards nothing of it is left on any host."""
    command = [sys.executable, "tools/nbval_report.py", f"notebooks/{name}.ipynb"]
    for _ in range(tries):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    assert nothing_is_left() == {}
