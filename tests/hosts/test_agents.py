"""How the kernel and its agents talk, and what happens when one is silent, busy, chatty or dead.

The other host is this one, reached by sh in place of ssh; tests/several_hosts has real hosts.
"""

import ctypes
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
from pi2zero.hosts import agent, find, host, site, slurm
from pi2zero.hosts.concurrency import run_in_threads
from pi2zero.hosts.group import HostGroup
from pi2zero.hosts.host import HostError, RemoteHost
from pi2zero.hosts.place import Place, PlaceError

# What follows is the host, as $0, and the line, as $1.
BY_SH = ("sh", "-c", 'exec sh -c "$1"')
CHATTY = ("sh", "-c", r'echo Welcome to "$0"; printf "\351\n{\n[1]\n"; exec sh -c "$1"')
PATCHED = (
    "import sys; from pi2zero.hosts import agent; agent.SILENCE = 7; agent.main(*sys.argv[1:])"
)
IMPATIENT = ("sh", "-c", f"eval set -- $1; program=$1; shift 3; exec $program -c '{PATCHED}' $@")


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "run")


@pytest.fixture
def mark():
    return f"{ownership.owner_mark()}cluster-test-{time.monotonic_ns()}/"


@pytest.fixture
def connect(mark, folder):
    """Start an agent on "node1"; afterwards it is not left, nor its folder if it was not killed."""
    started = []

    def start(shell=BY_SH, **options):
        started.append(RemoteHost("node1", shell, mark, folder, **options))
        return started[-1]

    yield start
    for remote in started:
        remote.close(mark, folder)
    assert until(lambda: not agents(mark))
    assert not Path(folder).exists() or any(remote.why_lost for remote in started)


def press_stop(after):
    threading.Timer(after, os.kill, [os.getpid(), signal.SIGINT]).start()


def until(true, seconds=20):
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    return true()


def agents(mark, program=""):
    """The processes that have this mark (and the program) in their command line."""
    lines = [(p, " ".join(p.info["cmdline"] or ())) for p in psutil.process_iter(["cmdline"])]
    return [process for process, line in lines if mark in line and program in line]


def kill(processes):
    """From the last started: an agent that hears of the kernel's end would clean up."""
    for process in reversed(processes):
        process.kill()


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Make a program: programs(name, text)."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def write(name, text):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    return write


def test_what_a_shell_says_at_its_start_is_no_answer(connect):
    assert connect(CHATTY).call("read_all", []) == []


@pytest.mark.parametrize(
    ("shell", "says"),
    [
        (("sh", "-c", "echo no module named anaconda3; exit 1"), "no module named anaconda3"),
        (("no-such-ssh",), "no-such-ssh: No such file or directory"),
    ],
)
def test_why_a_host_cannot_be_used_is_said(mark, folder, shell, says):
    with pytest.raises(HostError, match=f"node1 cannot be used: {says}"):
        HostGroup(Place({"node1": 1}, shell, "lo"), mark, Path(folder))
    assert not agents(mark) and not Path(folder).exists()


def test_a_host_where_somebody_was_before_is_not_used(mark, folder):
    Path(folder).mkdir(mode=0o755)
    with pytest.raises(HostError, match=r"PermissionError: .* is not a private folder"):
        RemoteHost("node1", BY_SH, mark, folder)
    assert until(lambda: not agents(mark))


def test_an_agent_that_was_killed_is_noticed_at_once(connect, mark):
    remote = connect()
    kill(agents(mark))
    assert until(lambda: remote.why_lost, 5)
    with pytest.raises(HostError, match="its connection has ended"):
        remote.call("read_all", [])


def test_a_silent_host_is_lost_and_its_connection_ended(connect, mark, monkeypatch):
    monkeypatch.setattr(host, "SILENCE", 4.0)
    remote = connect()
    for process in agents(mark, "pi2zero.hosts.agent"):
        if "heartbeat" not in " ".join(process.cmdline()):
            process.suspend()
    with pytest.raises(HostError, match="it has not answered for 4 s"):
        remote.call("read_all", [])
    kill(agents(mark))
    assert remote.why_lost == "it has not answered for 4 s"


def test_a_kernel_busy_in_one_call_loses_no_host(connect, monkeypatch):
    """A call in C holds Python's lock longer than both ends wait for each other."""
    monkeypatch.setattr(host, "SILENCE", 4.0)
    remote = connect(IMPATIENT)
    ctypes.PyDLL(None).sleep(9)
    assert remote.call("read_all", []) == [] and not remote.why_lost


def test_an_agent_busy_in_one_request_is_not_lost(connect, monkeypatch, tmp_path):
    monkeypatch.setattr(host, "SILENCE", 4.0)
    remote = connect()
    os.mkfifo(pipe := tmp_path / "pipe")
    threading.Timer(6, pipe.write_text, ["late"]).start()
    assert remote.call("read_all", [str(pipe)]) == ["late"]


def test_an_agent_cleans_up_when_the_kernels_host_is_gone(connect, mark, folder):
    """Nothing comes any more, not even the end of the connection."""
    connect(IMPATIENT)
    beats = agents(mark, "heartbeat")
    for process in beats:
        process.suspend()
    assert until(lambda: not Path(folder).exists(), 15)
    kill(beats)


