"""The list of what the kit leans on in MPI, torch and what is built on it, beyond what they promise. See test_internals.py."""

import importlib.util
import inspect
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from leans import leans, python

from pi2zero import mpi, ownership
from pi2zero.cluster.account import exit_reasons
from pi2zero.cluster.calls import AUTOGRAD, MPI_WAITS, WAITING_FILES

SITE = Path(psutil.__file__).parents[1]

# --- MPI --------------------------------------------------------------------------------------------------------------


@leans(
    "course/src/pi2zero_course/checks/framework/requests.py: real, MPI.Request = MPI.Request, _Requests",
    "course/src/pi2zero_course/checks/framework/messages.py: class Messages(MPI.Intracomm)",
    "src/pi2zero/cluster/calls.py: MPI_WAITS",
    "src/pi2zero/cluster/report.py: mpi4py/MPI",
    "src/pi2zero/mpi.py: MPI.Get_library_version()",
)
def test_mpi4py_s_classes():
    """mpi4py's Intracomm can be subclassed, MPI.Request replaced; its module, calls and frames have these names."""
    program = """
import json, sys, traceback
from mpi4py import MPI
class Mine(MPI.Intracomm):
    def __new__(cls, comm):
        return super().__new__(cls, comm)
class Requests(MPI.Request):
    pass
MPI.Request = Requests
try:
    MPI.COMM_SELF.bcast(1, root=5)
except MPI.Exception:
    trace = traceback.format_exc()
names = {name for kind in vars(MPI).values() if isinstance(kind, type) for name in dir(kind)}
print(json.dumps([Mine(MPI.COMM_SELF).allreduce(2), type(MPI.COMM_SELF).__module__, trace, MPI.Get_library_version(),
                  sorted(set(sys.argv[1:]) - names), len(MPI.pickle.dumps([])) > 0, MPI.ERR_TRUNCATE]))
"""
    total, module, trace, version, unknown, *_ = json.loads(python(program, *MPI_WAITS))
    assert (total, module, unknown) == (2, "mpi4py.MPI", [])
    assert re.search(r"mpi4py/MPI\.src/\w+\.p[yx][xi]", trace) and version.startswith("Open MPI v")


@pytest.mark.long
@leans("src/pi2zero/mpi.py: OMPI_COMM_WORLD_LOCAL_RANK")
def test_open_mpi_s_local_rank():
    """Open MPI tells its ranks their local rank in OMPI_COMM_WORLD_LOCAL_RANK."""
    mpi.mpi_env()
    told = subprocess.run(
        ["mpirun", "-n", "2", "printenv", "OMPI_COMM_WORLD_LOCAL_RANK"],
        capture_output=True,
        text=True,
    )
    assert sorted(told.stdout.split()) == ["0", "1"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("does", "why"),
    [
        (
            "os.kill(os.getpid(), 9)",
            "signal SIGKILL (killed from outside, often because memory ran out)",
        ),
        ("os._exit(3)", "its process ended with exit code 3"),
        ("MPI.COMM_WORLD.Abort(7)", "it called MPI_Abort with error code 7"),
    ],
)
@leans(
    "src/pi2zero/cluster/account.py: def exit_reasons(",
    'src/pi2zero/ownership/process_marks.py: ("prte", "mpirun", "mpiexec")',
)
def test_mpirun_s_account_of_a_death(does, why):
    """Open MPI's mpirun says in these words how a rank ended; it is a process of one of these names."""
    mpi.mpi_env()
    program = f"""
import os
from mpi4py import MPI
print("here", flush=True)
if MPI.COMM_WORLD.rank:
    {does}
MPI.COMM_WORLD.Barrier()
"""
    command = ["mpirun", "-n", "2", sys.executable, "-c", program]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said = process.stdout.readline()  # by then the wheel's own `mpirun` has become Open MPI's
        name = psutil.Process(process.pid).name()
        said += process.communicate(timeout=30)[0]
    finally:
        process.terminate()
        process.wait(30)
    assert name.startswith(("prte", "mpirun", "mpiexec"))
    ((rank, told),) = exit_reasons(said).items()
    assert rank == 1 and why.startswith(told), said


@pytest.mark.long
@leans('src/pi2zero/ownership/process_marks.py: ("ompi", "prte")')
@pytest.mark.parametrize(
    "command", [["mpirun", "-n", "1", "sleep", "60"], ["prte"]], ids=["mpirun", "prte"]
)
def test_a_launcher_that_does_not_answer_is_killed_and_leaves_no_folder(
    command, tmp_path, monkeypatch
):
    mpi.mpi_env()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv(ownership.MARK, mark := ownership.owner_mark() + "launcher/")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not list(tmp_path.glob(f"*.{process.pid}/pmix*")):
            assert time.monotonic() < deadline, list(tmp_path.iterdir())
            time.sleep(0.1)
        process.send_signal(signal.SIGSTOP)
        ownership.end_marked(mark)
        left = [
            path
            for path in tmp_path.iterdir()
            if path.name != f"ompi.{socket.gethostname()}.{os.getuid()}"
        ]
    finally:
        process.kill()
        process.wait(30)
    assert not left


