"""Lab 7's checks, on real ranks: right answers pass, wrong ones are told what is wrong, and none hangs."""

import pytest
from lab_checks import assert_enough, assert_right, assert_wrong, cases, runner, source_of
from tensor_and_space_answers import RIGHT, WRONG, layers, strips

IMPORTS = """
import numpy as np, torch, torch.nn.functional as F
from mpi4py import MPI
from pi2zero_course.checks import tensor_and_space as check
torch.set_num_threads(1)
"""
SHARED = (layers.column, layers.row, layers.of_these)  # that several answers call
SHARED += (
    strips.neighbours,
    strips.convolve,
    strips.convolve_back,
    strips.halo,
    strips.halo_backward,
)


@pytest.fixture(scope="module")
def joined(cluster):
    """The ranks, with the lines that answers share."""
    cluster.run("\n".join([IMPORTS, *map(source_of, SHARED)]), timeout=240)
    return cluster


@pytest.fixture
def check(joined, capsys):
    """Run a task's check with an answer on all ranks; what rank 0 prints."""
    return runner(joined, capsys)


@pytest.mark.parametrize(**cases(RIGHT))
def test_accepts_a_right_answer(check, number, answer):
    assert_right(check, number, answer)


@pytest.mark.parametrize(**cases(WRONG))
def test_rejects_a_wrong_answer_and_says_why(joined, check, number, answer):
    assert_wrong(joined, check, number, answer)


def test_enough_answers_are_kept():
    assert_enough(RIGHT, WRONG)
