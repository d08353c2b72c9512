"""Answers that are nearly right, by the thousand: mutants of each lab's right answers, given to
its checks on real ranks.

`python tests/audits/mutants.py pi --count 500` (a lab's name as in tests/checks/answers). A check
has to accept a right result
or to name what is wrong; it never crashes and never hangs. Writes build/mutants/LAB.jsonl; prints
what was accepted as a diff, to
be read: each is right, or becomes a wrong answer. reports/checks_by_mutants.md says what was read.
"""

import argparse
import ast
import contextlib
import difflib
import importlib
import io
import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "helpers"), str(TESTS / "checks")]

import pi2zero  # noqa: E402 - after the path
from pi2zero import RankError  # noqa: E402

RESULTS = TESTS.parent / "build" / "mutants"
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Add, ast.MatMult: ast.Mult, ast.Lt: ast.LtE,
    ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NAMES = {
    "Reduce": "Allreduce", "Allreduce": "Reduce", "reduce": "allreduce", "allreduce": "reduce",
    "gather": "allgather", "Gather": "Allgather", "allgather": "gather", "Send": "Ssend",
    "Isend": "Irecv", "Recv": "Irecv", "send": "ssend", "min": "max", "max": "min", "sum": "max",
    "ceil": "floor", "floor": "ceil", "append": "insert", "zeros": "empty", "SUM": "MAX",
    "MAX": "SUM", "MIN": "MAX", "copy": "view", "all_reduce": "broadcast", "mean": "sum",
    "zero_grad": "step",
}  # fmt: skip


def changes(node, names):
    """(what, {field: value}) for each way in which this node can be wrong. names: the function's
    variables."""
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in OPERATORS:
        yield "operator", {"op": OPERATORS[type(node.op)]()}
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        yield "comparison", {"ops": [OPERATORS[type(node.ops[0])](), *node.ops[1:]]}
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "not", {"value": not node.value}
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        for value in (node.value + 1, node.value - 1, 0, None):
            yield f"{node.value} becomes {value}", {"value": value}
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield "another string", {"value": node.value + "x"}
    elif isinstance(node, ast.Call):
        for at in range(len(node.args)):
            yield "an argument less", {"args": node.args[:at] + node.args[at + 1 :]}
        for at in range(len(node.keywords)):
            yield "a keyword less", {"keywords": node.keywords[:at] + node.keywords[at + 1 :]}
        if len(node.args) > 1:
            yield "arguments swapped", {"args": [node.args[1], node.args[0], *node.args[2:]]}
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield f"{node.attr} becomes {NAMES[node.attr]}", {"attr": NAMES[node.attr]}
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
        for name in sorted(names - {node.id}):
            yield f"{node.id} becomes {name}", {"id": name}
    elif isinstance(node, ast.Slice):
        yield "slice without end", {"upper": None}
        yield "slice without start", {"lower": None}
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield "condition negated", {"test": ast.UnaryOp(ast.Not(), node.test)}
    elif isinstance(node, ast.Return) and node.value is not None:
        yield "returns nothing", {"value": None}
    for field in ("body", "orelse") if not isinstance(node, ast.Module) else ():
        lines = getattr(node, field, None)
        for at in range(len(lines) if isinstance(lines, list) else 0):
            yield "a line less", {field: [*lines[:at], ast.Pass(), *lines[at + 1 :]]}
            if at + 1 < len(lines):
                swapped = [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]
                yield "lines swapped", {field: swapped}


def mutants(source):
    """(what was changed, the text) for each change of one place in a text."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    names = {node.arg for node in nodes if isinstance(node, ast.arg)}
    names |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    kept = ast.unparse(tree)
    for node in nodes:
        for what, fields in list(changes(node, names)):
            before = {name: getattr(node, name) for name in fields}
            for name, value in fields.items():
                setattr(node, name, value)
            text = ast.unparse(ast.fix_missing_locations(tree))
            for name, value in before.items():
                setattr(node, name, value)
            if text != kept:
                yield what, text


def sample(lab, count, seed):
    """(answer, what was changed, the mutant's text): `count` of all, as many for each task as
    there are."""
    by_task = {}
    for answer in lab.answers:
        if not answer.words:
            some = by_task.setdefault(answer.task, [])
            some.extend((answer, *mutant) for mutant in mutants(answer.source))
    for some in by_task.values():
        random.Random(seed).shuffle(some)
    turns = range(max(map(len, by_task.values())))
    mixed = [some[turn] for turn in turns for some in by_task.values() if turn < len(some)]
    return list({mutant[-1]: mutant for mutant in mixed}.values())[:count]


class Ranks:
    """Four ranks that know a lab's check and cells; new ones where a mutant has broken the old
    ones."""

    def __init__(self, lab):
        short = (
            "from pi2zero_course.checks.framework import clock; clock.SECONDS, clock.WALL = 2, 15"
        )
        self.setup, self.cluster, self.fresh = f"{lab.setup}\n{short}", None, True

    def verdict(self, number, code):
        """(accepted, named, to do, or ODD: anything else; what was said)"""
        if self.cluster is None or not self.cluster.runs():
            self.cluster, self.fresh = pi2zero.start(n=4), True
        if self.fresh:
            self.cluster.run(self.setup, timeout=240)
        try:
            with contextlib.redirect_stdout(io.StringIO()) as shown:
                self.cluster.run(code, timeout=60)
            word = "to do" if "is still to do" in shown.getvalue() else "accepted"
            report = ""
        except RankError as error:
            report = error.report
            named = f"Task {number} is not right yet." in report and "Traceback" not in report
            word = "named" if named else "ODD"
        self.fresh = "being restarted" in report
        if self.cluster.runs() and not self.fresh:
            try:
                self.cluster.run("assert MPI.COMM_WORLD.allreduce(1) == 4", timeout=20)
            except RankError as error:
                word, report = "ODD", f"{report}\nafterwards the ranks do not communicate: {error}"
                self.cluster.stop()
        return word, report


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("lab")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    os.environ["PI2ZERO_SITE"] = os.devnull
    lab = importlib.import_module(f"answers.{args.lab}").lab
    ranks, verdicts, slowest = Ranks(lab), Counter(), 0.0
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / f"{args.lab}.jsonl").open("w") as out:
        for answer, what, text in sample(lab, args.count, args.seed):
            start = time.monotonic()
            word, report = ranks.verdict(lab.numbers.get(answer.task, 2), f"{text}\n{answer.call}")
            seconds = time.monotonic() - start
            verdicts[word], slowest = verdicts[word] + 1, max(slowest, seconds)
            before = ast.unparse(ast.parse(answer.source)).splitlines()
            diff = "\n".join(difflib.unified_diff(before, text.splitlines(), lineterm="", n=1))
            result = {"answer": answer.label, "changed": what, "verdict": word, "diff": diff}
            out.write(json.dumps(result | {"report": report[-2000:]}) + "\n")
            if word in ("accepted", "ODD"):
                print(
                    f"--- {word}: {answer.label}: {what} ({seconds:.1f} s)\n{diff}\n{report[-600:]}"
                )
    ranks.cluster.stop()
    print(f"{args.lab}: {dict(verdicts)}; slowest {slowest:.0f} s")


if __name__ == "__main__":
    main()
