"""A room of people: limits a person, pins, and, where the hub is installed, two people on a real one."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml
from traitlets.config import Config

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "hub"), str(ROOT / "tools")]
from groups import PERIOD, Group  # noqa: E402
from own_copy import own_copy  # noqa: E402

import hub as starter  # noqa: E402


def pins(path):
    return dict(
        line.split("==")
        for line in path.read_text().splitlines()
        if re.match(r"\w", line) and "==" in line
    )


def test_the_hub_s_pins_are_locked_and_touch_none_of_the_kit_s():
    own, kit = pins(ROOT / "hub" / "requirements.lock"), pins(ROOT / "requirements.lock")
    assert "jupyterhub" in own and not own.keys() & kit.keys()
    assert (ROOT / "hub" / "requirements.lock").read_text().count("--hash=sha256:") >= len(own)


def test_the_values_for_kubernetes_name_what_the_image_has():
    values = yaml.safe_load((ROOT / "hub" / "values.yaml").read_text())["singleuser"]
    dockerfile = (ROOT / "Dockerfile").read_text()
    python, person = values["cmd"]
    assert (
        python == "/srv/pi2zero/.venv/bin/python"
        and (ROOT / person.removeprefix("/srv/pi2zero/")).exists()
    )
    assert (
        "COPY --chown=learner . /srv/pi2zero" in dockerfile
        and f"--uid {values['uid']} learner" in dockerfile
    )
    assert values["storage"]["homeMountPath"] == "/home/learner"
    assert pins(ROOT / "hub" / "requirements.lock")["jupyterhub"].startswith("5.")


def test_a_number_that_another_process_has_by_now_is_not_the_proxy_s(tmp_path, monkeypatch):
    monkeypatch.setenv("PI2ZERO_HUB_STATE", str(tmp_path))
    proxy = ROOT / "hub" / "node_modules" / ".bin" / "configurable-http-proxy"
    for command, stays in ((["sleep", "60"], False), (["bash", "-c", "sleep 60; :", proxy], True)):
        with subprocess.Popen(command) as process:
            try:
                while not psutil.Process(
                    process.pid
                ).cmdline():  # for a moment after exec, its words are not there yet
                    time.sleep(0.01)
                (tmp_path / "proxy.pid").write_text(str(process.pid))
                runpy.run_path(str(ROOT / "hub" / "both.py"), {"get_config": Config})
                assert (tmp_path / "proxy.pid").exists() is stays
            finally:
                process.kill()


def test_nobody_s_work_is_overwritten(tmp_path):
    own_copy(tmp_path / "pi2zero")
    notebook = tmp_path / "pi2zero" / "notebooks" / "00_start_here.ipynb"
    assert notebook.exists() and (tmp_path / "pi2zero" / "scripts" / "cpi.py").exists()
    notebook.write_text("mine")
    own_copy(tmp_path / "pi2zero")
    assert notebook.read_text() == "mine"


def test_a_correction_reaches_a_copy_and_takes_nothing_away(tmp_path, monkeypatch):
    kit, mine = tmp_path / "kit", tmp_path / "pi2zero"
    (kit / "scripts").mkdir(parents=True)
    program, text = kit / "scripts" / "a.py", "".join(f"line {i}\n" for i in range(20))
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setattr("own_copy.ROOT", kit)
    own_copy(mine)
    (mine / "scripts" / "a.py").write_text(text.replace("line 3\n", "mine\n"))
    for wrong, right in (("line 15\n", "corrected\n"), ("line 3\n", "corrected, too\n")):
        program.write_text(text := text.replace(wrong, right))
        own_copy(mine)
    copy = mine / "scripts" / "a.py"
    assert {"mine", "corrected"} <= set(
        copy.read_text().splitlines()
    ) and copy.stat().st_mode & 0o100
    assert "corrected, too" in (mine / "scripts" / "a.corrected.py").read_text()
    own_copy(mine)  # nothing new: nothing happens
    assert len(list((mine / "scripts").iterdir())) == 2


# --- control groups, in a pretended tree -----------------------------------------------------------------------------------


def test_limits_under_version_2(tmp_path):
    """The hub's processes leave the group whose children shall have limits."""
    service = tmp_path / "system.slice" / "room.service"
    (service / "hub").mkdir(parents=True)
    (tmp_path / "cgroup.controllers").touch()
    (service / "cgroup.subtree_control").write_text("")
    (service / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (table := tmp_path / "table").write_text("0::/system.slice/room.service\n")
    group = Group("ada", tmp_path, table)
    group.make(memory=4 * 2**30, cores=1.5, processes=1000)
    person = service / "person-ada"
    assert (service / "hub" / "cgroup.procs").read_text() == str(os.getpid())
    assert (service / "cgroup.subtree_control").read_text() == "+memory +cpu +pids"
    assert (person / "memory.max").read_text() == str(4 * 2**30) and (
        person / "pids.max"
    ).read_text() == "1000"
    assert (person / "cpu.max").read_text() == f"{round(1.5 * PERIOD)} {PERIOD}"
    table.write_text("0::/system.slice/room.service/hub\n")  # the hub has moved
    assert Group("ada", tmp_path, table).folders == group.folders


def test_limits_under_version_1(tmp_path):
    for what in ("memory", "cpu", "cpuacct", "pids"):
        (tmp_path / what / "box").mkdir(parents=True)
    (table := tmp_path / "table").write_text(
        "4:memory:/box\n3:cpu,cpuacct:/box\n2:pids:/box\n1:name=systemd:/\n0::/\n"
    )
    group = Group("ada", tmp_path, table)
    group.make(memory=2**30, cores=2, processes=None)
    assert (tmp_path / "memory/box/person-ada/memory.limit_in_bytes").read_text() == str(2**30)
    assert (tmp_path / "cpu/box/person-ada/cpu.cfs_quota_us").read_text() == str(2 * PERIOD)
    assert (tmp_path / "pids/box/person-ada/pids.max").read_text() == "max"
    group.enter()
    assert group.pids() == [os.getpid()]


# --- what is in the way ----------------------------------------------------------------------------------------------------


def test_it_says_what_is_in_the_way(tmp_path, monkeypatch):
    assert "no configuration 'x'. There are: one_node, slurm" in starter.what_is_wrong("x")
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert "Run it as root" in starter.what_is_wrong("one_node")
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(starter, "ROOT", tmp_path / "kit")
    (tmp_path / "kit").mkdir()
    tmp_path.chmod(0o700)
    assert "other users may not enter" in starter.what_is_wrong("one_node")


# --- two people on a real hub -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def room():
    """(two attendees with JupyterLab open, address of the proxy's interface); afterwards nothing of them is left."""
    if os.getuid() or not shutil.which("useradd"):
        pytest.skip("only root can make users")
    if (
        not Path(sys.executable).with_name("jupyterhub").exists()
        or not (ROOT / "hub" / "node_modules").exists()
    ):
        pytest.skip("the hub is not installed (make hub CONFIG=install)")
    if wrong := starter.what_is_wrong("one_node"):
        pytest.skip(wrong)
    import room

    limits = ["--Spawner.mem_limit=1G", "--PersonSpawner.process_limit=300"]
    with room.users(2) as passwords:
        with room.hub("one_node", *limits) as (address, proxy, _, _):
            people = room.attendees(address, passwords)
            for one in people:
                one.log_in()
                one.open_lab(120)
                one.take_token()
                one.open_notebook("notebooks/00_start_here.ipynb")
            yield people, proxy
            for one in people:
                one.stop()
        assert room.left(passwords) == []


@pytest.mark.long
def test_two_people_do_not_meet_and_strangers_are_refused(room):
    import room as tools

    people, proxy = room
    for one in people:
        assert one.run("import pi2zero\ncluster = pi2zero.start(n=2)")[1] == ""
    tried, got = tools.look(people[0], people)
    assert tried["processes"] > 5 and tried["files"] > 1 and tried["ports"] > 3 and got == []
    answers = tools.strangers(people[0], people[1], proxy)
    assert len(answers) > 10 and all(answer in (403, 404) for answer in answers.values()), answers


@pytest.mark.long
def test_limits_hold_for_a_person_and_for_nobody_else(room):
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
        "for one in many:\n"
        "    one.kill()\n"
        "    one.wait()\n"
    )
    killed, count, why = text.split(" ", 2)
    assert killed == "-9" and 100 < int(count) < 300 and "temporarily unavailable" in why, text
    assert bob.run("print(6 * 7)") == ("42\n", "")


@pytest.mark.long
def test_files_of_a_person_are_private(room):
    import pwd

    home = Path(pwd.getpwnam(room[0][0].name).pw_dir)
    open_to_others = [path for path in (home / "pi2zero").rglob("*") if path.stat().st_mode & 0o077]
    assert not open_to_others and (home / "pi2zero").stat().st_mode & 0o077 == 0
    assert not subprocess.run(
        ["runuser", "-u", room[0][1].name, "--", "ls", home], capture_output=True
    ).stdout
