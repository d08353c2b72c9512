"""`make gpu`: try every GPU path that this node allows, in ten minutes, and write what came of it into docs/gpu/.

Paths run side by side where there are cores for it; those that measure run by themselves, at the end.

Runs on any Python 3.11 or later that has torch, whoever installed it; what a path needs and is not here makes it "not possible
here". Where torch sees no GPU it says so, and writes nothing.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gpu_cases import PROGRAMS, ROOT, Case, cases, programs

LAST = 25  # lines of a path that failed
HARMLESS = re.compile(r"^\s*$|\*{9}|OMP_NUM_THREADS|it/s\]")  # torchrun's advice, bars
TORCHRUN_ENDS = re.compile(
    r"^E\d{4} .*torch/distributed/elastic/.* failed "
)  # then it says at length that a program has failed
CORES = 3  # for one path, of those that run side by side


@dataclass(frozen=True)
class Outcome:
    case: Case
    state: str  # passed, FAILED, not possible here, not tried
    seconds: float = 0.0
    lines: tuple[str, ...] = ()


def look() -> dict:
    """What this node and this Python have. Ends with a sentence if there is no GPU, or no torch."""
    done = subprocess.run(
        [sys.executable, ROOT / PROGRAMS, "look"], capture_output=True, text=True, env=environment()
    )
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        sys.exit(
            f"make gpu: {sys.executable} cannot load torch and ask for its GPUs ({why}). Another: make gpu PYTHON=/path/python"
        )
    facts = json.loads(done.stdout.splitlines()[-1])
    if not facts["gpus"] and facts["driver"]:
        sys.exit(
            f"make gpu: NVIDIA's driver is here, but torch {facts['versions']['torch']} cannot use its GPU: was this environment "
            "made where there was none? make clean, then make lab, on this machine; or another: make gpu PYTHON=/path/python"
        )
    if not facts["gpus"]:
        sys.exit(
            f"make gpu: there is no GPU here that torch {facts['versions']['torch']} can use. Run it on a GPU node."
        )
    return facts


def environment(**more) -> dict:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    }
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    mpi = {
        f"{family}_ALLOW_RUN_AS_ROOT{more}": "1"
        for family in ("OMPI", "PRTE")
        for more in ("", "_CONFIRM")
    }
    # A rank for each GPU, also where Slurm has given the job one task
    mpi |= {
        "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    # What a program prints stands in its order with what it raises
    return {
        **mpi,
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        **kept,
        "PATH": programs(),
        "PYTHONPATH": path,
        **more,
    }


def run(case: Case, deadline: float) -> Outcome:
    """Run a path until its own limit or the deadline (time.monotonic); nothing of it is left behind."""
    if case.missing:
        return Outcome(case, "not possible here", lines=(case.missing,))
    if (left := deadline - time.monotonic()) < 5:
        return Outcome(case, "not tried", lines=("the time was over",))
    begin, limit, cut = time.monotonic(), min(case.seconds, left), left < case.seconds
    with tempfile.TemporaryFile() as said:
        options = {
            "cwd": ROOT,
            "stdout": said,
            "stderr": subprocess.STDOUT,
            "stdin": subprocess.DEVNULL,
        }
        process = subprocess.Popen(
            case.command, env=environment(**case.environment), start_new_session=True, **options
        )
        try:
            process.wait(limit)
            state = "passed" if process.returncode == 0 else "FAILED"
        except subprocess.TimeoutExpired:
            state = "FAILED"
        finally:
            ended = end(process)
        said.seek(0)
        lines = [
            line.rstrip()
            for line in said.read().decode(errors="replace").splitlines()
            if not HARMLESS.search(line)
        ]
    lines = (
        lines[: next((at for at, line in enumerate(lines) if TORCHRUN_ENDS.match(line)), None)]
        or lines
    )
    if ended:
        state = "not tried" if cut else state
        lines.append(
            "the time was over: " * cut + f"it had not ended after {limit:.0f} s, and was ended"
        )
    return Outcome(
        case,
        state,
        time.monotonic() - begin,
        tuple(lines[-(case.shown if state == "passed" else LAST) :]),
    )


def end(process: subprocess.Popen) -> bool:
    """End a process with all that it has started; whether it still ran. Launchers are asked first: they know their ranks."""
    family = [process.pid, *descendants(process.pid)]
    runs = process.poll() is None
    if runs:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        family += descendants(process.pid)
    for pid in family[1:] if not runs else family:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    return runs


def descendants(pid: int) -> list[int]:
    """All that a process has started, and these in turn (Linux; elsewhere none)."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def report(facts: dict, outcomes: list[Outcome], day: str) -> str:
    """The page."""
    count = {
        state: sum(one.state == state for one in outcomes)
        for state in ("passed", "FAILED", "not possible here", "not tried")
    }
    names = [gpu["name"] for gpu in facts["gpus"]]
    told = [
        f"{names.count(name)} x {name}, {gpu_memory(facts, name):.0f} GB"
        for name in dict.fromkeys(names)
    ]
    rows = {"GPUs": "; ".join(told), "driver, compute mode": facts["driver"] or "not told"}
    rows |= {
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        **facts["versions"],
    }
    page = [
        f"# `make gpu`, {day}: {told[0]}",
        "",
        ", ".join(f"{number} {state}" for state, number in count.items()) + ".",
        "",
    ]
    page += [
        "Written by `make gpu`; see [what these pages are](README.md). No page of this kind is edited by hand.",
        "",
    ]
    page += ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items()), ""]
    page += ["| path | outcome | s | what it said last |", "|---|---|---|---|"]
    for one in outcomes:
        last = one.lines[-1].replace("|", "\\|")[:300] if one.lines else ""
        page.append(f"| {one.case.title} | {one.state} | {one.seconds:.0f} | {last} |")
    for one in outcomes:
        if one.state == "FAILED" or (one.state == "passed" and one.case.shown > 1):
            page += ["", f"## {one.case.title}: {one.state}", "", "```", *one.lines, "```"]
    return "\n".join(page) + "\n"


