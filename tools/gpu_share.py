"""Images/s of 1, 2 and 4 ranks on one GPU, with and without NVIDIA's MPS. A part of `make gpu`.

Each rank trains its own small network (no communication), or all train one network by DDP over
gloo: NCCL needs a GPU for each rank. Without MPS, the ranks take turns on the GPU.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = str(ROOT / "scripts" / "synthetic_benchmark.py")
OPTIONS = ["--json", "--model=small", "--image-size=64", "--batch-size=32", "--iterations=30"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
CONTROL = "nvidia-cuda-mps-control"


def measure(ranks: int, method: str, env: dict[str, str]) -> str:
    """Images/s of all ranks together, with the standard deviation over the steps."""
    command = [*TORCHRUN, str(ranks), SCRIPT, *OPTIONS, "--method", method]
    env = os.environ | {"OMP_NUM_THREADS": "1"} | env
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=100)
    if done.returncode:
        sys.exit(f"{ranks} ranks, {method}:\n{done.stderr[-2000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    if result["device"] != "cuda":
        sys.exit(f"The ranks computed on {result['device']}, not on the GPU.")
    return f"{result['images_per_second']:10.0f} ± {result['images_per_second_sd']:5.0f}"


@contextlib.contextmanager
def start_mps():
    """The variables with which programs use MPS, while its daemon runs; None if it cannot start."""
    with tempfile.TemporaryDirectory() as folder:
        env = {name: folder for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")}
        options = {"env": os.environ | env, "capture_output": True, "timeout": 30}
        try:
            started = subprocess.run([CONTROL, "-d"], **options).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            started = False
        try:
            yield env if started else None
        finally:
            if started:
                subprocess.run([CONTROL], input=b"quit\n", **options)


def main() -> None:
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
    print(f"{'ranks':>5} {'MPS':>4} {'single, images/s':>18} {'ddp, images/s':>18}")
    for name, daemon in (("no", contextlib.nullcontext({})), ("yes", start_mps())):
        with daemon as env:
            if env is None:
                return print(f"MPS is not possible here: {CONTROL} is missing or does not start")
            for ranks in (1, 2, 4):
                rates = [
                    measure(ranks, method, {"CUDA_VISIBLE_DEVICES": gpu, **env})
                    for method in ("single", "ddp")
                ]
                print(f"{ranks:5} {name:>4} {rates[0]:>18} {rates[1]:>18}", flush=True)


if __name__ == "__main__":
    main()
