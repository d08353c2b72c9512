"""How the kernel speaks with its agents, and what it does when one is silent, chatty or dead. The other host is this one,
reached by sh in place of ssh; tests/several_hosts has real ones."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest

import pi2zero
from pi2zero import ownership
from pi2zero.hosts import agent, find
from pi2zero.hosts.every import Hosts
from pi2zero.hosts.place import Place, PlaceError
from pi2zero.hosts.reach import HostError, There

BY_SH = ["sh", "-c", 'exec sh -c "$1"']  # what follows is the host, as $0, and the line
CHATTY = ["sh", "-c", r'echo Welcome to "$0"; printf "\351\n{\n[1]\n"; exec sh -c "$1"']


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "run")


@pytest.fixture
def mark():
    return f"{ownership.owner_mark()}cluster-test-{time.monotonic_ns()}/"


def press_stop(after):
    threading.Timer(after, os.kill, [os.getpid(), signal.SIGINT]).start()


def agents(mark):
    """The processes that were started with this mark as their argument."""
    return [
        p for p in psutil.process_iter(["cmdline"]) if mark in " ".join(p.info["cmdline"] or ())
    ]


def test_what_a_shell_says_at_its_start_is_no_answer(mark, folder):
    host = There("node1", CHATTY, mark, folder)
    try:
        assert host.name and host.call("read_all", []) == []
    finally:
        host.close(mark, folder)
    assert not agents(mark) and not Path(folder).exists()


def test_why_a_host_cannot_be_used_is_told_wherever_it_was_said(mark, folder):
    with pytest.raises(HostError, match="node1 cannot be used: no module named anaconda3"):
        There("node1", ["sh", "-c", "echo no module named anaconda3; exit 1"], mark, folder)


def test_a_host_where_somebody_was_before_is_not_used(mark, folder):
    Path(folder).mkdir(mode=0o755)
    with pytest.raises(
        HostError, match=r"node1 cannot be used: PermissionError: .* is not a private folder"
    ):
        There("node1", BY_SH, mark, folder)
    assert not agents(mark)


def test_an_agent_that_was_killed_is_told(mark, folder):
    host = There("node1", BY_SH, mark, folder)
    try:
        for process in agents(mark):
            process.kill()
        while not host.why_lost:
            time.sleep(0.02)
        begin = time.monotonic()
        with pytest.raises(HostError, match="its connection has ended"):
            host.call("read_all", [])
        assert time.monotonic() - begin < 2
    finally:
        host.close(mark, folder)


def test_an_interrupted_start_leaves_no_agent(mark, folder):
    late = ["sh", "-c", 'sleep 1; exec sh -c "$1"']
    press_stop(after=0.4)
    with pytest.raises(KeyboardInterrupt):
        Hosts(Place({"node1": 1, "node2": 1}, tuple(late), "lo"), mark, Path(folder))
    deadline = time.monotonic() + 30
    time.sleep(1.5)
    while agents(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not agents(mark) and not Path(folder).exists()


def test_the_job_is_given_back_when_the_kernels_host_is_gone(mark, folder, tmp_path, monkeypatch):
    """With the login node go the kernel and its warden: the agent on a node is all that is left."""
    (tmp_path / "scancel").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/cancelled\n')
    (tmp_path / "scancel").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    host = There("node1", BY_SH, mark, folder, job="4710")
    host.close(mark, folder)
    assert not (tmp_path / "cancelled").exists(), "who closes it gives the job back"
    host = There("node1", BY_SH, mark, folder, job="4711")
    host._closing.set()
    host._process.stdin.close()
    host._process.wait(20)
    assert (tmp_path / "cancelled").read_text() == "4711\n" and not Path(folder).exists()


@pytest.fixture
def two(mark, folder):
    """Hosts: this machine, and an agent of this machine's under another name."""
    hosts = Hosts(Place({"node1": 1}, tuple(BY_SH), "lo"), mark, Path(folder))
    hosts.others[0].name = "node1"
    yield hosts
    hosts.close()


