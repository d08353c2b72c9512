"""Images/s of 1, 2 and 4 ranks on one GPU, with and without NVIDIA's MPS. A part of `make gpu`.

  python tools/gpu_share.py                  on the first visible GPU
  python tools/gpu_share.py --core           the same question asked of one processor core, where what is idle can be measured

Each rank trains its own small network (scripts/synthetic_benchmark.py --method single: no communication), or all one network
(--method ddp, over gloo through the host's memory: nccl wants a GPU for each rank). A GPU that is shared without MPS takes turns.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BENCHMARK = [
    ROOT / "scripts" / "synthetic_benchmark.py",
    "--json",
    "--model",
    "small",
    "--image-size",
    "64",
]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
CONTROL = "nvidia-cuda-mps-control"


def benchmark(ranks, method, options, environment, core=None):
    """What the benchmark reports as JSON."""
    command = [*TORCHRUN, ranks, *BENCHMARK, "--method", method, *options]
    bound = (lambda: os.sched_setaffinity(0, {core})) if core is not None else None
    env = dict(os.environ, OMP_NUM_THREADS="1", **environment)
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, env=env, preexec_fn=bound, timeout=100
    )
    if done.returncode:
        sys.exit(f"{ranks} ranks, {method}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def mps():
    """The environment in which programs go through MPS; its daemon runs meanwhile, in a private folder. None: not possible."""
    with tempfile.TemporaryDirectory() as folder:
        names = {
            "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe",
            "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log",
        }
        for path in names.values():
            Path(path).mkdir()
        env = dict(os.environ, **names)
        try:
            started = (
                subprocess.run([CONTROL, "-d"], env=env, capture_output=True, timeout=20).returncode
                == 0
            )
        except (OSError, subprocess.TimeoutExpired):
            started = False
        try:
            yield names if started else None
        finally:
            if started:
                subprocess.run([CONTROL], env=env, input=b"quit\n", capture_output=True, timeout=30)


def on_gpu(ranks):
    """Rows of the table: without MPS, then with it."""
    gpu = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"}
    options = ["--batch-size", 32, "--iterations", 30, "--warmup", 10]
    print(f"{'ranks':>5} {'MPS':>4} {'single, images/s':>18} {'ddp, images/s':>18}")
    for daemon in (contextlib.nullcontext({}), mps()):
        with daemon as names:
            if names is None:
                return print(f"MPS is not possible here: {CONTROL} is not there, or does not start")
            for count in ranks:
                found = [
                    benchmark(count, method, options, gpu | names) for method in ("single", "ddp")
                ]
                assert {one["device"] for one in found} == {"cuda"}, (
                    "the ranks did not take the GPU"
                )
                rates = [
                    f"{one['images_per_second']:10.0f} ± {one['images_per_second_sd']:5.0f}"
                    for one in found
                ]
                print(
                    f"{count:5} {'yes' if names else 'no':>4} {rates[0]:>18} {rates[1]:>18}",
                    flush=True,
                )


def on_core(ranks, pauses, steps):
    """Ranks that share one core: what they compute together, and the share of its time in which none of them computed."""
    core = min(os.sched_getaffinity(0))
    print(f"{'pause, ms':>9} {'ranks':>5} {'images/s':>16} {'core idle':>10}")
    for pause in pauses:
        for count in ranks:
            options = ["--batch-size", 8, "--iterations", steps, "--pause", pause]
            found = benchmark(count, "single", options, {"CUDA_VISIBLE_DEVICES": ""}, core)
            idle = 1 - count * (1 - found["idle"])
            rate = f"{found['images_per_second']:8.0f} ± {found['images_per_second_sd']:4.0f}"
            print(f"{pause:9g} {count:5} {rate:>16} {max(0, idle):10.0%}", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--core", action="store_true", help="on one core, without a GPU")
    parser.add_argument(
        "--ranks",
        type=int,
        nargs="+",
        default=[1, 2, 4],
        help="that share the GPU or core (default: 1 2 4)",
    )
    parser.add_argument(
        "--pauses",
        type=float,
        nargs="+",
        default=[0, 60],
        help="ms in each step, with --core (default: 0 60)",
    )
    parser.add_argument(
        "--steps", type=int, default=50, help="that are counted, with --core (default: 50)"
    )
    args = parser.parse_args()
    on_core(args.ranks, args.pauses, args.steps) if args.core else on_gpu(args.ranks)


if __name__ == "__main__":
    main()