def gpu_memory(facts: dict, name: str) -> float:
    return next(gpu["bytes"] for gpu in facts["gpus"] if gpu["name"] == name) / 1e9


def run_all(paths: list[Case], deadline: float, at_once: int) -> list[Outcome]:
    """Run them, several at once; in the order given, but those first that may take long, and last, each alone, what measures."""
    outcomes = {}

    def one(path):
        outcomes[path.title] = run(path, deadline)
        print(
            f"{path.title}: {outcomes[path.title].state}, {outcomes[path.title].seconds:.0f} s",
            flush=True,
        )

    with ThreadPoolExecutor(at_once) as pool:
        list(
            pool.map(
                one,
                sorted((path for path in paths if not path.alone), key=lambda path: -path.seconds),
            )
        )
    for path in paths:
        if path.alone:
            one(path)
    return [outcomes[path.title] for path in paths]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="for all paths together (default: 10)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "docs" / "gpu",
        help="where the page is written (default: docs/gpu)",
    )
    at_once = max(1, len(os.sched_getaffinity(0)) // CORES)
    parser.add_argument(
        "--at-once",
        type=int,
        default=at_once,
        help=f"paths side by side (default: a third of the cores, {at_once})",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="WORDS",
        help="only the paths that have one of these in their name",
    )
    args = parser.parse_args()
    deadline = time.monotonic() + 60 * args.minutes - 10
    facts = look()
    paths = [
        path
        for path in cases(facts)
        if not args.only or any(words in path.title for words in args.only)
    ]
    if not paths:
        parser.error(
            f"no path has {' or '.join(map(repr, args.only))} in its name; names are in tools/gpu_cases.py"
        )
    outcomes = run_all(paths, deadline, args.at_once)
    day = datetime.date.today().isoformat()
    kind = re.sub(r"[^a-z0-9]+", "-", facts["gpus"][0]["name"].lower()) + "-some" * bool(args.only)
    page = args.out / f"{day}-{len(facts['gpus'])}x-{kind}.md"
    args.out.mkdir(parents=True, exist_ok=True)
    page.write_text(report(facts, outcomes, f"{day}, {args.at_once} paths side by side"))
    failed = sum(one.state == "FAILED" for one in outcomes)
    print(f"{failed} failed. The page: {page}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
