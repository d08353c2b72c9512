"""`make gpu`: test every GPU path that this node allows, and write a page into reports/gpu/.

Runs on any Python 3.11 or later that has torch. What a path needs and this Python does not have
makes it "not possible here". Without a GPU this program says so and writes nothing.
"""

import argparse
import contextlib
import datetime
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = "tools/gpu_programs.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
CORES_PER_CASE = 3  # of those that run at the same time
LAST_LINES = 25  # of a path that failed
NOTEBOOK = "tools/notebooks.py --only-run --timeout 400"
KIT = "deepspeed mpi4py ipyparallel nbclient psutil"
SYNTHETIC = "scripts/synthetic_benchmark.py --batch-size 32"
SUMMARIZE = "scripts/summarize.py {} build/gpu-summarizer"


@dataclass(frozen=True)
class Case:
    """A path. launcher: torchrun or mpirun (a rank per GPU), "2" or "4" (ranks on one GPU), python.

    needs: modules and programs, separated by spaces. alone: it measures, so nothing else may run.
    """

    program: str
    launcher: str = "torchrun"
    needs: str = ""
    seconds: float = 120.0
    alone: bool = False

    @property
    def title(self) -> str:
        where = {"2": "2 ranks on one GPU", "4": "4 ranks on one GPU"}
        return f"{self.program} ({where.get(self.launcher, self.launcher)})"


def zero_case(options: str, launcher: str = "torchrun", needs: str = "deepspeed") -> Case:
    return Case(f"{PROGRAMS} zero {options}", launcher, needs)


CASES = [
    Case(f"{PROGRAMS} world --backend nccl"),
    Case(f"{PROGRAMS} world --backend nccl --one-visible"),
    Case(f"{PROGRAMS} world --backend nccl", "mpirun", "mpi4py"),
    Case(f"{PROGRAMS} world --backend gloo", "4"),
    Case(f"{PROGRAMS} allreduce", alone=True),
    Case(f"{PROGRAMS} allreduce", "2", alone=True),
    Case(f"{PROGRAMS} fsdp"),
    Case(f"{PROGRAMS} fsdp", "2"),
    Case("scripts/train_single.py --epochs 3", "python", "sklearn"),
    Case("scripts/train_ddp.py --epochs 3 --batch-size 64", "torchrun", "sklearn"),
    Case("scripts/train_ddp.py --epochs 3", "2", "sklearn"),
    Case("scripts/train_tensor.py --epochs 3", "torchrun", "sklearn"),
    Case("scripts/train_horovod.py --epochs 3", "mpirun", "sklearn horovod mpi4py"),
    Case("scripts/train_keras.py", "mpirun", "sklearn keras horovod mpi4py"),
    *(zero_case(f"--stage {stage} --dtype {d}") for stage in range(4) for d in ("bf16", "fp16")),
    zero_case("--stage 2 --offload", needs="deepspeed nvcc"),
    zero_case("--stage 3 --offload", needs="deepspeed nvcc"),
    zero_case("--stage 1 --fused", needs="deepspeed nvcc"),
    zero_case("--stage 3", "2"),
    Case(f"{PROGRAMS} generate", "torchrun", "deepspeed transformers"),
    Case("scripts/train_deepspeed.py --epochs 3 --stage 2", "torchrun", "deepspeed sklearn"),
    Case("scripts/zero_check_mem.py", "torchrun", "deepspeed psutil"),
    # One path of three programs: each needs what the program before it has left.
    Case(
        f"{SUMMARIZE.format('train')} --data embedded --steps 20 --every 10 --bf16 --stage 2 && "
        f"{SUMMARIZE.format('evaluate')} --data embedded --limit 20 && "
        f"{SUMMARIZE.format('generate')} README.md",
        "torchrun",
        "deepspeed transformers datasets rouge_score",
        240,
    ),
    Case("scripts/allreduce_bench.py --sizes 1M 64M", "mpirun", "mpi4py", alone=True),
    Case(SYNTHETIC, "python", "transformers", alone=True),
    Case(f"{SYNTHETIC} --method ddp", "torchrun", "transformers", alone=True),
    Case(f"{SYNTHETIC} --method hand", "torchrun", "transformers", alone=True),
    Case(f"{SYNTHETIC} --method horovod", "mpirun", "transformers horovod mpi4py", alone=True),
    Case("tools/gpu_share.py", "python", "transformers", 240, alone=True),
    *(
        Case(f"{NOTEBOOK} {name}.ipynb", "python", KIT + " horovod" * ("horovod" in name), 600)
        for name in (
            *("notebooks/06_ddp", "notebooks/09_zero", "notebooks/08_deepspeed"),
            *("notebooks/09b_zero_further", "notebooks/09c_torch_and_time"),
            *("notebooks/10_dailymail", "notebooks/03_collectives", "notebooks/05_horovod"),
            *("notebooks/04b_who_waits", "solutions/03_data_parallel"),
            *("solutions/04_zero_memory", "solutions/05_summarization", "notebooks/07_scaling"),
        )
    ),
]


