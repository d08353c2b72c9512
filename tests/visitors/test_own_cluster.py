"""In a kernel of the kit, without its code: spawned ranks, ipyparallel, Horovod and DeepSpeed."""

import json
import os
import socket
import subprocess
import sys
import sysconfig

import nbformat
import pytest
from nbclient import NotebookClient

from .conftest import plain_environment, ran

SPAWN = """
import sys
from mpi4py import MPI
children = MPI.COMM_SELF.Spawn(sys.executable, args=["pi_child.py"], maxprocs=4)
children.bcast(1000, root=MPI.ROOT)
print(round(children.reduce(None, root=MPI.ROOT), 5))
children.Disconnect()
"""
OWN = """
import ipyparallel as ipp
own = ipp.Cluster(engines="mpi", n=4)
rc = own.start_and_connect_sync()
view = rc[:]
view.block = True
view.activate()
"""
SETTINGS = """
import json, os, sys
names = ("PRTE_ALLOW_RUN_AS_ROOT", "PRTE_MCA_rmaps_default_mapping_policy", "TORCH_EXTENSIONS_DIR")
print(json.dumps([os.environ.get(name) for name in names] \
+ [os.environ["PATH"].split(":")[0], "PI2ZERO_MARK" in os.environ]))
"""


def as_set(said):
    """What a kernel printed, with the names of the values."""
    root, mapping, operators, first, marked = json.loads(said)
    assert (root, mapping, marked) == ("1", "slot:oversubscribe", False), (
        "MPI's settings, and no mark: it is not the kit's to end"
    )
    assert operators == f"{sys.prefix}/torch_extensions/{socket.gethostname()}"
    assert first == sysconfig.get_path("scripts")


@pytest.mark.long
def test_a_kernel_begins_with_the_settings(visitor):
    as_set(ran(visitor, SETTINGS))


@pytest.mark.long
def test_so_does_one_that_nbclient_starts(monkeypatch):
    for name in os.environ.keys() - plain_environment().keys():
        monkeypatch.delenv(name)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SETTINGS)])
    NotebookClient(book, kernel_name="python3").execute()
    as_set(book.cells[0].outputs[0].text)


def test_a_value_of_the_user_wins():
    env = plain_environment() | {"PRTE_MCA_rmaps_default_mapping_policy": "numa:oversubscribe"}
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "-c", SETTINGS],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)[1] == "numa:oversubscribe"


@pytest.mark.long
def test_classic_spawn(visitor):
    assert ran(visitor, SPAWN) == "3.14159\n"


@pytest.mark.long
def test_the_standard_input_of_rank_0_ends(visitor):
    """With Open MPI 5.0.11 rank 0 waits forever, from a pipe as from a file."""
    program = "import sys; print([sys.stdin.read()])"
    file, command = "input.txt", f'timeout 100 mpirun -n 2 python -c "{program}"'
    ran(visitor, f"open({file!r}, 'w').write('200')")
    for line, given in (
        (f"echo 100 | {command}", r"['100\n']"),
        (f"{command} < {file}", "['200']"),
    ):
        said = ran(visitor, f"!{line}\nprint('status', _exit_code)", timeout=150)
        assert said.count(given) == said.count("['']") == 1 and "status 0" in said, said


@pytest.mark.long
def test_one_sided_mpi_prints_no_error(visitor):
    program = "from mpi4py import MPI; MPI.Win.Allocate(8, comm=MPI.COMM_WORLD).Free()"
    assert ran(visitor, f'!mpirun -n 2 python -c "{program}"') == ""


@pytest.mark.long
def test_torchrun_restarts_a_plain_program(visitor):
    """In the shared store of torchrun's own default one restart in four does not end."""
    command = "torchrun --standalone --local-addr 127.0.0.1 --nproc-per-node 2 --max-restarts 1"
    said = ran(visitor, f"!timeout 120 {command} elastic.py\nprint('status', _exit_code)")
    assert said.count("rank 0 ends after 1 restart") == 1, said
    assert said.count("rank 1 ends after 1 restart") == 1 and said.endswith("status 0\n"), said


@pytest.mark.long
def test_horovod_program_by_both_launchers(visitor):
    pytest.importorskip(
        "horovod.torch", reason="Horovod is not built here: make horovod", exc_type=ImportError
    )
    assert "2 ranks, images/s measured: True" in ran(
        visitor, "!mpirun -n 2 python throughput.py", timeout=200
    )
    assert "2 ranks, images/s measured: True" in ran(
        visitor, "!horovodrun --gloo -np 2 python throughput.py", timeout=200
    )


@pytest.mark.long
def test_deepspeed_program_on_four_ranks(visitor):
    said = ran(visitor, "!mpirun -n 4 python plain_deepspeed.py", timeout=280)
    for rank in range(4):
        assert f"rank {rank} of 4, local rank {rank}, loss falls: True" in said


@pytest.mark.long
def test_own_cluster_with_ipyparallel_s_own_magics(visitor):
    ran(visitor, OWN, timeout=120)
    assert ran(visitor, "print(rc.ids)") == "[0, 1, 2, 3]\n"
    ran(
        visitor,
        "%%px\nfrom mpi4py import MPI\nrank = MPI.COMM_WORLD.rank\n"
        "total = MPI.COMM_WORLD.allreduce(rank)",
    )
    assert ran(visitor, "print(view['total'])") == "[6, 6, 6, 6]\n"
    ran(visitor, "%px square = rank**2")
    assert ran(visitor, "print(view['square'])") == "[0, 1, 4, 9]\n"
    assert ran(visitor, "import sys; print('pi2zero.cluster' in sys.modules)") == "False\n"


@pytest.mark.long
def test_beside_it_a_cluster_of_the_kit_s_says_which_one_has_px(visitor):
    """Follows the test above."""
    ran(visitor, "import pi2zero\nkit = pi2zero.start(n=2)")
    assert ran(visitor, "%px print('here')") == "[stdout:0] here\n[stdout:1] here\n"
    assert "%%px runs on another cluster now, without the kit's watch" in ran(
        visitor, "view.activate()"
    )
    assert "watch" not in ran(visitor, "1"), "said once"
    ran(visitor, "%px four = 4")
    assert ran(visitor, "print(view['four'])") == "[4, 4, 4, 4]\n"
    ran(visitor, "kit.activate()")
    assert ran(visitor, "%px print('here')") == "[stdout:0] here\n[stdout:1] here\n"
    ran(visitor, "kit.stop()\nown.stop_cluster_sync()")


@pytest.mark.long
def test_deepspeed_on_the_kit_s_ranks_without_its_join(visitor):
    ran(visitor, "import pi2zero\nkit = pi2zero.start(n=4)")
    said = ran(
        visitor, "%%px --timeout 120\nimport plain_deepspeed\nplain_deepspeed.train()", timeout=280
    )
    for rank in range(4):
        assert f"[stdout:{rank}] rank {rank} of 4, local rank {rank}, loss falls: True" in said
    ran(visitor, "kit.stop()")


@pytest.mark.long
def test_horovod_on_the_kit_s_ranks(visitor):
    pytest.importorskip(
        "horovod.torch", reason="Horovod is not built here: make horovod", exc_type=ImportError
    )
    ran(visitor, "import pi2zero\nkit = pi2zero.start(n=2)")
    said = ran(visitor, "%%px --timeout 120\nimport throughput\nthroughput.measure()", timeout=200)
    assert said == "[stdout:0] 2 ranks, images/s measured: True\n"
    ran(visitor, "kit.stop()")
