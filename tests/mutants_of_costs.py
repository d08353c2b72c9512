"""Does a test notice when one place of `pi2zero.costs` is wrong? `python tests/mutants_of_costs.py --count 200`

Changes one place in the syntax tree of a file (tests/mutants.py says how), and runs the tests of costs against it, each in a
process of its own. Prints those that no test noticed, to be read: each changes nothing that counts, or becomes a test.
"""

import argparse
import ast
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import time
from collections import Counter
from difflib import unified_diff
from pathlib import Path

import matplotlib.pyplot  # noqa: F401  once, for all of the processes
import pytest
import scipy.optimize  # noqa: F401
from mutants import mutants

ROOT = Path(__file__).resolve().parents[1]
COSTS = ROOT / "src" / "pi2zero" / "costs"
LONGEST = 120  # s of one mutant
WORDS = ("test_costs", "test_collectives_costs", "test_zero_costs", "test_pipelines", "test_plan", "test_scaling")
TESTS = [str(ROOT / "tests" / f"{word}.py") for word in WORDS]
ELSEWHERE = "not a_file_that_is_not_there"  # asks another process, which has no mutant


class Changed(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Gives one module another text."""

    def __init__(self, path, text):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        self.name, self.path, self.text = ".".join(parts), str(path), text

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name == self.name else None

    def get_filename(self, fullname):
        return self.path

    def get_data(self, path):
        return self.text.encode()

    def path_stats(self, path):
        raise OSError  # nothing compiled is taken or kept


def tried(path, text):
    """What the tests say to a file with this text: noticed, NOT NOTICED, or time (it never ended)."""
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1), os.dup2(quiet, 2)
        os.setpgid(0, 0)
        signal.alarm(LONGEST)
        sys.meta_path.insert(0, Changed(path, text))
        os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-m", "not long", "-k", ELSEWHERE, *TESTS]))
    _, status = os.waitpid(child, 0)
    return "time" if os.WIFSIGNALED(status) else "noticed" if os.WEXITSTATUS(status) else "NOT NOTICED"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so many")
    args = parser.parse_args()
    found, kept = [], {}
    for path in sorted(COSTS.rglob("*.py")):
        kept[path] = ast.unparse(ast.parse(path.read_text()))
        if path.name != "__init__.py":
            found += [(path, what, text) for what, text in mutants(path.read_text()) if text != kept[path]]
    random.Random(args.seed).shuffle(found)
    assert tried(path, kept[path]) == "NOT NOTICED", "the tests fail without a mutant"
    words, start = Counter(), time.monotonic()
    for path, what, text in found[: args.count]:
        if time.monotonic() - start > args.seconds:
            break
        word = tried(path, text)
        words[word] += 1
        if word == "NOT NOTICED":
            lines = unified_diff(kept[path].splitlines(), text.splitlines(), lineterm="", n=1)
            print(
                f"--- {path.relative_to(ROOT)}: {what}",
                *[line for line in lines if line[:3] not in ("---", "+++")],
                sep="\n",
                flush=True,
            )
    print(f"{sum(words.values())} of {len(found)} mutants: {dict(words)}; {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
