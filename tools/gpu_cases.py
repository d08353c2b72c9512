"""The paths that `make gpu` tries: for each what runs, and what it needs that may not be here."""

import os
import shlex
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = "tools/gpu_programs.py"
SYNTHETIC = "scripts/synthetic_benchmark.py --batch-size 32"
# Those whose ranks may compute on a GPU, what matters most first. Notebook 12 wants two hosts: `make two-hosts`, or a cluster.
NOTEBOOKS = (
    "notebooks/06_ddp",
    "notebooks/09_zero",
    "notebooks/08_deepspeed",
    "notebooks/09b_zero_further",
    "notebooks/09c_torch_and_time",
    "notebooks/10_dailymail",
    "notebooks/03_collectives",
    "notebooks/05_horovod",
    "notebooks/04b_who_waits",
    "solutions/03_data_parallel",
    "solutions/04_zero_memory",
    "solutions/05_summarization",
    "notebooks/07_scaling",
)
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


@dataclass(frozen=True)
class Case:
    """One path. missing: why it is not possible here; empty if it is. shown: how many of its last lines the report has.

    alone: it measures, and nothing else may run meanwhile.
    """

    title: str
    command: list[str]
    missing: str = ""
    seconds: float = 60.0
    environment: dict[str, str] = field(default_factory=dict)
    shown: int = 1
    alone: bool = False


