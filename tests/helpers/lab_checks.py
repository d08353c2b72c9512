"""What the tests of all labs' checks share: answers are functions, sent to real ranks as text."""

import inspect
import re
import textwrap
import time

import pytest

from pi2zero import RankError


def source_of(function):
    """A function's text, without decorators, at the left margin."""
    return re.sub(r"^@.*\n", "", textwrap.dedent(inspect.getsource(function)))


def register(tasks):
    """Two dicts {task: [answer, ...]} for right and wrong answers, tasks 1 to `tasks`, and the decorators that fill them."""
    given, rejected = ({number: [] for number in range(1, tasks + 1)} for _ in range(2))

    def right(number):
        return lambda function: given[number].append(function) or function

    def wrong(number, words):
        return lambda function: rejected[number].append((function, words)) or function

    return given, rejected, right, wrong


def cases(answers):
    """Arguments of parametrize: one test case (number, answer) for each answer, named after it. answers: {task: [...]}."""
    flat = [(number, answer) for number, given in answers.items() for answer in given]
    names = [
        f"task{number}-{(answer[0] if isinstance(answer, tuple) else answer).__name__}"
        for number, answer in flat
    ]
    return {"argnames": ("number", "answer"), "argvalues": flat, "ids": names}


def assert_enough(right, wrong):
    """Each task keeps four right answers beside the solution, and three wrong ones."""
    few = {number for number in right if len(right[number]) < 4 or len(wrong[number]) < 3}
    assert not few, f"tasks with fewer than four right or three wrong answers: {few}"


def runner(cluster, capsys):
    """A function that runs a task's check with an answer on all ranks, and returns what they print."""

    def run(number, function, timeout=30):
        capsys.readouterr()
        cluster.run(
            f"{source_of(function)}\ncheck.task{number}({function.__name__})", timeout=timeout
        )
        return capsys.readouterr().out

    return run


def assert_right(check, number, answer):
    """The check accepts the answer, in two lines from rank 0 only; the second says what was verified."""
    printed = check(
        number, answer, timeout=200
    )  # a cell that takes longer says where its ranks are: a third line
    assert printed.startswith(f"[stdout:0] Task {number} is right.\n[stdout:0] ")
    assert printed.count("\n") == 2
    assert len(printed.split("\n")[1]) > len("[stdout:0] ") + 20


def assert_wrong(cluster, check, number, answer, seconds=120):
    """The check rejects the answer with its words, before long, without a traceback, and the ranks can go on."""
    function, words = answer
    start = time.monotonic()
    with pytest.raises(RankError) as caught:
        check(number, function)
    assert time.monotonic() - start < seconds, (
        "the check has to end by itself; the seconds leave room for a busy machine"
    )
    report = caught.value.report
    assert f"Task {number} is not right yet." in report
    assert words in report
    assert "Traceback" not in report
    assert "The ranks kept their variables" in report
    cluster.run("assert MPI.COMM_WORLD.allreduce(1) == 4")  # and the ranks still talk to each other
