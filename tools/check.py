"""`make test`: every check of the kit, one after another, with a line for each at the end. Names as arguments choose some.

First comes what needs no compiled Horovod and no DeepSpeed operators, which set-up builds in the background. All steps run,
also after a failure, so that one run tells everything. A step that takes more than its budget (budgets.toml) is reported.

Tests that fail run once more, alone: on a busy machine one of two thousand fails now and then that waits for real processes.
What passes then is named at the end as unsteady, and is to be mended; what fails twice has failed.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import budgets
import psutil

ROOT = Path(__file__).resolve().parents[1]
PY = sys.executable
CODE = ["src", "course", "tests", "tools", "scripts", "benchmarks", "slides", "hub", "site"]

PX_CELLS = ["--nbqa-process-cells", "px"]
SLOWEST = "--durations=20"
PYTEST = [PY, "-m", "pytest", "-q", "--tb=short", SLOWEST, "--durations-min=0.5"]
PACKAGE = [
    *PYTEST,
    "--dist=loadfile",
    "--no-loadscope-reorder",
    "--ignore=tests/faults",
    "--ignore=tests/browser",
]
STEPS = {
    "bytecode": [
        [PY, "-m", "pi2zero.built.bytecode"]
    ],  # else each of a thousand processes may compile torch for itself
    "lint": [
        [PY, "-m", "ruff", "check", *CODE, "notebooks", "solutions"],
        [PY, "-m", "ruff", "format", "--check", *CODE],
        # ruff itself passes over %%px cells; names may come from earlier cells on the ranks (F821, F811)
        [
            PY,
            "-m",
            "nbqa",
            "ruff check --select E9,F --ignore F821,F811,F704,F841",
            "notebooks",
            "solutions",
            *PX_CELLS,
        ],
    ],
    "labs": [[PY, "tools/labs.py", "--check"]],
    "fast": [
        [*PACKAGE, "-n3", "-m", "not long and not slow"]
    ],  # three at a time: they wait for processes now and then
    "built": [[PY, "-m", "pi2zero", "built", "--wait"]],
    "ranks": [[*PACKAGE, "-n3", "-m", "long and not slow"]],
    "faults": [[*PYTEST, "-n3", "--dist=loadfile", "-m", "not slow"]],
    "browser": [[*PYTEST, "-n2", "--dist=loadfile", "-m", "not slow"]],
    "notebooks": [[PY, "tools/nbval_report.py"]],
    "hosts": [[PY, "tools/hosts.py", "--", *PYTEST]],
}
WANT_BUILT = [*STEPS][
    [*STEPS].index("built") + 1 :
]  # while Horovod is compiled, tests of theirs would be skipped
ASKED_FOR = {"hosts"}  # runs if it is named (or by `make cluster-test`): nine minutes of its own
# Each pair of hosts is a world of its own: three of them at a time keep two cores 91 % busy. The first lane has what is left.
MORE_LANES = {
    "hosts": [
        ["tests/several_hosts/test_notebooks.py"],
        ["tests/several_hosts/test_slurm.py", "tests/several_hosts/test_batch_scripts.py"],
    ]
}
# Steps of one command of pytest's, and where their tests lie
TESTS = {
    "fast": ["tests"],
    "ranks": ["tests"],
    "faults": ["tests/faults"],
    "browser": ["tests/browser"],
    "notebooks": ["notebooks", "solutions"],
    "hosts": ["tests/several_hosts"],
}
TOO_MANY = 12  # failures: no chance, and a second try would only take time
CACHE = ROOT / "build" / "pytest"


class Done(NamedTuple):
    """A step that is over. busy: % of all processors' time that was not idle; the rest it waited, and could lose."""

    good: bool
    unsteady: list  # passed only at the second try
    seconds: float
    busy: float


def run(name):
    """Run all commands of a step."""
    start, good, unsteady = time.monotonic(), True, []
    psutil.cpu_percent()  # the next one counts from here
    print(f"\n=== {name}", flush=True)
    for command in STEPS[name]:
        begin = time.monotonic()
        if name in TESTS:
            passed, unsteady = tests(name, command, TESTS[name])
        else:
            passed = subprocess.run(command, cwd=ROOT).returncode == 0
        good = good and (
            passed or name == "built"
        )  # what could not be built is skipped by the tests that need it
        if len(STEPS[name]) > 1:
            print(f"{time.monotonic() - begin:.1f} s: {' '.join(command[2:4])}", flush=True)
    return Done(good, unsteady, time.monotonic() - start, psutil.cpu_percent())


