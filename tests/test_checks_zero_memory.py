"""Lab 4's checks, on real ranks: right answers pass, wrong ones are told what is wrong, and none hangs."""

import inspect
import re
import textwrap
import time

import pytest
from zero_memory_answers import RIGHT, WRONG, paper, together

from pi2zero import RankError

IMPORTS = """
import os, torch, torch.distributed as dist
from mpi4py import MPI
from pi2zero import ranks
from pi2zero.checks import zero_memory_lab as check
torch.set_num_threads(1)
me = ranks.join(deepspeed=True)
HELD = ("parameters", "gradients", "master", "moments")
"""
SHARED = (paper.formula, paper.rows_of, paper.fitting, together.with_zero, together.stage1)  # that several answers call


def source_of(function):
    return re.sub(r"^@.*\n", "", textwrap.dedent(inspect.getsource(function)))


def cases(answers):
    """One test case for each answer, named after it."""
    flat = [(number, answer) for number, given in answers.items() for answer in given]
    names = [f"task{number}-{(answer[0] if isinstance(answer, tuple) else answer).__name__}" for number, answer in flat]
    return {"argvalues": flat, "ids": names}


@pytest.fixture(scope="module")
def joined(cluster):
    """The ranks, with DeepSpeed started, and with the lines that answers share."""
    cluster.run("\n".join([IMPORTS, *map(source_of, SHARED)]))
    return cluster


@pytest.fixture
def check(joined, capsys):
    """Run a task's check with an answer on all ranks; what rank 0 prints."""

    def run(number, function):
        capsys.readouterr()
        joined.run(f"{source_of(function)}\ncheck.task{number}({function.__name__})")
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(("number", "answer"), **cases(RIGHT))
def test_accepts_a_right_answer(check, number, answer):
    printed = check(number, answer)
    assert printed.startswith(f"[stdout:0] Task {number} is right.\n[stdout:0] ")
    assert printed.count("\n") == 2, "two lines, from rank 0 only"


@pytest.mark.parametrize(("number", "answer"), **cases(WRONG))
def test_rejects_a_wrong_answer_and_says_why(joined, check, number, answer):
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
    joined.run("assert MPI.COMM_WORLD.allreduce(1) == 4")  # and the ranks still talk to each other


@pytest.mark.parametrize("number", range(1, 6))
def test_every_task_has_two_wrong_answers_at_least(number):
    assert len(WRONG[number]) >= 2


def test_the_notebooks_colleague_is_the_one_checked():
    """What the notebook shows is what the check hands to `mend`."""
    import nbformat

    from pi2zero.checks import zero_memory_ranks

    book = nbformat.read("solutions/04_zero_memory.ipynb", as_version=4)
    cell = next(cell.source for cell in book.cells if cell.id == "colleague")
    names = {}
    exec(cell.removeprefix("%%px\n"), names)
    assert names["colleagues"] == zero_memory_ranks.colleagues()