def cases(facts: dict) -> list[Case]:
    """All paths, for what was found on this node (see gpu_programs.look)."""
    count, modules = len(facts["gpus"]), set(facts["modules"])
    each, one_gpu = (
        f"a rank on each of {count} GPUs" if count > 1 else "one rank on the GPU",
        {"CUDA_VISIBLE_DEVICES": first_gpu()},
    )

    def made(title, program, *needs, ranks=count, launcher=None, **more):
        lacking = [module for module in needs if module not in modules]
        missing = more.pop("missing", "")
        if lacking:
            missing = f"this Python has no {' and no '.join(lacking)}"
        return Case(
            title, [*(launcher or [*TORCHRUN, str(ranks)]), *program.split()], missing, **more
        )

    own_mpirun = shutil.which("mpirun", path=programs())
    mpirun = [own_mpirun or "mpirun", "-n", str(count), sys.executable]
    no_mpi = {"launcher": mpirun, "missing": "" if own_mpirun else "there is no mpirun on the PATH"}
    single, measures = [sys.executable], {"alone": True, "shown": 20}
    no_nvcc = "" if shutil.which("nvcc") else "there is no nvcc, which compiles this operator"
    found = [
        made(f"join() under torchrun, nccl: {each}", f"{PROGRAMS} world --backend nccl"),
        made("join(), one visible GPU a task", f"{PROGRAMS} world --backend nccl --one-visible"),
        made(
            f"join() under mpirun, nccl: {each}",
            f"{PROGRAMS} world --backend nccl",
            "mpi4py",
            **no_mpi,
        ),
        made(
            "join(), 4 ranks on one GPU over gloo",
            f"{PROGRAMS} world --backend gloo",
            ranks=4,
            environment=one_gpu,
        ),
        made("all-reduce over nccl", f"{PROGRAMS} allreduce", alone=True),
        made(
            "all-reduce of 2 ranks on one GPU over gloo",
            f"{PROGRAMS} allreduce",
            ranks=2,
            environment=one_gpu,
            alone=True,
        ),
        made(
            "scripts/allreduce_bench.py",
            "scripts/allreduce_bench.py --sizes 1M 64M",
            "mpi4py",
            **measures,
            **no_mpi,
        ),
        made(
            "scripts/train_single.py",
            "scripts/train_single.py --epochs 3",
            "sklearn",
            launcher=single,
        ),
        made("scripts/train_ddp.py", "scripts/train_ddp.py --epochs 3 --batch-size 64", "sklearn"),
        made(
            "scripts/train_ddp.py, 2 ranks on one GPU",
            "scripts/train_ddp.py --epochs 3",
            "sklearn",
            ranks=2,
            environment=one_gpu,
        ),
        made("scripts/train_tensor.py", "scripts/train_tensor.py --epochs 3", "sklearn"),
        made(
            "scripts/train_horovod.py",
            "scripts/train_horovod.py --epochs 3",
            "sklearn",
            "horovod",
            "mpi4py",
            **no_mpi,
        ),
        made(
            "scripts/train_keras.py",
            "scripts/train_keras.py",
            "sklearn",
            "keras",
            "horovod",
            "mpi4py",
            **no_mpi,
        ),
        made("FSDP2", f"{PROGRAMS} fsdp"),
        made(
            "FSDP2, 2 ranks on one GPU over gloo", f"{PROGRAMS} fsdp", ranks=2, environment=one_gpu
        ),
    ]
    for stage in range(4):
        found += [
            made(
                f"ZeRO stage {stage}, {dtype}",
                f"{PROGRAMS} zero --stage {stage} --dtype {dtype}",
                "deepspeed",
                seconds=90,
            )
            for dtype in ("bf16", "fp16")
        ]
    offload = f"{PROGRAMS} zero --dtype bf16 --offload --stage"
    slow = {"seconds": 180.0, "missing": no_nvcc}
    found += [
        made("ZeRO stage 2, optimizer offloaded to the host", f"{offload} 2", "deepspeed", **slow),
        made("ZeRO stage 3, optimizer offloaded to the host", f"{offload} 3", "deepspeed", **slow),
        made(
            "ZeRO stage 1, DeepSpeed's fused Adam",
            f"{PROGRAMS} zero --stage 1 --dtype bf16 --fused",
            "deepspeed",
            **slow,
        ),
        made(
            "ZeRO stage 3, 2 ranks on one GPU",
            f"{PROGRAMS} zero --stage 3",
            "deepspeed",
            ranks=2,
            environment=one_gpu,
        ),
        made("generate() at stage 3", f"{PROGRAMS} generate", "deepspeed", "transformers"),
        made(
            "scripts/train_deepspeed.py",
            "scripts/train_deepspeed.py --epochs 3 --stage 2",
            "deepspeed",
            "sklearn",
        ),
        made(
            "scripts/zero_check_mem.py",
            "scripts/zero_check_mem.py",
            "deepspeed",
            "psutil",
            shown=80,
            seconds=120,
        ),
        summarizer(made, count),
        made(
            "scripts/synthetic_benchmark.py, one rank",
            SYNTHETIC,
            "transformers",
            launcher=single,
            **measures,
        ),
        made(
            "scripts/synthetic_benchmark.py, DDP",
            f"{SYNTHETIC} --method ddp",
            "transformers",
            **measures,
        ),
        made(
            "scripts/synthetic_benchmark.py, by hand",
            f"{SYNTHETIC} --method hand",
            "transformers",
            **measures,
        ),
        made(
            "scripts/synthetic_benchmark.py, Horovod",
            f"{SYNTHETIC} --method horovod",
            *("transformers", "horovod", "mpi4py"),
            **measures,
            **no_mpi,
        ),
        made(
            "several ranks on a GPU, MPS",
            "tools/gpu_share.py",
            "transformers",
            launcher=single,
            seconds=240,
            **measures,
        ),
    ]
    kit = ("deepspeed", "mpi4py", "ipyparallel", "nbclient", "psutil")
    for name in NOTEBOOKS:
        needs = (*kit, "horovod") if "horovod" in name else kit
        found.append(
            made(
                f"{name}.ipynb",
                f"tools/notebooks.py --only-run --timeout 400 {name}.ipynb",
                *needs,
                launcher=single,
                seconds=600
                if "dailymail" in name
                else 240,  # it was not through after 185 s on an H200, beside others
            )
        )
    return found


def summarizer(made, ranks):
    """Train, then what the trained one is for: one path, because each wants what the one before has left."""
    folder, needs = "build/gpu-summarizer", ("deepspeed", "transformers", "datasets", "rouge_score")
    steps = (
        f"train {folder} --data embedded --steps 20 --every 10 --bf16 --stage 2 --resume",
        f"evaluate {folder} --data embedded --limit 20",
        f"generate {folder} README.md",
    )
    script = " && ".join(f'{shlex.join(TORCHRUN)} {ranks} "$0" {words}' for words in steps)
    title = "scripts/summarize.py: train, evaluate, generate"
    return made(
        title, "scripts/summarize.py", *needs, launcher=["sh", "-c", script], shown=6, seconds=240
    )


def programs() -> str:
    """The PATH of what is tried: an environment's own programs first, its mpirun above all, as its kernels have it."""
    path = [str(Path(sys.executable).parent)] if sys.prefix != sys.base_prefix else []
    return os.pathsep.join([*path, os.environ.get("PATH", os.defpath)])


def first_gpu() -> str:
    """The first that is visible here, as its name for programs that shall see it alone."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
