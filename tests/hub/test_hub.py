"""A room of people: limits per person, and, if the hub is installed, two people on a real one."""

import asyncio
import os
import pwd
import runpy
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import own_copy
import psutil
import pytest
import yaml
from person_group import PERIOD, PersonGroup, end_person, remove_shared_files
from traitlets.config import Config

import hub as starter

ROOT = Path(__file__).parents[2]


def pins(path):
    lines = [line.split()[0] for line in path.read_text().splitlines() if "==" in line]
    return dict(line.split("==") for line in lines if line[0].isalpha())


def test_the_hub_changes_none_of_the_kits_pins():
    hub_pins, kit = pins(ROOT / "hub" / "requirements.lock"), pins(ROOT / "requirements.lock")
    assert "jupyterhub" in hub_pins and not hub_pins.keys() & kit.keys()


def test_the_values_for_kubernetes_name_what_the_image_has():
    values = yaml.safe_load((ROOT / "hub" / "values.yaml").read_text())["singleuser"]
    dockerfile = (ROOT / "Dockerfile").read_text()
    python, person = values["cmd"]
    assert python == "/srv/pi2zero/.venv/bin/python"
    assert (ROOT / person.removeprefix("/srv/pi2zero/")).exists()
    assert "COPY --chown=learner . /srv/pi2zero" in dockerfile
    assert f"--uid {values['uid']} learner" in dockerfile
    assert values["storage"]["homeMountPath"] == "/home/learner"


def test_a_pid_that_another_process_has_by_now_is_not_the_proxys(tmp_path, monkeypatch):
    monkeypatch.setenv("PI2ZERO_HUB_STATE", str(tmp_path))
    proxy = ROOT / "hub" / "node_modules" / ".bin" / "configurable-http-proxy"
    for command, stays in ((["sleep", "60"], False), (["bash", "-c", "sleep 60; :", proxy], True)):
        with subprocess.Popen(command) as process:
            try:
                while not psutil.Process(process.pid).cmdline():  # empty for a moment after exec
                    time.sleep(0.01)
                (tmp_path / "proxy.pid").write_text(str(process.pid))
                runpy.run_path(str(ROOT / "hub" / "common.py"), {"get_config": Config})
                assert (tmp_path / "proxy.pid").exists() is stays
            finally:
                process.kill()


def test_a_correction_reaches_a_copy_and_takes_nothing_away(tmp_path, monkeypatch):
    kit, mine = tmp_path / "kit", tmp_path / "pi2zero"
    (kit / "scripts").mkdir(parents=True)
    program, text = kit / "scripts" / "a.py", "".join(f"line {i}\n" for i in range(20))
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setattr(own_copy, "ROOT", kit)
    own_copy.make_own_copy(mine)
    copy = mine / "scripts" / "a.py"
    copy.write_text(text.replace("line 3\n", "mine\n"))
    for wrong, right in (("line 15\n", "corrected\n"), ("line 3\n", "corrected, too\n")):
        program.write_text(text := text.replace(wrong, right))
        own_copy.make_own_copy(mine)
    assert {"mine", "corrected"} <= set(copy.read_text().splitlines())
    assert copy.stat().st_mode & 0o100
    assert "corrected, too" in (mine / "scripts" / "a.corrected.py").read_text()
    own_copy.make_own_copy(mine)  # nothing new: nothing happens
    assert len(list((mine / "scripts").iterdir())) == 2


# Control groups, in a folder that looks like the kernel's.


