"""Lab 2's checks, on real ranks: right answers pass, wrong ones are told what is wrong, and none hangs."""

import pytest
from allreduce_answers import RIGHT, WRONG, ring
from lab_checks import assert_enough, assert_right, assert_wrong, cases, runner, source_of

from pi2zero import RankError

IMPORTS = """
import numpy as np
from mpi4py import MPI
from pi2zero_course.checks import allreduce as check
"""


@pytest.fixture
def check(cluster, capsys):
    """Run a task's check with an answer on all ranks; what rank 0 prints."""
    cluster.run(IMPORTS + source_of(ring.reduce_scatter) + source_of(ring.all_gather))
    return runner(cluster, capsys)


@pytest.mark.parametrize(**cases({1: [ring.reduce_scatter], 2: [ring.all_gather]}))
def test_accepts_the_halves_that_the_answers_use(check, number, answer):
    assert f"Task {number} is right." in check(number, answer)


@pytest.mark.parametrize(**cases(RIGHT))
def test_accepts_a_right_answer(check, number, answer):
    assert_right(check, number, answer)


@pytest.mark.parametrize(**cases(WRONG))
def test_rejects_a_wrong_answer_and_says_why(cluster, check, number, answer):
    assert_wrong(cluster, check, number, answer)


def test_enough_answers_are_kept():
    assert_enough(RIGHT, WRONG)


def test_left_over_messages_are_taken_off_the_network(cluster, check):
    """After an answer whose sends nobody received, the next one's messages are not mixed up with them."""
    cluster.run("def leaves_some(comm, x):\n    comm.Isend(x, (comm.rank + 1) % comm.size)")
    with pytest.raises(RankError, match="4 messages were sent and never received"):
        cluster.run("check.task1(leaves_some)")
    assert "Task 1 is right." in check(1, ring.reduce_scatter)
