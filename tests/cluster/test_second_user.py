"""A second user on the same host gets nothing: a process with that user's id makes every attempt.

Each attempt is first shown to work where the protection is off.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

import pi2zero
from pi2zero import ownership
from pi2zero.cluster import engines
from pi2zero.hosts import place
from pi2zero.hosts.port_filter import foreign_peer_uids, listening_sockets
from pi2zero.ranks import start_deepspeed

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        os.getuid() != 0 or not shutil.which("useradd"), reason="only root can create a second user"
    ),
]
PROGRAM = Path(__file__).parents[1] / "helpers" / "intruder.py"
CELL = "secret_number = 4711\nprint('secret output')"
JOIN = (
    "from pi2zero import ranks\nme = ranks.join()\n"
    "import torch, torch.distributed as dist\nx = torch.ones(1)"
)


@pytest.fixture(scope="module")
def user():
    """An ordinary user's id; the user is removed afterwards."""
    name = f"pi2zero-{os.getpid()}"
    subprocess.run(
        ["useradd", "--no-create-home", "--shell", "/usr/sbin/nologin", name], check=True
    )
    yield int(subprocess.run(["id", "-u", name], capture_output=True, text=True, check=True).stdout)
    subprocess.run(["userdel", name], check=True)


@pytest.fixture(scope="module")
def ranks():
    """Four ranks that are a world of torch's, too."""
    cluster = pi2zero.start(n=4)
    cluster.run(JOIN)
    cluster.run(CELL)
    yield cluster
    cluster.stop()


@pytest.fixture
def tries(user):
    """Call it with an attempt and its options: what the intruder got."""

    def attempt(name, meanwhile=None, **options):
        command = [sys.executable, str(PROGRAM), str(user), name, json.dumps(options)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, text=True, **pipes) as process:
            if meanwhile:
                assert process.stdout.readline() == "ready\n", process.stderr.read()
                while process.poll() is None:
                    meanwhile()
                    time.sleep(0.2)
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0 and out, err
            return json.loads(out)

    return attempt


EVERYWHERE = ("0.0.0.0", "::")


def open_ports(pid):
    """The sockets on which a process listens for everybody."""
    return [c for c in listening_sockets(pid) if c.laddr.ip in EVERYWHERE]


def listening(its: engines.Engines):
    """Where a cluster's processes listen, as (host, port). Anyone finds them in /proc/net/tcp."""
    found = set()
    for process in ownership.marked_processes(its.mark):
        with contextlib.suppress(psutil.Error):
            found |= {
                c.laddr for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN
            }
    return sorted(("127.0.0.1" if host in EVERYWHERE else host, port) for host, port in found)


def subscribe(tries, its, view, word):
    """What the intruder reads of a cell that runs meanwhile."""
    ports = [port for _, port in listening(its)]
    return tries(
        "subscribe", lambda: view.execute(CELL, silent=False, block=True), ports=ports, word=word
    )


def test_cells_are_read_without_encryption_and_only_then(ranks, tries, monkeypatch):
    monkeypatch.setenv("IPP_ENABLE_CURVE", "0")
    plain = engines.Engines(1, lambda what: None, place.Place())
    try:
        heard = "".join(subscribe(tries, plain, plain.client[:], "secret"))
    finally:
        plain.stop()
    assert "secret_number = 4711" in heard and "secret output" in heard
    assert subscribe(tries, ranks._engines, ranks.view, "") == []


