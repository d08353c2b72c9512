"""Where ranks run, as far as it needs no second host: slots, hostfiles, site files, packet filters.

tests/several_hosts has the rest, on two hosts.
"""

import ctypes
import itertools
import os
import re
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pi2zero.hosts import address, limits, place, port_filter, site, srun
from pi2zero.hosts.control_groups import ControlGroups
from pi2zero.hosts.find import find
from pi2zero.hosts.place import Place, PlaceError
from pi2zero.ranks import rendezvous


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
    assert Place({"a": 2, "b": 4}).shares(n) == shares


def test_a_place_in_words():
    assert Place().describe(4) == " on this machine"
    assert Place({"a": 2, "b": 2}).describe(2) == " on a (2)"
    assert Place({"a": 2, "b": 2, "c": 2}).describe(5) == " on a (2), b (2) and c (1)"


def test_this_machine_is_the_default():
    assert find().place == find("local").place == Place()
    assert Place().mpi_args(4, {}, Path()) == [] and Place().address() == ""


def test_hosts_with_slots(own_site, tmp_path):
    slots = {"a": 3, "b": 1}
    assert find(["a:2", "b:1", "a:1"]).place.slots == find(slots).place.slots == slots
    (tmp_path / "hosts").write_text("# all\n\na slots=2\nb slots=1 max_slots=8  # b\na slots=1\n")
    assert find(str(tmp_path / "hosts")).place.slots == slots
    own_site.write_text('on = ["a:3", "b:1"]\ninterface = "ib0"\n')
    assert find().place.slots == slots and find().place.interface == "ib0"
    assert find("local").place == Place()


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
    # with all that it shows switched on
    own_site.write_text(re.sub(r"(?m)^# (?=\w+ = )", "", site.EXAMPLE))
    assert "already" in site.write()
    full = site.load()
    assert full.sbatch_options(4) == [
        *("--ntasks=4", "--nodes=2", "--ntasks-per-node=2", "--partition=gpu"),
        *("--account=workshop", "--time=02:00:00", "--gpus-per-node=2"),
        *("--reservation=workshop", "--cpus-per-task=4"),
    ]
    with pytest.raises(PlaceError, match="5 ranks do not fit"):
        full.sbatch_options(5)


