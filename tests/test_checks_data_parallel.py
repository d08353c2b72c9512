"""Lab 3's checks, on real ranks: right answers pass, wrong ones are told what is wrong, and none hangs."""

import inspect
import re
import textwrap
import time

import pytest

from pi2zero import RankError

pytest.importorskip("horovod.torch", reason="Horovod is not built here: run `make horovod`", exc_type=ImportError)
from data_parallel_answers import RIGHT, WRONG, bugs, training

IMPORTS = """
import numpy as np, torch, torch.distributed as dist, torch.nn.functional as F
import horovod.torch as hvd
from mpi4py import MPI
from torch import nn
from pi2zero import ranks
from pi2zero.checks import data_parallel_lab as check
torch.set_num_threads(1)
me = ranks.join()
hvd.init()
"""
SHARED = (training.hand, training.serial_loss, training.horovod, training.ddp)  # that several answers call


def source_of(function):
    return re.sub(r"^@.*\n", "", textwrap.dedent(inspect.getsource(function)))


def cases(answers):
    """One test case for each answer, named after it."""
    flat = [(number, answer) for number, given in answers.items() for answer in given]
    names = [f"task{number}-{(answer[0] if isinstance(answer, tuple) else answer).__name__}" for number, answer in flat]
    return {"argvalues": flat, "ids": names}


@pytest.fixture(scope="module", autouse=True)
def _horovod_ends(cluster):
    """Horovod's thread polls for as long as it lives: the tests of other files would share their cores with four of them."""
    yield
    cluster.run("import horovod.torch as hvd\nhvd.shutdown()")


@pytest.fixture
def check(cluster, capsys):
    """Run a task's check with an answer on all ranks; what rank 0 prints."""
    cluster.run("\n".join([IMPORTS, *map(source_of, SHARED)]))

    def run(number, function):
        capsys.readouterr()
        cluster.run(f"{source_of(function)}\ncheck.task{number}({function.__name__})")
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


@pytest.mark.parametrize("number", range(1, 8))
def test_every_task_has_two_wrong_answers_at_least(number):
    assert len(WRONG[number]) >= 2


@pytest.mark.parametrize("number, answer", [(4, bugs.colleagues_start), (5, bugs.colleagues_average), (6, bugs.colleagues_rows)])
def test_the_notebooks_colleague_is_the_one_tested(number, answer):
    """The seeded bugs of the notebook are among the answers that are rejected."""
    import nbformat

    book = nbformat.read("solutions/03_data_parallel.ipynb", as_version=4)
    cell = next(cell.source for cell in book.cells if cell.id == "colleague")
    assert source_of(answer).strip() in cell
    assert any(function is answer for function, _ in WRONG[number])


def test_without_horovod_task_2_says_so_and_goes_on(cluster, check, capsys):
    cluster.run("import sys; kept = sys.modules['horovod.torch']; sys.modules['horovod.torch'] = None")
    try:
        cluster.run("check.task2(None)")
    finally:
        cluster.run("sys.modules['horovod.torch'] = kept")
    printed = capsys.readouterr().out
    assert "Task 2 needs Horovod, which is not here" in printed and "Go on with task 3." in printed
