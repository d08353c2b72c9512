"""Does a test notice when one place of the package is wrong? `python tests/audits/mutants_of_package.py costs --count 200`

Changes one place in the syntax tree of a file (tests/audits/mutants.py says how), and runs the tests of that room against it, each in a
process of its own. Prints those that no test noticed, to be read: each changes nothing that counts, or becomes a test. A room
whose tests need ranks is changed in a copy of the package, which they import (a minute for each, not seconds);
docs/checks_by_mutants.md says what was read.
"""

import argparse
import ast
import importlib.abc
import importlib.util
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from difflib import unified_diff
from pathlib import Path

import matplotlib.pyplot  # noqa: F401  once, for all of the processes
import pytest
import scipy.optimize  # noqa: F401
from mutants import mutant, places

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "pi2zero"
COURSE = ROOT / "course" / "src" / "pi2zero_course"
LONGEST = 120  # s of one mutant
ROOMS = {  # the folder, and the tests' files
    "costs": (
        "costs",
        "costs collectives_costs zero_costs pipelines plan plan_by_hand plan_edges scaling",
    ),
    "blanks": ("checks/blanks", "blanks"),
    "framework": ("checks/framework", "checks_framework checks_allreduce"),
}
LABS = (
    "pi",
    "allreduce",
    "data_parallel",
    "zero_memory",
    "summarization",
    "pipeline",
    "tensor_and_space",
)
ROOMS |= {lab: (f"checks/{lab}", f"checks_{lab}") for lab in LABS}
ON_RANKS = {"framework", *LABS}  # other processes than the tests'
ANOTHER_NAME = re.compile(
    r"[a-zA-Z_]\w* becomes [a-zA-Z_]\w*"
)  # most of all changes, and easily noticed: few are taken
ELSEWHERE = "not a_file_that_is_not_there"  # asks another process, which has no mutant


def package_of(path):
    return COURSE if path.is_relative_to(COURSE) else SRC


class Changed(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Gives one module another text."""

    def __init__(self, path, text):
        parts = path.relative_to(package_of(path).parent).with_suffix("").parts
        self.name, self.path, self.text = ".".join(parts), str(path), text

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name == self.name else None

    def get_filename(self, fullname):
        return self.path

    def get_data(self, path):
        return self.text.encode()

    def path_stats(self, path):
        raise OSError  # nothing compiled is taken or kept


class Bare(ast.NodeTransformer):
    """Without docstrings: no test reads them."""

    def visit_Expr(self, node):
        return (
            ast.Pass()
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            else node
        )


def tried(path, text, tests):
    """What the tests say to a file with this text: noticed, NOT NOTICED, or time (it never ended)."""
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1), os.dup2(quiet, 2)
        os.setpgid(0, 0)
        signal.alarm(LONGEST)
        sys.meta_path.insert(0, Changed(path, text))
        os._exit(
            pytest.main(
                ["-x", "-q", "-p", "no:cacheprovider", "-m", "not long", "-k", ELSEWHERE, *tests]
            )
        )
    _, status = os.waitpid(child, 0)
    return (
        "time" if os.WIFSIGNALED(status) else "noticed" if os.WEXITSTATUS(status) else "NOT NOTICED"
    )


def tried_on_ranks(path, text, tests):
    """The same, in a copy of the package."""
    with tempfile.TemporaryDirectory() as folder:
        package = package_of(path)
        shutil.copytree(package, Path(folder) / package.name)
        (Path(folder) / path.relative_to(package.parent)).write_text(text)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": folder},
                capture_output=True,
                timeout=5 * LONGEST,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "time"
    return "noticed" if done.returncode else "NOT NOTICED"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so many")
    args = parser.parse_args()
    folder, words = ROOMS[args.room]
    tests = [str(ROOT / "tests" / f"test_{word}.py") for word in words.split()]
    found, kept, chance = [], {}, random.Random(args.seed)
    say = tried_on_ranks if args.room in ON_RANKS else tried
    for path in sorted(((COURSE if folder.startswith("checks") else SRC) / folder).rglob("*.py")):
        if path.stem.endswith("on_ranks"):  # runs in other processes, which have no mutant
            continue
        kept[path] = ast.unparse(Bare().visit(ast.parse(path.read_text())))
        found += [
            (path, *place)
            for place in places(kept[path])
            if not ANOTHER_NAME.fullmatch(place[0]) or chance.random() < 0.05
        ]
    chance.shuffle(found)
    assert say(*next(iter(kept.items())), tests) == "NOT NOTICED", "the tests fail without a mutant"
    said, start = Counter(), time.monotonic()
    for path, what, *place in found[: args.count]:
        if time.monotonic() - start > args.seconds:
            break
        if (text := mutant(kept[path], *place)) == kept[path]:
            continue
        word = say(path, text, tests)
        said[word] += 1
        if word == "NOT NOTICED":
            lines = unified_diff(kept[path].splitlines(), text.splitlines(), lineterm="", n=1)
            print(
                f"--- {path.relative_to(ROOT)}: {what}",
                *[line for line in lines if line[:3] not in ("---", "+++")],
                sep="\n",
                flush=True,
            )
    print(
        f"{args.room}: {sum(said.values())} of {len(found)} mutants: {dict(said)}; {time.monotonic() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
