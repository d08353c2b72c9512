"""Marks: which processes and folders are the kit's, and whose."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

import pi2zero
from pi2zero import ownership
from pi2zero.ownership import shm


@pytest.fixture
def sleeper():
    """Start a process with a mark; all are ended after the test."""
    started = []

    def start(mark: str) -> subprocess.Popen:
        started.append(
            subprocess.Popen(["sleep", "60"], env=dict(os.environ, **{ownership.MARK: mark}))
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def gone():
    """The mark of a process of this host and scope that has ended."""
    brief = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mark = ownership.owner_mark(brief.pid)
    assert not ownership.owner_is_gone(f"{mark}cluster-1/")
    brief.communicate()
    return mark


def elsewhere(mark: str) -> str:
    return f"another-host/{mark.partition('/')[2]}"


def test_a_mark_does_not_change_when_the_clock_is_set(monkeypatch):
    before = ownership.owner_mark()
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: time.time())
    assert ownership.owner_mark() == before
    assert not ownership.owner_is_gone(before)


def test_a_mark_does_not_change_when_the_host_gets_another_name(monkeypatch):
    """By DHCP or a VPN, while ranks run: they and their folders are found again."""
    before, folder = ownership.owner_mark(), ownership.make_run_dir()
    monkeypatch.setattr(socket, "gethostname", lambda: "dhcp-10-1-2-3")
    ownership.host_id.cache_clear()
    assert ownership.owner_mark() == before and not ownership.owner_is_gone(before)
    assert folder in ownership.run_dirs()
    shutil.rmtree(folder)


def test_the_watchdog_goes_by_the_process_alone(gone):
    assert ownership.owner_is_gone(elsewhere(gone), here=True)
    assert not ownership.owner_is_gone(elsewhere(ownership.owner_mark()), here=True)


def test_a_mark_of_a_process_that_has_ended(gone):
    assert ownership.owner_is_gone(gone) and ownership.owner_is_gone(f"{gone}cluster-1/")
    assert ownership.owner_is_gone(f"{ownership.scope_mark()}1:0/"), "the pid was given anew"
    assert ownership.owner_is_gone(f"{ownership.scope_mark()}999999999:5/")


@pytest.mark.parametrize("mark", ["nonsense", "/", "1:0/", "a/b/c/"])
def test_what_is_not_a_mark_is_nobodys(mark):
    assert not ownership.owner_is_gone(mark)


def test_a_process_with_a_name_that_is_no_utf8(tmp_path, monkeypatch):
    """Nor does one that maps a file of such a name keep shared memory from being removed."""
    program = os.fsencode(tmp_path / "caf") + b"\xe9"
    shutil.copy(shutil.which("sleep"), program)
    monkeypatch.setattr(shm, "SHM_DIR", tmp_path)
    (left := tmp_path / "mpich_shm_1").touch()
    with subprocess.Popen([program, "60"]) as process:
        try:
            assert not ownership.owner_is_gone(ownership.owner_mark(process.pid))
            ownership.remove_unused_segments(age=0)
        finally:
            process.kill()
    assert not left.exists()


def test_a_temporary_folder_that_cannot_be_read_hides_no_run_folder(tmp_path, monkeypatch):
    folder = ownership.make_run_dir(ownership.TMP_ON_EVERY_HOST)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    assert folder in ownership.run_dirs()
    ownership.remove_run_dirs()
    assert not folder.exists()


def test_a_temporary_folder_that_cannot_be_listed(tmp_path):
    """On purpose, on some shared machines. All of the kit's folders are found and removed."""
    program = """
import os, tempfile
from pathlib import Path
from pi2zero import ownership
run, meeting = ownership.make_run_dir(), ownership.temporary_dir("meeting")
assert run.parent.name == f"pi2zero-{os.getuid()}" and ownership.is_private(run.parent)
assert ownership.run_dirs() == [run] and Path(meeting.name).parent == run.parent
assert ownership.shm.listable(run.parent) == run.parent
ownership.remove_run_dirs()
assert not run.exists()
"""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1333)
    if os.getuid() == 0:
        for parent in (tmp_path, *tmp_path.parents[:-2]):
            parent.chmod(parent.stat().st_mode | 0o711)
    become = []
    if os.getuid() == 0:  # whom no mode keeps from listing
        become = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"]
    environment = os.environ | {"TMPDIR": str(shared), "HOME": "/"}
    subprocess.run([*become, sys.executable, "-c", program], env=environment, check=True)
    shared.chmod(0o700)


