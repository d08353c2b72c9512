"""Lab 1's checks, on real ranks: right answers pass, wrong ones are told what is wrong, and none hangs."""

import numpy as np
import pytest
from lab_checks import assert_enough, assert_right, assert_wrong, cases, runner
from pi_answers import RIGHT, STILL_TO_DO, WRONG

from pi2zero import RankError

IMPORTS = """
import numpy as np
from mpi4py import MPI
from pi2zero_course.checks import pi as check
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size  # as in the notebook
"""


@pytest.fixture
def check(cluster, capsys):
    """Run a task's check with an answer on all ranks; what rank 0 prints."""
    cluster.run(IMPORTS)
    return runner(cluster, capsys)


@pytest.mark.parametrize(**cases(RIGHT))
def test_accepts_a_right_answer(check, number, answer):
    assert_right(check, number, answer)


@pytest.mark.parametrize(**cases(WRONG))
def test_rejects_a_wrong_answer_and_says_why(cluster, check, number, answer):
    cluster.run(
        "from pi2zero_course.checks.framework import clock; clock.SECONDS = 2"
    )  # not 20, for the one that never ends
    assert_wrong(cluster, check, number, answer)


@pytest.mark.parametrize(**cases(STILL_TO_DO))
def test_says_what_is_still_to_do(check, number, answer):
    with pytest.raises(
        RankError,
        match=f"TaskNotDone: Task {number} is still to do. {answer.__name__} is not written yet",
    ):
        check(number, answer)


def test_enough_answers_are_kept():
    assert_enough(RIGHT, WRONG)


def test_wants_the_function_not_its_result(cluster, check):
    with pytest.raises(RankError, match="give the check your function itself"):
        cluster.run("check.task3(26)")


def one_leaves_the_call_by_an_error(comm, inside, total):
    comm.Allreduce(
        np.array([inside if comm.rank else None]), np.empty(1, int)
    )  # rank 0's array of objects: MPI takes none


def test_ranks_left_inside_mpi_are_ended(cluster, check):
    """All had agreed on the call, then one of them raised in it: the others spin in MPI, where no check can reach them."""
    with pytest.raises(RankError, match="waited forever"):
        check(4, one_leaves_the_call_by_an_error, timeout=3)
