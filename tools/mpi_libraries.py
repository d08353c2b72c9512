#!/usr/bin/env python
"""`make mpi-libraries`: run what notebooks 02, 03 and 05 need under each MPI library, and write docs/mpi_libraries.md's table.

Arguments choose libraries (openmpi5 openmpi4 mpich) and rows (02 03 05); the rest of the table stays as it was. What cannot be
had here is left out, and said. Horovod is compiled for each (some minutes, once); where it cannot be, its tests are not run.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from pathlib import Path

from mpi_environments import ROOT, TITLES, variables

PAGE = ROOT / "docs" / "mpi_libraries.md"
TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end of table -->)", re.DOTALL)
COLOURS = re.compile(r"(?:\x1b|#x1B)\[[\d;]*m")
STORE = (
    ROOT / "build" / "mpi_libraries"
)  # what was found under each library, when it was last tried
LIMIT = 1200  # s for one row of one library
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
NBVAL = ["tools/compare_notebooks.py", "--timeout", "60"]
ROWS = {
    "02: `scripts/cpi.py`, by mpirun and spawned": [*PYTEST, "tests/scripts/test_scripts.py"],
    "02: the notebook, cell by cell": [*NBVAL, "notebooks/02_mpi_pi.ipynb"],
    "03: the ring on 1 to 5 ranks": [*PYTEST, "tests/notebooks/test_collectives.py"],
    "03: `scripts/allreduce_bench.py`": [*PYTEST, "tests/scripts/test_collectives_bench.py"],
    "03: the notebook, cell by cell": [*NBVAL, "notebooks/03_collectives.ipynb"],
    "05: `scripts/train_horovod.py` and others": [*PYTEST, "tests/scripts/test_horovod.py"],
    "05: the notebook, cell by cell": [*NBVAL, "notebooks/05_horovod.ipynb"],
}


def environment(library):
    """(its Python, "") or (None, why it cannot be had)."""
    if library == "openmpi5":
        return Path(sys.executable), ""
    command = [sys.executable, ROOT / "tools" / "mpi_environments.py", library]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return None, " ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-2:])
    subprocess.run([*command, "--horovod"], stdout=subprocess.DEVNULL)
    return Path(done.stdout.strip().rpartition(" ")[2]), ""


def run(python, words):
    """(passed, of, [what failed, and why])."""
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        env = variables(python) | {
            "PYTEST_ADDOPTS": f"--junitxml={report.name} -o junit_family=xunit2"
        }
        try:
            subprocess.run(
                [python, *words], cwd=ROOT, env=env, timeout=LIMIT, stdout=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            return 0, 1, [f"not over after {LIMIT} s"]
        cases = xml.parse(report.name).getroot().iter("testcase")  # noqa: S314  (pytest's own report)
        return counted([case for case in cases if case.find("skipped") is None])


def counted(cases):
    failed = [
        case for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    return (
        len(cases) - len(failed),
        len(cases),
        [f"{case.get('name')}: {why(case)}" for case in failed],
    )


def why(case):
    """The first words of a failure that say something."""
    found = case.find("failure")
    text = (case.find("error") if found is None else found).get("message", "")
    words = " ".join(COLOURS.sub("", text).split())
    return f"... {words[-160:]}" if "Traceback:" in words else words[:160]  # of a cell, its error


def version(python):
    words = "from pi2zero.mpi import mpi_library; print(mpi_library())"
    return subprocess.run(
        [python, "-c", words], env=variables(python), capture_output=True, text=True
    ).stdout.strip()


def table():
    """The page's table, and under it what failed, from what is stored of each library."""
    found = [
        json.loads(path.read_text())
        for library in TITLES
        if (path := STORE / f"{library}.json").exists()
    ]
    head = ["", *(told["version"] for told in found)]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in ROWS:
        lines.append(
            f"| {' | '.join([row, *(shown(*told['rows'].get(row, (0, 0))[:2]) for told in found)])} |"
        )
    lines.append(f"\nA figure counts tests or cells. {' '.join(told['when'] for told in found)}\n")
    for told in found:
        bad = [
            f"- {row}: {failure}"
            for row, (_, _, failures) in told["rows"].items()
            for failure in failures
        ]
        lines += [f"What failed under {told['version']}:\n", *bad, ""] if bad else []
    return "\n".join(lines) + "\n"


def shown(passed, of):
    if not of:
        return "not run"
    return f"all {of}" if passed == of else f"**{passed} of {of}**"


def main():
    STORE.mkdir(parents=True, exist_ok=True)
    asked = sys.argv[1:]
    for library in [name for name in TITLES if name in asked] or TITLES:
        python, words = environment(library)
        if not python:
            print(f"{TITLES[library]}: {words}", flush=True)
            continue
        stored = STORE / f"{library}.json"
        for row in [row for row in ROWS if row[:2] in asked] or ROWS:
            rows = json.loads(stored.read_text())["rows"] if stored.exists() else {}
            rows[row] = run(python, ROWS[row])
            print(
                f"{TITLES[library]}, {row}: {shown(*rows[row][:2])}",
                *rows[row][2],
                sep="\n  ",
                flush=True,
            )
            when = f"{version(python)}: {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}."
            stored.write_text(
                json.dumps({"version": version(python), "when": when, "rows": rows}, indent=1)
            )
    PAGE.write_text(TABLE.sub(lambda _: table(), PAGE.read_text()))


if __name__ == "__main__":
    main()
