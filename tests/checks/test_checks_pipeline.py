"""Lab 6's checks, on real ranks: right answers pass, wrong ones are told what is wrong, and none hangs."""

import pytest
from lab_checks import assert_enough, assert_right, assert_wrong, cases, runner, source_of
from pipeline_answers import RIGHT, WRONG, bugs, steps

from pi2zero import RankError

IMPORTS = """
from collections import deque
from functools import lru_cache
from itertools import combinations, pairwise
import numpy as np, torch, torch.nn.functional as F
from mpi4py import MPI
from pi2zero_course.checks import pipeline as check
torch.set_num_threads(1)
"""
SHARED = (
    steps.forward,
    steps.backward,
    steps.gpipe,
    steps.one_f_one_b,
    steps.no_pipeline,
)  # that several answers call


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


def test_a_task_that_calls_an_unwritten_function_is_not_called_unwritten(joined, check):
    """GPipe is written, and stands on task 2's backward, which is not."""
    unwritten = 'def backward(comm, x, y, labels, n, sent):\n    raise NotImplementedError("task 2: write backward(...)")'
    joined.run(unwritten)
    try:
        with pytest.raises(RankError) as caught:
            check(3, steps.gpipe)
    finally:
        joined.run(source_of(steps.backward))
    said = "TaskNotDone:\nTask 3 needs the function of task 2, which is still to do. backward is not written yet"
    assert said in caught.value.report and "gpipe is not" not in caught.value.report


def test_enough_answers_are_kept():
    assert_enough(RIGHT, WRONG)


@pytest.mark.parametrize(
    "number, answer",
    [(5, bugs.colleagues_loss), (6, bugs.colleagues_receive), (7, bugs.colleagues_row)],
)
def test_the_notebooks_colleague_is_the_one_tested(number, answer):
    """The seeded bugs of the notebook are among the answers that are rejected."""
    import nbformat

    book = nbformat.read("solutions/06_pipeline.ipynb", as_version=4)
    cell = next(cell.source for cell in book.cells if cell.id == "colleague")
    assert source_of(answer).strip() in cell
    assert any(function is answer for function, _ in WRONG[number])
