"""`make coverage`: which lines and branches of the package its tests run, in kernels and on ranks, too.

Steps of tools/check.py or files of tests as arguments (default: tests, and hosts where it can run). `--add` keeps
what earlier ones have shown: so it can be measured in pieces. coverage.py lies in build/coverage/, not among the kit's pins; each
Python process that the tests start finds it there. What each file has, and which lines are left, comes into
build/coverage/report.txt, and into report.json; an error at the end says that less than WANTED percent of the lines or of the
branches have run.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import hosts
from setup_uv import pip_settings, uv_environment

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "coverage"
SITE = FOLDER / "site"
VERSION = "7.17.3"
WANTED = 90  # percent, of the lines and of the branches
# A rank ends by a signal, and need not get the time to save what has run on it: it does so now and then.
STARTUP = """import coverage, sys, threading, time
coverage.process_startup()
running = getattr(coverage.process_startup, "coverage", None)  # perhaps begun already
def save():
    while True:
        time.sleep(5)
        running.save()
if running and "ipyparallel.engine" in sys.orig_argv:
    threading.Thread(target=save, daemon=True).start()
"""
# The paths: tests make copies of the kit, in which the same files run.
SETTINGS = f"""[run]
branch = true
parallel = true
source_pkgs = pi2zero, pi2zero_course
data_file = {FOLDER}/data/.coverage
sigterm = true
disable_warnings = no-data-collected, module-not-imported, module-not-measured, trace-changed
[paths]
kit =
    src/pi2zero
    **/src/pi2zero
course =
    course/src/pi2zero_course
    **/course/src/pi2zero_course
[report]
show_missing = true
exclude_also =
    if TYPE_CHECKING
    raise NotImplementedError
"""


def prepare(add):
    """coverage.py and what makes each process count; the environment of the tests. add: keep the data that is there."""
    (FOLDER / "data").mkdir(parents=True, exist_ok=True)
    for old in () if add else (FOLDER / "data").iterdir():
        old.unlink()
    uv = [
        Path(sys.executable).with_name("uv"),
        "pip",
        "install",
        "--quiet",
        "--python",
        sys.executable,
        "--target",
        SITE,
    ]
    settings = uv_environment(pip_settings(sys.executable, os.environ), os.environ)
    subprocess.run([*uv, f"coverage=={VERSION}"], check=True, env=settings)
    (SITE / "sitecustomize.py").write_text(STARTUP)
    (FOLDER / "settings").write_text(SETTINGS)
    return {
        **os.environ,
        "PYTHONPATH": str(SITE),
        "COVERAGE_PROCESS_START": str(FOLDER / "settings"),
    }


def coverage(*words, env):
    command = [sys.executable, "-m", "coverage", *words, "--rcfile", FOLDER / "settings"]
    quiet = {name: value for name, value in env.items() if name != "COVERAGE_PROCESS_START"}
    return subprocess.run(
        list(map(str, command)), cwd=ROOT, env=quiet, stdout=subprocess.PIPE, text=True
    )


def main():
    default = ["tests", *["hosts"] * (not hosts.what_is_missing())]
    names = [word for word in sys.argv[1:] if word != "--add"] or default
    env = prepare(add="--add" in sys.argv)
    files = [name for name in names if "/" in name]
    if steps := [name for name in names if name not in files]:
        subprocess.run([sys.executable, "tools/check.py", "all", *steps], cwd=ROOT, env=env)
    if files:
        lanes = ["-n2", "--dist=loadfile", "--no-loadscope-reorder"]
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *lanes, "-m", "not nightly", *files],
            cwd=ROOT,
            env=env,
        )
    coverage("combine", "--append", env=env)
    report = coverage("report", env=env).stdout
    coverage("json", "-q", "-o", FOLDER / "report.json", env=env)
    totals = json.loads((FOLDER / "report.json").read_text())["totals"]
    parts = {
        "lines": ("covered_lines", "num_statements"),
        "branches": ("covered_branches", "num_branches"),
    }
    shares = {kind: 100 * totals[ran] / totals[all_] for kind, (ran, all_) in parts.items()}
    report += "".join(f"{share:.1f} % of the {kind}\n" for kind, share in shares.items())
    (FOLDER / "report.txt").write_text(report)
    print(report)
    sys.exit(min(shares.values()) < WANTED)


if __name__ == "__main__":
    main()