def test_without_slurm_it_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(PlaceError, match='no program "sbatch"'):
        find("slurm")


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's packet filter")
@pytest.mark.parametrize(
    "allowed", [["127.0.0.2"], ["10.1.2.3", "127.0.0.2"], ["127.0.0.2", "10.1.2.3"], []]
)
def test_only_allowed_addresses_get_through_the_filter(allowed):
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = port_filter.filter_program(allowed)
        kept = ctypes.create_string_buffer(code)
        program = struct.pack("HP", len(code) // 8, ctypes.addressof(kept))
        try:
            server.setsockopt(socket.SOL_SOCKET, port_filter.SO_ATTACH_FILTER, program)
        except PermissionError:
            if os.getuid() == 0:
                raise
            pytest.skip("this system lets only root attach a filter: docs/shared_host.md")
        for source in ("127.0.0.2", "127.0.0.3"):
            try:
                where = server.getsockname()
                socket.create_connection(where, 0.3, source_address=(source, 0)).close()
                through = True
            except OSError:
                through = False
            assert through == (source in allowed), source


def test_torchs_store_is_closed_to_others_before_a_rank_hears_where_it_is(monkeypatch):
    told = []

    class World:
        rank = 0

        def bcast(self, value):
            told.append(value)
            return value

        def allgather(self, value):
            return [value, "127.0.0.2"]

    for variable in (*rendezvous.INTERFACES, "HERE"):
        monkeypatch.setenv(variable, "127.0.0.1")
    monkeypatch.setattr(
        port_filter, "restrict_listeners", lambda pid, allowed: told.append((pid, allowed))
    )
    _, _, port, close_to_others = rendezvous._at_a_port(World(), "HERE", 0)
    assert told == ["127.0.0.1", (os.getpid(), ["127.0.0.1", "127.0.0.2"]), port]
    close_to_others()
    assert told[-1] == told[1]


def test_the_hosts_of_the_test_say_what_they_need():
    """`make cluster-test` for an ordinary user: one sentence, and no traceback."""
    become = "os.setuid(65534)" if os.getuid() == 0 else "pass"
    program = f"import os, sys\nsys.path.insert(0, 'tools')\nimport hosts\n{become}\nhosts.main()"
    environment = {name: value for name, value in os.environ.items() if name != "PI2ZERO_HOSTS"}
    command = [sys.executable, "-c", program, "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    says = "Two hosts on this machine need Linux, and root (namespaces, sshd and slurmd).\n"
    assert done.stdout == says, done.stderr


def test_modules_packages_for_another_python_do_not_reach_the_ranks(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/apps/python3.9")
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    variables = place.variables_for_ranks()
    assert "PYTHONPATH" not in variables and variables["PYTHONUNBUFFERED"] == "1"
    assert "unset PYTHONPATH" in site.MODULES


def test_the_interface_that_is_named_gives_the_address():
    assert Place({"node1": 1}, interface="lo").address() == "127.0.0.1"
    assert place.interface_of("127.0.0.1")[0] == "lo"
    assert place.network_of("127.0.0.1") == "127.0.0.0/8"
    with pytest.raises(PlaceError, match=r"no network interface 'ib7' with .* It has: .*lo"):
        Place({"node1": 1}, interface="ib7").address()
    with pytest.raises(PlaceError, match=r"No network interface .* has the address 10\.99\.99\.99"):
        place.network_of("10.99.99.99")
    assert Place({socket.gethostname(): 2}).address() == "", "this machine alone"


def test_a_launcher_on_a_node_without_the_sites_interface_takes_the_way_to_the_others(
    own_site, monkeypatch
):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    own_site.write_text('interface = "ib7"\n')  # as the login node has it
    assert address.main(["127.0.0.2"]) == "127.0.0.1"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib7")  # named for these ranks
    with pytest.raises(PlaceError, match="no network interface 'ib7'"):
        address.main(["127.0.0.2"])


def test_the_way_to_the_hosts_is_one_or_has_to_be_named(monkeypatch):
    with pytest.raises(PlaceError, match=r"no-such-host\.invalid has no address that this"):
        Place({"no-such-host.invalid": 1}).address()
    addresses = {"a": "10.0.0.1", "b": "10.1.0.1"}
    monkeypatch.setattr(place, "local_address_towards", addresses.get)
    assert Place({"a": 1}).address() == "10.0.0.1"
    with pytest.raises(PlaceError, match=r"2 addresses \(10\.0\.0\.1, 10\.1\.0\.1\)\. Name one"):
        Place({"a": 1, "b": 1}).address()


def test_mpirun_keeps_to_the_hosts_network_and_to_the_clusters_folder():
    words = Place({"node1": 2}, place.SSH, "lo").mpi_args(2, {}, Path("/var/tmp/run-1"))
    after = dict(itertools.pairwise(words))
    assert after["prte_if_include"] == after["btl_tcp_if_include"] == "127.0.0.0/8"
    assert after["prte_remote_tmpdir_base"] == "/var/tmp/run-1"
    assert after["btl_sm_backing_directory"].endswith("/run-1")


@pytest.mark.parametrize(("inside", "kept"), [("7", True), ("8", False), (None, False)])
def test_srun_prepares_the_site_and_gets_no_other_jobs_wishes(own_site, monkeypatch, inside, kept):
    """Nor this machine's temporary folder. What a kernel in the job has prepared is handed over."""
    variables = {"SLURM_NTASKS": "9", "SLURM_CONF": "/etc/s.conf", "IPP_CLUSTER_ID": "x"}
    for name, value in (variables | {"TMPDIR": "/tmp/mine", "SLURM_JOB_ID": inside}).items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
    started = []
    monkeypatch.setattr(
        srun.os, "execvp", lambda _, words: started.append((words, dict(os.environ)))
    )
    monkeypatch.setattr(sys, "argv", ["srun", "--job=7", "node1", "echo", "here"])
    own_site.write_text('modules = ["a", "b c"]\nlines = ["export A=1"]\nscratch = "/my scratch"\n')
    srun.main()
    modules = site.MODULES.format("a 'b c'")
    line = f"{modules}\nexport A=1\nexport TMPDIR='/my scratch'\necho here"
    ((words, environment),) = started
    assert words[-5:] == [
        *("--jobid=7", "--nodelist=node1", "bash", "-c"),
        "echo here" if kept else line,
    ]
    left = {name for name in environment if name.startswith(("SLURM_", "IPP_", "TMPDIR"))}
    assert left == {"SLURM_CONF"} | ({"TMPDIR"} if kept else set())


NO_GROUPS = ControlGroups(Path("/nowhere"), Path("/nowhere"))
V2 = {
    "cgroup.controllers": "cpu memory",
    "slurm/job_7/cpu.max": "max 100000",
    "slurm/cpu.max": "50000 100000",
    "slurm/job_7/memory.max": "3000000000",
    "slurm/job_7/memory.current": "2500000000",
    "slurm/job_7/memory.stat": "anon 1\ninactive_file 1000000000",
    "slurm/memory.max": "max",
    "slurm/pids.max": "100",
    "slurm/pids.current": "83",
    "pids.max": "max",
}
V1 = {
    "cpu,cpuacct/slurm/job_7/cpu.cfs_quota_us": "-1",
    "cpu,cpuacct/slurm/cpu.cfs_quota_us": "50000",
    "cpu,cpuacct/slurm/cpu.cfs_period_us": "100000",
    "memory/slurm/job_7/memory.limit_in_bytes": "3000000000",
    "memory/slurm/job_7/memory.usage_in_bytes": "2500000000",
    "memory/slurm/job_7/memory.stat": "cache 1\ntotal_inactive_file 1000000000",
    "memory/slurm/memory.limit_in_bytes": "9223372036854771712",
    "pids/slurm/pids.max": "100",
    "pids/slurm/pids.current": "83",
}


@pytest.mark.parametrize(
    ("files", "own"),
    [
        (V2, "1:name=systemd:/\n0::/slurm/job_7\n"),
        (V1, "5:pids:/slurm/job_7\n4:memory:/slurm/job_7\n3:cpu,cpuacct:/slurm/job_7\n0::/\n"),
    ],
    ids=["version 2", "version 1"],
)
def test_limits_stand_in_this_control_group_or_in_one_above_it(tmp_path, files, own):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    if files is V1:
        (tmp_path / "cpu").symlink_to("cpu,cpuacct")  # as Linux has it
    (tmp_path / "own").write_text(own)
    groups = ControlGroups(tmp_path, tmp_path / "own")
    assert groups.cpu_limit() == 0.5
    assert groups.memory_limits() == [(3_000_000_000, 1_500_000_000)]
    assert limits.task_limits(groups)[0] == ("this container, session or batch job", 100, 83)
    assert limits.free_memory(groups) <= 1_500_000_000 and limits.cores(groups) == 0.5
    nowhere = ControlGroups(tmp_path / "absent", tmp_path / "absent")
    assert nowhere.memory_limits() == nowhere.task_limits() == [] and nowhere.cpu_limit() > 1e6


def test_the_limit_of_an_account_counts_its_threads(monkeypatch):
    """As `ulimit -u` sets it; root is exempt, so the answer of the system is pretended."""
    monkeypatch.setattr(limits, "_is_exempt", lambda: False)
    monkeypatch.setattr(limits.resource, "getrlimit", lambda kind: (100, 100))
    monkeypatch.setattr(limits.psutil, "pids", lambda: [os.getpid(), 999_999_999])
    before, done = limits.own_tasks(), threading.Event()
    threads = [threading.Thread(target=done.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert limits.task_limits(NO_GROUPS) == [("your account", 100, before + 3)]
    done.set()
    for thread in threads:
        thread.join()
