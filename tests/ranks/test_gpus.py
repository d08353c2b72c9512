"""Which rank takes which GPU, and what is said of it.

The devices are pretended; the ranks are real.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pi2zero.mpi import mpi_env
from pi2zero.ranks.gpus import VisibleGpus, assign, assign_with_messages, detect, messages_for

HERE = Path(__file__).parents[1] / "helpers"
ABCD = ("a", "b", "c", "d")


def views(*sees, hosts=None):
    """What each rank sees; by default all on one host."""
    hosts = hosts or ["node1"] * len(sees)
    return [
        VisibleGpus(host, hosts[:rank].count(host), tuple(seen))
        for rank, (host, seen) in enumerate(zip(hosts, sees, strict=True))
    ]


@pytest.mark.parametrize(
    ("sees", "chosen", "own"),
    [
        ([ABCD] * 4, [0, 1, 2, 3], True),
        ([["d", "c"], ["d", "c"]], [0, 1], True),  # in the order of CUDA_VISIBLE_DEVICES
        ([["a"], ["b"], ["c"]], [0, 0, 0], True),  # one visible GPU a task: its GPU 0
        ([["a", "b"], ["a"]], [1, 0], True),  # nobody takes another's only one
        ([["a"]] * 3, [0, 0, 0], False),
        ([["a", "b"]] * 4, [0, 1, 0, 1], False),
        ([ABCD] * 2, [0, 1], True),
        ([["a"], []], [None, None], False),
        ([[], []], [None, None], False),
    ],
)
def test_gpus_are_assigned_by_what_each_rank_sees(sees, chosen, own):
    assert assign(views(*sees)) == (chosen, own)


def test_gpus_of_two_hosts_are_not_mixed_up():
    two = views("ab", "ab", "cd", "cd", hosts=["node1", "node1", "node2", "node2"])
    assert assign(two) == ([0, 1, 0, 1], True)
    assert messages_for(two, [0, 1, 0, 1]) == []
    mixed = views("ab", "ab", "", "", hosts=["node1", "node1", "node2", "node2"])
    assert assign(mixed) == ([None] * 4, False), (
        "the hosts agree: no rank waits in nccl for one that is in gloo"
    )


def test_the_order_is_the_local_ranks_not_the_ranks():
    crossed = [VisibleGpus("node1", 1, ABCD), VisibleGpus("node1", 0, ABCD)]
    assert assign(crossed) == ([1, 0], True)


def words(*sees, **more):
    return " ".join(messages_for(views(*sees, **more), assign(views(*sees, **more))[0]))


def test_what_has_to_be_said_is_said():
    assert words([], []) == words(ABCD, ABCD, ABCD, ABCD) == words(["a"], ["b"]) == ""
    assert (
        words(ABCD, ABCD)
        == "GPUs LIE IDLE: 2 of 4 on node1. Start 4 ranks to use all of them, one each (now: 2)."
    )
    assert words("ab", "c", hosts=["node1", "node2"]).startswith("GPUs LIE IDLE: 1 of 2 on node1.")
    assert words(["a"], ["a"]).startswith("2 ranks share 1 GPU: all ranks communicate by gloo")
    assert words("ab", "ab", "ab").startswith("2 ranks share 1 GPU:")
    assert words(["a"], []).startswith(
        "Rank 1 sees no GPU, the others do: all ranks compute on the CPU."
    )
    assert words([], ["a"], []).startswith("Ranks 0 and 2 see no GPU")


def test_a_torch_for_the_cpu_on_a_gpu_node_is_told(tmp_path, monkeypatch):
    """As from an environment that was made on a login node. The driver's program is pretended."""
    (tmp_path / "nvidia-smi").write_text(
        "#!/bin/sh\necho 'GPU 0: NVIDIA H200 (UUID: GPU-0)'\necho 'GPU 1: NVIDIA H200'\n"
    )
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("torch.version.cuda", None)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    there = [detect(rank) for rank in range(2)]
    (told,) = assign_with_messages(there).messages
    says = f"GPUs LIE IDLE: 2 on {there[0].host}; this torch was built for the CPU. make clean"
    assert told.startswith(says)
    # A build that could use them: then this process was given none.
    monkeypatch.setattr("torch.version.cuda", "13.0")
    assert assign_with_messages([detect(0)]).messages == []
    monkeypatch.setattr("torch.version.cuda", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # its user wants none
    assert assign_with_messages([detect(0)]).messages == []


CASES = {
    "own": [ABCD] * 4,
    "one visible": [[one] for one in ABCD],
    "shared": [["a"]] * 4,
    "idle": [[*ABCD, "e"]] * 4,
    "none": [["a"], ["a"], ["a"], []],
    "on the CPU": [ABCD] * 4,
}
PROGRAM = """
import contextlib, io, json, os, sys, types
sys.path.insert(0, sys.argv[1])
import pretended_gpus, torch, torch.distributed as dist
from mpi4py import MPI
from pi2zero import ranks
comm, found = MPI.COMM_WORLD, {}
for name, sees in json.loads(sys.argv[2]).items():
    pretended_gpus.pretend(sees[comm.rank])
    with contextlib.redirect_stderr(io.StringIO()) as said:
        me = ranks.join(on_cpu=name == "on the CPU")
        assert ranks.join() is me
    dist.all_reduce(total := torch.ones(1))
    assert total.item() == comm.size
    ranks.leave()
    found[name] = comm.gather([me.device, me.backend, list(pretended_gpus.asked), said.getvalue()])
pretended_gpus.pretend(["a"], broken="CUDA unknown error" if comm.rank == 1 else "")
try:
    ranks.join()
except RuntimeError as error:
    found["broken"] = comm.gather(str(error))
sys.modules["deepspeed"] = types.SimpleNamespace(init_distributed=lambda **options: None)
pretended_gpus.pretend([["a"], ["b"], ["c"], ["d"]][comm.rank])
ranks.join(deepspeed=True)
names = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "DS_ACCELERATOR")
found["deepspeed"] = comm.gather([os.environ[name] for name in names])
ranks.leave()
if comm.rank == 0:
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def joined():
    mpi_env()
    command = ["mpirun", "-n", "4", sys.executable, "-c", PROGRAM, HERE, json.dumps(CASES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long
def test_a_gpu_each_is_nccl_with_its_device_id_and_gloo_for_the_cpu(joined):
    for rank, (device, backend, asked, said) in enumerate(joined["own"]):
        assert (device, backend, said) == (f"cuda:{rank}", "nccl", "")
        assert asked == [
            ["set_device", rank],
            ["init_process_group", "cpu:gloo,cuda:nccl", f"cuda:{rank}"],
        ]
    assert [one[:2] for one in joined["one visible"]] == [["cuda:0", "nccl"]] * 4


@pytest.mark.long
def test_several_ranks_on_a_gpu_are_gloo_and_rank_0_says_so(joined):
    assert [one[:2] for one in joined["shared"]] == [["cuda:0", "gloo"]] * 4
    assert joined["shared"][0][2] == [["set_device", 0], ["init_process_group", "gloo", None]]
    assert joined["shared"][0][3].startswith("4 ranks share 1 GPU: all ranks communicate by gloo")
    assert [one[3] for one in joined["shared"][1:]] == [""] * 3


@pytest.mark.long
def test_idle_gpus_and_ranks_without_one_are_told_aloud(joined):
    assert "GPUs LIE IDLE: 1 of 5 on" in joined["idle"][0][3]
    assert joined["none"][0][0] == "cpu" and "Rank 3 sees no GPU" in joined["none"][0][3]
    said = "GPUs LIE IDLE: all 4. This program computes on the CPU.\n"
    assert joined["on the CPU"] == [
        ["cpu", "gloo", [["init_process_group", "gloo", None]], said * (rank == 0)]
        for rank in range(4)
    ]


@pytest.mark.long
def test_gpus_that_do_not_work_end_all_ranks_with_one_sentence(joined):
    assert len(set(joined["broken"])) == 1 and len(joined["broken"]) == 4
    assert (
        "sees GPUs that torch cannot use: CUDA unknown error. The CPU will do"
        in joined["broken"][0]
    )


@pytest.mark.long
def test_deepspeed_finds_the_number_of_the_gpu_where_it_looks_for_it(joined):
    assert joined["deepspeed"] == [["0", "0", "cuda"]] * 4


LAUNCHED = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import pretended_gpus, torch, torch.distributed as dist
from pi2zero import ranks
pretended_gpus.pretend(["a", "b"])
devices = []
for _ in range(2):  # again after an end
    me = ranks.join()
    devices.append([me.device, me.backend, me.rank, me.local_rank])
    dist.all_reduce(total := torch.ones(1))
    assert total.item() == 2
    ranks.leave()
assert "mpi4py" not in sys.modules and os.environ["GLOO_SOCKET_IFNAME"] == "lo"
sys.stdout.write(json.dumps([devices, pretended_gpus.asked[-1]]) + chr(10))
"""


@pytest.mark.long
def test_under_torchrun_mpi_is_left_alone(tmp_path):
    (tmp_path / "program.py").write_text(LAUNCHED)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", tmp_path / "program.py", HERE]
    # The ranks meet in torchrun's own store, which listens already: no other program takes the port
    env = without("GLOO_SOCKET_IFNAME", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE")
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=env)
    assert done.returncode == 0, done.stderr
    found = sorted(map(json.loads, done.stdout.splitlines()))
    for rank, (devices, last) in enumerate(found):
        assert devices == [[f"cuda:{rank}", "nccl", rank, rank]] * 2
        assert last == ["init_process_group", "cpu:gloo,cuda:nccl", f"cuda:{rank}"]


ALONE = """
import os, sys
sys.modules["mpi4py"] = None
from pi2zero import ranks
me = ranks.join()
assert (me.rank, me.world_size, me.device) == (0, 1, "cpu") and os.environ["WORLD_SIZE"] == "1"
ranks.leave()
for name in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"):
    os.environ[name] = "2"
    try:
        ranks.join()
    except RuntimeError as error:
        print(error)
    del os.environ[name]
"""


@pytest.mark.long
def test_without_mpi4py_one_rank_works_and_worlds_of_one_are_refused():
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        capture_output=True,
        text=True,
        timeout=100,
        env=without("WORLD_SIZE"),
    )
    assert done.returncode == 0, done.stderr
    slurm, mpirun = done.stdout.splitlines()
    assert slurm.startswith(
        "SLURM_STEP_NUM_TASKS says that 2 ranks were started, and this Python cannot use MPI"
    )
    assert mpirun.startswith("OMPI_COMM_WORLD_SIZE says that 2") and mpirun.endswith(
        "by torchrun, or install mpi4py."
    )


