"""`make test`: every check of the kit, one after another, with a line for each at the end. Names as arguments choose some;
"fast" is the part of "tests" that starts no ranks.

All steps run, also after a failure, so that one run tells everything.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PY = sys.executable
CODE = ["src", "tests", "tools", "scripts", "benchmarks", "slides"]

PX_CELLS = ["--nbqa-process-cells", "px"]
PACKAGE = ["tests", "--ignore=tests/faults", "--ignore=tests/browser"]
STEPS = {
    "lint": [
        [PY, "-m", "ruff", "check", *CODE, "notebooks", "solutions"],
        [PY, "-m", "ruff", "format", "--check", *CODE],
        # ruff itself passes over %%px cells; names may come from earlier cells on the ranks (F821, F811)
        [PY, "-m", "nbqa", "ruff check --select E9,F --ignore F821,F811,F704", "notebooks", "solutions", *PX_CELLS],
    ],
    "labs": [[PY, "tools/labs.py", "--check"]],
    # Most of these wait for processes, so two at a time; what measures seconds (faults) runs alone.
    "tests": [[PY, "-m", "pytest", "-q", "-n2", "--dist=loadfile", *PACKAGE]],
    "fast": [[PY, "-m", "pytest", "-q", "-n2", "--dist=loadfile", "-m", "not long", *PACKAGE]],
    "notebooks": [[PY, "tools/nbval_report.py"]],
    "faults": [[PY, "-m", "pytest", "-q", "tests/faults"]],
    "browser": [[PY, "-m", "pytest", "-q", "-m", "not slow", "tests/browser"]],
}


def run(name):
    """Whether all commands of a step passed, and its seconds."""
    start = time.monotonic()
    print(f"\n=== {name}", flush=True)
    good = all([subprocess.run(command, cwd=ROOT).returncode == 0 for command in STEPS[name]])
    return good, time.monotonic() - start


def main():
    names = sys.argv[1:] or [name for name in STEPS if name != "fast"]  # "tests" has them all
    if unknown := set(names) - set(STEPS):
        sys.exit(f"There is no step {', '.join(sorted(unknown))}. Steps: {', '.join(STEPS)}.")
    os.environ["PI2ZERO_SCOPE"] = f"check-{os.getpid()}"  # `reset` in this clone and the checks leave each other alone
    results = {name: run(name) for name in names}
    print("\n=== summary")
    for name, (good, seconds) in results.items():
        print(f"{name:<10} {'passed' if good else 'FAILED':<7} {seconds:6.0f} s")
    failed = sum(not good for good, _ in results.values())
    print(f"steps: {len(results) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
