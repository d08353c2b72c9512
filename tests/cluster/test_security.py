"""What docs/security.md promises of the code, of the packages, and of what listens while the kit runs."""

import importlib.util
import re
from pathlib import Path

import nbformat
import psutil
import pytest
import torch
from faults.kernel import Notebook

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
# Arguments that let what is read, or a word in a command, run code
TRUSTING = re.compile(
    r"\b(?:weights_only\s*=\s*False|(?:allow_pickle|trust_remote_code|shell)\s*=\s*True)\b"
)


def sources():
    """{name: code} of all programs, and of the cells of notebooks and solutions."""
    found = {}
    for folder in ("src", "course", "scripts", "tools", "hub", "site", "slides", "benchmarks"):
        found |= {
            str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / folder).rglob("*.py")
        }
    for path in [*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "solutions").glob("*.ipynb")]:
        cells = [
            cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"
        ]
        found |= {f"{path.name}, {cell.id}": cell.source for cell in cells}
    return found


def test_nothing_that_is_read_may_run_code():
    """ruff's rules (S301, S602, S605, ...) see pickle and shells; these are what they do not see."""
    assert TRUSTING.search("torch.load(path, weights_only=False)") and TRUSTING.search(
        "run(line, shell = True)"
    )
    code = sources()
    assert len(code) > 500 and not [name for name, text in code.items() if TRUSTING.search(text)]
    loads = [load for text in code.values() for load in re.findall(r"torch\.load\([^)]*\)", text)]
    assert loads and all("weights_only=True" in load for load in loads)


BARE = re.compile(
    r'^\s*!(?:[^"\n]|"[^"\n]*")*?\{\w+\}(?=(?:[^"\n]*"[^"\n]*")*[^"\n]*$)', re.MULTILINE
)


def test_a_path_in_a_cell_s_shell_line_is_one_word():
    """`!{python} -m pi2zero` would be two words where the kit lies in a folder with a space."""
    assert (
        BARE.search("!{python} -m pi2zero")
        and BARE.search('!echo "a" {python}')
        and not BARE.search('!"{python}" -m pi2zero')
    )
    assert not [
        name
        for name, text in sources().items()
        if name.partition(",")[0].endswith(".ipynb") and BARE.search(text)
    ]


def test_every_pin_has_its_licence_on_the_page():
    pins = re.findall(
        r"^(?:# (?=horovod))?([\w.-]+)==(\S+)", (ROOT / "requirements.txt").read_text(), re.M
    )
    rows = re.findall(
        r"^\| ([\w.-]+) \| (\S+) \| (.+) \|$", (ROOT / "docs" / "licences.md").read_text(), re.M
    )
    assert {(name, version) for name, version, _ in rows[1:]} == {*pins}, "run `make audit`"
    assert all(licence.strip() for *_, licence in rows)


def rows_of(title):
    """The rows of the page's table below a heading, without its head."""
    table = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    return [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in table.splitlines()
        if line.startswith("|")
    ][2:]


def test_every_threat_names_a_test_that_is_there():
    rows = rows_of("Who could do what")
    assert len(rows) >= 15
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row[-1])
        assert named or "S3" in row[-1] or "not tested" in row[-1], row
        for file, test in named:
            assert (ROOT / file).is_file() and f"def {test}" in (ROOT / file).read_text(), (
                file,
                test,
            )


WHO = {  # the first of these words of a command line: what the page calls that process
    "prterun ": "prterun",
    "prte ": "prte",
    "Get_parent": "spawned rank",
    "MPI.COMM_WORLD": "rank of mpirun",
    "ipykernel_launcher": "kernel",
    "ipyparallel.controller": "controller",
    "ipyparallel.engine.nanny": "nanny of a rank",
    "ipyparallel.engine": "rank",
}
JOIN = "%%px\nimport torch, torch.distributed as dist\nfrom pi2zero import ranks\nme = ranks.join()\ndist.all_reduce(torch.ones(1))"


def listening(process):
    """Where a process listens: addresses of TCP and UDP, and files in folders that nobody else may enter."""
    inet = process.net_connections("inet")
    found = {c.laddr.ip for c in inet if c.status == psutil.CONN_LISTEN} | {
        f"UDP {c.laddr.ip}" for c in inet if c.type == 2
    }
    table = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    accepting = {words[6]: "".join(words[7:]) for words in table if int(words[3], 16) & 0x10000}
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        name = accepting.get(str(link.readlink())[8:-1]) if link.is_symlink() else None
        if name is not None:
            private = name.startswith("/") and not Path(name).parent.stat().st_mode & 0o077
            found.add("a file in a private folder" if private else f"unix {name}")
    return found


HOROVOD = "%%px\nimport torch, horovod.torch as hvd\nhvd.init()\nhvd.allreduce(torch.ones(1))"
STAYS = "import time\ntime.sleep(60)"
SPAWN = f"""pi2zero.mpi_env()
import sys
from mpi4py import MPI
program = "from mpi4py import MPI\\nMPI.Comm.Get_parent().Barrier()\\n" + {STAYS!r}
children = MPI.COMM_SELF.Spawn(sys.executable, ["-c", program], 2)
children.Barrier()"""
MPIRUN = f"""import subprocess
program = "from mpi4py import MPI\\nMPI.COMM_WORLD.Barrier()\\nprint('met', flush=True)\\n" + {STAYS!r}
run = subprocess.Popen(["mpirun", "-n", "2", sys.executable, "-c", program], stdout=subprocess.PIPE)
print(run.stdout.readline())"""


def all_that_listen(book):
    """{(who, where)} of a notebook's kernel and all that it has started."""
    found = set()
    for process in (psutil.Process(book.pid), *book.processes()):
        line = " ".join(process.cmdline())
        who = next((name for words, name in WHO.items() if words in line), line)
        found |= {(who, where) for where in listening(process)}
    return found


@pytest.mark.long
@pytest.mark.skipif(
    not Path("/proc/net/unix").exists(), reason="sockets are listed by Linux's /proc"
)
def test_every_listening_socket_is_justified():
    book = Notebook()
    try:
        for cell in ("import pi2zero\ncluster = pi2zero.start(n=2)", JOIN):
            assert (reply := book.run(cell)).ok, reply.text
        found = all_that_listen(book)
        assert found == {
            (who, where)
            for who, where, *_ in rows_of("What listens")
            if who not in ("JupyterLab", "room page")
        }
        if torch.cuda.is_available() or not importlib.util.find_spec("horovod"):
            return  # NCCL's own sockets are on the page of the GPU nodes
        assert (reply := book.run(HOROVOD)).ok, reply.text
        assert all_that_listen(book) == found, "Horovod's ranks meet by the cluster's MPI"
        for cell in (SPAWN, MPIRUN):
            assert (reply := book.run(cell)).ok, reply.text
        more = {(who, where) for who, where, *_ in rows_of("What listens after Spawn and mpirun")}
        assert all_that_listen(book) - found == more
    finally:
        book.close()
