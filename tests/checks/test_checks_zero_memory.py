"""Lab 4's checks, on real ranks: right answers pass, wrong ones are told what is wrong, and none hangs."""

import pytest
from lab_checks import assert_enough, assert_right, assert_wrong, cases, runner, source_of
from zero_memory_answers import RIGHT, WRONG, paper, together

IMPORTS = """
import os, torch, torch.distributed as dist
from mpi4py import MPI
from pi2zero import ranks
from pi2zero_course.checks import zero_memory as check
torch.set_num_threads(1)
me = ranks.join(deepspeed=True)
HELD = ("parameters", "gradients", "master", "moments")
"""
SHARED = (
    paper.formula,
    paper.rows_of,
    paper.fitting,
    together.with_zero,
    together.stage1,
)  # that several answers call


@pytest.fixture(scope="module")
def joined(cluster):
    """The ranks, with DeepSpeed started, and with the lines that answers share."""
    cluster.run("\n".join([IMPORTS, *map(source_of, SHARED)]), timeout=240)
    return cluster


@pytest.fixture
def check(joined, capsys):
    """Run a task's check with an answer on all ranks; what rank 0 prints."""
    return runner(joined, capsys)


@pytest.mark.parametrize(**cases(RIGHT))
def test_accepts_a_right_answer(check, number, answer):
    assert_right(check, number, answer)


def test_says_that_an_all_reduce_sends_more_than_stage_1_needs(check):
    assert "twice the bytes" in check(5, together.with_all_reduce_and_a_list)


@pytest.mark.parametrize(**cases(WRONG))
def test_rejects_a_wrong_answer_and_says_why(joined, check, number, answer):
    assert_wrong(joined, check, number, answer)


def test_enough_answers_are_kept():
    assert_enough(RIGHT, WRONG)


def test_the_notebooks_colleague_is_the_one_checked():
    """What the notebook shows is what the check hands to `mend`."""
    import nbformat

    from pi2zero_course.checks.zero_memory import ranks as zero_memory_ranks

    book = nbformat.read("solutions/04_zero_memory.ipynb", as_version=4)
    cell = next(cell.source for cell in book.cells if cell.id == "colleague")
    names = {}
    exec(cell.removeprefix("%%px\n"), names)
    assert names["colleagues"] == zero_memory_ranks.colleagues()
