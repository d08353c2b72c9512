"""Lab 3's checks, on real ranks: right answers pass, wrong ones are told what is wrong, and none hangs."""

import pytest
from lab_checks import assert_enough, assert_right, assert_wrong, cases, runner, source_of

pytest.importorskip(
    "horovod.torch", reason="Horovod is not built here: run `make horovod`", exc_type=ImportError
)
from data_parallel_answers import RIGHT, WRONG, script, training

IMPORTS = """
import numpy as np, torch, torch.distributed as dist, torch.nn.functional as F
import horovod.torch as hvd
from mpi4py import MPI
from torch import nn
from pi2zero import ranks
from pi2zero_course.checks import data_parallel as check
torch.set_num_threads(1)
me = ranks.join()
rank, size = me.rank, me.world_size
hvd.init()
"""
SHARED = (
    training.hand,
    training.serial_loss,
    training.horovod,
    training.ddp,
    script.quiet,
    script.repaired,
)  # that several answers call


@pytest.fixture(scope="module", autouse=True)
def _horovod_ends(cluster):
    """Horovod's thread polls for as long as it lives: the tests of other files would share their cores with four of them."""
    yield
    cluster.run("import horovod.torch as hvd\nhvd.shutdown()")


@pytest.fixture
def check(cluster, capsys):
    """Run a task's check with an answer on all ranks; what rank 0 prints."""
    cluster.run("\n".join([IMPORTS, *map(source_of, SHARED)]), timeout=240)
    return runner(cluster, capsys)


@pytest.mark.parametrize(**cases(RIGHT))
def test_accepts_a_right_answer(check, number, answer):
    assert_right(check, number, answer)


def test_says_that_averaged_parameters_are_right_for_sgd_only(check):
    assert "wrong with Adam" in check(1, training.parameters_averaged_after_each_step)
    assert "Adam" not in check(1, training.one_message_for_all_gradients)


@pytest.mark.parametrize(**cases(WRONG))
def test_rejects_a_wrong_answer_and_says_why(cluster, check, number, answer):
    assert_wrong(cluster, check, number, answer)


def test_enough_answers_are_kept():
    assert_enough(RIGHT, WRONG)


def test_the_notebooks_colleague_is_the_one_tested():
    """The script of the notebook is among the answers that are rejected."""
    import nbformat

    book = nbformat.read("solutions/03_data_parallel.ipynb", as_version=4)
    cell = next(cell.source for cell in book.cells if cell.id == "colleague")
    assert source_of(script.colleagues).strip() in cell
    assert any(function is script.colleagues for function, _ in WRONG[7])


def test_without_horovod_task_2_says_so_and_goes_on(cluster, check, capsys):
    cluster.run(
        "import sys; kept = sys.modules['horovod.torch']; sys.modules['horovod.torch'] = None"
    )
    try:
        cluster.run("check.task2(None)")
    finally:
        cluster.run("sys.modules['horovod.torch'] = kept")
    printed = capsys.readouterr().out
    assert "Task 2 needs Horovod, which is not here" in printed and "Go on with task 3." in printed
