"""Answers that are nearly right, by the thousand: mutants of each lab's right answers, given to its checks on real ranks.

`python tests/audits/mutants.py pi --count 500` (a lab's name as in tests/test_checks_*.py). A check has to accept a right result or to
name what is wrong; it never crashes and never hangs. Writes build/mutants/<lab>.jsonl; prints what was accepted as a diff, to
be read: each is right, or becomes a wrong answer in tests/*_answers. docs/checks_by_mutants.md says what was read.
"""

import argparse
import ast
import difflib
import importlib
import inspect
import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))
from lab_checks import source_of

import pi2zero
from pi2zero import RankError

FOUND = Path(__file__).resolve().parents[2] / "build" / "mutants"
OTHER = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Add,
    ast.MatMult: ast.Mult, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
CALLS = {
    "Reduce": "Allreduce", "Allreduce": "Reduce", "reduce": "allreduce", "allreduce": "reduce", "gather": "allgather",
    "Gather": "Allgather", "allgather": "gather", "Send": "Ssend", "Isend": "Irecv", "Recv": "Irecv", "send": "ssend",
    "min": "max", "max": "min", "sum": "max", "ceil": "floor", "floor": "ceil", "append": "insert", "zeros": "empty",
    "SUM": "MAX", "MAX": "SUM", "MIN": "MAX", "copy": "view", "all_reduce": "broadcast", "mean": "sum", "zero_grad": "step",
}  # fmt: skip


