"""`make test`, `make test-rest` and `make test-all`: lint, the tests, and the compared notebooks.

Every step runs, also after a failure, so that one run shows everything. Tests that fail (up to
MAX_RETRIED) run a second time, alone: on a busy machine a test that waits for real processes can
fail. One that passes only then is printed with its first error; more than MAX_UNSTEADY of them
fail the run.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import failure_log

ROOT = Path(__file__).resolve().parents[1]
PY = sys.executable
RESULTS = ROOT / "build" / "pytest"
MAX_RETRIED = 12  # more failures are no accident, and a second try would only take time
MAX_UNSTEADY = 2
# Open MPI's waiting ranks spin. These settings let them sleep, so that several tests can share
# the cores (two workers with labs' checks: 185 s without, 92 s with them).
SHARED_CORES = {
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_threads_pthreads_yield_strategy": "nanosleep",
}
CODE = ["src", "course", "tests", "tools", "scripts", "benchmarks", "slides", "hub", "site"]
SHORT_WAY = [  # README, "From π to ZeRO, the short way"
    "notebooks/09_zero.ipynb",
    "solutions/04_zero_memory.ipynb",
    "notebooks/06_ddp.ipynb",
    "notebooks/03_collectives.ipynb",
    "notebooks/02_mpi_pi.ipynb",
    "notebooks/00_start_here.ipynb",
]
OTHERS = sorted(
    str(path.relative_to(ROOT))
    for folder in ("notebooks", "solutions")
    for path in (ROOT / folder).glob("*.ipynb")
    if str(path.relative_to(ROOT)) not in SHORT_WAY
)
LINT = [
    ["ruff", "check", *CODE, "notebooks", "solutions"],
    ["ruff", "format", "--check", *CODE],
    # ruff passes over %%px cells; names in them may come from earlier cells on the ranks
    [
        *("nbqa", "ruff check --select E9,F --ignore F821,F811,F704,F841"),
        *("notebooks", "solutions", "--nbqa-process-cells", "px"),
    ],
]
PYRIGHT = "basedpyright==1.40.2"  # 300 MB with its node: not in the workshop's environment
PYTEST = [
    PY,
    str(ROOT / "tools" / "failure_log.py"),
    "-q",
    "--tb=short",
    "--durations=15",
    "--durations-min=1",
]
WORKERS = ["-n3", "--dist=loadfile", "--no-loadscope-reorder"]  # they wait for processes, too
# Three worlds of hosts at a time keep two cores busy.
HOSTS = [
    ["tests/several_hosts/test_notebooks.py"],
    ["tests/several_hosts/test_slurm.py", "tests/several_hosts/test_batch_scripts.py"],
]
TIERS = {
    "test": ("not long or core", SHORT_WAY),
    "rest": ("long and not core and not nightly", OTHERS),
    "all": ("not nightly", [*OTHERS, *SHORT_WAY]),
}
STEPS = {
    "test": ["bytecode", "lint", "built", "tests", "notebooks"],
    "rest": ["built", "tests", "notebooks", "hosts"],
    "all": ["bytecode", "lint", "built", "tests", "notebooks", "hosts"],
}
MORE = (
    "`make test-all` adds the other tests that start ranks, all injected faults, browsers, "
    "the other notebooks, several hosts and Slurm: about an hour more."
)


@dataclass
class Result:
    """What came of a step."""

    passed: bool
    counts: dict[str, int] = field(default_factory=dict)  # tests or cells, by outcome
    unsteady: dict[str, str] = field(default_factory=dict)  # first error by test
    seconds: float = 0.0


def run(*command: str) -> bool:
    """Run a Python module or a file; whether it succeeded."""
    module = [] if command[0].endswith(".py") else ["-m"]
    return subprocess.run([PY, *module, *command], cwd=ROOT).returncode == 0


def run_tests(name: str, commands: list[list[str]], retry: list[str]) -> Result:
    """Run pytest's commands at the same time, and once more what failed. retry: for that."""
    with ThreadPoolExecutor(len(commands)) as pool:
        numbers = range(len(commands))
        shown = [len(commands) == 1] * len(commands)
        runs = list(pool.map(run_pytest, [f"{name}-{i}" for i in numbers], commands, shown))
    counts, errors = {}, {}
    for _, result in runs:
        for test, error in result["errors"].items():
            # A cell needs those before it: its whole notebook counts, and runs again.
            errors.setdefault(test.split("::")[0] if ".ipynb" in test else test, error)
        for outcome, count in result["outcomes"].items():
            counts[outcome] = counts.get(outcome, 0) + count
    failed = [(code, result) for code, result in runs if code != 0]
    if not failed:
        return Result(True, counts)
    lost = any(code != 1 or not result["errors"] for code, result in failed)  # 1: tests failed
    if lost or len(errors) > MAX_RETRIED:
        return Result(False, counts)
    print(f"\n=== {name}, a second time, alone: {', '.join(errors)}", flush=True)
    code, _ = run_pytest(f"{name}-again", [*retry, *errors])
    return Result(code == 0, counts, errors if code == 0 else {})