# --- torch ------------------------------------------------------------------------------------------------------------


@leans("course/src/pi2zero_course/checks/framework/torch_watch.py: import torch._dynamo")
def test_torch_s_private_module():
    """torch has this private module, which optimizers load late."""
    assert importlib.util.find_spec("torch._dynamo")


@leans(
    "course/src/pi2zero_course/checks/framework/torch_watch.py: setattr(dist, name",
    "src/pi2zero/ranks/start_deepspeed.py: torch.distributed.c10d_logger",
)
def test_torch_s_collectives_can_be_watched():
    """torch.distributed's collectives are names of that module, wrapped in c10d_logger; a DDP model's call runs DDP.forward."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from pi2zero_course.checks.framework.torch_watch import COLLECTIVES

    assert all(callable(getattr(dist, name)) for name in COLLECTIVES)
    assert dist.all_reduce.__code__.co_filename.endswith("torch/distributed/c10d_logger.py")
    assert "forward" in vars(DistributedDataParallel) and "__call__" not in vars(
        DistributedDataParallel
    )


@leans(
    "src/pi2zero/cluster/calls.py: WAITING_FILES = (",
    "src/pi2zero/cluster/calls.py: torch._C._distributed",
)
def test_the_files_in_which_ranks_wait():
    """torch, DeepSpeed and Horovod have these files, and their collectives' handles are of this module."""
    import torch.distributed as dist

    horovod = (SITE / "horovod").exists()
    parts = [part for part in WAITING_FILES + AUTOGRAD if horovod or "horovod" not in part]
    assert not [part for part in parts if not (SITE / part.strip("/")).exists()]
    assert all(
        kind.__module__.startswith(("torch._C._distributed", "torch.distributed"))
        for kind in (dist.Work, dist.ProcessGroup)
    )


@leans("src/pi2zero/meters/memory.py: _local_tensor")
def test_a_dtensor_s_own_shard():
    """torch keeps a DTensor's shard in _local_tensor."""
    from torch.distributed.tensor import DTensor

    assert "_local_tensor" in DTensor.__annotations__


PIPELINE = """
import json, sys, torch
import torch.distributed as dist
from torch.distributed import pipelining
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 1), rank=0, world_size=1)
parts = [pipelining.PipelineStage(torch.nn.Linear(2, 2), s, 2, torch.device("cpu")) for s in range(2)]
plans = {}
for name in ("Interleaved1F1B", "DualPipeV"):
    made = pipelining.schedules.get_schedule_class(name)(parts, n_microbatches=2, loss_fn=torch.nn.functional.mse_loss)
    row = [part for entry in made.pipeline_order[0] if entry for part in entry.sub_actions or [entry]]
    plans[name] = sorted([a.stage_index, a.computation_type.value, a.microbatch_index] for a in row)
print(json.dumps(plans))
dist.destroy_process_group()
"""


@pytest.mark.long
@leans(
    "notebooks/11_model_parallel.ipynb: schedule.pipeline_order",
    "notebooks/11_model_parallel.ipynb: entry.sub_actions",
)
def test_torch_s_plans_of_pipelines(tmp_path):
    """torch's schedules show each rank's actions in pipeline_order, as (stage, F, B, I or W, micro-batch), or groups of them."""
    plans = json.loads(python(PIPELINE, str(tmp_path / "store")))
    whole = sorted([s, kind, i] for s in range(2) for kind in "FB" for i in range(2))
    assert plans["Interleaved1F1B"] == whole
    assert {kind for _, kind, _ in plans["DualPipeV"]} <= set("FBIW") and len(
        plans["DualPipeV"]
    ) >= len(whole)


# --- what is built on torch ----------------------------------------------------------------------------------------------


@leans(
    "notebooks/09c_torch_and_time.ipynb: AcceleratorState._reset_state()",
    "notebooks/09c_torch_and_time.ipynb: ACCELERATE_TORCH_DEVICE",
)
def test_accelerate_s_state():
    """Accelerate's state can be dropped, that of the processes kept, and takes its device from the environment."""
    from accelerate import state

    assert (
        inspect.signature(state.AcceleratorState._reset_state)
        .parameters["reset_partial_state"]
        .default
        is False
    )
    assert "ACCELERATE_TORCH_DEVICE" in inspect.getsource(state.PartialState.__init__)


ENGINES = """
import json, sys
from pi2zero import ranks
ranks.join(deepspeed=True)
import deepspeed, torch
from deepspeed import utils
def held():
    names = {name for name in sys.argv[1:] if hasattr(optimizer, name) or hasattr(parameter, name)}
    return names | {"buffer" for bucket in getattr(optimizer, "ipg_buckets", {}).values() if hasattr(bucket, "buffer")}
found = {}
for stage in (0, 1, 2, 3):
    adam = {"type": "Adam", "params": {"torch_adam": True}}
    config = {"train_batch_size": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": stage}, "optimizer": adam}
    engine, *_ = deepspeed.initialize(model=torch.nn.Linear(64, 64), config=config)
    parameter, optimizer = next(engine.module.parameters()), engine.optimizer
    names = held()
    engine.backward(engine(torch.ones(1, 64, dtype=torch.bfloat16)).float().sum())
    names |= held()
    engine.step()
    whole = utils.safe_get_full_fp32_param(parameter), utils.safe_get_full_optimizer_state(parameter, "exp_avg")
    found[stage] = sorted(names), [None if one is None else list(one.shape) for one in whole]
print(json.dumps(found))
ranks.leave()
"""


