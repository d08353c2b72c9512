"""Where ranks run, as far as it needs no second host: hosts and slots, hostfiles, the site file, the packet filter.

tests/several_hosts has the rest, on two."""

import ctypes
import itertools
import os
import re
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pi2zero.hosts import address, in_job, place, seal, site, slurm
from pi2zero.hosts.find import find
from pi2zero.hosts.place import Place, PlaceError
from pi2zero.ranks import meeting


@pytest.fixture(autouse=True)
def own_site(tmp_path, monkeypatch):
    """A site file of the test's own, and no job."""
    monkeypatch.setenv("PI2ZERO_SITE", str(tmp_path / "site.toml"))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return tmp_path / "site.toml"


@pytest.mark.parametrize(
    ("n", "shares"),
    [
        (1, {"a": 1, "b": 0}),
        (3, {"a": 2, "b": 1}),
        (6, {"a": 2, "b": 4}),
        (7, {"a": 4, "b": 3}),  # more than there is room for: the same on each
    ],
)
def test_ranks_fill_host_by_host(n, shares):
    two = Place({"a": 2, "b": 4})
    assert two.shares(n) == shares and sum(two.shares(n).values()) == n


def test_words_of_a_place():
    assert Place().words(4) == " on this machine"
    assert Place({"a": 2, "b": 2}).words(2) == " on a (2)"
    assert Place({"a": 2, "b": 2, "c": 2}).words(5) == " on a (2), b (2) and c (1)"


def test_this_machine_is_the_default():
    assert find() == find("local") == Place()
    assert Place().mpi_args(4, {}, Path()) == [] and Place().address() == ""


def test_hosts_with_slots():
    assert find(["a:2", "b:1", "a:1"]).slots == find({"a": 3, "b": 1}).slots == {"a": 3, "b": 1}


def test_the_site_file_decides_where_nobody_else_does(own_site):
    own_site.write_text('on = ["a:2", "b:2"]\ninterface = "ib0"\n')
    assert find().slots == {"a": 2, "b": 2} and find().interface == "ib0"
    assert find("local") == Place()


def test_a_hostfile(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# all\n\na slots=2\nb slots=4 max_slots=8  # large\na slots=1\n")
    assert find(str(file)).slots == {"a": 3, "b": 4}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a slots=two", "line 1: 'a slots=two'. A line is a host and its slots: node1 slots=2"),
        ("a; rm slots=2", "line 1:"),
        ("# nothing", "names no host"),
    ],
)
def test_a_wrong_hostfile(tmp_path, line, says):
    (tmp_path / "hosts").write_text(line + "\n")
    with pytest.raises(PlaceError, match=says):
        find(tmp_path / "hosts")


@pytest.mark.parametrize(
    "on", [["a:0"], ["a:-1"], ["a b:2"], ["-oProxyCommand=x:1"], ["-l:1"], [":2"]]
)
def test_what_is_no_host(on):
    with pytest.raises(PlaceError, match=r"is not a host with its slots"):
        find(on)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("on = slurm", "is not TOML"),
        ("nodez = 2", "'nodez' is not known. Known: on, partition"),
        ("nodes = 0", "nodes has to be a whole number from 1 up; it is 0"),
        ("nodes = true", "nodes has to be a whole number"),
        ("partition = 3", "partition has to be a text in quotes"),
        ('modules = "cuda"', "modules has to be a list of texts"),
    ],
)
def test_a_wrong_site_file(own_site, text, says):
    own_site.write_text(text)
    with pytest.raises(PlaceError, match=says):
        site.load()


def test_the_example_is_a_site_file_and_is_not_written_over(own_site):
    assert "Written" in site.write() and site.load().on == "slurm"
    own_site.write_text(
        re.sub(r"(?m)^# (?=\w+ = )", "", site.EXAMPLE)
    )  # with all that it shows switched on
    assert "already" in site.write()
    full = site.load()
    assert full.sbatch(4) == [
        "--ntasks=4", "--nodes=2", "--ntasks-per-node=2", "--partition=gpu", "--account=workshop", "--time=02:00:00",
        "--gpus-per-node=2", "--reservation=workshop", "--cpus-per-task=4",
    ]  # fmt: skip
    with pytest.raises(PlaceError, match="5 ranks do not fit"):
        full.sbatch(5)