def test_what_a_boot_long_ago_has_left_goes_and_a_live_hosts_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mark = elsewhere(ownership.owner_mark()).replace("/", "@")
    old, fresh = (tmp_path / f"pi2zero-run@{mark}{name}" for name in ("old", "fresh"))
    for folder in (old, fresh):
        folder.mkdir()
    os.utime(old, (0, 0))
    ownership.remove_run_dirs()
    assert not old.exists() and fresh.is_dir()


def test_what_is_in_use_looks_used(tmp_path):
    """Cleaners of temporary files go by the age of each file."""
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "0.json").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for path in (*tmp_path.rglob("*"), tmp_path):
        os.utime(path, (0, 0), follow_symlinks=False)
    ownership.keep_fresh([tmp_path / "gone", tmp_path])
    ages = [time.time() - path.lstat().st_mtime for path in (*tmp_path.rglob("*"), tmp_path)]
    assert len(ages) == 4 and max(ages) < 60


def test_of_another_hosts_process_nothing_is_known(gone):
    assert not ownership.owner_is_gone(elsewhere(gone))


def test_what_has_ended_is_not_waited_for_although_nobody_collects_it():
    """As process 1 of many containers does: ranks whose mpirun is gone are its children."""
    code = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True); input()"
    careless = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    child, start = psutil.Process(int(careless.stdout.readline())), time.monotonic()
    ownership.end_processes([child], patience=5)
    assert time.monotonic() - start < 2 and child.status() == psutil.STATUS_ZOMBIE
    careless.communicate()


def test_only_what_begins_with_the_mark_is_ended(sleeper):
    scope = ownership.scope_mark()
    mine = f"{scope}{os.getpid()}:0/"
    ranks, controller, other, longer = (
        sleeper(mark)
        for mark in (
            f"{mine}cluster-1/ranks-1/",
            f"{mine}cluster-1/",
            f"{mine}cluster-12/",
            f"{scope}{os.getpid()}:01/",
        )
    )
    assert ownership.end_marked(f"{mine}cluster-1/ranks-1/") == 1
    assert [p.poll() is None for p in (ranks, controller, other, longer)] == [
        False,
        True,
        True,
        True,
    ]
    assert ownership.end_marked(f"{mine}cluster-1/") == 1
    assert [p.poll() is None for p in (controller, other, longer)] == [False, True, True]
    assert ownership.end_marked(mine) == 1
    assert longer.poll() is None