def changes(node, names):
    """(what, a function that changes the node in place), for each way in which this node can be wrong."""
    found = []

    def add(what, **fields):
        found.append(
            (what, lambda one: [setattr(one, name, value) for name, value in fields.items()])
        )

    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in OTHER:
        add("operator", op=OTHER[type(node.op)]())
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER:
        add("comparison", ops=[OTHER[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        add("not", value=not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        for value in (node.value + 1, node.value - 1, 0, None):
            add(f"{node.value} becomes {value}", value=value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        add("another string", value=node.value + "x")
    elif isinstance(node, ast.Call):
        for at in range(len(node.args)):
            add("an argument less", args=node.args[:at] + node.args[at + 1 :])
        for at in range(len(node.keywords)):
            add("a keyword less", keywords=node.keywords[:at] + node.keywords[at + 1 :])
        if len(node.args) > 1:
            add("arguments swapped", args=[node.args[1], node.args[0], *node.args[2:]])
    elif isinstance(node, ast.Attribute) and node.attr in CALLS:
        add(f"{node.attr} becomes {CALLS[node.attr]}", attr=CALLS[node.attr])
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
        for name in sorted(names - {node.id}):
            add(f"{node.id} becomes {name}", id=name)
    elif isinstance(node, ast.Slice):
        add("slice without end", upper=None)
        add("slice without start", lower=None)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        add("condition negated", test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Return) and node.value is not None:
        add("returns nothing", value=None)
    for field in ("body", "orelse") if not isinstance(node, ast.Module) else ():
        lines = getattr(node, field, None)
        for at in range(len(lines) if isinstance(lines, list) else 0):
            add("a line less", **{field: [*lines[:at], ast.Pass(), *lines[at + 1 :]]})
            if at + 1 < len(lines):
                add(
                    "lines swapped",
                    **{field: [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]},
                )
    return found


def names_in(tree):
    names = {
        arg.arg
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for arg in node.args.args
    }
    return names | {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def places(source):
    """(what can be changed, at which node, its how manieth change) in a text."""
    tree = ast.parse(source)
    names = names_in(tree)
    nodes = enumerate(ast.walk(tree))
    return [
        (what, at, number)
        for at, node in nodes
        for number, (what, _) in enumerate(changes(node, names))
    ]


def mutant(source, at, number):
    """The text with the change of one of its `places`."""
    tree = ast.parse(source)
    names = names_in(tree)
    target = list(ast.walk(tree))[at]
    changes(target, names)[number][1](target)
    return ast.unparse(ast.fix_missing_locations(tree))


def mutants(source):
    """(what was changed, the text) for each change of one place in a text."""
    return [(what, mutant(source, at, number)) for what, at, number in places(source)]


def sample(right, count, seed):
    """(task, the right answer, what was changed, the mutant's text): `count` of all, as many of each task where there are."""
    chance, by_task = random.Random(seed), {}
    for task, answers in right.items():
        for answer in answers:
            kept = ast.unparse(ast.parse(source_of(answer)))
            others = [(what, text) for what, text in mutants(source_of(answer)) if text != kept]
            by_task.setdefault(task, []).extend((task, answer, what, text) for what, text in others)
    for several in by_task.values():
        chance.shuffle(several)
    turns = (
        several[at]
        for at in range(max(map(len, by_task.values())))
        for several in by_task.values()
        if at < len(several)
    )
    seen, found = set(), []
    for one in turns:
        if one[-1] not in seen and len(found) < count:
            seen.add(one[-1])
            found.append(one)
    return found


def argument(lab, task, answer):
    """What the check of this task is given, as text."""
    name = answer.__name__
    if (lab, task) != (
        "summarization",
        2,
    ):  # two functions: an answer is one of them, with a right other one
        return name
    about_rows = "order" in inspect.signature(answer).parameters
    return f"{name}, summed_with_gather" if about_rows else f"every_nth, {name}"


class Ranks:
    """Four ranks that know a lab's check and the answers' helpers; new ones where a mutant has broken the old ones."""

    def __init__(self, module):
        shared = [*getattr(module, "SHARED", ()), *getattr(module, "BOTH", ())]
        if module.__name__ == "test_checks_allreduce":
            shared = [module.ring.reduce_scatter, module.ring.all_gather]
        short = (
            "from pi2zero_course.checks.framework import clock; clock.SECONDS, clock.WALL = 2, 15"
        )
        self.setup = "\n".join([module.IMPORTS, *map(source_of, shared), short])
        self.starts, self.cluster, self.new = 0, None, True

    def ready(self):
        if self.cluster is None or not self.cluster.runs():
            self.starts += 1
            self.cluster, self.new = pi2zero.start(n=4), True
        if self.new:
            self.cluster.run(self.setup, timeout=240)
            self.new = False
        return self.cluster

    def verdict(self, task, code):
        """(accepted, named, to do, or ODD: something else; what was said)"""
        try:
            self.ready().run(code, timeout=60)
        except RankError as error:
            report = error.report
            word = (
                "named"
                if f"Task {task} is not right yet." in report
                else "to do"
                if "is still to do" in report
                else "ODD"
            )
            if word != "ODD" and "Traceback" in report:
                word = "ODD"
        except Exception as error:  # whatever a check lets through is found here
            word, report = "ODD", f"{type(error).__name__}: {error}"
        else:
            word, report = "accepted", ""
        self.new = "being restarted" in report
        if self.cluster.runs() and not self.new:
            try:
                self.cluster.run(
                    "from mpi4py import MPI\nassert MPI.COMM_WORLD.allreduce(1) == 4", timeout=20
                )
            except Exception as error:
                word, report = "ODD", f"{report}\nafterwards the ranks do not talk: {error}"
                self.cluster.stop()
        return word, report


def diff(answer, text):
    before = ast.unparse(ast.parse(source_of(answer))).splitlines()
    return "\n".join(
        line
        for line in difflib.unified_diff(before, text.splitlines(), lineterm="", n=1)
        if line[:3] not in ("---", "+++")
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "lab",
        help="pi, allreduce, data_parallel, zero_memory, summarization, pipeline or tensor_and_space",
    )
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    os.environ["PI2ZERO_SITE"] = os.devnull
    module = importlib.import_module(f"test_checks_{args.lab}")
    chosen, ranks, words, slowest = (
        sample(module.RIGHT, args.count, args.seed),
        Ranks(module),
        Counter(),
        0.0,
    )
    FOUND.mkdir(parents=True, exist_ok=True)
    with (FOUND / f"{args.lab}.jsonl").open("w") as out:
        for task, answer, what, text in chosen:
            ranks.ready()
            start = time.monotonic()
            word, report = ranks.verdict(
                task, f"{text}\ncheck.task{task}({argument(args.lab, task, answer)})"
            )
            seconds = time.monotonic() - start
            words[word], slowest = words[word] + 1, max(slowest, seconds)
            one = {
                "task": task,
                "answer": answer.__name__,
                "changed": what,
                "verdict": word,
                "seconds": round(seconds, 1),
            }
            print(
                json.dumps({**one, "diff": diff(answer, text), "report": report[-2000:]}),
                file=out,
                flush=True,
            )
            if word in ("accepted", "ODD"):
                print(
                    f"--- {word}: task {task}, {answer.__name__}: {what} ({seconds:.1f} s)\n{diff(answer, text)}",
                    flush=True,
                )
                print(report[-600:], flush=True)
    ranks.cluster.stop()
    print(
        f"{args.lab}: {sum(words.values())} mutants: {dict(words)}; slowest {slowest:.0f} s; {ranks.starts} starts of ranks"
    )


if __name__ == "__main__":
    main()