@dataclass(frozen=True)
class Outcome:
    case: Case
    state: str  # passed, FAILED, not possible here, not tried
    seconds: float = 0.0
    lines: tuple[str, ...] = ()


def find_hardware() -> dict:
    """What this node and this Python have. Without a GPU or torch it exits with a sentence."""
    command = [sys.executable, ROOT / PROGRAMS, "look"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    other = "Another: make gpu PYTHON=/path/python"
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        sys.exit(f"make gpu: {sys.executable} cannot load torch and its GPUs ({why}). {other}")
    facts = json.loads(done.stdout.splitlines()[-1])
    torch = f"torch {facts['versions']['torch']}"
    if not facts["gpus"] and facts["driver"]:
        sys.exit(
            f"make gpu: NVIDIA's driver is here, but {torch} cannot use its GPU. Was this "
            f"environment made where there was none? make clean, then make lab, here. {other}"
        )
    if not facts["gpus"]:
        sys.exit(f"make gpu: there is no GPU here that {torch} can use. Run it on a GPU node.")
    return facts


def environment(**more: str) -> dict[str, str]:
    """For programs: this Python's own mpirun first; ranks share GPUs and cores; no outer ranks."""
    outer = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    env = {name: value for name, value in os.environ.items() if name not in outer}
    own = [str(Path(sys.executable).parent)] if sys.prefix != sys.base_prefix else []
    as_root = [f"{family}_ALLOW_RUN_AS_ROOT" for family in ("OMPI", "PRTE")]
    mpi = dict.fromkeys([*as_root, *(f"{name}_CONFIRM" for name in as_root)], "1") | {
        "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    paths = {
        "PATH": os.pathsep.join([*own, env.get("PATH", os.defpath)]),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "src"), env.get("PYTHONPATH")])),
    }
    return {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **mpi, **env, **paths, **more}


def command_of(case: Case, gpus: int) -> list[str]:
    launchers = {
        "python": [sys.executable],
        "mpirun": ["mpirun", "-n", str(gpus), sys.executable],
        "torchrun": [*TORCHRUN, str(gpus)],
    }
    launcher = launchers.get(case.launcher, [*TORCHRUN, case.launcher])
    steps = [[*launcher, *shlex.split(step)] for step in case.program.split(" && ")]
    return ["sh", "-c", " && ".join(map(shlex.join, steps))]


def run(case: Case, facts: dict, deadline: float) -> Outcome:
    """Run a path until its own limit or the deadline (time.monotonic); nothing of it is left."""
    env = environment()
    needs = [*case.needs.split(), *["mpirun"] * (case.launcher == "mpirun")]
    missing = [
        need
        for need in needs
        if need not in facts["modules"] and not shutil.which(need, path=env["PATH"])
    ]
    if missing:
        return Outcome(case, "not possible here", lines=(f"there is no {', no '.join(missing)}",))
    if (left := deadline - time.monotonic()) < 5:
        return Outcome(case, "not tried", lines=("the time was over",))
    if case.launcher in ("2", "4"):
        first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
        env["CUDA_VISIBLE_DEVICES"] = first
    begin, limit = time.monotonic(), min(case.seconds, left)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command_of(case, len(facts["gpus"])),
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            state = "passed" if process.wait(limit) == 0 else "FAILED"
        except subprocess.TimeoutExpired:
            state = "FAILED" if limit == case.seconds else "not tried"
        end_group(process)
        output.seek(0)
        lines = [line.rstrip() for line in output.read().decode(errors="replace").splitlines()]
    lines = [line for line in lines if line]
    # What torchrun says at length after a rank has failed is not the rank's own error.
    advice = [at for at, line in enumerate(lines) if re.match(r"E\d{4} .*elastic.* failed", line)]
    lines = lines[: advice[0]] if advice and advice[0] else lines
    if process.returncode < 0:
        lines.append(f"it had not ended after {limit:.0f} s, and was ended")
    return Outcome(case, state, time.monotonic() - begin, tuple(lines[-LAST_LINES:]))


