"""What docs/security.md promises of the code, and of what listens while the kit runs."""

import importlib.util
import re
from pathlib import Path

import nbformat
import psutil
import pytest
import torch
from faults.kernel import Notebook

ROOT = Path(__file__).parents[2]
# What lets a file, or a word in a command, run code, and ruff's security rules do not see
TRUSTING = re.compile(
    r"weights_only\s*=\s*False|(?:allow_pickle|trust_remote_code|shell)\s*=\s*True"
    r"|torch\.load\((?![^)]*weights_only=True)"
)
# `!{python} -m pi2zero` would be two words where the kit lies in a folder with a space.
UNQUOTED = re.compile(
    r'^\s*!(?:[^"\n]|"[^"\n]*")*?\{\w+\}(?=(?:[^"\n]*"[^"\n]*")*[^"\n]*$)', re.MULTILINE
)


def cells():
    """{notebook and id: source} of the cells of notebooks and solutions."""
    return {
        f"{path.name}, {cell.id}": cell.source
        for folder in ("notebooks", "solutions")
        for path in (ROOT / folder).glob("*.ipynb")
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "code"
    }


def test_nothing_that_is_read_may_run_code():
    assert TRUSTING.search("torch.load(path)") and UNQUOTED.search('!echo "a" {python}')
    assert not UNQUOTED.search('!"{python}" -m pi2zero')
    sources = cells()
    assert sources and not [name for name, text in sources.items() if UNQUOTED.search(text)]
    folders = ("src", "course", "scripts", "tools", "hub", "site", "slides", "benchmarks")
    for folder in folders:
        sources |= {str(path): path.read_text() for path in (ROOT / folder).rglob("*.py")}
    assert not [name for name, text in sources.items() if TRUSTING.search(text)]


def rows_of(title):
    """{(who, where)} of the page's table below a heading."""
    page = (ROOT / "docs" / "security.md").read_text()
    table = page.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("|")]
    return {(row[1].strip(), row[2].strip()) for row in rows[2:]}


WHO = {  # the first of these words of a command line: what the page calls that process
    "prterun ": "prterun",
    "prte ": "prte",
    "Get_parent": "spawned rank",
    "MPI.COMM_WORLD": "rank of mpirun",
    "ipykernel_launcher": "kernel",
    "ipyparallel.controller": "controller",
    "pi2zero.cluster.rank_engine": "rank",
}
JOIN = """%%px
import torch, torch.distributed as dist
from pi2zero import ranks
me = ranks.join()
dist.all_reduce(torch.ones(1))"""
HOROVOD = "%%px\nimport torch, horovod.torch as hvd\nhvd.init()\nhvd.allreduce(torch.ones(1))"
STAYS = "import time\ntime.sleep(60)"
SPAWN = f"""pi2zero.mpi_env()
import sys
from mpi4py import MPI
program = "from mpi4py import MPI\\nMPI.Comm.Get_parent().Barrier()\\n" + {STAYS!r}
children = MPI.COMM_SELF.Spawn(sys.executable, ["-c", program], 2)
children.Barrier()"""
MPIRUN = f"""import subprocess
program = "from mpi4py import MPI\\nMPI.COMM_WORLD.Barrier()\\nprint('met', flush=True)\\n" \
+ {STAYS!r}
command = ["mpirun", "-n", "2", sys.executable, "-c", program]
run = subprocess.Popen(command, stdout=subprocess.PIPE)
print(run.stdout.readline())"""


def listening(process):
    """Where a process listens: addresses of TCP and UDP, and files in folders of its user alone."""
    inet = process.net_connections("inet")
    found = {c.laddr.ip for c in inet if c.status == psutil.CONN_LISTEN}
    found |= {f"UDP {c.laddr.ip}" for c in inet if c.type == 2}
    table = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    accepting = {words[6]: "".join(words[7:]) for words in table if int(words[3], 16) & 0x10000}
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        name = accepting.get(str(link.readlink())[8:-1]) if link.is_symlink() else None
        if name is not None:
            private = name.startswith("/") and not Path(name).parent.stat().st_mode & 0o077
            found.add("a file in a private folder" if private else f"unix {name}")
    return found


def all_that_listen(book):
    """{(who, where)} of a notebook's kernel and all that it has started."""
    found = set()
    for process in (psutil.Process(book.pid), *book.processes()):
        line = " ".join(process.cmdline())
        who = next((name for words, name in WHO.items() if words in line), line)
        if who == "rank" and process.parent().cmdline() == process.cmdline():
            who = "nanny of a rank"  # forked from it
        found |= {(who, where) for where in listening(process)}
    return found


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/net/unix").exists(), reason="Linux's /proc lists the sockets")
def test_every_listening_socket_is_justified(notebook):
    for cell in ("import pi2zero\ncluster = pi2zero.start(n=2)", JOIN):
        assert (reply := notebook.run(cell)).ok, reply.text
    found = all_that_listen(notebook)
    elsewhere = {"JupyterLab", "room page"}
    assert found == {row for row in rows_of("What listens") if row[0] not in elsewhere}
    if torch.cuda.is_available() or not importlib.util.find_spec("horovod"):
        return  # NCCL's own sockets are on the page of the GPU nodes
    assert (reply := notebook.run(HOROVOD)).ok, reply.text
    assert all_that_listen(notebook) == found, "Horovod's ranks meet by the cluster's MPI"
    for cell in (SPAWN, MPIRUN):
        assert (reply := notebook.run(cell)).ok, reply.text
    assert all_that_listen(notebook) - found == rows_of("What listens after Spawn and mpirun")


@pytest.fixture
def notebook():
    """A fresh kernel."""
    book = Notebook()
    yield book
    book.close()
