"""Lab 2's checks, on real ranks: right answers pass, wrong ones are told what is wrong, and none hangs."""

import inspect
import re
import textwrap
import time

import pytest
from allreduce_answers import RIGHT, WRONG, ring

from pi2zero import RankError

IMPORTS = """
import numpy as np
from mpi4py import MPI
from pi2zero.checks import allreduce_lab as check, messages
messages.WAIT = 1.5  # s, not 5: an answer that hangs is to be ended soon
"""


def source_of(function):
    return re.sub(r"^@.*\n", "", textwrap.dedent(inspect.getsource(function)))


def cases(answers):
    """One test case for each answer, named after it."""
    flat = [(number, answer) for number, given in answers.items() for answer in given]
    names = [f"task{number}-{(answer[0] if isinstance(answer, tuple) else answer).__name__}" for number, answer in flat]
    return {"argvalues": flat, "ids": names}


@pytest.fixture
def check(cluster, capsys):
    """Run a task's check with an answer on all ranks; what rank 0 prints."""
    cluster.run(IMPORTS + source_of(ring.reduce_scatter) + source_of(ring.all_gather))

    def run(number, function):
        capsys.readouterr()
        cluster.run(f"{source_of(function)}\ncheck.task{number}({function.__name__})")
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(("number", "answer"), **cases({1: [ring.reduce_scatter], 2: [ring.all_gather]}))
def test_accepts_the_halves_that_the_answers_use(check, number, answer):
    assert f"Task {number} is right." in check(number, answer)


@pytest.mark.parametrize(("number", "answer"), **cases(RIGHT))
def test_accepts_a_right_answer(check, number, answer):
    printed = check(number, answer)
    assert printed.startswith(f"[stdout:0] Task {number} is right.\n[stdout:0] ")
    assert printed.count("\n") == 2, "two lines, from rank 0 only"


@pytest.mark.parametrize(("number", "answer"), **cases(WRONG))
def test_rejects_a_wrong_answer_and_says_why(cluster, check, number, answer):
    function, words = answer
    start = time.monotonic()
    with pytest.raises(RankError) as caught:
        check(number, function)
    assert time.monotonic() - start < 20, "the check has to end by itself, before %%px ends the cell"
    report = caught.value.report
    assert f"Task {number} is not right yet." in report
    assert words in report
    assert "Traceback" not in report
    assert "The ranks kept their variables" in report
    cluster.run("assert MPI.COMM_WORLD.allreduce(1) == 4")  # and the ranks still talk to each other


@pytest.mark.parametrize("number", range(1, 7))
def test_every_task_has_two_wrong_answers_at_least(number):
    assert len(WRONG[number]) >= 2


def test_left_over_messages_are_taken_off_the_network(cluster, check):
    """After an answer whose sends nobody received, the next one's messages are not mixed up with them."""
    cluster.run("def leaves_some(comm, x):\n    comm.Isend(x, (comm.rank + 1) % comm.size)")
    with pytest.raises(RankError, match="4 messages were sent and never received"):
        cluster.run("check.task1(leaves_some)")
    assert "Task 1 is right." in check(1, ring.reduce_scatter)