def run_pytest(name: str, command: list[str], shown: bool = True) -> tuple[int, dict]:
    """(its exit code, what failure_log.py wrote). shown: its output as it comes, not at its end."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    log = RESULTS / f"{name}.json"
    log.unlink(missing_ok=True)
    env = os.environ | {failure_log.LOG: str(log)}
    cache = [f"--override-ini=cache_dir={RESULTS / name}"]
    pipe = None if shown else subprocess.PIPE
    done = subprocess.run(
        [*command, *cache], cwd=ROOT, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True
    )
    if not shown:
        print(f"\n--- {' '.join(command)}\n{done.stdout}", flush=True)
    empty = {"errors": {}, "outcomes": {}}
    return done.returncode, json.loads(log.read_text()) if log.exists() else empty


def check_types() -> bool:
    """Whether pyright finds no error in the plumbing. Without a network it may not be had."""
    pyright = [Path(PY).with_name("uv"), "tool", "run", "--quiet", PYRIGHT]
    if subprocess.run([*pyright, "--version"], stdout=subprocess.DEVNULL).returncode:
        print("The types were not checked: pyright could not be installed.")
        return True
    return subprocess.run([*pyright, "--pythonpath", PY], cwd=ROOT).returncode == 0


def run_step(name: str, tier: str) -> Result:
    marks, books = TIERS[tier]
    if name == "bytecode":  # otherwise each of a thousand processes may compile torch for itself
        return Result(run("tools/bytecode.py"))
    if name == "lint":
        passed = [run(*command) for command in LINT]
        passed += [run("tools/labs.py", "--check"), run("tools/prose.py")]
        return Result(all([*passed, check_types()]))
    if name == "built":  # tests that need what could not be built are skipped
        run("pi2zero", "build", "--wait")
        return Result(True)
    if name == "tests":
        selected = [*PYTEST, "-m", marks]
        return run_tests(name, [[*selected, *WORKERS, "tests"]], [*selected, "-n0"])
    if name == "notebooks":
        command = [PY, "tools/compare_notebooks.py"]
        return run_tests(name, [[*command, *books]], [*command, "--workers=1"])
    command = [PY, "tools/hosts.py", "--", *PYTEST, "-m", "not nightly"]
    ignored = [f"--ignore={path}" for paths in HOSTS for path in paths]
    commands = [[*command, "tests/several_hosts", *ignored]]
    return run_tests(name, commands + [[*command, *paths] for paths in HOSTS], command)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("tier", choices=list(TIERS), help="rest: what is in all, but not in test")
    parser.add_argument("steps", nargs="*", help="only these: bytecode lint built tests ...")
    options = parser.parse_args()
    if unknown := set(options.steps) - set(STEPS["all"]):
        parser.error(f"no step {', '.join(sorted(unknown))}; steps: {', '.join(STEPS['all'])}")
    # The kit's own modules and tests are imported a thousand times, too.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # `reset` in this clone and the tests leave each other alone.
    os.environ["PI2ZERO_SCOPE"] = f"check-{os.getpid()}"
    os.environ.setdefault("PI2ZERO_TIMING", "0")  # several tests run at the same time
    os.environ.update(SHARED_CORES)
    start, results = time.monotonic(), {}
    for name in options.steps or STEPS[options.tier]:
        begin = time.monotonic()
        print(f"\n=== {name}", flush=True)
        results[name] = run_step(name, options.tier)
        results[name].seconds = time.monotonic() - begin
    sys.exit(summarize(options.tier, results, time.monotonic() - start))


def summarize(tier: str, results: dict[str, Result], seconds: float) -> int:
    """Print what came of each step, and one line about all; the exit code."""
    print("\n=== summary")
    for name, result in results.items():
        counts = ", ".join(f"{count} {outcome}" for outcome, count in result.counts.items())
        verdict = "passed" if result.passed else "FAILED"
        print(f"{name:<10} {verdict}  {result.seconds:5.0f} s  {counts}")
    unsteady = {test: why for result in results.values() for test, why in result.unsteady.items()}
    for test, error in unsteady.items():
        print(f"UNSTEADY {test} passed only at the second try. Its first error: {error}")
    if too_many := len(unsteady) > MAX_UNSTEADY:
        print(f"FAILED: {len(unsteady)} passed only at the second try; {MAX_UNSTEADY} may.")
    failed = [name for name, result in results.items() if not result.passed]
    passed = sum(result.counts.get("passed", 0) for result in results.values())
    verdict = (
        f"FAILED in {', '.join(failed) or 'unsteady tests'}" if failed or too_many else "passed"
    )
    more = f" {MORE}" if tier == "test" else ""
    minutes = f"{seconds / 60:.1f} minutes"
    print(
        f"make test{'' if tier == 'test' else f'-{tier}'}: {verdict}; {passed} tests and cells "
        f"passed in {minutes}.{more}",
        flush=True,
    )
    return 1 if failed or too_many else 0


if __name__ == "__main__":
    main()