def test_the_scope_is_the_clone_or_what_is_said_and_the_slurm_job(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv(ownership.SCOPE, "one/two @3")
    host, scope, end = ownership.scope_mark().split("/")
    assert (scope, end) == ("one-two--3", "")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert ownership.scope_mark() == f"{host}/one-two--3.job-17/"
    monkeypatch.delenv(ownership.SCOPE)
    assert ownership.scope_mark().startswith(f"{host}/clone-") and ownership.scope_mark().endswith(
        ".job-17/"
    )


def test_reset_touches_only_its_own_scope_and_host(sleeper, gone, tmp_path, monkeypatch):
    """By `python -m pi2zero reset`, in every scope but that of whoever runs the tests."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    processes, folders = {}, {}
    for scope, job in (("left", ""), ("right", ""), ("left", "7"), ("left", "8"), ("left-2", "")):
        monkeypatch.setenv(ownership.SCOPE, scope)
        monkeypatch.setenv("SLURM_JOB_ID", job)
        processes[scope, job] = sleeper(f"{ownership.owner_mark()}cluster-1/")
        folders[scope, job] = ownership.make_run_dir()
    host = ownership.scope_mark().partition("/")[0]
    another = tmp_path / folders["left", ""].name.replace(f"@{host}@", "@another-host@")
    another.mkdir()

    def alive():
        return {name for name, process in processes.items() if process.poll() is None}

    assert (
        alive() == {name for name, folder in folders.items() if folder.is_dir()} == set(processes)
    )
    for done, (scope, job) in enumerate((("left", ""), ("left", "8")), start=1):
        environment = dict(os.environ, PI2ZERO_SCOPE=scope, SLURM_JOB_ID=job)
        said = subprocess.run(
            [sys.executable, "-m", "pi2zero", "reset"],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert said.stdout == "1 processes ended, their files removed.\n", said
        assert len(alive()) == len(processes) - done and (scope, job) not in alive()
        assert alive() == {name for name, folder in folders.items() if folder.is_dir()}
    assert another.is_dir()


def test_a_folder_goes_with_its_process_or_with_the_next_one(gone, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lost, foreign = (
        tmp_path / f"pi2zero-meeting@{mark.replace('/', '@')}x" for mark in (gone, elsewhere(gone))
    )
    for folder in (lost, foreign):
        folder.mkdir()
    first = ownership.temporary_dir("meeting")
    second = ownership.temporary_dir("meeting")
    assert not lost.exists() and foreign.is_dir()
    for folder in (first, second):
        assert Path(folder.name).stat().st_mode & 0o777 == 0o700
        folder.cleanup()


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="shared memory is elsewhere")
def test_shared_memory_that_nobody_maps_is_removed(tmp_path, monkeypatch):
    """The names are Open MPI's. The file of a process without mpirun is there after its end."""
    program = "from mpi4py import MPI; input()"
    where = {"OMPI_MCA_btl_sm_backing_directory": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, env=os.environ | where
    )
    monkeypatch.setattr(shm, "SHM_DIR", tmp_path)
    deadline = time.monotonic() + 30
    while (
        str(tmp_path) not in Path(f"/proc/{process.pid}/maps").read_text()
        and time.monotonic() < deadline
    ):
        time.sleep(0.05)
    [segment] = tmp_path.iterdir()
    another = tmp_path / segment.name.replace(f".{os.getuid()}.", f".{os.getuid() + 1}.")
    another.touch()
    (tmp_path / "mpich_shm_24ca33e2_0").touch()  # of an MPICH rank that was killed
    ownership.remove_unused_segments()
    assert len(list(tmp_path.iterdir())) == 3, "each is younger than 10 s"
    ownership.remove_unused_segments(age=0)
    assert sorted(tmp_path.iterdir()) == sorted([segment, another]), "a process maps the first"
    process.communicate(b"\n", timeout=30)
    assert segment.exists(), "if Open MPI removes it, this kit need not any more"
    ownership.remove_unused_segments()
    assert segment.exists(), "somebody may be about to map it"
    ownership.remove_unused_segments(age=0)
    assert list(tmp_path.iterdir()) == [another]


def test_two_scopes_side_by_side(monkeypatch):
    """A reset in one scope leaves the ranks of another alone, and a cell still runs on them."""
    cluster = pi2zero.start(n=2)
    try:
        other = dict(os.environ, PI2ZERO_SCOPE="somebody-elses-tests")
        said = subprocess.run(
            [sys.executable, "-m", "pi2zero", "reset"], env=other, capture_output=True, text=True
        )
        assert said.stdout == "Nothing of the kit was running.\n", said
        cluster.run("x = 1")
        assert cluster.view["x"] == [1, 1]
    finally:
        cluster.stop()