def test_the_job_is_given_back_when_the_kernels_host_is_gone(
    connect, mark, folder, programs, tmp_path
):
    """With the login node go the kernel and its watchdog: only the agent on a node is left."""
    programs("scancel", f'echo "$@" >> {tmp_path}/cancelled')
    connect(job="4710").close(mark, folder)
    assert not (tmp_path / "cancelled").exists(), "who closes it gives the job back"
    remote = connect(job="4711")
    remote._process.stdin.close()
    remote._process.wait(20)
    assert (tmp_path / "cancelled").read_text() == "4711\n"


def test_an_interrupted_start_leaves_no_agent(mark, folder):
    late = ("sh", "-c", 'sleep 1; exec sh -c "$1"')
    press_stop(after=0.4)
    with pytest.raises(KeyboardInterrupt):
        HostGroup(Place({"node1": 1, "node2": 1}, late, "lo"), mark, Path(folder))
    time.sleep(1.5)
    assert until(lambda: not agents(mark)) and not Path(folder).exists()


def test_an_error_in_a_thread_is_raised():
    with pytest.raises(KeyError):
        run_in_threads({1: "one", 2: "two"}.__getitem__, [1, 2, 3])


@pytest.fixture
def sleepers():
    """Two processes in the place of ranks."""
    processes = [subprocess.Popen(["sleep", "120"]) for _ in range(2)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def two(mark, folder, sleepers):
    """This machine with rank 0, and an agent of this machine under another name with rank 1."""
    hosts = HostGroup(Place({"node1": 1}, BY_SH, "lo"), mark, Path(folder))
    hosts.remote[0].name = "node1"
    names = (hosts.local.name, "node1")
    marks = [ownership.owner_mark(process.pid) for process in sleepers]
    info = [{"host": name, "mark": own} for name, own in zip(names, marks, strict=True)]
    hosts.watch(f"{mark}ranks/", info, {0: f"{folder}/0.sample", 1: f"{folder}/1.sample"})
    yield hosts
    hosts.close()


def test_what_both_hosts_know_is_put_together(two, folder, sleepers):
    paths = {rank: Path(folder, f"{rank}.sample") for rank in (0, 1)}
    two.publish(paths[1], "before")
    assert paths[1].read_text() == "before" and paths[1].stat().st_mode & 0o077 == 0

    def write():
        for rank, path in paths.items():
            path.write_text(f"sample of {rank}")

    assert two.read_after(paths, write) == {0: "sample of 0", 1: "sample of 1"}
    assert two.sample(0) == "sample of 0" and until(lambda: two.sample(1) == "sample of 1")
    assert two.dead_ranks() == [] and two.lost() == {} and two.ranks_on_lost() == {}
    assert all(one.launched() == 0 for one in two), "no daemon of Open MPI's has this mark"
    sleepers[1].kill()
    sleepers[1].wait()
    assert until(lambda: two.dead_ranks() == [1]) and two.first_to_exit(set()) == [1]


def test_a_lost_host_is_named_and_left_out(two, mark, folder):
    paths = {rank: Path(folder, f"{rank}.sample") for rank in (0, 1)}
    kill(agents(mark))
    assert until(lambda: "node1" in two.lost())
    assert two.ranks_on_lost() == {1: f"its host node1 is lost: {two.lost()['node1']}"}
    assert two.read_after(paths, lambda: paths[0].write_text("0")) == {0: "0", 1: ""}
    two.end(mark)


@pytest.mark.parametrize(
    ("says", "cores"), [("8", 8), ("Welcome\n\n8", 8), ("Welcome", None), ("", None)]
)
def test_cores_are_the_last_word(programs, says, cores):
    programs("ssh", f"cat <<E\n{says}\nE")
    if cores:
        assert find.cores_of("node1") == cores
    else:
        with pytest.raises(PlaceError, match=r"node1 does not say how many cores.*Write node1:2"):
            find.cores_of("node1")


def test_a_host_that_takes_the_call_and_says_nothing_is_not_waited_for(programs, monkeypatch):
    monkeypatch.setattr(find, "SSH_PATIENCE", 0.3)
    programs("ssh", "exec sleep 30")
    with pytest.raises(PlaceError, match="node1 has not answered by ssh"):
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


def test_a_job_that_slurm_already_has_is_taken_back(programs, tmp_path):
    """The stop button while sbatch, which has submitted the job, has not answered yet."""
    programs("sbatch", "echo 4711\nsleep 1")
    programs("scancel", f'echo "$@" >> {tmp_path}/cancelled')
    before = set(ownership.run_dirs())  # of a cluster that other tests share
    press_stop(after=0.3)
    with pytest.raises(KeyboardInterrupt):
        slurm.SlurmRequest(site.load()).allocate(2, print)
    assert (tmp_path / "cancelled").read_text() == "4711\n"
    assert set(ownership.run_dirs()) <= before


def test_an_agent_s_log_is_kept_if_the_kernel_vanishes(
    connect, mark, folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remote = connect()
    with pytest.raises(HostError, match="FileNotFoundError"):
        remote.call("write", "/no/such/folder/x", "text")
    log = Path(folder, "cluster.log").read_text()
    assert "agent on" in log and "WARNING" in log and "write failed: FileNotFoundError" in log
    os.kill(agents(mark)[0].pid, signal.SIGTERM)
    assert until(lambda: not agents(mark))
    (kept,) = (tmp_path / "cache" / "pi2zero" / "logs").iterdir()
    assert "the kernel is gone" in kept.read_text()
