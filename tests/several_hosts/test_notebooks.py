"""The notebooks as they are, with all their compared cells, on two hosts: by ssh, and in a Slurm
job.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from tests.several_hosts.conftest import NODES, left_on, nothing_is_left

ROOT = Path(__file__).resolve().parents[2]
TIMED = {
    "02_mpi_pi",
    "06_ddp",
}  # what they assert of times says itself: other work disturbed this, measure once more
SITES = {
    "ssh": 'on = ["node1:2", "node2:2"]\n',
    "slurm": 'on = "slurm"\nnodes = 2\nranks_per_node = 2\n',
}


@pytest.mark.parametrize(
    "case",
    [
        f"{name} by {by}"
        for name in ("00_start_here", "02_mpi_pi", "06_ddp", "09_zero")
        for by in SITES
    ],
)
def test_every_cell_does_on_two_hosts_what_it_did_on_one(site, case):
    name, by = case.split(" by ")
    site(SITES[by])
    compared(name, tries=2 if name in TIMED else 1)


def test_notebook_12(site):
    site(SITES["slurm"])
    compared("12_clusters", tries=2)


def compared(name: str, tries: int) -> None:
    """Run a notebook by nbval in this place; afterwards nothing of it is left on any host."""
    command = [sys.executable, "tools/compare_notebooks.py", f"notebooks/{name}.ipynb"]
    for _ in range(tries):
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(
                subprocess.run, command, cwd=ROOT, capture_output=True, text=True, timeout=900
            )
            seen = seen_on_nodes(run)
            done = run.result()
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    assert seen == set(NODES), f"ranks of {name} ran on {seen or 'no node'} only"
    assert nothing_is_left() == {}


def seen_on_nodes(run) -> set[str]:
    """The nodes on which engines were seen while it ran: a site file that nobody reads would leave
    them all here.
    """
    seen = set()
    while not run.done():
        seen |= {node for node in set(NODES) - seen if "pi2zero.cluster." in left_on(node)}
        wait([run], timeout=1)
    return seen