def test_limits_under_version_2(tmp_path):
    """The hub's processes leave the group whose children have limits."""
    service = tmp_path / "system.slice" / "room.service"
    (service / "hub").mkdir(parents=True)
    (tmp_path / "cgroup.controllers").touch()
    (service / "cgroup.subtree_control").write_text("")
    (service / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (own := tmp_path / "own").write_text("0::/system.slice/room.service\n")
    group = PersonGroup("ada", tmp_path, own)
    group.make(memory=4 * 2**30, cores=1.5, processes=1000)
    person = service / "person-ada"
    assert (service / "hub" / "cgroup.procs").read_text() == str(os.getpid())
    assert (service / "cgroup.subtree_control").read_text() == "+memory +cpu +pids"
    assert (person / "memory.max").read_text() == str(4 * 2**30)
    assert (person / "pids.max").read_text() == "1000"
    assert (person / "cpu.max").read_text() == f"{round(1.5 * PERIOD)} {PERIOD}"
    own.write_text("0::/system.slice/room.service/hub\n")  # the hub has moved
    assert PersonGroup("ada", tmp_path, own).dirs == group.dirs


def test_limits_under_version_1(tmp_path):
    for controller in ("memory", "cpu", "cpuacct", "pids"):
        (tmp_path / controller / "box").mkdir(parents=True)
    (own := tmp_path / "own").write_text(
        "4:memory:/box\n3:cpu,cpuacct:/box\n2:pids:/box\n1:name=systemd:/\n0::/\n"
    )
    group = PersonGroup("ada", tmp_path, own)
    group.make(memory=2**30, cores=2, processes=None)
    person = "box/person-ada"
    assert (tmp_path / "memory" / person / "memory.limit_in_bytes").read_text() == str(2**30)
    assert (tmp_path / "cpu" / person / "cpu.cfs_quota_us").read_text() == str(2 * PERIOD)
    assert (tmp_path / "pids" / person / "pids.max").read_text() == "max"
    group.enter()
    assert group.pids() == [os.getpid()]


def test_files_are_removed_while_other_peoples_come_and_go(tmp_path):
    """A file that vanishes between listing and looking at it used to end the hub's `stop`."""
    over, uid = threading.Event(), 54_321
    (tmp_path / "pi2zero-mine").mkdir()
    if not os.getuid():
        os.chown(tmp_path / "pi2zero-mine", uid, -1)

    def churn():
        while not over.is_set():
            for number in range(20):
                (tmp_path / f"pi2zero-{number}").mkdir()
            for number in range(20):
                (tmp_path / f"pi2zero-{number}").rmdir()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(60):
            remove_shared_files(uid, {str(tmp_path): ("pi2zero-",)})
    finally:
        over.set()
        thread.join()
    assert (tmp_path / "pi2zero-mine").exists() == bool(os.getuid())


def test_the_hub_serves_others_while_a_server_dies_slowly(monkeypatch):
    monkeypatch.setattr("person_group.remove_shared_files", lambda uid: time.sleep(0.5))

    class SlowGroup:
        def pids(self):
            return []

        def end(self):
            time.sleep(0.5)

    async def stop_while_others_work():
        stopping, turns = asyncio.create_task(end_person(SlowGroup(), 1, grace=1.0)), 0
        while not stopping.done():
            await asyncio.sleep(0.01)
            turns += 1
        return turns

    assert asyncio.run(stop_while_others_work()) > 20


def test_it_says_why_people_could_not_work_here(tmp_path, monkeypatch):
    assert "no configuration 'x'. There are: one_node, slurm" in starter.find_obstacle("x")
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert "Run it as root" in starter.find_obstacle("one_node")
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(starter, "ROOT", tmp_path / "kit")
    (tmp_path / "kit").mkdir()
    tmp_path.chmod(0o700)
    assert "other users may not enter" in starter.find_obstacle("one_node")
    monkeypatch.setattr(starter, "ROOT", Path("/"))
    monkeypatch.setattr(sys, "executable", "/bin/sh")
    tmp_path.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert f"chmod 1777 {tmp_path}" in starter.find_obstacle("one_node")


# Two people on a real hub.


@pytest.fixture(scope="module")
def room():
    """(two attendees with JupyterLab open, address of the proxy's API); nothing of them is left."""
    if os.getuid() or not shutil.which("useradd"):
        pytest.skip("only root can make users")
    jupyterhub = Path(sys.executable).with_name("jupyterhub")
    if not jupyterhub.exists() or not (ROOT / "hub" / "node_modules").exists():
        pytest.skip("the hub is not installed (make hub CONFIG=install)")
    if obstacle := starter.find_obstacle("one_node"):
        pytest.skip(obstacle)
    import room

    limits = ["--Spawner.mem_limit=1G", "--PersonSpawner.process_limit=300"]
    with room.make_users(2) as passwords:
        with room.run_hub("one_node", *limits) as (address, proxy, _, _):
            people = room.attendees(address, passwords)
            for person in people:
                person.log_in()
                person.open_lab(120)
                person.take_token()
                person.open_notebook("notebooks/00_start_here.ipynb")
            yield people, proxy
            for person in people:
                person.stop()
        assert room.leftovers(passwords) == []


@pytest.mark.long
def test_two_people_cannot_reach_each_other_and_strangers_are_refused(room):
    from room import try_as_stranger, try_others

    people, proxy = room
    for person in people:
        assert person.run("import pi2zero\ncluster = pi2zero.start(n=2)")[1] == ""
    tried, got = try_others(people[0], people)
    assert tried["processes"] > 5 and tried["files"] > 1 and tried["ports"] > 3 and got == []
    answers = try_as_stranger(people[0], people[1], proxy)
    assert len(answers) > 10 and all(status in (403, 404) for status in answers.values()), answers


@pytest.mark.long
def test_limits_hold_for_one_person_only(room):
    (ada, bob), _ = room
    text, _ = ada.run(
        "import subprocess, sys\n"
        "done = subprocess.run([sys.executable, '-c', 'x = bytearray(2 * 2**30)'])\n"
        "many = []\n"
        "try:\n"
        "    while len(many) < 1000:\n"
        "        many.append(subprocess.Popen(['sleep', '60']))\n"
        "except OSError as error:\n"
        "    print(done.returncode, len(many), error.strerror)\n"
        "for process in many:\n"
        "    process.kill()\n"
        "    process.wait()\n"
    )
    killed, count, why = text.split(" ", 2)
    assert killed == "-9" and 100 < int(count) < 300 and "temporarily unavailable" in why, text
    assert bob.run("print(6 * 7)") == ("42\n", "")


@pytest.mark.long
def test_files_of_a_person_are_private(room):
    (ada, bob), _ = room
    home = Path(pwd.getpwnam(ada.name).pw_dir)
    folder = home / "pi2zero"
    assert not [path for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077]
    command = ["runuser", "-u", bob.name, "--", "ls", home]
    assert not subprocess.run(command, capture_output=True).stdout
