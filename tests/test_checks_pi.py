"""Lab 1's checks, on real ranks: right answers pass, wrong ones are told what is wrong, and none hangs."""

import inspect
import re
import textwrap
import time

import pytest
from pi_answers import RIGHT, STILL_TO_DO, WRONG

from pi2zero import RankError

IMPORTS = "import numpy as np\nfrom mpi4py import MPI\nfrom pi2zero.checks import pi_lab as check"


def cases(answers):
    """One test case for each answer, named after it."""
    flat = [(number, answer) for number, given in answers.items() for answer in given]
    names = [f"task{number}-{(answer[0] if isinstance(answer, tuple) else answer).__name__}" for number, answer in flat]
    return {"argvalues": flat, "ids": names}


@pytest.fixture
def check(cluster, capsys):
    """Run a task's check with an answer on all ranks; what rank 0 prints."""
    cluster.run(IMPORTS)

    def run(number, function):
        source = re.sub(r"^@.*\n", "", textwrap.dedent(inspect.getsource(function)))
        capsys.readouterr()
        cluster.run(f"{source}\ncheck.task{number}({function.__name__})")
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(("number", "answer"), **cases(RIGHT))
def test_accepts_a_right_answer(check, number, answer):
    printed = check(number, answer)
    assert printed.startswith(f"[stdout:0] Task {number} is right.\n[stdout:0] ")
    assert printed.count("\n") == 2, "two lines, from rank 0 only"


@pytest.mark.parametrize(("number", "answer"), **cases(WRONG))
def test_rejects_a_wrong_answer_and_says_why(cluster, check, number, answer):
    function, words = answer
    cluster.run("from pi2zero.checks import base; base.SECONDS = 5")  # not 20, for the one that never ends
    start = time.monotonic()
    with pytest.raises(RankError) as caught:
        check(number, function)
    assert time.monotonic() - start < 10, "the check has to end by itself, before %%px ends the cell"
    report = caught.value.report
    assert f"Task {number} is not right yet." in report
    assert words in report
    assert "Traceback" not in report
    assert "The ranks kept their variables" in report
    cluster.run("assert MPI.COMM_WORLD.allreduce(1) == 4")  # and the ranks still talk to each other


@pytest.mark.parametrize(("number", "answer"), **cases(STILL_TO_DO))
def test_says_what_is_still_to_do(check, number, answer):
    with pytest.raises(RankError, match=f"TaskNotDone: Task {number} is still to do. {answer.__name__} is not written yet"):
        check(number, answer)


@pytest.mark.parametrize("number", range(1, 7))
def test_every_task_has_two_wrong_answers_at_least(number):
    assert len(WRONG[number]) >= 2


def test_wants_the_function_not_its_result(cluster, check):
    with pytest.raises(RankError, match="give the check your function itself"):
        cluster.run("check.task3(26)")