def end_group(process: subprocess.Popen) -> None:
    """End a program and all that it has started. SIGTERM comes first: launchers end their ranks."""
    for sent, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            os.killpg(process.pid, sent)
            process.wait(patience)
    process.wait()


def run_all(cases: list[Case], facts: dict, deadline: float, jobs: int) -> list[Outcome]:
    """Run the slowest first, several at the same time; at the end, one by one, what measures."""

    def run_one(case: Case) -> Outcome:
        outcome = run(case, facts, deadline)
        print(f"{case.title}: {outcome.state}, {outcome.seconds:.0f} s", flush=True)
        return outcome

    first = sorted((case for case in cases if not case.alone), key=lambda case: -case.seconds)
    with ThreadPoolExecutor(jobs) as pool:
        outcomes = list(pool.map(run_one, first))
    return outcomes + [run_one(case) for case in cases if case.alone]


def report(facts: dict, outcomes: list[Outcome], day: str) -> str:
    """The page."""
    gpus = [f"{gpu['name']}, {gpu['bytes'] / 1e9:.0f} GB" for gpu in facts["gpus"]]
    kinds = "; ".join(f"{gpus.count(gpu)} x {gpu}" for gpu in dict.fromkeys(gpus))
    states = [outcome.state for outcome in outcomes]
    rows = {"GPUs": kinds, "driver": facts["driver"] or "unknown", **facts["versions"]}
    lines = [f"# `make gpu`, {day}: {kinds}", ""]
    lines += [", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)) + "."]
    lines += ["", "Written by `make gpu`; see [what these pages are](README.md).", ""]
    lines += ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]
    lines += ["", "| path | outcome | s | last line |", "|---|---|---|---|"]
    for outcome in outcomes:
        last = outcome.lines[-1].replace("|", "\\|")[:300] if outcome.lines else ""
        title = outcome.case.title
        lines.append(f"| {title} | {outcome.state} | {outcome.seconds:.0f} | {last} |")
    for outcome in outcomes:
        if outcome.state == "FAILED" or (outcome.state == "passed" and outcome.case.alone):
            lines += ["", f"## {outcome.case.title}: {outcome.state}", ""]
            lines += ["```", *outcome.lines, "```"]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    jobs = max(1, len(os.sched_getaffinity(0)) // CORES_PER_CASE)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all paths (default: 10)")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "reports" / "gpu", help="folder of the page"
    )
    parser.add_argument("--jobs", type=int, default=jobs, help=f"paths at a time (default: {jobs})")
    parser.add_argument("--only", nargs="+", default=[""], help="paths with one of these words")
    args = parser.parse_args()
    deadline = time.monotonic() + 60 * args.minutes - 10
    facts = find_hardware()
    cases = [case for case in CASES if any(word in case.title for word in args.only)]
    if not cases:
        parser.error(f"no path has {' or '.join(args.only)} in its title; see tools/gpu.py")
    outcomes = run_all(cases, facts, deadline, args.jobs)
    day = datetime.date.today().isoformat()
    kind = re.sub(r"[^a-z0-9]+", "-", facts["gpus"][0]["name"].lower())
    some = "" if len(cases) == len(CASES) else "-some"
    args.out.mkdir(parents=True, exist_ok=True)
    page = args.out / f"{day}-{len(facts['gpus'])}x-{kind}{some}.md"
    page.write_text(report(facts, outcomes, f"{day}, {args.jobs} paths at a time"))
    failed = sum(outcome.state == "FAILED" for outcome in outcomes)
    print(f"{failed} failed. The page: {page}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