@contextlib.contextmanager
def open_copy(file):
    """A copy of a file that everybody may read and write."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        copy = Path(shutil.copy(file, folder))
        copy.chmod(0o666)
        yield str(copy)


def test_a_client_needs_the_private_file(ranks, tries):
    real = next(ranks._engines.folder.rglob("*client.json"))
    assert real.stat().st_mode & 0o077 == 0
    assert tries("connect", path=str(real)) == []
    with open_copy(real) as copy:
        assert tries("connect", path=copy) == [["secret_number"]] * 4
    ranks.run("assert secret_number == 4711")


def test_torchs_ranks_meet_where_nobody_else_comes(ranks, tries):
    real = next(Path(place.shared_memory_dir(ranks._engines.folder)).glob("torch-*"))
    assert tries("join", path=str(real)) == []
    with open_copy(real) as copy:
        assert int(tries("join", path=copy)[0]) > 0


def test_no_port_is_open_to_all(ranks, tries, monkeypatch):
    """prterun's are, but drop every packet. On the others, nonsense changes nothing."""
    open_to_all = {
        p.name(): open_ports(p.pid)
        for p in ownership.marked_processes(ranks._engines.mark)
        if open_ports(p.pid)
    }
    assert list(open_to_all) == ["prterun"]
    ports = [
        ("127.0.0.1" if c.laddr.ip == "0.0.0.0" else "::1", c.laddr.port)
        for c in open_to_all["prterun"]
    ]
    pmix = [
        ("127.0.0.1", c.laddr.port)
        for c in listening_sockets(ranks._engines.mpirun_pid, True)
        if c.laddr.ip == "127.0.0.1"
    ]
    assert pmix and tries("knock", ports=ports + pmix) == [], (
        "PMIx believes whoever comes who they say they are"
    )
    monkeypatch.setattr(engines, "restrict_listeners", lambda pid, *friends, **how: 1)
    unsealed = engines.Engines(1, lambda what: None, place.Place())
    try:
        ports = [
            ("127.0.0.1", c.laddr.port)
            for c in open_ports(unsealed.mpirun_pid)
            if c.laddr.ip == "0.0.0.0"
        ]
        assert tries("knock", ports=ports) == [port for _, port in ports]
    finally:
        unsealed.stop()
    assert (
        not Path(place.shared_memory_dir(unsealed.folder)).exists() and not unsealed.folder.exists()
    )
    tries("knock", ports=listening(ranks._engines))
    ranks.run("dist.all_reduce(x)\nassert x.item() == 4")


@pytest.mark.parametrize("listens", ["127.0.0.1", "::"])
def test_who_has_connected_to_a_rank_is_known(tries, user, listens):
    """gloo takes whoever is first for a rank: `join` looks before anything is exchanged."""
    assert foreign_peer_uids() == set()
    both = (
        {"family": socket.AF_INET6, "dualstack_ipv6": True} if listens == "::" else {}
    )  # as torch's store listens
    with (
        socket.create_server((listens, 0), **both) as server,
        socket.create_connection(("127.0.0.1", server.getsockname()[1])),
    ):
        mine, _ = server.accept()
        assert foreign_peer_uids() == set(), "one's own"
        seen = []

        def accept():
            caller, _ = server.accept()
            with caller:
                seen.append(foreign_peer_uids())
                caller.sendall(b"seen")

        mine.close()
        thread = threading.Thread(target=accept)
        thread.start()
        assert tries("stay", port=server.getsockname()[1]) == ["seen"]
        thread.join()
    assert seen == [{user}]


def test_signals_environments_and_files(ranks, tries, user):
    pids = [process.pid for process in ownership.marked_processes(ranks._engines.mark)] + [
        os.getpid()
    ]
    assert len(pids) >= 4 + 4 + 2  # ranks, their nannies, the controller and this process
    assert len(tries("look", pids=pids)) == 1, "its own"
    assert len(tries("kill", pids=pids)) == 1, "its own"
    folder = ranks._engines.folder
    segments = list(Path(place.shared_memory_dir(folder)).iterdir())
    of_mpi = [folder.parent / f"ompi.{ranks._engines.mpirun_pid}", *segments]
    assert of_mpi[0].is_dir() and len(of_mpi) >= 1 + 4
    with tempfile.TemporaryDirectory(dir=folder.parent) as own:
        os.chown(own, user, -1)
        assert tries(
            "remove",
            paths=[own, *map(str, (folder, segments[0].parent, *folder.rglob("*"), *of_mpi))],
        ) == [own]
    ranks.run("assert secret_number == 4711")


def test_deepspeed_s_shared_memory_is_not_taken_from_somebody_else(user, monkeypatch):
    """Its name is known before: DeepSpeed's launcher takes port 29500, if nobody says otherwise."""
    monkeypatch.setattr("torch.distributed.barrier", lambda: None)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", f"test{os.getpid()}")
    file = start_deepspeed.shared_buffer(3)
    file.touch()
    start_deepspeed.refuse_others(file)
    start_deepspeed.unlink_shared_buffer(3)
    assert not file.exists()
    file.touch()
    shutil.chown(file, user)
    with file.open():
        for there in (True, False):  # he may take its name away again
            with pytest.raises(RuntimeError, match=r"Another user of this machine .* has made"):
                start_deepspeed.refuse_others(file)
            if there:
                file.unlink()
    start_deepspeed.refuse_others(file)  # it is closed