@pytest.mark.long
@leans(
    "src/pi2zero/meters/memory.py: MASTER = (",
    "src/pi2zero/deepspeed_support/checkpoints.py: _hp_mapping",
)
def test_deepspeed_s_names():
    """DeepSpeed holds these at its stages: copies in fp32, reduced gradients, buckets, and whether they are dealt out."""
    from pi2zero.meters import memory

    names = [*memory.MASTER, *memory.REDUCED, "ipg_buckets", "partition_gradients", "grad_accum"]
    names += ["ds_tensor", "ds_id", "_hp_mapping"]
    found = json.loads(python(ENGINES, *names).splitlines()[-1])
    dealt = {"averaged_gradients", "buffer", "ipg_buckets", "partition_gradients"}
    stage_1 = dealt | {
        "_hp_mapping",
        "grad_accum",
        "grads_in_partition",
        "single_partition_of_fp32_groups",
    }
    stage_3 = dealt | {
        "ds_id",
        "ds_tensor",
        "fp32_partitioned_groups_flat",
        "grad_partitions_flat_buffer",
    }
    held = [set(names) for names, _ in found.values()]
    assert held == [set(), stage_1, stage_1, stage_3]
    assert [whole for _, whole in found.values()] == [[None, None]] + 3 * [[[64, 64], [64, 64]]]


@leans("src/pi2zero/ranks/start_deepspeed.py: /dev/shm/deepspeed_allreduce_buffer_")
def test_deepspeed_s_file_in_shared_memory():
    """DeepSpeed's all-reduce names its file by the user, the meeting's address and port, and the rank; it never removes it."""
    source = (SITE / "deepspeed" / "ops" / "csrc" / "cpu" / "comm" / "shm.cpp").read_text()
    assert all(
        words in source
        for words in ('"deepspeed_allreduce_buffer"', '"%s_%d_%s_%s"', "getuid()", '"%s_%d"')
    )
    assert source.count("shared_close(") == 1  # what would remove it is never called


@leans("slides/6_model_parallelism/figures.py: fake_pg import FakeStore")
def test_torch_s_world_without_processes():
    """torch plans for ranks that are not there, by its backend "fake"."""
    program = """
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
print(dist.get_world_size())
"""
    assert python(program) == "8\n"


@leans(
    "src/pi2zero/built/operators.py: def compile_one(",
    "src/pi2zero/built/operators.py: installed_ops = ",
)
def test_deepspeed_s_builders():
    """DeepSpeed's builders of operators say what they compile, and load one without compiling if `installed_ops` lists it."""
    from deepspeed.ops import op_builder
    from deepspeed.ops.op_builder.builder import OpBuilder

    from pi2zero.built.operators import BUILDERS

    asked = (
        "absolute_name",
        "sources",
        "include_paths",
        "cxx_args",
        "extra_ldflags",
        "strip_empty_entries",
        "deepspeed_src_path",
    )
    assert all(callable(getattr(OpBuilder, name)) for name in (*asked, "jit_load"))
    assert not [name for name in BUILDERS if not hasattr(op_builder, name)]
    assert "installed_ops" in inspect.getsource(OpBuilder.load)
    assert "git_version_info_installed" in (SITE / "deepspeed" / "git_version_info.py").read_text()


@leans("course/src/pi2zero_course/summarization/data/dailymail.py: USE_PARQUET_EXPORT=False")
def test_settings_of_datasets():
    """datasets and huggingface_hub read these settings from their modules at each use."""
    import datasets
    from huggingface_hub import constants

    config = vars(datasets.config)
    assert {"USE_PARQUET_EXPORT", "HF_UPDATE_DOWNLOAD_COUNTS", "HF_HUB_OFFLINE"} <= config.keys()
    assert {
        "HF_HUB_OFFLINE",
        "ENDPOINT",
        "ENV_VARS_TRUE_VALUES",
        "HUGGINGFACE_HEADER_X_REPO_COMMIT",
    } <= vars(constants).keys()
    sources = [path.read_text() for path in (SITE / "datasets").glob("*.py")]
    assert any("config.USE_PARQUET_EXPORT" in source for source in sources)
    assert any("config.HF_UPDATE_DOWNLOAD_COUNTS" in source for source in sources)


@leans("scripts/train_keras.py: self._loss_tracker.update_state")
def test_keras_s_tracker_of_the_loss():
    """keras makes _loss_tracker, a Mean, when a model is compiled."""
    assert (
        'self._loss_tracker = metrics_module.Mean(name="loss")'
        in (SITE / "keras/src/trainers/trainer.py").read_text()
    )