def test_modules_lines_and_scratch_come_before_the_line(own_site):
    own_site.write_text('modules = ["a", "b c"]\nlines = ["export X=1"]\nscratch = "/my scratch"\n')
    modules = site.MODULES.format("a 'b c'")
    line = f"{modules}\nexport X=1\nexport TMPDIR='/my scratch'\nhostname"
    assert in_job.command("7", "node1", "hostname")[-4:] == ["--nodelist=node1", "bash", "-c", line]


def test_without_slurm_it_says_so(own_site, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(PlaceError, match='no program "sbatch"'):
        find("slurm")


@pytest.mark.parametrize(
    ("tasks", "room", "slots"),
    [
        (2, {"a": 8, "b": 8}, {"a": 1, "b": 1}),  # --exclusive: the nodes' cores are not the tasks
        (5, {"a": 8, "b": 8}, {"a": 3, "b": 2}),
        (4, {"a": 3, "b": 1}, {"a": 3, "b": 1}),
        (1, {"a": 8, "b": 8}, {"a": 1, "b": 1}),
        (4, {"a": 1, "b": 1}, {"a": 2, "b": 2}),  # --overcommit
    ],
)
def test_a_job_s_tasks_are_its_slots(tasks, room, slots):
    assert slurm.dealt(tasks, room) == slots


def test_tasks_of_each_node_as_slurm_tells_them():
    assert slurm.told_here("2(x2),1") == [2, 2, 1] and slurm.told_here("") == []


@pytest.mark.parametrize(("text", "count"), [("0", 1), ("0-1", 2), ("0-1,4", 3), ("2,4,6-9", 6)])
def test_counting_cores(text, count):
    assert slurm.count_ids(text) == count


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's packet filter")
@pytest.mark.parametrize(
    "friends", [["127.0.0.2"], ["10.1.2.3", "127.0.0.2"], ["127.0.0.2", "10.1.2.3", "10.1.2.4"], []]
)
def test_only_friends_get_through_the_filter(friends):
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = seal.filter_for(friends)
        kept = ctypes.create_string_buffer(code)
        program = struct.pack("HP", len(code) // 8, ctypes.addressof(kept))
        try:
            server.setsockopt(socket.SOL_SOCKET, seal.SO_ATTACH_FILTER, program)
        except PermissionError:
            if os.getuid() == 0:
                raise
            pytest.skip(
                "this system lets only root attach a filter: docs/shared_host.md, and the doctor says it"
            )
        for source in ("127.0.0.2", "127.0.0.3"):
            try:
                socket.create_connection(
                    server.getsockname(), 0.3, source_address=(source, 0)
                ).close()
                through = True
            except OSError:
                through = False
            assert through == (source in friends), source


def test_torchs_store_is_closed_to_others_before_a_rank_hears_where_it_is(monkeypatch):
    told = []

    class World:
        rank = 0

        def bcast(self, value):
            told.append(value)
            return value

        def allgather(self, value):
            return [value, "127.0.0.2"]

    for variable in (*meeting.INTERFACES, "HERE"):
        monkeypatch.setenv(variable, "127.0.0.1")
    monkeypatch.setattr(seal, "seal", lambda pid, friends: told.append((pid, friends)))
    _, _, port, close_to_others = meeting._at_a_port(World(), "HERE", 0)
    assert told == ["127.0.0.1", (os.getpid(), ["127.0.0.1", "127.0.0.2"]), port]
    close_to_others()
    assert told[-1] == told[1]


def test_the_hosts_of_the_test_say_what_they_need():
    """`make cluster-test` where it cannot run, here for an ordinary user: one sentence, and no traceback."""
    become = "os.setuid(65534)" if os.getuid() == 0 else "pass"
    program = f"import os, sys\nsys.path.insert(0, 'tools')\nimport hosts\n{become}\nhosts.main()"
    environment = {name: value for name, value in os.environ.items() if name != "PI2ZERO_HOSTS"}
    done = subprocess.run(
        [sys.executable, "-c", program, "--", "true"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 1
    assert (
        done.stdout
        == "Two hosts on this machine need Linux, and root (namespaces, sshd and slurmd).\n"
    ), done.stderr


def test_modules_packages_for_another_python_do_not_reach_the_ranks(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/apps/python3.9")
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    assert (
        "PYTHONPATH" not in place.own_variables()
        and place.own_variables()["PYTHONUNBUFFERED"] == "1"
    )
    assert "unset PYTHONPATH" in site.MODULES
    for script in (Path(__file__).parents[2] / "scripts" / "slurm").glob("*.sh"):
        assert "\nunset PYTHONPATH PYTHONHOME" in script.read_text(), script


def test_the_interface_that_is_named_gives_the_address():
    assert Place({"node1": 1}, interface="lo").address() == "127.0.0.1"
    assert (
        place.interface_of("127.0.0.1")[0] == "lo"
        and place.network_of("127.0.0.1") == "127.0.0.0/8"
    )
    with pytest.raises(
        PlaceError, match=r"no network interface 'ib7' with an IPv4 address\. It has: .*lo"
    ):
        Place({"node1": 1}, interface="ib7").address()
    with pytest.raises(
        PlaceError, match=r"No network interface of this machine has the address 10\.99\.99\.99"
    ):
        place.network_of("10.99.99.99")
    assert Place({socket.gethostname(): 2}).address() == "", "this machine alone"


def test_a_launcher_on_a_node_without_the_sites_interface_takes_the_way_to_the_others(
    tmp_path, monkeypatch
):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    (tmp_path / "site.toml").write_text('interface = "ib7"\n')  # as the login node has it
    monkeypatch.setenv("PI2ZERO_SITE", str(tmp_path / "site.toml"))
    assert address.main(["127.0.0.2"]) == "127.0.0.1"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib7")  # named for these ranks
    with pytest.raises(PlaceError, match="no network interface 'ib7'"):
        address.main(["127.0.0.2"])


def test_the_way_to_the_hosts_is_one_or_has_to_be_named(monkeypatch):
    assert place.facing("127.0.0.1") == "127.0.0.1"
    with pytest.raises(
        PlaceError, match=r"no-such-host\.invalid has no address that this machine reaches"
    ):
        Place({"no-such-host.invalid": 1}).address()
    monkeypatch.setattr(place, "facing", {"a": "10.0.0.1", "b": "10.1.0.1"}.get)
    assert Place({"a": 1}).address() == "10.0.0.1"
    with pytest.raises(
        PlaceError, match=r"from 2 addresses \(10\.0\.0\.1, 10\.1\.0\.1\)\. Name one interface"
    ):
        Place({"a": 1, "b": 1}).address()


def test_mpirun_keeps_to_the_hosts_network_and_to_the_clusters_folder(monkeypatch):
    words = Place({"node1": 2}, tuple(place.SSH), "lo").mpi_args(
        2, {}, Path("/var/tmp/pi2zero/run-1")
    )
    after = dict(itertools.pairwise(words))
    assert after["prte_if_include"] == after["btl_tcp_if_include"] == "127.0.0.0/8"
    assert after["prte_remote_tmpdir_base"] == "/var/tmp/pi2zero/run-1" and after[
        "btl_sm_backing_directory"
    ].endswith("/run-1")


@pytest.mark.parametrize(("inside", "kept"), [("7", True), ("8", False), (None, False)])
def test_srun_gets_neither_another_jobs_wishes_nor_this_machines_temporary_folder(
    tmp_path, monkeypatch, inside, kept
):
    for name, value in {
        "SLURM_NTASKS": "9",
        "SLURM_CONF": "/etc/s.conf",
        "IPP_CLUSTER_ID": "x",
        "TMPDIR": "/tmp/mine",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLURM_JOB_ID", inside) if inside else None
    started = {}
    monkeypatch.setattr(
        in_job.os,
        "execvp",
        lambda program, words: started.update({program: words, "environment": dict(os.environ)}),
    )
    monkeypatch.setattr(sys, "argv", ["in_job", "--job=7", "node1", "echo", "here"])
    (tmp_path / "site.toml").write_text('lines = ["export A=1"]\n')
    monkeypatch.setenv("PI2ZERO_SITE", str(tmp_path / "site.toml"))
    in_job.main()
    line = (
        "echo here" if kept else "export A=1\necho here"
    )  # what the kernel in the job has prepared, srun hands over
    assert (
        started["srun"] == in_job.command("7", "node1", "echo here", kept)
        and started["srun"][-1] == line
    )
    left = {
        name for name in started["environment"] if name.startswith(("SLURM_", "IPP_", "TMPDIR"))
    }
    assert left == {"SLURM_CONF"} | ({"TMPDIR"} if kept else set())
