"""scripts/allreduce_bench.py as a user starts it: mpirun on 1, 2 and 3 ranks, and bad options."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import pi2zero

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "allreduce_bench.py"


@pytest.fixture(autouse=True)
def _mpi():
    with mock.patch.dict(os.environ):  # what mpi_env sets is taken back
        pi2zero.mpi_env()
        yield


def bench(ranks, *options):
    command = ["mpirun", "-n", str(ranks), sys.executable, str(SCRIPT), *options]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=90)


@pytest.mark.long
def test_json_has_every_size_and_algorithm():
    done = bench(
        2,
        "--sizes",
        "4K",
        "100",
        "--algorithms",
        "ring",
        "naive",
        "mpi",
        "gloo",
        "--repeats",
        "3",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["ranks"], report["repeats"]) == (2, 3)
    rows = report["results"]
    assert [(row["bytes"], row["algorithm"]) for row in rows] == [
        (n, a) for n in (4096, 100) for a in ("ring", "naive", "mpi", "gloo")
    ]
    for row in rows:
        assert 0 < row["seconds"] < 10
        assert row["algbw"] == pytest.approx(row["bytes"] / row["seconds"])
        assert row["busbw"] == pytest.approx(row["algbw"])  # 2 (p-1)/p is 1 for two ranks


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 3])
def test_table_on_any_number_of_ranks(ranks):
    done = bench(
        ranks,
        "--sizes",
        "8",
        "64K",
        "--algorithms",
        "ring",
        "naive",
        "mpi",
        "--repeats",
        "2",
        "--warmups",
        "0",
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{ranks} ranks"
    assert [line.split()[:2] for line in lines[2:]] == [
        [n, a] for n in ("8", "65,536") for a in ("ring", "naive", "mpi")
    ]


@pytest.mark.long
def test_what_is_not_there_is_left_out_with_its_reason():
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU, so nccl may be there")
    done = bench(2, "--sizes", "8", "--repeats", "1")
    assert done.returncode == 0, done.stderr
    why = "nccl wants a GPU for each rank; rank 0's device is cpu, over gloo"
    assert f"left out: nccl (rank 0: RuntimeError: {why})" in done.stderr
    assert {"ring", "naive", "mpi", "gloo"} <= {
        line.split()[1] for line in done.stdout.splitlines()[2:]
    }
    asked = bench(2, "--algorithms", "nccl")
    assert asked.returncode != 0
    assert asked.stderr.count("error: nccl is not possible here") == 1
    assert "Traceback" not in asked.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--sizes", "5"], "5 bytes are no whole number of float32 values; give a multiple of 4"),
        (["--sizes", "4X"], "'4X' is no size; write 4096, 4K, 16M or 1G"),
        (["--sizes", "900000G"], "GB are free. Give less."),
        (["--repeats", "0"], "'0': give a whole number, 1 or more"),
        (["--algorithms", "rong"], "invalid choice: 'rong'"),
    ],
)
def test_bad_options_are_said_once(options, says):
    done = bench(2, *options)
    assert done.returncode != 0
    assert done.stderr.count("allreduce_bench.py: error:") == 1, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert "ranks\n" not in done.stdout


HOSTS = """
import sys
sys.path.insert(0, {folder!r})
import allreduce_bench
from mpi4py import MPI
rank, world = MPI.COMM_WORLD.rank, [("a", 0, 2), ("a", 1, 2), ("b", 0, 1)]  \
# of each rank: its host, its place there, of how many
allreduce_bench.platform.node = lambda: world[rank][0]
allreduce_bench.mpi.local_rank = lambda comm: world[rank][1:]
for free in ({{"a": 3.2e9, "b": 1.6e9}}, {{"a": 9e9, "b": 1.2e9}}):
    allreduce_bench.limits.free_memory = lambda: free[world[rank][0]]
    try:
        allreduce_bench.check_memory([10**8], ["a"] * 13)
        print("enough", flush=True)
    except SystemExit as stop:
        print("stopped", stop, flush=True)
"""


@pytest.mark.long
def test_memory_is_counted_on_each_host():
    """100 MB in 14 arrays per rank, 3 more at rank 0: host a 3.1 GB (2 ranks), b 1.4 GB (1)."""
    program = HOSTS.format(folder=str(SCRIPT.parent))
    command = ["mpirun", "-n", "3", sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=90)
    assert sorted(done.stdout.splitlines()) == ["enough"] * 3 + ["stopped 2"] * 3, done.stderr
    assert (
        done.stderr.count(
            "100,000,000 bytes need 1.4 GB on the ranks of b, and 1.2 GB are free. Give less."
        )
        == 1
    )


@pytest.mark.long
def test_a_size_that_takes_too_long_ends_and_says_where_the_ranks_stand():
    done = bench(
        2, "--sizes", "16M", "--algorithms", "mpi", "--repeats", "100000", "--longest", "2"
    )
    assert done.returncode != 0
    assert "Timeout (0:00:02)!" in done.stderr and "in measure" in done.stderr