def tests(name, command, places):
    """Whether the tests of a step passed, and those that did so only at the second try. places: files or folders of tests."""
    more = MORE_LANES.get(name, [])
    lanes = [[*places, *(f"--ignore={place}" for lane in more for place in lane)], *more]
    with ThreadPoolExecutor(len(lanes)) as pool:
        tried = list(
            pool.map(lambda number: first_try(name, command, lanes, number), range(len(lanes)))
        )
    names = sorted({test for _, failed in tried for test in failed})
    if any(status and not failed for status, failed in tried) or len(names) > TOO_MANY:
        return False, []
    if not names:
        return True, []
    print(f"\n=== {name}, once more, alone: {', '.join(names)}", flush=True)
    alone = [
        *command,
        f"--override-ini=cache_dir={CACHE / name}",
        *(["-n0"] if name != "notebooks" else []),
    ]
    passed = subprocess.run([*alone, *names], cwd=ROOT).returncode == 0
    return passed, names if passed else []


def first_try(name, command, lanes, number):
    """(pytest's status of a lane, the tests that failed in it; none if it ended for another reason)."""
    cache, places = CACHE / name / str(number), lanes[number]
    shutil.rmtree(cache, ignore_errors=True)
    command = [*command, f"--override-ini=cache_dir={cache}", *places]
    if len(lanes) > 1:  # side by side: each one's words in one piece, when it is over
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        print(f"\n--- {name}: {' '.join(places)}\n{done.stdout}", flush=True)
    else:
        done = subprocess.run(command, cwd=ROOT)
    failed = cache / "v" / "cache" / "lastfailed"
    if done.returncode != 1 or not failed.exists():  # 1: tests ran, and some failed
        return done.returncode, []
    names = json.loads(failed.read_text())
    if name == "notebooks":
        names = {test.split("::")[0] for test in names}  # whole: a cell needs those before it
    return done.returncode, names


def over(what, seconds, budget):
    """Says it if that took more than its budget."""
    if seconds > budget:
        print(
            f"{what}: {seconds:.0f} s, over its {budget} s in tools/budgets.toml. Was the machine idle? Then make it shorter."
        )


def main():
    names = sys.argv[1:] or [name for name in STEPS if name not in ASKED_FOR]
    if unknown := set(names) - set(STEPS):
        sys.exit(f"There is no step {', '.join(sorted(unknown))}. Steps: {', '.join(STEPS)}.")
    if set(WANT_BUILT) & set(names) and "built" not in names:
        names = ["built", *names]
    os.environ.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # the kit's own modules and its tests are read a thousand times, too
    os.environ["PI2ZERO_SCOPE"] = (
        f"check-{os.getpid()}"  # `reset` in this clone and the checks leave each other alone
    )
    results = {}
    for name in names:
        with mock.patch.dict(
            os.environ, {} if name == "notebooks" else budgets.SHARED_CORES
        ):  # there each says it for itself
            results[name] = run(name)
    print("\n=== summary")
    for name, done in results.items():
        took = (
            f"{done.seconds:6.0f} s of {budgets.STEPS[name]:4} s, processors {done.busy:3.0f}% busy"
        )
        print(f"{name:<10} {'passed' if done.good else 'FAILED':<7} {took}")
    for name, done in results.items():
        for test in done.unsteady:
            print(f"UNSTEADY {test}: failed at first, passed alone.")
        over(name, done.seconds, budgets.STEPS[name])
    total = sum(done.seconds for done in results.values())
    over("all steps", total, budgets.TOTAL["all"])
    without = sum(done.seconds for name, done in results.items() if name != "notebooks")
    over("all but the notebooks", without, budgets.TOTAL["without_notebooks"])
    failed = sum(not done.good for done in results.values())
    print(f"steps: {len(results) - failed} passed, {failed} failed; {total:.0f} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