def without(*names):
    return {name: value for name, value in os.environ.items() if name not in names}


LOCAL = """
import os
from mpi4py import MPI
from pi2zero import mpi
rank = MPI.COMM_WORLD.rank
for name in mpi.LOCAL_RANKS:
    os.environ.pop(name, None)
os.environ["SLURM_LOCALID"] = "0"  # a job's script has it, and mpirun hands it to all
same = mpi.local_rank(MPI.COMM_WORLD)
os.environ["SLURM_LOCALID"] = str(2 - rank)  # srun's own numbers
print(rank, *same, *mpi.local_rank(MPI.COMM_WORLD), flush=True)
"""


@pytest.mark.long
def test_slurm_s_local_id_counts_where_it_numbers_this_host_s_ranks():
    mpi_env()
    done = subprocess.run(
        ["mpirun", "-n", "3", sys.executable, "-c", LOCAL],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert sorted(done.stdout.splitlines()) == ["0 0 3 2 3", "1 1 3 1 3", "2 2 3 0 3"], done.stderr


def test_rank_0_s_address_is_one_that_answers(monkeypatch):
    """The others' try is real; the list of rank 0's interfaces is given."""
    from pi2zero.ranks import rendezvous

    class Comm:
        rank = 1
        bcast = staticmethod(lambda _: ([("ib0", "192.0.2.1"), ("eth0", "127.0.0.1")], port))
        allgather = staticmethod(lambda reached: [{"192.0.2.1", "127.0.0.1"}, reached])

    monkeypatch.setattr(rendezvous, "REACH", 0.3)
    with rendezvous.socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert rendezvous.common_address(Comm, tries=True) == "127.0.0.1"
    with pytest.raises(
        RuntimeError,
        match=r"192\.0\.2\.1 \(ib0\), 127\.0\.0\.1 \(eth0\)\. Name the network interface",
    ):
        rendezvous.common_address(Comm, tries=True)


def test_an_interface_that_is_named_is_the_only_one_tried(monkeypatch):
    from pi2zero.ranks import rendezvous

    names = [name for name, _ in rendezvous.own_addresses()]
    if not names:
        pytest.skip("this machine has no network interface but lo")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", names[-1])
    assert {name for name, _ in rendezvous.own_addresses()} == {names[-1]}