@pytest.fixture
def sleepers():
    """Two processes in the place of ranks."""
    processes = [subprocess.Popen(["sleep", "120"]) for _ in range(2)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def until(true, seconds=20):
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    return true()


def test_what_both_hosts_have_is_asked_for_at_once(two, mark, folder, sleepers):
    here, there = Path(folder, "0.sample"), Path(folder, "1.sample")
    two.publish(there, "before")
    assert there.read_text() == "before" and there.stat().st_mode & 0o077 == 0
    info = [
        {"rank": rank, "host": host, "mark": ownership.owner_mark(sleepers[rank].pid)}
        for rank, host in ((0, two.here.name), (1, "node1"))
    ]
    two.watch(f"{mark}ranks/", info, {0: str(here), 1: str(there)})

    def write():
        here.write_text("sample of 0")
        there.write_text("sample of 1")

    assert two.read({0: here, 1: there}, write) == {0: "sample of 0", 1: "sample of 1"}
    assert two.sample(0) == "sample of 0" and until(lambda: two.sample(1) == "sample of 1")
    assert two.gone() == [] and two.lost() == {} and two.on_lost() == {}
    assert all(host.launched() == 0 for host in two), "no daemon of Open MPI's has this mark"
    sleepers[1].kill()
    sleepers[1].wait()
    assert until(lambda: two.gone() == [1]) and two.ended_first(set()) == [1]


def test_a_host_that_is_lost_is_told_and_left_out(two, mark, folder, sleepers):
    here, there = Path(folder, "0.sample"), Path(folder, "1.sample")
    info = [
        {"rank": rank, "host": host, "mark": ownership.owner_mark(sleepers[rank].pid)}
        for rank, host in ((0, two.here.name), (1, "node1"))
    ]
    two.watch(f"{mark}ranks/", info, {0: str(here), 1: str(there)})
    for process in agents(mark):
        process.kill()
    assert until(lambda: "node1" in two.lost())
    assert two.on_lost() == {1: f"its host node1 is lost: {two.lost()['node1']}"}
    assert two.read({0: here, 1: there}, lambda: here.write_text("0")) == {0: "0", 1: ""}
    two.end(mark)  # of those that are left


def test_a_host_without_its_program_is_told_and_the_others_are_left(mark, folder):
    with pytest.raises(HostError, match=r"node1 cannot be used: .*no-such-ssh"):
        Hosts(Place({"node1": 1}, ("no-such-ssh",), "lo"), mark, Path(folder))
    assert not agents(mark) and not Path(folder).exists()


def test_a_silent_host_is_lost_and_its_connection_ended(mark, folder):
    host = There("node1", BY_SH, mark, folder)
    (agent_,) = [
        process
        for process in agents(mark)
        if "agent" in " ".join(process.cmdline()) and process.name().startswith("python")
    ]
    try:
        agent_.suspend()
        with pytest.raises(HostError, match="it has not answered for 0 s"):
            host.call("read_all", [], patience=0.3)
        assert host.why_lost == "it has not answered for 0 s"
    finally:
        agent_.kill()
        host.close(mark, folder)


@pytest.mark.parametrize(
    ("says", "cores"), [("8", 8), ("Welcome\n\n8", 8), ("Welcome", None), ("", None)]
)
def test_cores_are_the_last_word(tmp_path, monkeypatch, says, cores):
    (tmp_path / "ssh").write_text(f"#!/bin/sh\ncat <<E\n{says}\nE\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    if cores:
        assert find.cores_of("node1") == cores
    else:
        with pytest.raises(
            PlaceError, match=r"node1 does not say how many cores it has.*Write node1:2"
        ):
            find.cores_of("node1")


@pytest.mark.parametrize("trap", ["open", "link"])
def test_a_folder_that_somebody_else_could_write_in_is_not_taken(tmp_path, folder, trap):
    if trap == "open":
        Path(folder).mkdir()
        Path(folder).chmod(0o777)
    else:
        (tmp_path / "theirs").mkdir(mode=0o700)
        Path(folder).symlink_to(tmp_path / "theirs")
    with pytest.raises(PermissionError, match="is not a private folder of this user's"):
        agent.hello(folder)


def test_the_same_folder_is_taken_twice(folder):
    assert agent.hello(folder) == agent.hello(folder)
    agent.clean(folder)


@pytest.mark.long
def test_a_stop_that_is_cut_short_still_ends_everything(monkeypatch):
    cluster = pi2zero.start(n=2)
    engines = cluster._engines

    def pressed():
        raise KeyboardInterrupt

    monkeypatch.setattr(engines.hosts, "close", pressed)
    with pytest.raises(KeyboardInterrupt):
        cluster.stop()
    assert not engines.folder.exists() and not list(ownership.marked_processes(engines.mark))
    assert not cluster.runs()


SLOW_SBATCH = """#!/bin/sh
# Slurm has the job; its answer takes its time.
echo 4711
sleep 1
"""


def test_a_job_that_slurm_already_has_is_taken_back(tmp_path, monkeypatch):
    """The stop button while sbatch waits for the answer. (That it is the real Slurm's job that ends: tests/several_hosts.)"""
    from pi2zero.hosts import site, slurm

    for name, text in {
        "sbatch": SLOW_SBATCH,
        "scancel": f'#!/bin/sh\necho "$@" >> {tmp_path}/cancelled\n',
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    press_stop(after=0.3)
    with pytest.raises(KeyboardInterrupt):
        slurm.Wanted(site.load()).take(2, tmp_path, print)
    assert (tmp_path / "cancelled").read_text() == "4711\n" and (
        tmp_path / slurm.JOB_FILE
    ).read_text() == "4711"
